//! Documents in a browser: blocks run one by one, by section and all together, results appear, and a run can be
//! stopped.

use std::fs;

use serde_json::json;
use testkit::puppet::{Puppet, Spec};

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::console::documents::with_documents;
use crate::rest::expect;

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
        let foreseen = "document.querySelector('#document').innerText.includes('has no tool `nothing_like_it`')";
        browser.wait(foreseen).await;
        browser.click("#run-all").await;
        browser.wait("document.querySelector('.cell-result img')?.naturalWidth === 1").await;
        browser.wait("document.querySelector('[data-state=\"2\"]').innerText.startsWith('refused')").await;
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

/// Two blocks that echo their names.
const TWO: &str = "# Two\n\n```one\ntool: echo\ntext: first\n```\n\n```one\ntool: echo\ntext: second\n```\n";

#[test]
fn a_page_runs_the_block_that_it_shows_or_none_and_follows_its_file() {
    let (rest, place) = with_documents();
    let file = place.path().join("notes/two.md");
    let write = |text: &str| fs::write(&file, text).expect("the test can write there");
    write(TWO);
    let longer = TWO.replace("# Two\n", "# Two\n\n```one\ntool: echo\ntext: before\n```\n");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/documents?path=two.md")).await;
        browser.wait("document.getElementById('live').textContent === 'live'").await;
        browser.run("window.followed = refresh; refresh = () => {};").await;
        write(&longer);
        browser.click("#block-run-2").await;
        browser.wait_for_text("The document changed while it ran").await;
        browser.wait("document.getElementById('run-status').innerText === '1 not run'").await;
        assert_eq!(fs::read_to_string(&file).unwrap(), longer, "nothing is written");
        assert_eq!(rest.get("/executions?source=user-codeblock").json(), json!([]), "and nothing was called");

        browser.run("refresh = window.followed; refresh()").await;
        browser.wait("document.querySelector('#block-run-3')").await;
        write(TWO);
        browser.wait("!document.querySelector('#block-run-3')").await;
        browser.click("#block-run-2").await;
        browser.wait("document.querySelector('[data-state=\"2\"]').innerText.startsWith('done')").await;
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.find("text: second").unwrap() < written.find("<!-- mcp-result ").unwrap(), "{written}");

        // Text around the blocks does not prevent a run.
        browser.run("window.followed = refresh; refresh = () => {};").await;
        write(&format!("{TWO}\nA new paragraph.\n"));
        browser.click("#block-run-1").await;
        browser.wait("document.querySelector('[data-state=\"1\"]').innerText.startsWith('done')").await;
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.contains("<!-- mcp-result ") && written.ends_with("A new paragraph.\n"), "{written}");

        // A file may be missing for a moment.
        browser.run("refresh = window.followed; refresh()").await;
        browser.wait_for_text("A new paragraph.").await;
        fs::remove_file(&file).expect("it is there");
        browser.wait("!document.getElementById('gone').hidden").await;
        write(TWO);
        browser
            .wait("document.getElementById('gone').hidden && !document.body.innerText.includes('A new paragraph.')")
            .await;
        // The browser logs every refused request.
        let log = browser.log().await;
        assert!(log.iter().all(|line| line.contains("409") || line.contains("404")), "{log:?}");
        browser.close().await;
    });
}

#[test]
fn a_run_that_may_make_no_more_calls_ends_and_leaves_what_is_there() {
    let (rest, place) = with_documents();
    let file = place.path().join("notes/two.md");
    fs::write(&file, format!("{TWO}\n```assistant\nWell?\n```\n")).expect("the test can write there");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/documents?path=two.md")).await;
        browser.wait_for_text("this service has no assistant").await;
        browser.click("#run-all").await;
        browser.wait("document.getElementById('run-status').innerText === '2 done, 1 not run'").await;
        let before = fs::read_to_string(&file).unwrap();
        expect(200, &rest.patch("/settings", &json!({"session_limit": 1})));
        browser.click("#run-all").await;
        browser.wait("document.getElementById('run-status').innerText === '1 done, 2 not run'").await;
        browser.wait("document.querySelector('#problems a[href=\"/settings\"]')").await;
        assert_eq!(fs::read_to_string(&file).unwrap(), before, "good results are not replaced");
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
