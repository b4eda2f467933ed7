//! Lists: in the order of the config, in the server's own bytes, complete, once.

use serde_json::json;
use testkit::{ClientSession, Launch, Puppet, Spec, raw, wait_until};

use super::{at, code_of, config, connected, elements, introduce, serving};

/// Members that no revision defines, numbers that a parser would change, icons, `_meta`, and white space between
/// tokens.
const REST: &str = r#""title":"T","icons":[{"src":"data:,x","sizes":["any"],"theme":"dark"}],  "_meta" : {"k":1.0,"l":1E+40},"x-new":{"a":[ ]}"#;

fn named(name: &str) -> String {
    format!(r#"{{ {REST},"name":{}, "inputSchema":{{"type":"object","$defs":{{}}}} }}"#, raw::quote(name))
}

fn at_uri(key: &str, uri: &str) -> String {
    format!(r#"{{{REST}, "{key}":{},"name":"n"}}"#, raw::quote(uri))
}

#[test]
fn definitions_leave_as_they_came_but_for_the_prefix_of_tools_and_prompts() {
    let spec = Spec::legacy().raw_tool(&named("t")).raw_prompt(&named("p"));
    let first = Puppet::new(
        spec.raw_resource(&at_uri("uri", "a://1")).raw_template(&at_uri("uriTemplate", "a://{x}")).resource("a://2"),
    );
    let second = Puppet::new(Spec::legacy().tool("t").resource("b://1"));
    let serve = serving(&[("first", &first), ("second", &second)]);

    let mut all = serve.session("/mcp");
    let tools = all.ask_raw("tools/list", json!({}));
    assert_eq!(elements(&tools, &["result", "tools"])[0], named("first.t"));
    assert_eq!(all.ids("tools/list"), ["first.t", "second.t"]);
    let prompts = all.ask_raw("prompts/list", json!({}));
    assert_eq!(elements(&prompts, &["result", "prompts"]), [named("first.p")]);
    let resources = all.ask_raw("resources/list", json!({}));
    assert_eq!(elements(&resources, &["result", "resources"])[0], at_uri("uri", "a://1"));
    assert_eq!(all.ids("resources/list"), ["a://1", "a://2", "b://1"]);
    let templates = all.ask_raw("resources/templates/list", json!({}));
    assert_eq!(elements(&templates, &["result", "resourceTemplates"]), [at_uri("uriTemplate", "a://{x}")]);

    let mut one = serve.session("/mcp/first");
    let tools = one.ask_raw("tools/list", json!({}));
    assert_eq!(elements(&tools, &["result", "tools"]), [named("t")]);
    let prompts = one.ask_raw("prompts/list", json!({}));
    assert_eq!(elements(&prompts, &["result", "prompts"]), [named("p")]);
    assert_eq!(one.ids("resources/list"), ["a://1", "a://2"]);
}

#[test]
fn what_a_server_lists_in_pages_is_listed_whole() {
    let spec = (0..7).fold(Spec::legacy().pages_of(2), |spec, number| {
        let uri = format!("r://{number}");
        spec.tool(&format!("t{number}")).prompt(&format!("p{number}")).resource(&uri).template(&format!("{uri}/{{x}}"))
    });
    let puppet = Puppet::new(spec);
    let mut client = connected(&[("s", &puppet)]);
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        assert_eq!(client.ids(method).len(), 7, "{method}");
    }
    assert_eq!(client.ids("tools/list").last().map(String::as_str), Some("s.t6"));
}

#[test]
fn long_lists_are_paginated_and_unknown_cursors_are_refused() {
    let spec = (0..2500).fold(Spec::legacy(), |spec, number| {
        spec.tool(&format!("t{number}")).prompt(&format!("p{number}")).resource(&format!("r://{number}"))
    });
    let puppet = Puppet::new(spec);
    let mut client = connected(&[("s", &puppet)]);
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let mut ids = client.ids(method);
        assert_eq!(ids.len(), 2500, "{method}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2500, "{method}");
        let first = client.ask(method, json!({}));
        assert!(first["result"]["nextCursor"].is_string(), "{method}");
        for foreign in ["puppet 700", "", "mcpa-page-99999999999999999999999"] {
            assert_eq!(code_of(&client.ask(method, json!({"cursor": foreign}))), -32602, "{method} {foreign:?}");
        }
    }
}

#[test]
fn a_resource_that_two_servers_offer_is_listed_once_and_reported() {
    let first = Puppet::new(
        Spec::legacy().raw_resource(r#"{"uri":"x://same","name":"of first"}"#).template("x://{same}").resource("x://1"),
    );
    let second = Puppet::new(
        Spec::legacy()
            .raw_resource(r#"{"uri":"x://same","name":"of second"}"#)
            .template("x://{same}")
            .resource("x://2"),
    );
    let mut client = connected(&[("first", &first), ("second", &second)]);
    let resources = client.list("resources/list", "resources");
    assert_eq!(client.ids("resources/list"), ["x://same", "x://1", "x://2"]);
    assert_eq!(resources[0]["name"], "of first");
    assert_eq!(client.ids("resources/templates/list"), ["x://{same}"]);

    let id = client.begin("resources/read", json!({"uri": "x://same"}));
    first.expect("resources/read").answer(r#"{"contents":[]}"#);
    client.answer_to(id);
    assert_eq!(second.count("resources/read"), 0);

    client.wait_for_stderr("x://same");
    let report = client.stderr_text();
    let line = report.lines().find(|line| line.contains("x://same")).unwrap_or_default();
    assert!(line.contains("first") && line.contains("second"), "{report}");
}

#[test]
fn instructions_are_merged_and_labelled_by_server() {
    let first = Puppet::new(Spec::legacy().instructions("be kind"));
    let silent = Puppet::new(Spec::legacy());
    let second = Puppet::new(Spec::legacy().instructions("be \"quick\"\n# now"));
    let servers: [(&str, &Puppet); 3] = [("first", &first), ("silent", &silent), ("second", &second)];
    let expected = "## first\n\nbe kind\n\n## second\n\nbe \"quick\"\n# now";
    let serve = serving(&servers);
    assert_eq!(serve.session("/mcp").welcome["result"]["instructions"], expected);
    assert_eq!(serve.session("/mcp/second").welcome["result"]["instructions"], "be \"quick\"\n# now");
    assert_eq!(serve.session("/mcp/silent").welcome["result"].get("instructions"), None);
}

#[test]
fn instructions_reach_a_client_over_stdio() {
    // An initializing client waits three seconds for servers that start, which may be too short on a busy machine.
    wait_until("a server starts within three seconds", || {
        let puppet = Puppet::new(Spec::legacy().instructions("be kind"));
        let mut client = Launch::service(&config(&[("s", &puppet)])).start();
        let welcome = introduce(&mut client, &json!({}));
        let instructions = welcome["result"].get("instructions")?;
        assert_eq!(instructions, "## s\n\nbe kind");
        Some(())
    });
}

#[test]
fn what_is_declared_is_what_the_servers_have() {
    let plain = Puppet::new(Spec::legacy().capabilities(r#"{"tools":{}}"#).tool("t"));
    let rich = Puppet::new(Spec::legacy().capabilities(
        r#"{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{},"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"x":{"y":1.0}}}"#,
    ));
    let serve = serving(&[("plain", &plain), ("rich", &rich)]);
    let capabilities = serve.session("/mcp").welcome["result"]["capabilities"].clone();
    assert_eq!(capabilities["tools"], json!({"listChanged": true}));
    assert_eq!(capabilities["prompts"], json!({"listChanged": true}));
    assert_eq!(capabilities["resources"], json!({"subscribe": true, "listChanged": true}));
    assert!(capabilities["completions"].is_object() && capabilities["logging"].is_object(), "{capabilities}");
    assert!(capabilities["tasks"]["requests"]["tools"]["call"].is_object(), "{capabilities}");

    let alone = serve.session("/mcp/plain").welcome["result"]["capabilities"].clone();
    assert_eq!(alone.get("prompts"), None, "{alone}");
    assert_eq!(alone.get("resources"), None, "{alone}");
    let alone = serve.session("/mcp/rich").welcome["result"]["capabilities"].clone();
    assert_eq!(alone["experimental"], json!({"x": {"y": 1.0}}));
}

#[test]
fn a_server_without_a_capability_gets_no_requests_for_it() {
    let puppet = Puppet::new(Spec::legacy().capabilities(r#"{"tools":{}}"#).tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    assert_eq!(client.ids("prompts/list"), [""; 0]);
    assert_eq!(client.ids("resources/list"), [""; 0]);
    for method in ["prompts/list", "resources/list", "resources/templates/list", "logging/setLevel"] {
        assert_eq!(puppet.count(method), 0, "{method}");
    }
    assert_eq!(at(&puppet.lines_of("initialize")[0], &["method"]), "\"initialize\"");
}
