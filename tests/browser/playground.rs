//! The playground: form and JSON with the same content, progress, server requests, cancellation, history.

use serde_json::json;
use testkit::puppet::{Puppet, Spec};

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::rest::Rest;

const TOOL: &str = r#"{"name":"book","description":"Books a seat","inputSchema":{"type":"object","required":["name"],"properties":{
    "name":{"type":"string"},"seats":{"type":"integer","minimum":1},"class":{"enum":["first","second"]}}}}"#;

#[test]
fn a_tool_is_run_by_form_shows_progress_asks_and_answers() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.fill("#fields input[type=text]", "Ann").await;
        browser.fill("#fields input[type=number]", "2").await;
        let raw = browser.run("return JSON.parse(document.getElementById('raw').value)").await;
        assert_eq!(raw, json!({"name": "Ann", "seats": 2}), "JSON follows the form");
        browser.run("const raw = document.getElementById('raw'); raw.value = '{\"name\":\"Bob\",\"class\":\"second\"}'; raw.dispatchEvent(new Event('input'))").await;
        assert_eq!(
            browser.run("return document.querySelector('#fields input[type=text]').value").await,
            "Bob",
            "the form follows JSON"
        );

        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        assert_eq!(call.value()["params"]["arguments"], json!({"name": "Bob", "class": "second"}));
        call.progress(r#""progress":1,"total":4,"message":"looking""#);
        browser.wait_for_text("looking").await;
        let schema =
            json!({"type": "object", "required": ["side"], "properties": {"side": {"enum": ["window", "aisle"]}}});
        let question = json!({"message": "Window or aisle?", "requestedSchema": schema});
        call.ask("77", "elicitation/create", &question.to_string());
        browser.wait_for_text("Window or aisle?").await;
        browser.wait("!document.querySelector('#question form').checkValidity()").await;
        browser.run("const side = document.querySelector('#question select'); side.value = '0'; side.dispatchEvent(new Event('input'))").await;
        browser.click("#question button[type=submit]").await;
        assert_eq!(puppet.response(77)["result"], json!({"action": "accept", "content": {"side": "window"}}));
        call.answer(r#"{"content":[{"type":"text","text":"seat 12A"}]}"#);
        browser.wait_for_text("seat 12A").await;
        browser.wait("document.getElementById('times').innerText.includes('on the server')").await;
        browser.wait("document.querySelector('#history').innerText.includes('rail.book')").await;

        browser.click("#history button").await;
        puppet.expect("tools/call");
        browser.click("#cancel").await;
        puppet.expect("notifications/cancelled");
        browser.wait("!document.querySelector('#run').disabled").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn numbers_stay_as_they_are_written_and_a_mistake_can_be_mended() {
    const TAGS: &str = r#"{"name":"count","inputSchema":{"type":"object","properties":{"ratio":{"type":"number"},"tags":{"type":"array"},"flag":{"type":"boolean","default":true}}}}"#;
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TAGS));
    add_puppet(&rest, "exact", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=exact.count")).await;
        browser.wait("document.querySelector('#fields select')").await;
        browser.wait("document.querySelector('#fields select').innerText.includes('default: true')").await;
        browser.run(r#"const raw = document.getElementById('raw'); raw.value = '{"ratio": 1.0, "big": 12345678901234567890123}'; raw.dispatchEvent(new Event('input'))"#).await;
        browser.fill("#fields textarea", "x").await;
        browser.fill("#fields textarea", "[2.50]").await;
        browser.wait("document.getElementById('raw').value.includes('2.50')").await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        let line = String::from_utf8_lossy(call.line()).into_owned();
        for exact in [r#""ratio":1.0"#, r#""big":12345678901234567890123"#, r#""tags":[2.50]"#] {
            assert!(line.contains(exact), "{exact} in {line}");
        }
        call.answer(r#"{"content":[{"type":"text","text":"{\"b\": 1.0, \"big\": 123456789012345678901234567890}"}]}"#);
        browser.wait_for_text("\"b\": 1.0").await;
        browser.wait_for_text("123456789012345678901234567890").await;

        browser
            .run("const raw = document.getElementById('raw'); raw.value = '[1]'; raw.dispatchEvent(new Event('input'))")
            .await;
        browser.wait_for_text("arguments must be an object").await;
        browser
            .run("const raw = document.getElementById('raw'); raw.value = '{}'; raw.dispatchEvent(new Event('input'))")
            .await;
        browser.click("#run").await;
        puppet.expect("tools/call");
        browser.click("#cancel").await;
        puppet.expect("notifications/cancelled");
        browser.wait("document.querySelector('#outcome .badge')?.innerText === 'cancelled'").await;
        browser.wait("document.querySelector('#history').innerText.includes('cancelled')").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn one_call_runs_at_a_time_and_the_history_has_what_was_run() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    let type_in = |text: &str| {
        let text = json!(text);
        format!("const raw = document.getElementById('raw'); raw.value = {text}; raw.dispatchEvent(new Event('input'))")
    };
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.run(&type_in(r#"{"name":"first"}"#)).await;
        browser.click("#run").await;
        puppet.expect("tools/call").answer(r#"{"content":[]}"#);
        browser.wait("document.querySelector('#history').innerText.includes('first')").await;
        browser.run(&type_in(r#"{"name":"second"}"#)).await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        browser.wait("document.querySelector('#history button').disabled").await;
        browser.run(&type_in(r#"{"name":"third"}"#)).await;
        browser.run("bench.requestSubmit()").await;
        call.answer(r#"{"content":[]}"#);
        browser.wait("document.querySelectorAll('#history tbody tr').length === 2").await;
        browser.wait("document.querySelector('#history tbody tr').innerText.includes('second')").await;
        browser.wait("!document.querySelector('#history button').disabled").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn a_question_begins_with_what_is_proposed_has_boxes_to_tick_and_ends_with_its_page() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    let titled = json!([{"const": "p", "title": "Piano"}, {"const": "v", "title": "Violin"}]);
    let schema = json!({"type": "object", "properties": {
        "age": {"type": "integer", "default": 42},
        "hero": {"type": "string", "oneOf": [{"const": "h1", "title": "Ann"}, {"const": "h2", "title": "Bob"}], "default": "h2"},
        "plain": {"type": "array", "items": {"type": "string", "enum": ["Guitar", "Drums"]}, "default": ["Guitar"]},
        "titled": {"type": "array", "items": {"anyOf": titled}},
    }});
    let question = json!({"message": "Who plays what?", "requestedSchema": schema}).to_string();
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.fill("#fields input[type=text]", "Ann").await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        call.ask("77", "elicitation/create", &question);
        browser.wait_for_text("Violin").await;
        browser.run("[...document.querySelectorAll('#question label')].find((label) => label.innerText.includes('Violin')).click()").await;
        browser.click("#question button[type=submit]").await;
        let content = json!({"age": 42, "hero": "h2", "plain": ["Guitar"], "titled": ["v"]});
        assert_eq!(puppet.response(77)["result"], json!({"action": "accept", "content": content}));

        call.ask("78", "elicitation/create", &question);
        browser.wait_for_text("Violin").await;
        browser.goto(&at(&rest.serve, "/system")).await;
        puppet.expect("notifications/cancelled");
        browser.close().await;
    });
}

#[test]
fn a_server_that_is_unreachable_is_connected_from_here_and_what_was_typed_stays() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    rest.order("/servers/rail/disconnect");
    rest.wait_for_status("rail", "disconnected");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.wait("document.getElementById('of').innerText.includes('disconnected')").await;
        browser.fill("#fields input[type=text]", "Ann").await;
        browser.click("#run").await;
        browser.wait("document.querySelector('#outcome .error')?.innerText.includes('rail')").await;
        browser.log().await;
        browser.click("#outcome p button").await;
        browser.wait("!document.querySelector('#of form')").await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        assert_eq!(call.value()["params"]["arguments"], json!({"name": "Ann"}));
        call.answer(r#"{"content":[{"type":"text","text":"seat 12A"}]}"#);
        browser.wait_for_text("seat 12A").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn an_expired_session_is_renewed_and_the_call_made_once() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.fill("#fields input[type=text]", "Ann").await;
        browser.run("const real = fetch; window.real = real; fetch = async (to, what) => { window.session = what?.headers?.['Mcp-Session-Id'] ?? window.session; return real(to, what); }").await;
        browser.click("#run").await;
        puppet.expect("tools/call").answer(r#"{"content":[{"type":"text","text":"the first"}]}"#);
        browser.wait_for_text("the first").await;
        browser.run("window.real('/mcp/rail', { method: 'DELETE', headers: { 'Mcp-Session-Id': window.session, 'X-CSRF-Token': csrf } }).then((response) => { window.ended = response.status; })").await;
        browser.wait("window.ended < 300").await;
        browser.click("#run").await;
        puppet.expect("tools/call").answer(r#"{"content":[{"type":"text","text":"the second"}]}"#);
        browser.wait_for_text("the second").await;
        assert_eq!(puppet.count("tools/call"), 2);
        browser.close().await;
    });
}

#[test]
fn errors_are_reported_with_what_belongs_to_them_and_odd_results_are_shown() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&TOOL.replace('\n', " ")));
    add_puppet(&rest, "rail", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=rail.book")).await;
        browser.fill("#fields input[type=text]", "Ann").await;
        browser.click("#run").await;
        puppet
            .expect("tools/call")
            .fail(r#"{"code":-1,"message":"abc\u202edef \u001b[31m","data":{"hint":"read this","size":1.0}}"#);
        browser.wait_for_text("abc⟨U+202E⟩def ⟨U+001B⟩[31m").await;
        browser.wait("document.querySelector('#outcome .block').innerText.includes('\"size\": 1.0')").await;

        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        call.progress(r#""progress":1,"message":"half\u202eway""#);
        browser.wait_for_text("half⟨U+202E⟩way").await;
        call.answer(r#"{"foo":{"bar":2.50}}"#);
        browser.wait("document.querySelector('#outcome .block').innerText.includes('\"bar\": 2.50')").await;

        browser.click("#run").await;
        puppet.expect("tools/call").answer(
            r#"{"content":[{"type":"resource","resource":{"uri":"a:\u202eb","text":"inside"}},{"type":"resource_link","name":"n\u202e","uri":"https://example.org/\u202e"}]}"#,
        );
        browser.wait_for_text("a:⟨U+202E⟩b").await;
        browser.wait_for_text("https://example.org/⟨U+202E⟩").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn a_tool_is_found_by_a_part_of_its_name_while_it_is_typed() {
    let rest = Rest::start();
    rest.register("many", &["--tools", "500"]);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground")).await;
        browser.wait("document.querySelectorAll('#tools option').length === 200").await;
        browser.fill("input[list=tools]", "TOOL_499").await;
        browser
            .wait("[...document.querySelectorAll('#tools option')].map((it) => it.value).join() === 'many.tool_499'")
            .await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
