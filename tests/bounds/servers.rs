//! Servers that list, send, request or answer more than allowed.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::processes::peak_rss_kb;
use testkit::{ClientSession, Config, HttpSession, Launch, Serve, fake, rss_kb, wait_until};

use super::{BASELINE_KB, assert_well, message_of, set};
use crate::fixture::{Journal, initialized, text_of};

/// A service with a hostile server and a well-behaved one.
#[track_caller]
fn next_to_healthy(name: &str, arguments: &[&str]) -> Serve {
    Serve::start(&Config::new().server(name, fake().args(arguments.iter().copied())).server("well", fake()))
}

#[test]
fn an_endless_list_fails_only_its_server() {
    let lists = ["tools", "prompts", "resources", "templates"];
    let entry = |list: &str| fake().args(["--endless-list", list, "--page-bytes", "1048576"]);
    let config =
        lists.iter().fold(Config::new(), |config, list| config.server(&format!("endless-{list}"), entry(list)));
    let serve = Serve::start(&config.server("well", fake()));
    for list in lists {
        serve.wait_for_stderr(&format!("server `endless-{list}` failed during initialization"));
    }
    serve
        .wait_for_stderr("but it lists more than 32 MB, which is the limit; the setting `server_catalog_kb` raises it");
    assert_well(&mut serve.session("/mcp"));
    // Each of four may keep what it listed so far.
    let peak = peak_rss_kb(serve.pid());
    assert!(peak < 2 * BASELINE_KB, "{peak} kB");
}

#[test]
fn the_small_program_has_the_same_bounds_and_names_its_variable() {
    let endless = fake().args(["--endless-list", "tools", "--page-bytes", "1048576"]);
    let config = Config::new().server("endless", endless).server("well", fake());
    let mut client = initialized(Launch::aggregator(&config));
    client.wait_for_stderr("server `endless` failed during initialization");
    client.wait_for_stderr("it lists more than 32 MB, which is the limit; MCP_AGGREGATOR_SERVER_CATALOG_KB raises it");
    assert_eq!(text_of(&client.call("well:echo", json!({"text": "still here"}))), "still here");
    let peak = peak_rss_kb(client.pid());
    assert!(peak < 120_000, "{peak} kB");
}

#[test]
fn the_number_of_pages_is_bounded_and_a_repeated_cursor_ends_the_list() {
    let endless = || fake().args(["--endless-list", "tools", "--page-bytes", "1"]);
    let config = Config::new().server("pages", endless()).server("circle", endless().arg("--repeat-cursors"));
    let launch = Launch::aggregator(&config).env("MCP_AGGREGATOR_SERVER_LIST_PAGES", "5");
    let client = initialized(launch);
    client.wait_for_stderr(
        "the list has more than 5 pages, which is the limit; MCP_AGGREGATOR_SERVER_LIST_PAGES raises it",
    );
    client.wait_for_stderr("it answered `tools/list` with the same cursor repeatedly");
}

#[test]
fn a_cursor_that_is_too_large_ends_the_list() {
    let puppet = testkit::Puppet::new(testkit::Spec::legacy().leaves("tools/list"));
    let client = initialized(Launch::aggregator(&Config::new().server("wordy", puppet.entry())));
    let page = json!({"tools": [], "nextCursor": "x".repeat(70_000)});
    puppet.expect("tools/list").answer(&page.to_string());
    client.wait_for_stderr("a cursor of 68 kB; at most 64 are read");
}

#[test]
fn the_lists_of_all_servers_are_bounded_together() {
    let many = || fake().args(["--only-generated", "--tools", "300"]);
    let config = Config::new().server("one", many()).server("other", many());
    let mut client = initialized(Launch::aggregator(&config).env("MCP_AGGREGATOR_ALL_CATALOGS_KB", "250"));
    client.wait_for_stderr("with it, all servers together list more than 250 kB, which is the limit");
    // The first one has all its tools.
    wait_until("the tools of one server are listed", || (client.tool_names().len() == 300).then_some(()));
}

#[test]
fn an_invalid_limit_is_reported_at_the_start() {
    let mut client = Launch::aggregator(&Config::new()).env("MCP_AGGREGATOR_SERVER_CATALOG_KB", "lots").start();
    client.wait_for_stderr("MCP_AGGREGATOR_SERVER_CATALOG_KB is \"lots\"; it must be a whole number from 1 to");
    assert!(!client.wait_exit().success());
}

