//! Results of calls in the playground: sounds, files and links work, log messages of the server are kept, and a call
//! that is cancelled before its server started is never made.

use serde_json::json;
use testkit::puppet::{Puppet, Spec};

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::rest::Rest;

const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object"}}"#;

#[test]
fn what_is_cancelled_before_its_server_is_there_is_never_called() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "slow", &puppet);
    rest.order("/servers/slow/disconnect");
    rest.wait_for_status("slow", "disconnected");
    puppet.change(|spec| spec.leaves("initialize"));
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=slow.t")).await;
        browser.click("#of form button").await;
        let begun = puppet.expect("initialize");
        browser.click("#run").await;
        browser.wait_for_text("Waiting until slow is ready").await;
        browser.click("#cancel").await;
        browser.wait_for_text("before the call").await;
        browser.wait("document.querySelector('#history').innerText.includes('cancelled')").await;

        begun.answer(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#,
        );
        rest.wait_for_status("slow", "connected");
        puppet.change(|spec| spec.leaves_no_more("initialize"));
        browser.click("#run").await;
        puppet.expect("tools/call").answer(r#"{"content":[{"type":"text","text":"now"}]}"#);
        browser.wait_for_text("now").await;
        browser.wait("document.getElementById('times').innerText.includes('connecting ')").await;
        assert_eq!(puppet.count("tools/call"), 1);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn sounds_are_played_files_are_saved_addresses_are_links_and_nothing_else_is_opened() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "m", &puppet);
    // One second of silence.
    let wav = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
    let content = json!({"content": [
        {"type": "audio", "mimeType": "audio/wav", "data": wav},
        {"type": "resource", "resource": {"uri": "demo://files/a.pdf", "mimeType": "application/pdf", "blob": "aGVsbG8="}},
        {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zy8+"},
        {"type": "text", "text": "see https://example.org/a?b=1, (https://example.org/c) or javascript:alert(1)"},
        {"type": "resource_link", "uri": "https://example.org/d", "name": "D", "description": "what D is", "mimeType": "text/html", "size": 2048},
    ]});
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=m.t")).await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        for text in [r#""level":"info","data":"first""#, r#""level":"warning","logger":"l","data":{"n":1}"#] {
            call.aside(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{{text}}}}}"#));
        }
        call.progress(r#""progress":1,"message":"half""#);
        browser.wait_for_text("half").await;
        call.answer(&content.to_string());
        browser.wait_for_text("Messages during the run (2)").await;
        browser.wait_for_text("warning · l · {\"n\":1}").await;
        browser.wait("document.querySelector('#outcome audio')").await;
        let links = browser.run("return [...document.querySelectorAll('#outcome .block a, #outcome .result > p a')].map((it) => it.href).filter((it) => it.includes('example'))").await;
        assert_eq!(links, json!(["https://example.org/a?b=1", "https://example.org/c", "https://example.org/d"]));
        browser.wait_for_text("text/html · 2.0 KB · what D is").await;
        browser.wait_for_text("Save (image/svg+xml, 6 B)").await;
        assert_eq!(browser.run("return document.querySelectorAll('#outcome img').length").await, 0);
        browser.run("HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }").await;
        browser.run("[...document.querySelectorAll('#outcome button')].find((it) => it.innerText.includes('application/pdf')).click()").await;
        assert_eq!(browser.run("return window.saved").await, "a.pdf");
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn a_question_by_address_is_opened_by_a_person_and_letters_can_be_read() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "u", &puppet);
    let question =
        |url: &str| json!({"mode": "url", "elicitationId": "e", "url": url, "message": "Sign in\nthere"}).to_string();
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=u.t")).await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        call.ask("5", "elicitation/create", &question("javascript:alert(1)"));
        browser.wait_for_text("This address cannot be opened here").await;
        assert_eq!(browser.run("return document.querySelectorAll('#question a').length").await, 0);
        browser
            .run("[...document.querySelectorAll('#question button')].find((it) => it.innerText === 'Decline').click()")
            .await;
        assert_eq!(puppet.response(5)["result"], json!({"action": "decline"}));

        call.ask("6", "elicitation/create", &question("http://127.0.0.1:1/sign-in?for=u"));
        browser.wait_for_text("http://127.0.0.1:1/sign-in?for=u").await;
        browser.run("const link = document.querySelector('#question a'); link.addEventListener('click', (event) => event.preventDefault()); link.click()").await;
        assert_eq!(puppet.response(6)["result"], json!({"action": "accept"}));

        call.answer(r#"{"content":[{"type":"text","text":"{\"a\": \"\\u043f\\u0440\\u0438\", \"n\": 1.0}"}]}"#);
        browser.wait_for_text("\"a\": \"при\"").await;
        browser.wait("document.querySelector('#outcome .copyable [data-copy]')").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
