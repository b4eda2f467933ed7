//! Forms from schemas: generated schemas work, nothing is chosen for the user, and untouched values stay unchanged.

use serde_json::{Value, json};
use testkit::puppet::{Puppet, Spec};

use super::chromium::{Browser, DESK};
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::rest::Rest;

/// The form field with this name, as an expression.
fn field(name: &str) -> String {
    let name = json!(name);
    format!(
        "[...document.querySelectorAll('#fields label, #question label')].find((label) => label.firstChild.data === {name}).nextElementSibling"
    )
}

/// Types into the field with this name.
async fn fill(browser: &Browser, name: &str, value: &str) {
    let (field, value) = (field(name), json!(value));
    browser.run(&format!("const it = {field}; it.value = {value}; it.dispatchEvent(new Event('input'))")).await;
}

/// Types into the JSON editor.
async fn write(browser: &Browser, text: &str) {
    let text = json!(text);
    browser
        .run(&format!(
            "const raw = document.getElementById('raw'); raw.value = {text}; raw.dispatchEvent(new Event('input'))"
        ))
        .await;
}

/// The content of the JSON editor, without formatting.
async fn written(browser: &Browser) -> Value {
    browser.run("return compact(document.getElementById('raw').value)").await
}

#[test]
fn forms_understand_schemas_of_libraries_and_change_only_edited_values() {
    const TOOL: &str = r##"{"name":"pyd","inputSchema":{"type":"object","required":["item"],"$defs":{"Item":{"type":"object","required":["size"],"properties":{"size":{"$ref":"#/$defs/Size"},"next":{"anyOf":[{"$ref":"#/$defs/Item"},{"type":"null"}]}}},"Size":{"enum":["small","large"]}},"properties":{"item":{"allOf":[{"$ref":"#/$defs/Item"}]},"since":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null},"tags":{"type":"array","items":{"type":"string"}},"line":{"type":"string"},"count":{"type":"integer"}}}}"##;
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "py", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=py.pyd")).await;
        browser.wait("document.querySelector('#fields select')").await;
        let raw = browser.run("return JSON.parse(document.getElementById('raw').value)").await;
        assert_eq!(raw, json!({"item": {}}), "nothing is chosen for anybody");
        write(&browser, r#"{"item":{"size":"huge"},"line":"a\nb","count":"many"}"#).await;
        fill(&browser, "since", "yesterday").await;
        fill(&browser, "tags", "one\ntwo words").await;
        let raw = browser.run("return JSON.parse(document.getElementById('raw').value)").await;
        let expected = json!({"item": {"size": "huge"}, "since": "yesterday", "tags": ["one", "two words"], "line": "a\nb", "count": "many"});
        assert_eq!(raw, expected);
        assert_eq!(browser.run(&format!("return {}.tagName", field("line"))).await, "TEXTAREA");

        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        let numbers = json!({"type": "object", "properties": {"ratio": {"type": "number"}}});
        call.ask("5", "elicitation/create", &json!({"message": "How much?", "requestedSchema": numbers}).to_string());
        browser.wait_for_text("How much?").await;
        browser
            .run("const real = fetch; fetch = (to, what) => { window.answered = what?.body; return real(to, what); }")
            .await;
        browser.fill("#question input", "12345678901234567890123").await;
        browser.click("#question button[type=submit]").await;
        puppet.response(5);
        let answered = browser.run("return window.answered").await;
        assert!(answered.as_str().unwrap().contains(r#""content":{"ratio":12345678901234567890123}"#), "{answered}");
        let huge = "x".repeat(12_000_000);
        call.answer(&json!({"content": [{"type": "text", "text": huge}]}).to_string());
        browser.wait_for_text("Save all 12000000 characters").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn every_kind_of_value_has_a_field_that_writes_only_itself() {
    const TOOL: &str = r#"{"name":"all","inputSchema":{"type":"object","required":["kind","mode","sure"],"properties":{"kind":{"const":"k"},"mode":{"enum":["wipe","keep"]},"sure":{"type":"boolean"},"sizes":{"type":"array","items":{"type":"number"}},"picks":{"type":"array","items":{"enum":["a","b"]}},"either":{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]},"any":{"type":["string","object"]},"line":{"type":"string"},"ratio":{"type":"number"},"inner":{"type":"object","required":["t"],"properties":{"t":{"const":"z"},"v":{"type":"string"}}}}}}"#;
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "py", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=py.all")).await;
        browser.wait("document.querySelector('#fields select')").await;
        assert_eq!(written(&browser).await, r#"{"kind":"k"}"#, "who wipes must say so");
        assert_eq!(browser.run(&format!("return {}.readOnly", field("kind"))).await, true);

        // Values that the form cannot show stay in their positions, and are mentioned.
        let odd = r#"{"zz":1.0,"line":null,"sizes":[1.0,2.50],"picks":["b","c"],"ratio":"much","mode":9"#;
        write(&browser, &format!("{odd}}}")).await;
        assert_eq!(browser.run(&format!("return {}.value", field("sizes"))).await, "1.0\n2.50");
        browser.wait_for_text("in the JSON: \"much\"").await;
        for (typed, expected) in [("5", "5"), ("\"5\"", "\"5\""), ("5 or so", "\"5 or so\"")] {
            fill(&browser, "either", typed).await;
            assert_eq!(written(&browser).await, format!(r#"{odd},"either":{expected}}}"#));
        }

        write(&browser, "{}").await;
        fill(&browser, "any", "yesterday").await;
        fill(&browser, "sizes", "3.0\n4").await;
        fill(&browser, "v", "deep").await;
        browser.run("[...document.querySelectorAll('#fields .check')].find((label) => label.innerText.includes('b')).click()").await;
        let expected = r#"{"sizes":[3.0,4],"picks":["b"],"any":"yesterday","inner":{"t":"z","v":"deep"}}"#;
        assert_eq!(written(&browser).await, expected);

        fill(&browser, "any", "{\"a\":").await;
        browser.wait_for_text("any: invalid JSON").await;
        fill(&browser, "any", "").await;

        // A form that cannot parse the JSON does not overwrite it.
        write(&browser, "{\"line\":").await;
        browser.wait("document.getElementById('fields').inert").await;
        write(&browser, "{\"line\":\"ab\"}").await;
        browser.wait("!document.getElementById('fields').inert").await;
        browser
            .run(&format!("const it = {}; it.focus(); it.setSelectionRange(1, 1); it.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Enter', shiftKey: true, cancelable: true }}))", field("line")))
            .await;
        assert_eq!(written(&browser).await, r#"{"line":"a\nb"}"#, "another line begins");
        assert_eq!(browser.run("return document.activeElement.tagName").await, "TEXTAREA");
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn no_form_field_agrees_by_default() {
    const TOOL: &str = r#"{"name":"ask","inputSchema":{"type":"object"}}"#;
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "py", &puppet);
    let schema = json!({"type": "object", "required": ["delete", "pick", "only", "fixed", "several"], "properties": {
        "delete": {"type": "boolean"}, "pick": {"type": "string", "enum": ["wipe", "keep"]},
        "only": {"type": "string", "oneOf": [{"const": "yes", "title": "I agree"}]}, "fixed": {"const": true},
        "several": {"type": "array", "items": {"type": "string", "enum": ["x"]}}, "ratio": {"type": "number"}}});
    let question = json!({"message": "May I?", "requestedSchema": schema}).to_string();
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=py.ask")).await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        call.ask("9", "elicitation/create", &question);
        browser.wait_for_text("May I?").await;
        for (name, option) in [("delete", "1"), ("pick", "1"), ("only", "0"), ("fixed", "0")] {
            assert_eq!(browser.run("return document.querySelector('#question form').checkValidity()").await, false);
            assert_eq!(browser.run(&format!("return {}.value", field(name))).await, "", "{name} is not chosen");
            fill(&browser, name, option).await;
        }
        fill(&browser, "ratio", "1.0").await;
        browser
            .run("const real = fetch; fetch = (to, what) => { window.answered = what?.body; return real(to, what); }")
            .await;
        browser.click("#question button[type=submit]").await;
        let content =
            json!({"delete": false, "pick": "keep", "only": "yes", "fixed": true, "several": [], "ratio": 1.0});
        assert_eq!(puppet.response(9)["result"], json!({"action": "accept", "content": content}));
        let answered = browser.run("return window.answered").await;
        assert!(answered.as_str().unwrap().contains(r#""ratio":1.0"#), "{answered}");
        call.answer(r#"{"content":[]}"#);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
