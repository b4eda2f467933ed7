//! Messages of 50 MB, in both directions.

use serde_json::json;
use testkit::processes::peak_rss_kb;
use testkit::{Config, Driver, fake};

use crate::fixture::{Journal, connected, text_of};

const LENGTH: usize = 50_000_000;
/// The allowed memory growth per message length, in hundredths.
const MAX_GROWTH_PERCENT: usize = 220;

/// Runs `exchange`, and returns the largest memory growth of the program as a share of [`LENGTH`].
fn growth_percent(client: &mut Driver, exchange: impl FnOnce(&mut Driver)) -> usize {
    let before = peak_rss_kb(client.pid());
    exchange(client);
    let grown = peak_rss_kb(client.pid()) - before;
    usize::try_from(grown).expect("memory fits") * 1024 * 100 / LENGTH
}

#[test]
fn a_result_of_50_mb_passes_unchanged_in_little_more_memory_than_it_needs() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let growth = growth_percent(&mut client, |client| {
        let id = client.start_call("one:blob", json!({"bytes": LENGTH}));
        let line = client.response_line(id);
        let (start, end) =
            (format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#), r#""}]}}"#);
        let text = line.strip_prefix(start.as_bytes()).and_then(|rest| rest.strip_suffix(end.as_bytes())).unwrap();
        assert!(text.len() == LENGTH && text.iter().all(|&byte| byte == b'x'));
    });
    assert!(growth <= MAX_GROWTH_PERCENT, "memory grew by {growth} % of the message");
}

#[test]
fn an_argument_of_50_mb_passes_unchanged_in_little_more_memory_than_it_needs() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    client.tool_names();
    let text = "é\\u00e9".repeat(LENGTH / 8);
    let growth = growth_percent(&mut client, |client| {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{{"name":"one:size","arguments":{{"t":"{text}"}}}}}}"#
        );
        client.send_raw(call.as_bytes());
        client.send_raw(b"\n");
        client.response("big");
    });
    let received = journal.bytes();
    let end = format!(r#","method":"tools/call","params":{{"name":"size","arguments":{{"t":"{text}"}}}}}}{}"#, '\n');
    assert!(received.ends_with(end.as_bytes()), "the argument was changed");
    assert!(growth <= MAX_GROWTH_PERCENT, "memory grew by {growth} % of the message");
}

#[test]
fn calls_to_other_servers_are_answered_while_a_large_result_passes() {
    let mut client = connected(&Config::new().server("big", fake()).server("small", fake()));
    client.tool_names();
    let large: Vec<u64> = (0..3).map(|_| client.start_call("big:blob", json!({"bytes": LENGTH}))).collect();
    for _ in 0..10 {
        assert_eq!(text_of(&client.call("small:echo", json!({"text": "meanwhile"}))), "meanwhile");
    }
    for id in large {
        assert!(client.response_line(id).len() > LENGTH);
    }
}

#[test]
fn memory_is_given_back_after_a_large_message() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let id = client.start_call("one:blob", json!({"bytes": LENGTH}));
    client.response_line(id);
    // The response to a small call shows that the large one is finished.
    client.call("one:echo", json!({}));
    let now = testkit::rss_kb(client.pid());
    assert!(now < 25 << 10, "{now} kB are still held");
}
