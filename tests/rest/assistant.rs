//! What an assistant may use, over REST: narrowed, and in the form of its provider.

use serde_json::{Value, json};

use super::{Rest, expect, expect_error, expect_problems};

/// What it is offered: `server.tool`.
fn offered(answer: &Value) -> Vec<String> {
    answer["tools"]
        .as_array()
        .expect("tools have names")
        .iter()
        .map(|tool| tool["name"].as_str().expect("tools have names").to_owned())
        .collect()
}

fn two_servers() -> Rest {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "2"]);
    rest.register("two", &["--only-generated", "--tools", "1"]);
    rest
}

#[test]
fn every_provider_gets_the_tools_in_its_own_form_under_names_it_accepts() {
    let rest = two_servers();
    let plain = expect(200, &rest.get("/assistant/tools"));
    assert_eq!((offered(&plain).len(), &plain["format"], &plain["provider_tools"]), (3, &Value::Null, &Value::Null));
    assert_eq!(plain["enabled_servers"], json!(["one", "two"]));
    let first = &plain["tools"][0];
    let safe = first["safe_name"].as_str().unwrap();
    assert!(!safe.contains('.') && first["name"].as_str().unwrap().starts_with("one."), "{first}");
    for (format, name) in [
        ("openai", "/0/function/name"),
        ("openai-responses", "/0/name"),
        ("anthropic", "/0/name"),
        ("gemini", "/0/functionDeclarations/0/name"),
    ] {
        let answer = expect(200, &rest.get(&format!("/assistant/tools?format={format}")));
        assert_eq!(answer["provider_tools"].pointer(name), Some(&json!(safe)), "{format}: {answer}");
    }
    assert_eq!(expect_problems(&rest.get("/assistant/tools?format=fax"))[0].0, "query.format");
}

#[test]
fn tools_are_narrowed_by_server_by_skill_and_by_the_line_of_a_document() {
    let rest = two_servers();
    let only = expect(200, &rest.get("/assistant/tools?servers=two"));
    assert_eq!((offered(&only).len(), &only["enabled_servers"]), (1, &json!(["two"])));
    assert_eq!(offered(&expect(200, &rest.get("/assistant/tools?servers=one,two"))).len(), 3);
    expect_error(404, "SERVER_NOT_FOUND", &rest.get("/assistant/tools?servers=three"));
    expect_error(404, "SKILL_NOT_FOUND", &rest.get("/assistant/tools?skills=no-such-skill"));
    expect_error(404, "DOCUMENT_NOT_FOUND", &rest.get("/assistant/tools?path=a.md&line=1"));

    let text = "# Free\n\n# Bound\n<!-- mcp: two -->\n";
    let at = |line: u64| expect(200, &rest.post("/assistant/tools", &json!({"text": text, "line": line})));
    assert_eq!((offered(&at(1)).len(), &at(1)["section_binding"]), (3, &Value::Null));
    assert_eq!((offered(&at(4)).len(), &at(4)["section_binding"]), (1, &json!("two")));
    let none = expect(200, &rest.post("/assistant/tools", &json!({"text": text, "line": 4, "servers": ["one"]})));
    assert_eq!(offered(&none), Vec::<String>::new(), "a server list does not lead out of a binding");
}

#[test]
fn a_server_that_is_switched_off_offers_nothing() {
    let rest = two_servers();
    expect(200, &rest.order("/servers/two/disable"));
    let answer = expect(200, &rest.get("/assistant/tools"));
    assert_eq!((offered(&answer).len(), &answer["enabled_servers"]), (2, &json!(["one"])));
}
