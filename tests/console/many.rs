//! With fifty servers and five thousand tools every page stays small; the time of each is printed.

use std::io::Write;
use std::time::{Duration, Instant};

use testkit::wait_until;

use super::Visitor;
use super::pages::assets;
use crate::rest::{Rest, expect, fake};

const SERVERS: usize = 50;
const TOOLS_EACH: &str = "100";
/// The maximum size of a page with everything it loads.
const HEAVIEST: usize = 150_000;
const LOOKS: usize = 5;

#[test]
fn with_fifty_servers_and_five_thousand_tools_every_page_stays_small() {
    let rest = Rest::start();
    for number in 0..SERVERS {
        expect(201, &rest.post("/servers", &fake(&format!("server-{number:02}"), &["--tools", TOOLS_EACH])));
    }
    wait_until("all tools are there", || {
        rest.get("/state").json()["total_tools"].as_u64().filter(|tools| *tools >= 5000)
    });
    for (name, list) in [("resources", "resources"), ("templates", "templates"), ("prompts", "prompts")] {
        expect(
            201,
            &rest.post("/servers", &fake(name, &["--endless-list", list, "--pages", "1", "--page-bytes", "5000000"])),
        );
    }
    for list in ["/resources", "/resources/templates", "/prompts"] {
        wait_until(list, || {
            rest.get(&format!("{list}?limit=1")).json().as_array().filter(|items| items.len() == 1).cloned()
        });
    }
    let visitor = Visitor::new(&rest);
    let mut reported = String::new();
    for path in [
        "/",
        "/servers/server-07",
        "/tools",
        "/tools?q=read+a+file",
        "/tools?server=server-07",
        "/tools?state=on",
        "/tools/server-07/tool_3",
        "/resources",
        "/resources?offset=100&templates=150",
        "/prompts",
        "/prompts?offset=100",
        "/playground?tool=server-07.tool_3",
        "/executions",
        "/documents",
        "/add",
        "/settings",
        "/audit",
        "/system",
    ] {
        let mut best = Duration::MAX;
        let mut page = String::new();
        for _ in 0..LOOKS {
            let began = Instant::now();
            page = visitor.page(path);
            best = best.min(began.elapsed());
        }
        let weight = page.len() + assets(&page).iter().map(|path| visitor.page(path).len()).sum::<usize>();
        assert!(weight < HEAVIEST, "{path} weighs {weight} bytes");
        reported += &format!("{path}: {:.1} ms, {} KB\n", best.as_secs_f64() * 1e3, weight / 1000);
    }
    // Not by a macro, because their output is hidden in tests that pass.
    std::io::stderr().write_all(reported.as_bytes()).expect("stderr can be written");
}
