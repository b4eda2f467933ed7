//! Every page on a desktop and on a phone, in light and dark mode: no policy violations, no overflow, no accessibility
//! problems.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::program;

use super::chromium::{self, Browser, DESK, Look, PHONE};
use super::{at, with_browsers};
use crate::rest::{Rest, expect};

/// Every page, with the name of its screenshot.
const PAGES: [(&str, &str); 14] = [
    ("overview", "/"),
    ("server", "/servers/calc"),
    ("failed-server", "/servers/broken"),
    ("tools", "/tools?q=count+the+days"),
    ("all-tools", "/tools"),
    ("tool", "/tools/calc/evaluate"),
    ("playground", "/playground?tool=calc.evaluate"),
    ("executions", "/executions"),
    ("documents", "/documents"),
    ("document", "/documents?path=friday.md"),
    ("add-server", "/add"),
    ("settings", "/settings"),
    ("audit", "/audit"),
    ("health", "/system"),
];

#[test]
fn every_page_can_be_used_by_everybody_at_every_width_and_breaks_no_rule() {
    let (rest, _documents) = furnished();
    let Some(axe) = chromium::axe() else { return chromium::skipped("axe-core is not installed") };
    with_browsers(async |driver| {
        for look in [DESK, PHONE] {
            let browser = driver.open(look).await;
            for (name, path) in PAGES {
                browser.goto(&at(&rest.serve, path)).await;
                browser.wait("document.getElementById('live').textContent === 'live'").await;
                if name == "playground" {
                    browser.fill("#fields input, #fields textarea", "(3 * 84 + 40) / 2").await;
                    browser.click("#run").await;
                    browser.wait("document.getElementById('outcome').innerText.includes('146')").await;
                }
                let wider = browser
                    .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    .await;
                assert!(wider.as_i64().is_some_and(|wider| wider <= 0), "{name} is {wider} too wide at {}", look.width);
                assert_eq!(found_by(&browser, &axe).await, Vec::<String>::new(), "{name} at {}", look.width);
                assert_eq!(browser.log().await, Vec::<String>::new(), "{name} at {}", look.width);
                keep_picture(&browser, name, look).await;
            }
            browser.close().await;
        }
    });
}

/// A document with blocks to run.
const DOCUMENT: &str = "# Friday\n\nWhat the trip costs, and how long it is until then.\n\n## Money\n<!-- mcp: calc -->\n\n\
    ```mcp\ntool: evaluate\nexpression: (3 * 84 + 40) / 2\n```\n\n```mcp\ntool: evaluate\nexpression: 12 / (4 - 4)\n```\n\n\
    ## Notes\n\n```notes\ntool: list\n```\n\n### For later\n\n- [ ] tickets\n- [x] somewhere to sleep\n";

/// A service with data on every page.
fn furnished() -> (Rest, TempDir) {
    let documents = TempDir::with_prefix("documents-").expect("a temporary folder can be made");
    std::fs::write(documents.path().join("friday.md"), DOCUMENT).expect("the test can write there");
    let rest = Rest::start_as(|launch| launch.arg("--documents").arg(documents.path()));
    for (name, about) in [("calc", "Arithmetic, units and dates"), ("notes", "Notes in a folder")] {
        let command = program(&format!("example-{name}"));
        let folder = rest.folder.path().join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let config = json!({"command": command, "cwd": folder, "env": {"NOTES_DIR": folder}});
        let server =
            json!({"name": name, "description": about, "transport_type": "stdio", "connection_config": config});
        expect(201, &rest.post("/servers", &server));
        rest.wait_for_status(name, "connected");
    }
    let config = json!({"command": "sh", "args": ["-c", "echo 'could not read credentials' >&2; exit 3"]});
    rest.post("/servers", &json!({"name": "broken", "transport_type": "stdio", "connection_config": config}));
    rest.wait_for_status("broken", "error");
    for number in 1..8 {
        rest.call("calc.evaluate", &json!({"expression": format!("{number} / 3 + 0.1")}));
    }
    rest.call("calc.evaluate", &json!({"expression": "1 +"}));
    expect(200, &rest.post("/documents/run", &json!({"path": "friday.md", "save": true})));
    (rest, documents)
}

/// The serious accessibility problems of a page.
pub(super) async fn found_by(browser: &Browser, axe: &str) -> Vec<String> {
    browser.run(axe).await;
    browser.run("window.found = null; axe.run(document, {resultTypes: ['violations']}).then((result) => { window.found = result.violations })").await;
    browser.wait("window.found !== null").await;
    let found = browser.run("return window.found.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' '))").await;
    found.as_array().into_iter().flatten().map(Value::to_string).collect()
}

pub(super) async fn keep_picture(browser: &Browser, name: &str, look: Look) {
    let Some(folder) = std::env::var_os("MCP_SCREENSHOTS").map(PathBuf::from) else { return };
    // Relative to the repository, like all paths that tests take.
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let look = if look.is_dark { "phone-dark" } else { "desk" };
    std::fs::write(folder.join(format!("{name}-{look}.png")), browser.picture().await).expect("a picture can be kept");
}
