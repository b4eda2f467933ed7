//! Lists of objects, maps, unions and recursive schemas as forms: nobody has to write JSON, no value is filled in for
//! the user, and untouched values stay unchanged.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::puppet::{Puppet, Spec};

use super::chromium::{self, Browser, DESK};
use super::{appearance, at, with_browsers};
use crate::console::add_puppet;
use crate::rest::{Rest, expect};

/// Schemas that pydantic and zod generate.
const TOOL: &str = r##"{"name":"shop","annotations":{"destructiveHint":true},"inputSchema":{"type":"object","required":["people","pet","note"],
    "$defs":{"Person":{"type":"object","required":["name"],"properties":{"name":{"type":"string","minLength":1},"friends":{"type":"array","items":{"$ref":"#/$defs/Person"}},"address":{"anyOf":[{"$ref":"#/$defs/Address"},{"type":"null"}],"default":null}}},
        "Address":{"type":"object","properties":{"town":{"type":"string"}}},
        "Cat":{"type":"object","title":"Cat","required":["lives"],"properties":{"kind":{"const":"cat","default":"cat"},"lives":{"type":"integer","minimum":1,"maximum":9}}},
        "Dog":{"type":"object","title":"Dog","required":["name"],"properties":{"kind":{"const":"dog","default":"dog"},"name":{"type":"string"}}}},
    "properties":{"people":{"type":"array","items":{"$ref":"#/$defs/Person"}},
        "pet":{"oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}],"discriminator":{"propertyName":"kind"}},
        "stock":{"type":"object","additionalProperties":{"type":"integer"}},"to":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},
        "at":{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}]},"when":{"type":"string","format":"date"},
        "note":{"anyOf":[{"type":"string"},{"type":"null"}]}}}}"##;

/// A service with that tool, and its server.
fn shop() -> (Rest, Puppet) {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "py", &puppet);
    (rest, puppet)
}

/// The content of the JSON editor, without formatting.
async fn written(browser: &Browser) -> Value {
    browser.run("return compact(document.getElementById('raw').value)").await
}

async fn write(browser: &Browser, text: &str) {
    let text = json!(text);
    let script = format!(
        "const raw = document.getElementById('raw'); raw.value = {text}; raw.dispatchEvent(new Event('input'))"
    );
    browser.run(&script).await;
}

/// Types into the focused element, as a keyboard user does.
async fn typed(browser: &Browser, text: &str) {
    let text = json!(text);
    browser.run(&format!("const it = document.activeElement; it.value = {text}; it.dispatchEvent(new Event('input', {{ bubbles: true }}))")).await;
}

/// Selects the option with this label.
async fn choose(browser: &Browser, title: &str) {
    let title = json!(title);
    browser.run(&format!("const option = [...document.querySelectorAll('#fields option')].find((it) => it.textContent === {title}); const select = option.parentElement; select.value = option.value; select.dispatchEvent(new Event('input'))")).await;
}

