//! Modern on both sides: nothing is translated, so only ids, names and tokens change.

use serde_json::{Value, json};
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{CAPABILITIES, modern_over_stdio};
use crate::relay::{at, serving};

fn spec() -> Spec {
    Spec::modern().tool("t").prompt("p").resource("r://1")
}

#[test]
fn params_and_results_pass_byte_for_byte() {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "io.modelcontextprotocol/clientCapabilities":{"x":1.0},"k":"\u0041"}"#;
    let result = r#"{ "resultType":"complete","content":[],"structuredContent":[1.0,1e400],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n","version":"1"}}, "z":"\ud800" }"#;
    for over_http in [false, true] {
        let puppet = if over_http { Puppet::over_http(spec()) } else { Puppet::new(spec()) };
        let serve = serving(&[("s", &puppet)]);
        let mut remote = serve.modern("/mcp/s");
        let mut all = serve.modern("/mcp");
        for (client, prefix) in [(&mut remote, ""), (&mut all, "s.")] {
            client.send_line(&format!(
                r#"{{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{{"name":"{prefix}t", "arguments":{{"a":1.0}},"_meta":{meta}}}}}"#
            ));
            let call = puppet.expect("tools/call");
            assert_eq!(
                call.param(&[]),
                Some(format!(r#"{{"name":"t", "arguments":{{"a":1.0}},"_meta":{meta}}}"#).as_str())
            );
            call.answer(result);
            assert_eq!(at(&client.line_to("\"i\""), &["result"]), result);
        }
    }
}

#[test]
fn input_requests_of_a_server_go_to_the_client() {
    let puppet = Puppet::new(spec());
    let serve = serving(&[("s", &puppet)]);
    let mut remote = serve.modern("/mcp").interactive();
    let mut local = modern_over_stdio(&[("s", &puppet)]);
    for client in [&mut remote as &mut dyn ClientSession, &mut local] {
        let id = client.begin_call("s.t", json!({}));
        let state = r#""st\u0061te \/""#;
        let params = r#"{"message":"Who?","requestedSchema":{"type":"object"},"n":1.0}"#;
        puppet.expect("tools/call").answer(&format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"elicitation/create","params":{params}}}}},"requestState":{state}}}"#
        ));
        let line = client.line_to(&id.to_string());
        assert_eq!(at(&line, &["result", "requestState"]), state);
        let seen = at(&line, &["result", "inputRequests", "k", "params"]);
        assert_eq!(raw::at(seen.as_bytes(), &["message"]), Some("\"[s] Who?\""));
        assert_eq!(raw::at(seen.as_bytes(), &["n"]), Some("1.0"));

        let me = client.dress(json!({}))["_meta"].to_string();
        client.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":"again","method":"tools/call","params":{{"name":"s.t","arguments":{{}},"inputResponses":{{"k":{{"action":"accept","n":1.0}}}},"requestState":{state},"_meta":{me}}}}}"#
        ));
        let retry = puppet.expect("tools/call");
        assert_eq!(retry.param(&["requestState"]), Some(state));
        assert_eq!(retry.param(&["inputResponses"]), Some(r#"{"k":{"action":"accept","n":1.0}}"#));
        retry.answer(r#"{"resultType":"complete","content":[]}"#);
        client.line_to("\"again\"");
    }
}

#[test]
fn each_request_carries_the_capabilities_of_its_own_client() {
    let puppet = Puppet::new(spec());
    let serve = serving(&[("s", &puppet)]);
    let mut poor = serve.modern("/mcp");
    let mut rich = serve.modern("/mcp").interactive();
    for client in [&mut poor, &mut rich] {
        let expected = client.myself.capabilities.clone();
        client.begin_call("s.t", json!({}));
        let call = puppet.expect("tools/call");
        let seen: Value = serde_json::from_str(call.param(&["_meta", CAPABILITIES]).expect("capabilities")).unwrap();
        assert_eq!(seen, expected);
    }
}

#[test]
fn tasks_of_the_extension_are_followed_by_an_id_that_is_ours() {
    let extension = r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let (first, second) = (Puppet::new(spec().capabilities(extension)), Puppet::new(spec().capabilities(extension)));
    let serve = serving(&[("first", &first), ("second", &second)]);
    let mut client = serve.modern("/mcp");
    client.myself.capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let task = |status: &str, kind: &str| {
        format!(
            r#"{{"resultType":"{kind}","taskId":"same","status":"{status}","createdAt":"2026-07-28T10:30:00Z","lastUpdatedAt":"2026-07-28T10:30:00Z","ttlMs":60000, "x":1.0}}"#
        )
    };
    let ids = [(&first, "first.t"), (&second, "second.t")].map(|(puppet, tool)| {
        let id = client.begin_call(tool, json!({}));
        puppet.expect("tools/call").answer(&task("working", "task"));
        let answer = client.answer_to(id);
        assert_eq!(answer["result"]["resultType"], "task", "{answer}");
        answer["result"]["taskId"].as_str().unwrap_or_else(|| panic!("no task in {answer}")).to_owned()
    });
    assert_ne!(ids[0], ids[1]);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (puppet, task_id) in [(&second, &ids[1]), (&first, &ids[0])] {
            let id = client.begin(method, json!({"taskId": task_id, "inputResponses": {}}));
            let request = puppet.expect(method);
            assert_eq!(request.text_param(&["taskId"]).as_deref(), Some("same"), "{method}");
            request.answer(&task("completed", "complete"));
            let answer = client.answer_to(id);
            assert_eq!(answer["result"]["taskId"], task_id.as_str(), "{method}: {answer}");
        }
    }
}