#[test]
fn a_huge_handshake_fails_only_its_server() {
    for hostile in [["--instructions-bytes", "60000000"], ["--info-bytes", "20000000"]] {
        let serve = next_to_healthy("loud", &hostile);
        serve.wait_for_stderr("server `loud` failed during initialization: it answered `initialize`, but");
        serve.wait_for_stderr("which is the limit; the setting `server_");
        assert_well(&mut serve.session("/mcp"));
        let now = rss_kb(serve.pid());
        assert!(now < BASELINE_KB, "{hostile:?}: {now} kB");
    }
    let serve = next_to_healthy("loud", &["--instructions-bytes", "2000000"]);
    serve.wait_for_stderr(
        "the answer is more than 1 MB, which is the limit; the setting `server_handshake_kb` raises it",
    );
}

#[test]
fn instructions_are_bounded_for_one_server_and_for_all() {
    let serve = next_to_healthy("loud", &["--instructions-bytes", "100000"]);
    serve.wait_for_stderr(
        "its instructions are more than 64 kB, which is the limit; the setting `server_instructions_kb` raises it",
    );
    assert_well(&mut serve.session("/mcp"));

    let some = || fake().args(["--instructions-bytes", "3000"]);
    let config = Config::new().server("one", some()).server("other", some()).server("well", fake());
    let mut client = initialized(Launch::aggregator(&config).env("MCP_AGGREGATOR_ALL_INSTRUCTIONS_KB", "5"));
    client.wait_for_stderr("with it, the instructions of all servers are more than 5 kB, which is the limit");
    assert_eq!(text_of(&client.call("well:echo", json!({"text": "still here"}))), "still here");
}

#[test]
fn a_log_message_of_100_mb_is_neither_delivered_nor_stored() {
    let serve = next_to_healthy("loud", &["--hostile"]);
    let mut sessions: Vec<HttpSession> = (0..40).map(|_| serve.session("/mcp")).collect();
    sessions[0].ids("tools/list");
    let begun = sessions[0].begin_call("loud.log_bytes", json!({"bytes": 100_000_000}));
    for session in &mut sessions[1..6] {
        assert_well(session);
    }
    assert_eq!(text_of(&sessions[0].answer_to(begun)), "done");
    serve.wait_for_stderr("dropped a notification");
    serve.wait_for_stderr("server_notification_kb");
    let (peak, now) = (peak_rss_kb(serve.pid()), rss_kb(serve.pid()));
    // The line itself is read completely, into a buffer that grows.
    assert!(peak < BASELINE_KB + 220_000 && now < BASELINE_KB, "{peak} kB at most, {now} kB now");
}

#[test]
fn sessions_share_the_bytes_of_a_log_line() {
    let serve = next_to_healthy("loud", &["--hostile"]);
    let mut sessions: Vec<HttpSession> = (0..100).map(|_| serve.session("/mcp")).collect();
    sessions[0].ids("tools/list");
    assert_well(&mut sessions[0]);
    let before = rss_kb(serve.pid());
    let done =
        sessions[0].ask("tools/call", json!({"name": "loud.log_bytes", "arguments": {"bytes": 3_000_000, "times": 5}}));
    assert_eq!(text_of(&done), "done");
    let grown = rss_kb(serve.pid()).saturating_sub(before);
    // A copy for each client would be 300 MB.
    assert!(grown < 60_000, "grew by {grown} kB");
    // A client that reads gets it.
    sessions[7].listen();
    let message = sessions[7].notice("notifications/message");
    assert_eq!(message["params"]["data"].as_str().map(str::len), Some(3_000_000));
}

#[test]
fn too_large_progress_is_dropped_and_the_call_continues() {
    let serve = next_to_healthy("loud", &["--hostile"]);
    let mut session = serve.session("/mcp");
    session.ids("tools/list");
    let call = json!({"name": "loud.progress_bytes", "arguments": {"bytes": 30_000_000, "times": 3}, "_meta": {"progressToken": "p"}});
    assert_eq!(text_of(&session.ask("tools/call", call)), "done");
    serve.wait_for_stderr("dropped a notification");
    assert_well(&mut session);
}

#[test]
fn a_request_of_a_server_that_is_too_large_is_refused() {
    let journal = Journal::new();
    let serve = Serve::start(&Config::new().server("asking", journal.fake().arg("--hostile")).server("well", fake()));
    let mut session = HttpSession::introduce(serve.address(), "/mcp", &Hello::interactive());
    session.ids("tools/list");
    session.begin_call("asking.ask_bytes", json!({"bytes": 40_000_000}));
    let refused = wait_until("its request is refused", || {
        let lines = journal.lines().into_iter().map(|line| String::from_utf8_lossy(&line).into_owned());
        lines.into_iter().find(|line| line.contains("server_requests_kb"))
    });
    assert!(refused.contains("server `asking` sends too many requests") && refused.contains("32 MB"), "{refused}");
    assert_well(&mut session);
}