#[test]
fn lists_unions_and_maps_are_filled_in_without_json() {
    let (rest, puppet) = shop();
    let Some(axe) = chromium::axe() else { return chromium::skipped("axe-core is not installed") };
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=py.shop")).await;
        browser.wait("document.querySelector('#fields select')").await;
        assert_eq!(written(&browser).await, r#"{"note":null}"#, "nothing is chosen for anybody");

        // Missing required values are reported at their fields, and nothing runs.
        browser.click("#run").await;
        browser.wait_for_text("people is required: add one, and 1 more").await;
        assert_eq!(browser.run("return document.activeElement.ariaLabel").await, "Add one to people");

        browser.click("[aria-label='Add one to people']").await;
        typed(&browser, "Ann").await;
        browser.click("[aria-label='Add one to people']").await;
        typed(&browser, "Bob").await;
        browser.click("[aria-label='Add one to friends']").await;
        typed(&browser, "Cy").await;
        choose(&browser, "Dog").await;
        browser.click("#run").await;
        browser.wait_for_text("name is required").await;
        browser.wait("document.activeElement.getAttribute('aria-invalid') === 'true'").await;
        typed(&browser, "Rex").await;
        browser.click("[aria-label='Add one to stock']").await;
        typed(&browser, "tea").await;
        browser.run("const it = [...document.querySelectorAll('#fields input[type=number]')].find((it) => it.closest('.entry')); it.value = '3'; it.dispatchEvent(new Event('input'))").await;
        choose(&browser, "list of text").await;
        browser.run("const it = document.querySelector('.branch textarea'); it.value = 'a\\nb'; it.dispatchEvent(new Event('input'))").await;
        let whole = r#"{"note":null,"people":[{"name":"Ann","friends":[{"name":"Cy"}]},{"name":"Bob"}],"pet":{"kind":"dog","name":"Rex"},"stock":{"tea":3},"to":["a","b"]}"#;
        assert_eq!(written(&browser).await, whole);
        assert_eq!(appearance::found_by(&browser, &axe).await, Vec::<String>::new());

        assert_eq!(puppet.count("tools/call"), 0);
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        assert_eq!(call.value()["params"]["arguments"], serde_json::from_str::<Value>(whole).unwrap());
        call.answer(r#"{"content":[]}"#);
        // A destructive tool is marked at its button.
        browser.wait("document.querySelector('#bench .actions').innerText.includes('destructive')").await;
        browser.wait("document.querySelector('#history tr').innerText.includes('destructive')").await;

        browser.click("[aria-label='Remove people 1']").await;
        browser.wait("document.activeElement.ariaLabel === 'Add one to people'").await;
        assert!(written(&browser).await.as_str().unwrap().contains(r#""people":[{"name":"Bob"}]"#));
        browser.run("const keys = [...document.querySelectorAll('#fields [aria-label=\"Add one to stock\"]')]; keys[0].click()").await;
        typed(&browser, "tea").await;
        browser.click("#run").await;
        browser.wait_for_text("tea occurs twice").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn what_is_in_the_json_is_shown_and_only_what_is_touched_changes() {
    let (rest, puppet) = shop();
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=py.shop")).await;
        browser.wait("document.querySelector('#fields select')").await;
        let odd = r#"{"zz":1.0,"people":[{"x":2.50,"name":"Ann","friends":[{"name":"Cy","friends":[{"name":"Di"}]}]},7,{"name":5}],"pet":{"kind":"cat","lives":7.0,"more":[1.0]},"stock":{"a":1.0,"b":"many"},"to":"me","at":[1.0,2.50,"c"]"#;
        write(&browser, &format!("{odd}}}")).await;
        browser.run("const label = [...document.querySelectorAll('#fields label')].find((it) => it.firstChild.data === 'when'); label.nextElementSibling.focus()").await;
        typed(&browser, "2024-01-31").await;
        assert_eq!(written(&browser).await, format!(r#"{odd},"when":"2024-01-31"}}"#));
        browser.wait_for_text("in the JSON: 7").await;
        browser.wait_for_text("in the JSON: \"many\"").await;
        browser.wait_for_text("date, as 2024-01-31").await;

        // Neither an invalid list nor one that is too long is lost.
        let long = vec!["{}"; 150].join(",");
        write(&browser, &format!(r#"{{"people":[{long}],"stock":[1.0],"pet":"bird"}}"#)).await;
        browser.run("const label = [...document.querySelectorAll('#fields label')].find((it) => it.firstChild.data === 'when'); label.nextElementSibling.focus()").await;
        typed(&browser, "2024").await;
        let expected = format!(r#"{{"people":[{long}],"stock":[1.0],"pet":"bird","when":"2024"}}"#);
        assert_eq!(written(&browser).await, expected);
        browser.wait("document.querySelector('[aria-label=\"Add one to people\"]').hidden").await;

        // A user who wants to see the server's response can run incomplete arguments.
        write(&browser, r#"{"people":[]}"#).await;
        browser.click("#run").await;
        browser.wait_for_text("pet is required").await;
        browser.click("#anyway").await;
        assert_eq!(puppet.expect("tools/call").value()["params"]["arguments"], json!({"people": []}));
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn a_recursive_schema_makes_a_small_form_that_expands_on_demand() {
    let members: serde_json::Map<String, Value> =
        (0..15).map(|number| (format!("m{number}"), json!({"$ref": "#/$defs/Node"}))).collect();
    let node = json!({"type": "object", "properties": members});
    let tool =
        json!({"name": "rec", "inputSchema": {"type": "object", "$defs": {"Node": node}, "properties": members}});
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&tool.to_string()));
    add_puppet(&rest, "rec", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rec.rec")).await;
        browser.wait("document.querySelector('#fields button')").await;
        let count = browser.run("return document.querySelectorAll('#fields button, #fields input').length").await;
        assert!(count.as_u64().is_some_and(|count| count < 250), "{count}");
        browser.wait("document.getElementById('run').getBoundingClientRect().bottom <= innerHeight").await;
        let deep = r#"{"m1":{"m2":{"m3":{"m4":{"m5":{"m6":{"m7":{"z":1.0}}}}}}}}"#;
        write(&browser, deep).await;
        for _ in 0..4 {
            browser.run("document.querySelector('#fields [aria-label^=\"Fill in\"]').click()").await;
        }
        assert_eq!(written(&browser).await, deep);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn the_official_memory_server_is_used_through_its_form() {
    let Some(parts) = std::env::var_os("MCP_TEST_PARTS").map(PathBuf::from) else {
        return chromium::skipped("the official servers are not installed");
    };
    let rest = Rest::start();
    let script = parts.join("npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js");
    let file = rest.folder.path().join("memory.jsonl");
    let config = json!({"command": parts.join("npm/bin/node"), "args": [script], "env": {"MEMORY_FILE_PATH": file}});
    expect(
        201,
        &rest.post("/servers", &json!({"name": "memory", "transport_type": "stdio", "connection_config": config})),
    );
    rest.wait_for_status("memory", "connected");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=memory.create_entities")).await;
        browser.click("[aria-label='Add one to entities']").await;
        browser.wait_for_text("The name of the entity").await;
        for value in ["Ann", "person", "likes tea"] {
            typed(&browser, value).await;
            browser.run("const all = [...document.querySelectorAll('#fields input, #fields textarea')]; all[all.indexOf(document.activeElement) + 1]?.focus()").await;
        }
        browser.click("#run").await;
        browser.wait("document.querySelector('#outcome .badge')?.innerText === 'done'").await;
        let known = std::fs::read_to_string(&file).expect("it remembers");
        assert!(known.contains("Ann") && known.contains("likes tea"), "{known}");
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
