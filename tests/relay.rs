//! Everything of a server reaches a client with the same lifecycle, in both directions.
//!
//! - [`lists`]: order, bytes, pages, collisions, instructions
//! - [`resources`]: read from the server that has them; [`subscriptions`]: updates for subscribers
//! - [`prompts`]: prompts and completion; [`logging`]: log messages and their level
//! - [`in_flight`]: progress, cancellation and pings of pending requests; [`changes`]: list changes
//! - [`server_requests`]: roots, sampling, elicitation; [`tasks`]: calls that outlive their request
//! - [`unknown`]: unknown methods and notifications
//! - [`isolation`]: several clients of one server

mod changes;
mod in_flight;
mod isolation;
mod lists;
mod logging;
mod prompts;
mod resources;
mod server_requests;
mod subscriptions;
mod tasks;
mod unknown;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::all_capabilities;
use testkit::{ClientSession, Config, Driver, Launch, Puppet, Serve, raw, wait_until};

/// A config with these servers, in this order.
#[track_caller]
pub(crate) fn config(servers: &[(&str, &Puppet)]) -> Config {
    servers.iter().fold(Config::new(), |config, (name, puppet)| config.server(name, puppet.entry()))
}

/// `mcp-aggregator serve` with these servers, all of them up.
#[track_caller]
pub(crate) fn serving(servers: &[(&str, &Puppet)]) -> Serve {
    let serve = Serve::start(&config(servers));
    // A list also waits for them, but only for a limited time: on a busy machine it may be answered before all are
    // connected.
    wait_until("all servers are connected", || {
        let state = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/state")).json();
        (state["connected_servers"] == servers.len()).then_some(())
    });
    serve.session("/mcp").ids("tools/list");
    serve
}

/// `mcp-aggregator stdio` with these servers, and a legacy client that supports every kind of server request.
#[track_caller]
pub(crate) fn connected(servers: &[(&str, &Puppet)]) -> Driver {
    connected_with(servers, &all_capabilities())
}

/// The same with a client that declares exactly these capabilities.
#[track_caller]
pub(crate) fn connected_with(servers: &[(&str, &Puppet)], capabilities: &Value) -> Driver {
    let mut client = Launch::service(&config(servers)).start();
    introduce(&mut client, capabilities);
    // When this is answered, all servers are connected.
    client.ids("tools/list");
    client
}

/// Initializes as a client of the latest legacy revision.
#[track_caller]
pub(crate) fn introduce(client: &mut Driver, capabilities: &Value) -> Value {
    let hello = testkit::http_session::Hello { capabilities: capabilities.clone(), ..Default::default() };
    let welcome = client.ask("initialize", hello.params());
    client.tell("notifications/initialized", json!({}));
    welcome
}

/// A value in a line, as it was written.
#[track_caller]
pub(crate) fn at<'l>(line: &'l [u8], path: &[&str]) -> &'l str {
    raw::at(line, path).unwrap_or_else(|| panic!("no {path:?} in {}", String::from_utf8_lossy(line)))
}

/// The elements of a list in a line, each as it was written.
#[track_caller]
pub(crate) fn elements<'l>(line: &'l [u8], path: &[&str]) -> Vec<&'l str> {
    raw::elements(at(line, path).as_bytes()).expect("it is an array")
}

/// The code of an error answer.
#[track_caller]
pub(crate) fn code_of(answer: &Value) -> i64 {
    crate::fixture::error_of(answer).0
}

/// How many of these lines are messages of this method.
pub(crate) fn count_of(lines: &[Vec<u8>], method: &str) -> usize {
    let quoted = raw::quote(method);
    lines.iter().filter(|line| raw::at(line, &["method"]) == Some(&quoted)).count()
}
