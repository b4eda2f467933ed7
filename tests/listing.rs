//! `tools/list`: every tool of every server, under its prefixed name and otherwise as its server sent it.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use testkit::{Config, Driver, Launch, ServerEntry, fake, raw};

use crate::fixture::{START_TIMEOUT, connected, error_of, initialized, text_of};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A fake server with a few tools and no others.
fn with_tools(count: usize) -> ServerEntry {
    fake().args(["--only-generated", "--tools", &count.to_string()])
}

/// A fake server that lists exactly these definitions.
fn with_definitions(definitions: &[&str]) -> (TempDir, ServerEntry) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("tools");
    fs::write(&file, definitions.join("\n")).expect("a temporary folder can be written");
    let entry = fake().args(["--only-generated", "--tool-file", file.to_str().expect("a plain path")]);
    (folder, entry)
}

fn safe(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[test]
fn tools_come_in_config_order_and_then_in_the_servers_own() {
    // The first server is the last to be ready.
    let config = Config::new()
        .server("zebra", with_tools(2).args(["--start-delay-ms", "200"]))
        .server("ant", with_tools(3))
        .server("middle", with_tools(1).args(["--start-delay-ms", "100"]));
    let expected = ["zebra:tool_0", "zebra:tool_1", "ant:tool_0", "ant:tool_1", "ant:tool_2", "middle:tool_0"];
    let mut client = connected(&config);
    assert_eq!(client.tool_names(), expected);
    assert_eq!(client.tool_names(), expected, "and the same the second time");
}

#[test]
fn the_key_is_a_prefix_verbatim_whatever_it_is() {
    let keys =
        ["my server", "a:b", "a:", ":", "say \"hi\"", "back\\slash", "日本", "😀", "tab\there", "a.b/c", "__", "0"];
    let config = keys.iter().fold(Config::new(), |config, key| config.server(key, with_tools(1)));
    let mut client = connected(&config);
    let names: Vec<String> = keys.iter().map(|key| format!("{key}:tool_0")).collect();
    assert_eq!(client.tool_names(), names);
    for (key, name) in keys.iter().zip(&names) {
        assert_eq!(text_of(&client.call(name, json!({"text": key}))), *key);
    }
}

#[test]
fn a_definition_keeps_every_byte_but_the_name() {
    let definitions = [
        (r#"{"name":"plain","inputSchema":{"type":"object"}}"#, "plain"),
        (r#"{ "inputSchema" : { "type":"object" } , "name" : "spaced"  ,	"tab":	1 }"#, "spaced"),
        (r#"{"z":1,"name":"in the middle","a":2,"inputSchema":{"type":"object"}}"#, "in the middle"),
        (r#"{"name":"n\u0061me\/esc\"aped\\","x":1,"inputSchema":{"type":"object"}}"#, r#"n\u0061me\/esc\"aped\\"#),
        (r#"{"name":"\ud83d\ude00 pair","x":"\ud83d\ude00","inputSchema":{"type":"object"}}"#, r"\ud83d\ude00 pair"),
        (r#"{"name":"émoji 😀 𝄞 日本","inputSchema":{"type":"object"}}"#, "émoji 😀 𝄞 日本"),
        (
            r#"{"name":"numbers","n":[1.0,1e2,1E+2,-0,1e400,0.10,123456789012345678901234567890123456789012],"inputSchema":{"type":"object"}}"#,
            "numbers",
        ),
        (
            r#"{"name":"inner","inputSchema":{"type":"object","name":"inner","properties":{"name":{"name":"inner"}}}}"#,
            "inner",
        ),
        (r#"{"name":"repeated","inputSchema":{"type":"object","a":1,"a":2,"a":{"b":1,"b":1}}}"#, "repeated"),
        (r#"{"name":"nul","description":"\u0000\u001f\u007f","inputSchema":{"type":"object"}}"#, "nul"),
        (r#"{"name":"separators","description":"\u2028  \u2029  ","inputSchema":{"type":"object"}}"#, "separators"),
        (
            r#"{"name":"unknown","icons":[{"src":"x"}],"_meta":{"a/b":null},"execution":{},"x-y":[[[]]],"inputSchema":{"type":"object"}}"#,
            "unknown",
        ),
        (r#"{"name":"empty","":"","title":"","annotations":{"":{}},"inputSchema":{"type":"object"}}"#, "empty"),
        (r#"{"\u006eame":"spelled key","inputSchema":{"type":"object"}}"#, "spelled key"),
        (r#"{"name":"a:b:c","inputSchema":{"type":"object"}}"#, "a:b:c"),
        (r#"{"name":" ","inputSchema":{"type":"object"}}"#, " "),
    ];
    let deep =
        format!(r#"{{"name":"deep","inputSchema":{{"type":"object"}},"x":{}{}}}"#, "[".repeat(50), "]".repeat(50));
    let long =
        format!(r#"{{"name":"long","inputSchema":{{"type":"object"}},"description":"{}"}}"#, "x".repeat(1_000_000));
    let mut written: Vec<&str> = definitions.iter().map(|(definition, _)| *definition).collect();
    written.extend([deep.as_str(), &long]);
    let (_folder, entry) = with_definitions(&written);
    let mut client = connected(&Config::new().server("s \"1\"", entry));

    let name_tokens = definitions.iter().map(|(_, name)| *name).chain(["deep", "long"]);
    let expected: Vec<String> = written
        .iter()
        .zip(name_tokens)
        .map(|(definition, name)| {
            let key = if definition.contains(r"\u006eame") { r#""\u006eame""# } else { "\"name\"" };
            let at = definition.find(key).unwrap() + key.len();
            let (before, after) = definition.split_at(at);
            format!("{before}{}", after.replacen(&format!("\"{name}\""), &format!(r#""s \"1\":{name}""#), 1))
        })
        .collect();
    assert_eq!(client.list_raw_tools(), expected);

    for (_, token) in definitions {
        let name = raw::text(&format!("\"{token}\"")).unwrap();
        let answer = client.call(&format!("s \"1\":{name}"), json!({"text": "found"}));
        assert_eq!(text_of(&answer), "found", "{name}");
    }
}

#[test]
fn a_tool_without_a_usable_name_is_omitted_and_reported() {
    let (_folder, entry) =
        with_definitions(&[r#"{"name":"\ud800"}"#, r#"{"name":5}"#, "{}", r#"{"name":""}"#, "7", r#"{"name":"good"}"#]);
    let mut client = connected(&Config::new().server("one", entry));
    assert_eq!(client.tool_names(), ["one:good"]);
    client.wait_for_stderr("no usable name");
}

#[test]
fn invalid_definitions_are_repaired_or_omitted_and_reported_once() {
    let good = r#"{"name":"good","inputSchema":{"type":"object"}}"#;
    let (_folder, entry) = with_definitions(&[
        r#"{"name":"bare"}"#,
        r#"{"name":"mute"}"#,
        r#"{"name":"list","inputSchema":{"type":"array"}}"#,
        r#"{"name":"sure","title":"\ud800","annotations":{"readOnlyHint":"yes", "x":1.0},"inputSchema":{"type":"object"}}"#,
        good,
    ]);
    let mut client = connected(&Config::new().server("s", entry));
    assert_eq!(
        client.list_raw_tools(),
        [
            r#"{"inputSchema":{"type":"object"},"name":"s:bare"}"#,
            r#"{"inputSchema":{"type":"object"},"name":"s:mute"}"#,
            r#"{"name":"s:sure","title":"\ufffd","annotations":{"x":1.0},"inputSchema":{"type":"object"}}"#,
            &good.replace("good", "s:good"),
        ]
    );
    client.wait_for_stderr("repaired 2 tools: `inputSchema` is missing (bare, mute)");
    client.wait_for_stderr("left out 1 tool: `inputSchema.type` is not `object` (list)");
    client.wait_for_stderr("repaired 1 tool: `annotations.readOnlyHint` is not true or false (sure)");
    assert_eq!(text_of(&client.call("s:bare", json!({"text": "called"}))), "called");
}

#[test]
fn a_tool_hidden_by_another_of_the_same_full_name_is_reported() {
    let (_first, first) = with_definitions(&[r#"{"name":"b:c","from":"a","inputSchema":{"type":"object"}}"#]);
    let (_second, second) = with_definitions(&[r#"{"name":"c","from":"a:b"}"#]);
    let mut client = connected(&Config::new().server("a", first).server("a:b", second));
    assert_eq!(client.list_raw_tools(), [r#"{"name":"a:b:c","from":"a","inputSchema":{"type":"object"}}"#]);
    client.wait_for_stderr("a:b:c");
}

#[test]
fn the_pages_of_a_server_are_followed_to_the_end() {
    let expected: Vec<String> = (0..25).map(|number| format!("one:tool_{number}")).collect();
    for extra in [&["--page-size", "7"][..], &["--page-size", "7", "--empty-cursor"], &["--page-size", "1"], &[]] {
        let mut client = connected(&Config::new().server("one", with_tools(25).args(extra.iter().copied())));
        assert_eq!(client.tool_names(), expected, "{extra:?}");
    }
}

#[test]
fn a_large_list_comes_in_pages_and_a_small_one_does_not() {
    let mut client = connected(&Config::new().server("a", with_tools(1700)).server("b", with_tools(800)));
    let (mut sizes, mut names, mut params) = (Vec::new(), Vec::new(), json!({}));
    loop {
        let id = client.request("tools/list", params);
        let answer = client.response(id);
        let page = answer["result"]["tools"].as_array().unwrap();
        sizes.push(page.len());
        names.extend(page.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match answer["result"].get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    assert_eq!(sizes, [1000, 1000, 500]);
    let a = (0..1700).map(|number| format!("a:tool_{number}"));
    let b = (0..800).map(|number| format!("b:tool_{number}"));
    assert!(names.iter().eq(a.chain(b).collect::<Vec<_>>().iter()));
}

#[test]
fn a_cursor_that_is_not_ours_is_refused() {
    let mut client = connected(&Config::new().server("one", with_tools(1001)));
    let id = client.request("tools/list", json!({}));
    let ours = client.response(id)["result"]["nextCursor"].as_str().unwrap().to_owned();
    assert_eq!(ours, "mcpa-page-1");
    let foreign = [
        json!("x"),
        json!(""),
        json!("→ \"page\" \\ 7"),
        json!(format!("{ours}0")),
        json!(format!("{ours} ")),
        json!("mcpa-page-+1"),
        json!("mcpa-page-01"),
        json!(5),
        json!(["x"]),
        json!({}),
        json!(true),
    ];
    for cursor in foreign {
        let id = client.request("tools/list", json!({"cursor": cursor}));
        assert_eq!(error_of(&client.response(id)).0, -32602, "{cursor}");
    }
    let id = client.request("tools/list", json!({"cursor": ours}));
    assert_eq!(client.response(id)["result"]["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn a_list_waits_for_servers_that_are_still_starting() {
    let config =
        Config::new().server("slow", with_tools(1).args(["--start-delay-ms", "700"])).server("quick", with_tools(1));
    let mut client = connected(&config);
    assert_eq!(client.tool_names(), ["slow:tool_0", "quick:tool_0"]);
    client.expect_silence(Duration::from_millis(50));
}

#[test]
fn a_list_does_not_wait_for_ever() {
    for phase in ["initialize", "list"] {
        let config = Config::new()
            .server("hangs", with_tools(1).args(["--hang-at", phase]).field("startTimeout", 5000))
            .server("quick", with_tools(1));
        let mut client = connected(&config);
        assert_eq!(client.tool_names(), ["quick:tool_0"], "{phase}");
        client.wait_for_stderr("within 5 s");
    }
}

#[test]
fn after_ten_seconds_a_list_omits_late_servers_which_are_announced_by_list_changed() {
    // Much later than ten seconds, so that it is late even on a busy machine.
    let config =
        Config::new().server("late", with_tools(1).args(["--start-delay-ms", "25000"])).server("quick", with_tools(1));
    let begun = Instant::now();
    let mut client = initialized(Launch::aggregator(&config).env(START_TIMEOUT, "120"));
    assert_eq!(client.tool_names(), ["quick:tool_0"]);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(9), "{waited:?}");
    client.wait_for_stderr("answered `tools/list` with an incomplete list");
    client.wait_for_stderr("still_starting=late");
    assert_eq!(client.tool_names(), ["quick:tool_0"], "now at once");
    client.notification(LIST_CHANGED);
    assert_eq!(client.tool_names(), ["late:tool_0", "quick:tool_0"]);
    assert_eq!(client.stderr_text().matches("incomplete list").count(), 1, "{}", client.stderr_text());
}

#[test]
fn a_server_that_changes_its_tools_changes_our_list() {
    let config = Config::new().server("one", fake().args(["--tools", "1"])).server("two", with_tools(1));
    let mut client = connected(&config);
    assert!(client.tool_names().contains(&"one:tool_0".to_owned()));
    client.call("one:change_tools", json!({"names": ["new", "newer"]}));
    client.notification(LIST_CHANGED);
    let names = client.tool_names();
    assert_eq!(names[..2], ["one:new", "one:newer"]);
    assert!(!names.contains(&"one:tool_0".to_owned()));
    assert_eq!(text_of(&client.call("one:newer", json!({"text": "hi"}))), "hi");
    assert_eq!(error_of(&client.call("one:tool_0", json!({}))).0, -32601);
}

#[test]
fn a_change_without_effect_is_not_announced() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    client.tool_names();
    client.call("one:change_tools", json!({"names": []}));
    // The second server's change comes later and is announced; the first one's would have come before it.
    client.call("two:change_tools", json!({"names": ["x"]}));
    client.notification(LIST_CHANGED);
    client.expect_silence(Duration::from_millis(50));
}

#[test]
fn clients_known_to_need_safe_names_get_them() {
    let (_folder, entry) = with_definitions(&[r#"{"name":"get.time"}"#, r#"{"name":"log"}"#]);
    let config = Config::new().server("my git", entry).server("one", with_tools(1));
    for name in ["claude-ai", "claude-code", "cursor-vscode", "Visual Studio Code", "codex-mcp-client", "openai-mcp"] {
        let mut client = Driver::start(&config);
        client.initialize_as(name, "2025-06-18");
        let names = client.tool_names();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|name| safe(name)), "{name}: {names:?}");
        assert_eq!(names[2], "one__tool_0");
        for name in &names {
            assert_eq!(text_of(&client.call(name, json!({"text": "safe"}))), "safe");
        }
        assert_eq!(text_of(&client.call("my git:get.time", json!({"text": "canonical"}))), "canonical");
    }
}

#[test]
fn other_clients_get_canonical_names_and_may_call_under_safe_ones() {
    for name in ["mcp-inspector", "claude-desktop", ""] {
        let mut client = Driver::start(&Config::new().server("one", with_tools(1)));
        client.initialize_as(name, "2025-06-18");
        assert_eq!(client.tool_names(), ["one:tool_0"]);
        assert_eq!(text_of(&client.call("one__tool_0", json!({"text": "hi"}))), "hi");
    }
}

#[test]
fn the_large_program_lists_canonical_names_only_to_clients_known_to_accept_them() {
    let config = Config::new().server("one", with_tools(1));
    for (name, expected) in [
        ("mcp-inspector", "one.tool_0"),
        ("gemini-cli-mcp-client", "one.tool_0"),
        ("claude-ai", "one__tool_0"),
        ("my-own-agent", "one__tool_0"),
        ("", "one__tool_0"),
    ] {
        let mut legacy = Launch::service(&config).start();
        legacy.initialize_as(name, "2025-06-18");
        assert_eq!(legacy.tool_names(), [expected], "{name:?}");
        let mut modern = Launch::service(&config).start();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        });
        let id = modern.request("tools/list", json!({"_meta": meta}));
        assert_eq!(modern.response(id)["result"]["tools"][0]["name"], expected, "{name:?}");
        for called in ["one.tool_0", "one__tool_0"] {
            assert_eq!(text_of(&legacy.call(called, json!({"text": "hi"}))), "hi");
            let arguments = json!({"text": "hi"});
            let id = modern.request("tools/call", json!({"name": called, "arguments": arguments, "_meta": meta}));
            assert_eq!(text_of(&modern.response(id)), "hi");
        }
    }
}

#[test]
fn a_modern_client_without_a_name_is_listed_safe_names() {
    let mut client = Launch::service(&Config::new().server("one", with_tools(1))).start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let id = client.request("tools/list", json!({"_meta": meta}));
    assert_eq!(client.response(id)["result"]["tools"][0]["name"], "one__tool_0");
}

#[test]
fn the_names_option_overrules_the_client() {
    for (policy, client_name, expected) in [
        ("safe", "mcp-inspector", "one__tool_0"),
        ("canonical", "claude-ai", "one:tool_0"),
        ("auto", "claude-ai", "one__tool_0"),
        ("auto", "mcp-inspector", "one:tool_0"),
    ] {
        let mut client =
            Launch::aggregator(&Config::new().server("one", with_tools(1))).args(["--names", policy]).start();
        client.initialize_as(client_name, "2025-06-18");
        assert_eq!(client.tool_names(), [expected], "{policy} {client_name}");
    }
}

#[test]
fn safe_names_of_long_and_odd_tools_are_different_and_stay_the_same() {
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(200));
    let longer = format!(r#"{{"name":"{}y"}}"#, "x".repeat(200));
    let (_folder, entry) =
        with_definitions(&[&long, &longer, r#"{"name":"a.b"}"#, r#"{"name":"a/b"}"#, r#"{"name":"日本"}"#]);
    let config = Config::new().server("s", entry);
    let mut lists = Vec::new();
    for _ in 0..2 {
        let mut client = initialized(Launch::aggregator(&config).args(["--names", "safe"]));
        let names = client.tool_names();
        assert!(names.iter().all(|name| safe(name)), "{names:?}");
        lists.push(names);
    }
    assert_eq!(lists[0], lists[1]);
    let mut distinct = lists[0].clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
}

#[test]
fn a_server_without_tools_is_fine() {
    let config = Config::new().server("none", with_tools(0)).server("one", with_tools(1));
    let mut client = connected(&config);
    assert_eq!(client.tool_names(), ["one:tool_0"]);
    let answer = client.call("none:x", json!({}));
    assert_eq!(answer["error"]["data"], json!({"reason": "unknown_tool", "server": "none"}));
}
