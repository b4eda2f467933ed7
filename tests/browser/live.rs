//! External changes appear at once, and text of servers is never interpreted.

use std::fs;
use std::io::Write;

use serde_json::json;
use testkit::program;
use testkit::puppet::Puppet;

use super::chromium::DESK;
use super::{at, with_browsers};
use crate::console::add_puppet;
use crate::console::hostile::hostile;
use crate::console::usage::register_beside;
use crate::profiles::put;
use crate::rest::{Rest, expect};

#[test]
fn a_change_in_one_browser_appears_in_another() {
    let rest = Rest::start();
    with_browsers(async |driver| {
        let (watching, working) = (driver.open(DESK).await, driver.open(DESK).await);
        watching.goto(&at(&rest.serve, "/")).await;
        watching.wait("document.getElementById('live').textContent === 'live'").await;
        watching.run("window.untouched = true").await;
        working.goto(&at(&rest.serve, "/add")).await;
        working.fill("#f-name", "fake").await;
        working.fill("#f-command", program("fake-server").to_str().expect("our folders are UTF-8")).await;
        working.click("button[value=save]").await;
        working.wait_for_text("Added fake.").await;
        watching.wait("document.querySelector('#servers').innerText.includes('connected')").await;

        working.click("button[formaction$=disable]").await;
        watching.wait("document.querySelector('#servers').innerText.includes('disabled')").await;
        working.click("button[formaction$=enable]").await;
        watching.wait("document.querySelector('#servers').innerText.includes('connected')").await;
        assert_eq!(watching.run("return window.untouched").await, true, "the page was never loaded anew");

        watching.goto(&at(&rest.serve, "/executions")).await;
        watching.wait("document.getElementById('live').textContent === 'live'").await;
        rest.call("fake.echo", &json!({"text": "hi"}));
        watching.wait("document.querySelector('#list').innerText.includes('echo')").await;
        watching.click("a[data-drawer]").await;
        watching.wait("document.querySelector('dialog.drawer').innerText.includes('On the server')").await;

        watching.goto(&at(&rest.serve, "/profiles")).await;
        watching.wait("document.getElementById('live').textContent === 'live'").await;
        expect(201, &put(&rest.serve, "readers", &json!({"classes": ["read_only"]})));
        watching.wait("document.querySelector('#profiles').innerText.includes('/mcp/@readers')").await;
        assert_eq!((watching.log().await, working.log().await), (Vec::new(), Vec::new()));
        watching.close().await;
        working.close().await;
    });
}

/// Keeps a page from receiving events until `receiveEvents()` is called in it.
const WITHOUT_EVENTS: &str = "
const Original = SharedWorker;
window.SharedWorker = function (address) {
  const port = { postMessage() {} };
  window.receiveEvents = () => { new Original(address).port.onmessage = (event) => port.onmessage(event); };
  return { port };
};";

#[test]
fn a_page_catches_up_with_what_happened_before_it_received_events() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.run_first(WITHOUT_EVENTS).await;
        browser.goto(&at(&rest.serve, "/servers/fake")).await;
        browser.wait("document.querySelector('#top').innerText.includes('connected') && receiveEvents").await;
        expect(200, &rest.order("/servers/fake/disable"));
        rest.wait_for_status("fake", "disabled");
        browser.run("receiveEvents()").await;
        browser.wait("document.querySelector('#top').innerText.includes('disabled')").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn a_drawer_follows_its_call_and_nothing_moves_while_a_text_is_marked() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let (id, mut hanging) = rest.begin_to_hang("fake");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/executions")).await;
        browser.wait("document.getElementById('live').textContent === 'live'").await;
        browser.click("a[data-drawer]").await;
        browser.wait("document.querySelector('dialog.drawer').innerText.includes('executing')").await;
        rest.delete(&format!("/executions/{id}"));
        browser.wait("document.querySelector('dialog.drawer').innerText.includes('cancelled')").await;
        assert_eq!(hanging.answer().status, 409);
        browser.wait("document.querySelector('#list').innerText.includes('cancelled')").await;
        browser.click("dialog.drawer .close").await;
        browser.wait("document.activeElement.matches('#list a[data-drawer]')").await;

        browser.run("getSelection().selectAllChildren(document.querySelector('#list th'))").await;
        rest.call("fake.echo", &json!({"text": "hi"}));
        browser.wait("document.getElementById('live').textContent.includes('while text is selected')").await;
        assert_eq!(browser.run("return document.querySelector('#list').innerText.includes('echo')").await, false);
        browser.run("getSelection().removeAllRanges()").await;
        browser.wait("document.querySelector('#list').innerText.includes('echo')").await;
        browser.wait("document.getElementById('live').textContent === 'live'").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn hostile_names_descriptions_and_results_do_nothing() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(hostile());
    add_puppet(&rest, "evil", &puppet);
    let name = rest.get("/tools").json()[0]["name"].as_str().expect("the tool is known").to_owned();
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        for path in ["/", "/servers/evil", "/tools", "/tools?q=alert", "/executions", "/playground"] {
            browser.goto(&at(&rest.serve, path)).await;
            browser.wait("document.getElementById('live').textContent === 'live'").await;
        }
        browser.run(&format!("location.href = '/playground?tool=' + encodeURIComponent({})", json!(name))).await;
        browser.wait("document.querySelector('#fields select')").await;
        browser.click("#run").await;
        browser.wait("document.querySelector('#outcome .badge')").await;
        let strangers = "return document.querySelectorAll('img:not([src^=\"/assets/\"]), script:not([src^=\"/assets/\"]), a[href^=\"javascript:\"]').length";
        assert_eq!(browser.run(strangers).await, 0);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}

#[test]
fn server_output_is_displayed_live_and_bounded() {
    let rest = Rest::start();
    let file = rest.folder.path().join("said");
    let said = |text: &str| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&file).expect("the test can write there");
        file.write_all(text.as_bytes()).expect("the test can write there");
    };
    said("before\n");
    register_beside(&rest, "loud", &format!("tail -n +1 -f {} >&2 &", file.display()));
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/servers/loud")).await;
        browser.wait("document.querySelector('#stderr').innerText.includes('before')").await;
        said("<img src=x onerror=alert(1)>\n");
        browser.wait("document.querySelector('#stderr').innerText.includes('<img src=x')").await;
        said(&(0..3000).map(|number| format!("line {number}\n")).collect::<String>());
        browser.wait("document.querySelector('#stderr').innerText.includes('line 2999')").await;
        let shown = browser.run("return document.querySelector('#stderr').childElementCount").await;
        assert!(shown.as_u64().is_some_and(|lines| lines <= 500), "{shown}");
        assert_eq!(browser.run("return document.querySelectorAll('#stderr img').length").await, 0);
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
}
