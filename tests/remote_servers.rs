//! Remote servers, reached by `mcp-aggregator stdio` over HTTP.
//!
//! - [`calls`]: tools are listed and called unchanged
//! - [`sessions`]: the session with a server, from start to end
//! - [`session_renewal`]: a session that the server ended is established again, and nothing sent in it is lost
//! - [`headers`]: credentials go to the server and nowhere else
//! - [`errors`]: failed requests, and what a client gets
//! - [`streams`]: progress, changes, responses after a reconnect
//! - [`server_requests`]: requests of a server on the stream of a call
//! - [`legacy`]: the older HTTP+SSE transport
//! - [`modern`]: servers of 2026-07-28
//! - [`unreachable`]: servers that are unreachable, disappear, come back or never respond

mod calls;
mod errors;
mod headers;
mod legacy;
mod modern;
mod server_requests;
mod session_renewal;
mod sessions;
mod streams;
mod unreachable;

use serde_json::{Value, json};
use testkit::http_server::Request;
use testkit::{Config, Driver, HttpServer, Launch, program};

use crate::fixture::{error_of, text_of};

/// Starts `mcp-aggregator` with this one server, called `web`, and initializes.
#[track_caller]
fn connected(server: &HttpServer) -> Driver {
    connected_to(&json!({"web": {"url": server.url()}}))
}

/// Starts `mcp-aggregator` with these servers, and initializes.
#[track_caller]
fn connected_to(servers: &Value) -> Driver {
    initialized(servers, |launch| launch)
}

/// The same with a changed launch.
#[track_caller]
fn initialized(servers: &Value, adjust: impl FnOnce(Launch) -> Launch) -> Driver {
    let config = Config::new().raw(json!({"mcpServers": servers}).to_string()).write();
    let launch = Launch::program(program("mcp-aggregator")).arg("stdio").arg("--config").arg(config.path());
    let mut client = adjust(launch).start();
    // When it responds, it has read the file.
    client.initialize();
    client
}

/// The call of `web.echo` works.
#[track_caller]
fn assert_echoes(client: &mut Driver) {
    let answer = client.call("web.echo", json!({"text": "still here"}));
    assert_eq!(text_of(&answer), "still here");
}

/// The message of a failed call, which names the server.
#[track_caller]
fn problem_of(answer: &Value) -> String {
    let (_, message) = error_of(answer);
    assert!(message.contains("`web`"), "{answer}");
    message.to_owned()
}

/// Waits until the list has this tool, or has it no more.
#[track_caller]
fn wait_for_tool(client: &mut Driver, name: &str, present: bool) {
    while client.tool_names().iter().any(|tool| tool == name) != present {
        client.notification("notifications/tools/list_changed");
    }
}

fn count(requests: &[Request], rpc_method: &str) -> usize {
    requests.iter().filter(|request| request.is(rpc_method)).count()
}

fn count_http(requests: &[Request], method: &str) -> usize {
    requests.iter().filter(|request| request.method == method).count()
}