#[test]
fn a_line_without_end_is_given_up_while_it_grows() {
    let serve = next_to_healthy("loud", &["--line-bytes", "300000000"]);
    let mut session = serve.session("/mcp");
    session.ids("tools/list");
    assert_well(&mut session);
    serve.wait_for_stderr("it is more than 32 MB, which is the limit");
    let peak = peak_rss_kb(serve.pid());
    assert!(peak < BASELINE_KB + 70_000, "{peak} kB");
}

#[test]
fn a_result_that_is_too_large_fails_with_the_limit_that_a_setting_raises() {
    let serve = next_to_healthy("large", &["--hostile"]);
    let mut session = serve.session("/mcp");
    session.ids("tools/list");
    set(&serve, &json!({"server_message_kb": 2048}));
    for call in [
        json!({"name": "large.blob", "arguments": {"bytes": 5_000_000}}),
        json!({"name": "large.error_bytes", "arguments": {"bytes": 5_000_000}}),
    ] {
        let answer = session.ask("tools/call", call);
        let message = message_of(&answer);
        assert!(
            message.starts_with("server `large` sent a response that cannot be passed on: it is more than 2 MB"),
            "{message}"
        );
        assert!(message.contains("the setting `server_message_kb` raises it"), "{message}");
    }
    assert_well(&mut session);
    set(&serve, &json!({"server_message_kb": 8192}));
    let answer = session.ask("tools/call", json!({"name": "large.blob", "arguments": {"bytes": 5_000_000}}));
    assert_eq!(text_of(&answer).len(), 5_000_000);
}

#[test]
fn unread_messages_are_bounded_for_all_servers_and_count_until_read() {
    let serve = next_to_healthy("large", &[]);
    let mut reading = serve.session("/mcp");
    reading.ids("tools/list");
    set(&serve, &json!({"all_undelivered_kb": 60_000}));
    let idle = serve.session("/mcp");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"large.blob","arguments":{"bytes":50000000}}}"#;
    let mut blob = || reading.ask("tools/call", json!({"name": "well.blob", "arguments": {"bytes": 20_000_000}}));
    // The last one is refused: if that is the second one, the first still works.
    let (connection, refused) = wait_until("a second large result is refused", || {
        let mut connection = serve.connect();
        connection.send(&idle.post(call));
        let refused = (0..10).map(|_| blob()).find(|answer| answer["error"].is_object())?;
        Some((connection, refused))
    });
    let message = message_of(&refused);
    assert!(message.contains("server `well`") && message.contains("`all_undelivered_kb`"), "{message}");
    // Small ones are not affected.
    drop(connection);
    wait_until("large results pass again", || blob()["result"].is_object().then_some(()));
    assert_well(&mut reading);
}

#[test]
fn a_server_over_http_has_the_same_bounds() {
    let large = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{}"}}}}"#,
        "x".repeat(10 << 20)
    );
    let puppet = testkit::Puppet::over_http(testkit::Spec::legacy().tool("t").echoes());
    let serve = Serve::start(&Config::new().server("far", puppet.entry()).server("well", fake()));
    let mut session = serve.session("/mcp");
    session.ids("tools/list");
    set(&serve, &json!({"server_message_kb": 2048}));
    let text = "y".repeat(3_000_000);
    let answer = session.ask("tools/call", json!({"name": "far.t", "arguments": {"text": text}}));
    let message = message_of(&answer);
    assert!(message.contains("server `far`") && message.contains("`server_message_kb`"), "{message}");
    assert_well(&mut session);
    set(&serve, &json!({"server_message_kb": 100_000}));
    puppet.say(&large);
    serve.wait_for_stderr("dropped a notification");
    assert!(session.ask("tools/call", json!({"name": "far.t", "arguments": {"text": "z"}}))["result"].is_object());
}

#[test]
fn a_stderr_line_without_end_is_read_and_not_kept() {
    let serve = next_to_healthy("loud", &["--stderr-line-bytes", "200000000"]);
    let mut session = serve.session("/mcp");
    session.ids("tools/list");
    assert_well(&mut session);
    let answer = session.ask("tools/call", json!({"name": "loud.echo", "arguments": {"text": "said it all"}}));
    assert_eq!(text_of(&answer), "said it all");
    let peak = peak_rss_kb(serve.pid());
    assert!(peak < BASELINE_KB, "{peak} kB");
}

#[test]
fn settings_list_what_can_be_set() {
    let serve = next_to_healthy("other", &[]);
    let ask = HttpRequest::new("PATCH", "/api/v1/aggregator/settings").header("Content-Type", "application/json");
    let refused = serve.fetch(&ask.body(json!({"server_catalog_kb": 0}).to_string()));
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("server_catalog_kb") && refused.body.contains("expected 1 to"), "{}", refused.body);
}
