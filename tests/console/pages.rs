//! Requirements of every page: complete, small, and restricted to our own files.

use testkit::puppet::{Puppet, Spec};

use super::Visitor;
use crate::rest::Rest;

const PAGES: [&str; 16] = [
    "/",
    "/servers/fake",
    "/tools",
    "/tools?q=echo",
    "/tools/fake/echo",
    "/playground?tool=fake.echo",
    "/executions",
    "/clients",
    "/profiles",
    "/prompts",
    "/resources",
    "/documents",
    "/add",
    "/settings",
    "/limits",
    "/system",
];

#[test]
fn every_page_is_small_and_allows_only_our_own_files() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    rest.call("fake.echo", &serde_json::json!({"text": "hi"}));
    let visitor = Visitor::new(&rest);
    for path in PAGES.into_iter().chain(["/audit"]) {
        let answer = visitor.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["cache-control"], "no-store");
        for inline in [" style=", " onclick=", " onload=", "<style", "javascript:"] {
            assert!(!answer.body.contains(inline), "{path} has {inline}");
        }
        let scripts: Vec<&str> = answer.body.split("<script").skip(1).collect();
        assert!(scripts.iter().all(|script| script.starts_with(" src=\"/assets/")), "{path} has a script of its own");
        let weight: usize =
            answer.body.len() + assets(&answer.body).iter().map(|path| visitor.page(path).len()).sum::<usize>();
        assert!(weight < 150_000, "{path} weighs {weight} bytes");
    }
}

pub(super) fn assets(page: &str) -> Vec<String> {
    page.split('"').filter(|part| part.starts_with("/assets/")).map(str::to_owned).collect()
}

#[test]
fn assets_are_cached_forever_and_missing_pages_are_404() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let style = assets(&visitor.page("/")).into_iter().find(|path| path.contains(".css")).expect("a page has a style");
    assert!(visitor.get(&style).headers["cache-control"].contains("immutable"));
    for nowhere in ["/servers/nobody", "/tools/nobody/nothing", "/executions/x", "/assets/console-0.css", "/settings/x"]
    {
        assert_eq!(visitor.get(nowhere).status, 404, "{nowhere}");
    }
    assert!(visitor.page("/").contains("No servers yet"));
}

#[test]
fn many_tools_are_shown_page_by_page() {
    let rest = Rest::start();
    rest.register("many", &["--tools", "5000"]);
    let visitor = Visitor::new(&rest);
    let first = visitor.page("/tools");
    assert!(first.contains("1–50 of 5\u{202f}0"), "the first page says where it is");
    assert!(first.len() < 100_000, "{} bytes", first.len());
    assert!(visitor.page("/tools?offset=4950").contains("Previous"));
}

#[test]
fn a_huge_tool_result_does_not_make_a_page_huge() {
    let word = "x".repeat(200_000);
    let tool =
        format!(r#"{{"name":"huge","description":"{word}","inputSchema":{{"type":"object","description":"{word}"}}}}"#);
    let rest = Rest::start();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&tool));
    super::add_puppet(&rest, "wordy", &puppet);
    let visitor = Visitor::new(&rest);
    for path in ["/tools/wordy/huge", "/playground?tool=wordy.huge", "/tools", "/servers/wordy"] {
        let page = visitor.page(path);
        assert!(page.len() < 100_000, "{path} has {} bytes", page.len());
        let longest = page.split(['<', '>', ' ', '\n']).map(str::len).max().unwrap_or_default();
        let most = if path.starts_with("/playground") { 2_200 } else { 20_200 };
        assert!(longest <= most, "{path} has a word of {longest} letters, which browsers take long to lay out");
    }
}
