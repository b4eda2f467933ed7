//! Servers that support both lifecycles, without `era` in the config: each client is served in its own.

use serde_json::json;
use testkit::{ClientSession, Config, Launch, ModernStdio, Puppet, Serve, ServerEntry, Spec, program, wait_until};

use super::VERSION;
use crate::relay::{config, introduce, serving};

fn dual() -> Spec {
    Spec::dual().tool("t").prompt("p").resource("r://1")
}

/// Whether the server got the request as a modern one.
fn is_modern(request: &testkit::puppet::Received) -> bool {
    request.text_param(&["_meta", VERSION]).as_deref() == Some("2026-07-28")
}

#[track_caller]
fn wait_for_tool(client: &mut dyn ClientSession, tool: &str) {
    wait_until("the tool is listed", || client.ids("tools/list").iter().any(|listed| listed == tool).then_some(()));
}

#[test]
fn over_http_each_client_is_served_in_its_own_lifecycle() {
    let puppet = Puppet::over_http(dual().hints(7000, "public"));
    let serve = serving(&[("s", &puppet)]);
    for path in ["/mcp", "/mcp/s"] {
        let name = |item: &str| if path == "/mcp" { format!("s.{item}") } else { item.to_owned() };
        let (mut legacy, mut modern) = (serve.session(path), serve.modern(path));
        for client in [&mut legacy as &mut dyn ClientSession, &mut modern] {
            assert_eq!(client.ids("tools/list"), [name("t")]);
            assert_eq!(client.ids("prompts/list"), [name("p")]);
            assert_eq!(client.ids("resources/list"), ["r://1"]);
        }
        let list = modern.ask("tools/list", json!({}));
        assert_eq!((&list["result"]["ttlMs"], &list["result"]["cacheScope"]), (&json!(7000), &json!("public")));
        for (method, params) in [
            ("tools/call", json!({"name": name("t"), "arguments": {}})),
            ("prompts/get", json!({"name": name("p")})),
            ("resources/read", json!({"uri": "r://1"})),
        ] {
            let id = modern.begin(method, params.clone());
            let request = puppet.expect(method);
            assert!(is_modern(&request), "{method}");
            request.answer(
                r#"{"resultType":"complete","content":[],"messages":[],"contents":[],"ttlMs":5,"cacheScope":"public"}"#,
            );
            assert_eq!(modern.answer_to(id)["result"]["ttlMs"], 5, "nothing is translated");
            let id = legacy.begin(method, params);
            let request = puppet.expect(method);
            assert!(!is_modern(&request), "{method}");
            request.answer(r#"{"content":[],"messages":[],"contents":[]}"#);
            assert!(legacy.answer_to(id)["result"].is_object());
        }
    }
}

#[test]
fn over_http_server_requests_reach_each_client_in_its_own_lifecycle() {
    let puppet = Puppet::over_http(dual());
    let serve = serving(&[("s", &puppet)]);
    let mut modern = serve.modern("/mcp/s").interactive();
    let id = modern.begin_call("t", json!({}));
    let wanted = r#"{"resultType":"input_required","requestState":"own state","inputRequests":{"user_name":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{}}}}}}"#;
    puppet.expect("tools/call").answer(wanted);
    let answer = modern.answer_to(id);
    assert_eq!(answer["result"]["requestState"], "own state", "it is the server's own");
    assert_eq!(answer["result"]["inputRequests"]["user_name"]["method"], "elicitation/create");

    let mut legacy = serve.interactive_session("/mcp/s");
    let id = legacy.begin_call("t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("7", "elicitation/create", r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}"#);
    let question = legacy.question("elicitation/create");
    legacy.reply(&question, json!({"action": "accept", "content": {}}));
    assert_eq!(puppet.response(7)["result"]["action"], "accept");
    call.answer(r#"{"content":[]}"#);
    assert_eq!(legacy.answer_to(id)["result"]["content"], json!([]));
}

#[test]
fn over_http_a_cancelled_or_abandoned_request_reaches_the_server_in_its_own_lifecycle() {
    let puppet = Puppet::over_http(dual());
    let serve = serving(&[("s", &puppet)]);
    let (mut legacy, mut modern) = (serve.session("/mcp"), serve.modern("/mcp"));
    let id = modern.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    modern.abandon(id);
    call.wait_abandoned();
    assert_eq!(puppet.count("notifications/cancelled"), 0);
    let id = legacy.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    legacy.cancel(id);
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
}

#[test]
fn over_http_a_change_reaches_legacy_and_modern_clients() {
    let puppet = Puppet::over_http(dual());
    let serve = serving(&[("s", &puppet)]);
    puppet.change(|spec| spec.tool("new"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    wait_for_tool(&mut serve.session("/mcp"), "s.new");
    wait_for_tool(&mut serve.modern("/mcp"), "s.new");
    // The modern handshake is used again as soon as it lists the new tool, too.
    let mut modern = serve.modern("/mcp");
    wait_until("the new tool is called in the modern way", || {
        let id = modern.begin_call("s.new", json!({}));
        let call = puppet.expect("tools/call");
        let was_modern = is_modern(&call);
        call.answer(r#"{"resultType":"complete","content":[]}"#);
        modern.answer_to(id);
        was_modern.then_some(())
    });
}

#[test]
fn over_http_handshakes_whose_lists_differ_are_not_mixed() {
    let puppet = Puppet::over_http(dual().leaves("tools/list"));
    let serve = Serve::start(&config(&[("s", &puppet)]));
    for (is_in_modern, tools) in [(false, r#"[{"name":"t","inputSchema":{"type":"object"}}]"#), (true, "[]")] {
        let request = puppet.expect("tools/list");
        assert_eq!(is_modern(&request), is_in_modern);
        request.answer(&format!(r#"{{"resultType":"complete","tools":{tools},"ttlMs":0,"cacheScope":"private"}}"#));
    }
    serve.wait_for_stderr("the server lists other items in 2026-07-28 than in older revisions");
    let mut modern = serve.modern("/mcp");
    wait_for_tool(&mut modern, "s.t");
    let id = modern.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    assert!(!is_modern(&call));
    call.answer(r#"{"content":[]}"#);
    assert_eq!(modern.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn over_stdio_a_server_of_many_clients_gets_the_modern_handshake() {
    let (both, only_legacy) = (Puppet::new(dual()), Puppet::new(Spec::legacy().tool("t")));
    let serve = serving(&[("both", &both), ("old", &only_legacy)]);
    assert_eq!((both.count("initialize"), both.count("server/discover")), (0, 1));
    assert_eq!((only_legacy.count("server/discover"), only_legacy.count("initialize")), (1, 1));
    for client in [&mut serve.session("/mcp") as &mut dyn ClientSession, &mut serve.modern("/mcp")] {
        assert_eq!(client.ids("tools/list"), ["both.t", "old.t"]);
    }
}

#[test]
fn over_stdio_a_server_of_one_client_gets_the_handshake_of_that_client() {
    let (legacy, modern) = (Puppet::new(dual()), Puppet::new(dual()));
    let mut client = Launch::service(&config(&[("s", &legacy)])).start();
    introduce(&mut client, &json!({}));
    assert_eq!(client.ids("tools/list"), ["s.t"]);
    assert_eq!((legacy.count("initialize"), legacy.count("server/discover")), (1, 0));

    let mut client = ModernStdio::new(Launch::service(&config(&[("s", &modern)])).start());
    assert_eq!(client.ids("tools/list"), ["s.t"]);
    assert_eq!((modern.count("initialize"), modern.count("server/discover")), (0, 1));
}

#[test]
fn a_legacy_server_that_ignores_discovery_is_initialized() {
    let puppet = Puppet::new(Spec::legacy().tool("t").leaves("server/discover"));
    let serve = serving(&[("s", &puppet)]);
    assert_eq!(serve.session("/mcp").ids("tools/list"), ["s.t"]);
}

#[test]
fn a_legacy_server_that_ends_over_discovery_is_started_again() {
    let script = r#"IFS= read -r line
        case $line in *server/discover*) exit 3;; esac
        { printf '%s\n' "$line"; cat; } | "$0" --only-generated --tools 1"#;
    let fake = program("fake-server");
    let entry = ServerEntry::new("sh").args(["-c", script]).arg(fake.to_str().expect("the path is text"));
    let serve = Serve::start(&Config::new().server("s", entry));
    wait_for_tool(&mut serve.session("/mcp"), "s.tool_0");
}
