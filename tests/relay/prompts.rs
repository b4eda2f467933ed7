//! Prompts are named like tools; completion goes to the server of the prompt or template.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{at, code_of, connected, serving};

const MESSAGES: &str =
    r#"{"messages":[{"role":"user","content":{"type":"text","text":"\u0041","n":1.0}}], "description":"d" }"#;
const COMPLETION: &str = r#"{"completion":{"values":["a","\u0062"], "total":1e2,"hasMore":false},"x":1.0}"#;

#[test]
fn a_prompt_is_got_from_its_server_by_its_own_name() {
    let (first, second) = (Puppet::new(Spec::legacy().prompt("p")), Puppet::new(Spec::legacy().prompt("p")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    assert_eq!(client.ids("prompts/list"), ["first.p", "second.p"]);
    client.send_line(
        r#"{"jsonrpc":"2.0","id":"a","method":"prompts/get","params":{"name":"second.p", "arguments":{"x":"\u0041"},"_meta":{"k":1.0}}}"#,
    );
    let get = second.expect("prompts/get");
    assert_eq!(get.param(&[]), Some(r#"{"name":"p", "arguments":{"x":"\u0041"},"_meta":{"k":1.0}}"#));
    get.answer(MESSAGES);
    assert_eq!(at(&client.line_to("\"a\""), &["result"]), MESSAGES);
    assert_eq!(first.count("prompts/get"), 0);
}

#[test]
fn an_unknown_prompt_is_an_invalid_parameter() {
    let puppet = Puppet::new(Spec::legacy().prompt("p").tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    for name in ["p", "s.q", "s.t", ""] {
        assert_eq!(code_of(&client.ask("prompts/get", json!({"name": name}))), -32602, "{name}");
    }
    assert_eq!(puppet.count("prompts/get"), 0);
}

#[test]
fn completion_for_a_prompt_goes_to_its_server_under_its_own_name() {
    let (first, second) = (Puppet::new(Spec::legacy().prompt("p")), Puppet::new(Spec::legacy().prompt("p")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    client.send_line(
        r#"{"jsonrpc":"2.0","id":1e1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"second.p","title":"\u0041"},"argument":{"name":"x","value":"v"},"context":{"arguments":{"y":"1.0"}}}}"#,
    );
    let complete = second.expect("completion/complete");
    assert_eq!(complete.param(&["ref"]), Some(r#"{"type":"ref/prompt","name":"p","title":"\u0041"}"#));
    assert_eq!(complete.param(&["argument"]), Some(r#"{"name":"x","value":"v"}"#));
    assert_eq!(complete.param(&["context"]), Some(r#"{"arguments":{"y":"1.0"}}"#));
    complete.answer(COMPLETION);
    assert_eq!(at(&client.line_to("1e1"), &["result"]), COMPLETION);
    assert_eq!(first.count("completion/complete"), 0);
}

#[test]
fn completion_for_a_template_goes_to_its_owner() {
    let (first, second) =
        (Puppet::new(Spec::legacy().template("a://{x}")), Puppet::new(Spec::legacy().template("b://{x}")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    let params = json!({"ref": {"type": "ref/resource", "uri": "b://{x}"}, "argument": {"name": "x", "value": ""}});
    let id = client.begin("completion/complete", params);
    let complete = second.expect("completion/complete");
    assert_eq!(complete.param(&["ref"]), Some(r#"{"type":"ref/resource","uri":"b://{x}"}"#));
    complete.answer(COMPLETION);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), COMPLETION);
    assert_eq!(first.count("completion/complete"), 0);

    let unknown = json!({"ref": {"type": "ref/prompt", "name": "first.p"}, "argument": {"name": "x", "value": ""}});
    assert_eq!(code_of(&client.ask("completion/complete", unknown)), -32602);
}

#[test]
fn under_the_path_of_one_server_names_are_its_own() {
    let (first, second) = (Puppet::new(Spec::legacy().prompt("p")), Puppet::new(Spec::legacy().prompt("p")));
    let serve = serving(&[("first", &first), ("second", &second)]);
    let mut client = serve.session("/mcp/second");
    assert_eq!(client.ids("prompts/list"), ["p"]);
    let id = client.begin("prompts/get", json!({"name": "p"}));
    let get = second.expect("prompts/get");
    assert_eq!(get.param(&["name"]), Some(raw::quote("p").as_str()));
    get.answer(MESSAGES);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), MESSAGES);
}
