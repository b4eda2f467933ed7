//! Many tabs in one browser, and external changes while a page is open: all are live, and no input is lost.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::puppet::{Puppet, Spec};

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::rest::{PREFIX, Rest};

const LIVE: &str = "document.getElementById('live').textContent === 'live'";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn eight_tabs_are_live_at_once_and_learn_what_others_stop_and_remove() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/executions")).await;
        browser.wait(LIVE).await;
        for _ in 1..8 {
            browser.new_tab().await;
            browser.goto(&at(&rest.serve, "/executions")).await;
            browser.wait(LIVE).await;
        }
        rest.call("fake.echo", &json!({"text": "hi"}));
        browser.wait("document.querySelector('#list').innerText.includes('echo')").await;
        rest.order("/executions/stop");
        browser.wait_for_text("All calls are stopped.").await;
        browser.wait("!document.body.innerText.includes('Stop all calls')").await;
        rest.order("/executions/reset");
        browser.wait("!document.body.innerText.includes('All calls are stopped.')").await;
        browser.wait_for_text("Stop all calls").await;
        assert_eq!(browser.log().await, Vec::<String>::new());

        browser.goto(&at(&rest.serve, "/servers/fake")).await;
        browser.wait(LIVE).await;
        rest.delete("/servers/fake");
        browser.wait_for_text("there is no server `fake`").await;
        browser.close().await;
    });
}

#[test]
fn a_signed_out_user_is_informed_and_loses_no_input() {
    let rest = Rest::start_as(|launch| launch.env("MCP_AGGREGATOR_TOKEN", TOKEN));
    // An event makes pages refresh.
    let happens = |what: &str| {
        let ask = HttpRequest::new("POST", &format!("{PREFIX}/executions/{what}")).header("Content-Length", "0");
        assert_eq!(rest.serve.fetch(&ask.header("Authorization", &format!("Bearer {TOKEN}"))).status, 200);
    };
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/settings")).await;
        browser.fill("#token", TOKEN).await;
        browser.click("button").await;
        browser.wait(LIVE).await;
        browser.fill("#timeout_ms", "4321").await;
        browser.run("fetch('/logout', {method: 'POST', body: new URLSearchParams({csrf})}).then(() => { window.isOut = true })").await;
        browser.wait("window.isOut").await;
        happens("stop");
        browser.wait("document.querySelector('#live a')?.textContent === 'signed out: sign in'").await;

        let first = browser.tab().await;
        browser.new_tab().await;
        browser.goto(&at(&rest.serve, "/login")).await;
        browser.fill("#token", TOKEN).await;
        browser.click("button").await;
        browser.wait(LIVE).await;
        browser.look_at(first).await;
        happens("reset");
        browser.wait("!document.body.innerText.includes('All calls are stopped.') && csrf === document.querySelector('form[action=\"/settings\"] input[name=csrf]').value").await;
        browser.click("form[action='/settings'] button").await;
        browser.wait_for_text("Saved.").await;
        assert_eq!(browser.run("return document.getElementById('timeout_ms').value").await, "4321");
        browser.close().await;
    });
}

#[test]
fn a_long_result_is_cut_and_a_call_has_its_own_times() {
    const TOOL: &str = r#"{"name":"long","inputSchema":{"type":"object"}}"#;
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(TOOL));
    add_puppet(&rest, "big", &puppet);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/playground?tool=big.long")).await;
        browser.wait(LIVE).await;
        browser.click("#run").await;
        let call = puppet.expect("tools/call");
        // A later call by another client to the same tool must not be mistaken for ours.
        let other = rest.serve.session("/mcp/big");
        let mut connection = rest.serve.connect();
        connection.send(&other.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"long"}}"#));
        puppet.expect("tools/call").answer(r#"{"content":[]}"#);
        assert_eq!(connection.answer().status, 200);
        let word = "x".repeat(300_000);
        call.answer(&json!({"content": [{"type": "text", "text": word}]}).to_string());
        browser.wait("document.querySelector('#outcome a[download]')").await;
        assert_eq!(
            browser.run("return document.querySelector('#outcome pre.block').textContent.length").await,
            200_000
        );
        browser.wait("document.querySelector('#times a')").await;
        let id = browser.run("return document.querySelector('#times a').getAttribute('href').split('/').pop()").await;
        let kept = rest.get(&format!("/executions/{}", id.as_str().expect("a link"))).json();
        assert!(kept["response_bytes"].as_u64() > Some(300_000), "this is our call: {kept}");
        browser.close().await;
    });
}
