//! What one server, or one client, can occupy: each is refused with the limit that it exceeds, memory stays bounded, and
//! others are served.
//!
//! - [`servers`]: lists, handshakes, notifications, requests and messages of servers
//! - [`clients`]: identity, ids, subscriptions, sessions, connections and bodies, per token

mod clients;
mod servers;

use serde_json::{Value, json};
use testkit::{ClientSession, Serve};

/// The memory limit of the service without large messages, in kB: about twice what it uses when idle.
const BASELINE_KB: u64 = 250_000;

/// The server `well` responds.
#[track_caller]
fn assert_well(client: &mut dyn ClientSession) {
    let answer = client.ask("tools/call", json!({"name": "well.echo", "arguments": {"text": "still here"}}));
    assert_eq!(answer["result"]["content"][0]["text"], "still here", "{answer}");
}

/// The message of an error.
#[track_caller]
fn message_of(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("expected an error, but got {answer}"))
}

/// Changes settings of a running service.
#[track_caller]
fn set(serve: &Serve, settings: &Value) {
    let ask = testkit::http_client::HttpRequest::new("PATCH", "/api/v1/aggregator/settings");
    let answer = serve.fetch(&ask.header("Content-Type", "application/json").body(settings.to_string()));
    assert_eq!(answer.status, 200, "{answer:?}");
}
