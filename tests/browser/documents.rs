//! Documents in a browser: blocks are run one by one, by section and all, results appear, and a run can be stopped.

use std::fs;

use serde_json::json;
use testkit::puppet::{Puppet, Spec};

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::console::documents::with_documents;

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn blocks_are_run_one_by_one_by_section_and_all_and_their_results_appear() {
    let (rest, place) = with_documents();
    let file = place.path().join("notes/friday.md");
    let read = || fs::read_to_string(&file).expect("the document is there");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/documents")).await;
        browser.click("a[href$='friday.md']").await;
        browser.wait("document.getElementById('live').textContent === 'live'").await;
        browser.click("#block-run-1").await;
        browser.wait("document.querySelectorAll('.cell-result.ok').length === 1").await;
        browser.wait("document.querySelector('.cell-result').innerText.includes('hello')").await;
        browser.wait("document.querySelector('[data-state=\"1\"]').innerText.startsWith('done')").await;
        assert_eq!(read().matches("<!-- mcp-result ").count(), 1, "it stands in the file");

        browser.click("[id^='section-run-']").await;
        browser.wait("document.querySelectorAll('.cell-result.ok').length >= 2").await;
        browser.wait("document.getElementById('stop').hidden").await;
        browser.click("#run-all").await;
        browser.wait("document.getElementById('run-status').innerText === '3 done'").await;
        browser.wait("document.querySelectorAll('.cell-result.ok').length === 3").await;
        assert_eq!(read().matches("<!-- mcp-result ").count(), 3);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn pictures_and_errors_are_shown_refusals_explained_and_a_run_is_stopped() {
    let (rest, place) = with_documents();
    let answer = format!(
        r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{PIXEL}"}},{{"type":"text","text":"<img src=x onerror=alert(1)>"}}]}}"#
    );
    let puppet = Puppet::over_http(
        Spec::legacy().raw_tool(r#"{"name":"draw","inputSchema":{"type":"object"}}"#).answers("tools/call", &answer),
    );
    add_puppet(&rest, "art", &puppet);
    let text = "# Mixed\n\n```art\ntool: draw\n```\n\n```one\ntool: nothing_like_it\n```\n\n```one\ntool: hang\n```\n\n```one\ntool: echo\ntext: never\n```\n";
    fs::write(place.path().join("notes/mixed.md"), text).expect("the test can write there");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/documents?path=mixed.md")).await;
        browser.wait("document.getElementById('live').textContent === 'live'").await;
        browser.click("#run-all").await;
        browser.wait("document.querySelector('.cell-result img')?.naturalWidth === 1").await;
        browser.wait("document.querySelector('#problems').innerText.includes('nothing_like_it')").await;
        browser.wait("document.querySelector('[data-state=\"3\"]').innerText === 'running'").await;
        browser.click("#stop").await;
        browser.wait("document.querySelector('[data-state=\"3\"]').innerText === 'stopped'").await;
        browser.wait("document.querySelector('[data-state=\"4\"]').innerText === 'not run'").await;
        testkit::wait_until("the call is cancelled", || {
            (rest.get("/executions?status=cancelled").json()[0]["tool_name"] == json!("hang")).then_some(())
        });
        let strangers = "return document.querySelectorAll('img:not([src^=\"/\"]), [onerror]').length";
        assert_eq!(browser.run(strangers).await, 0);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
