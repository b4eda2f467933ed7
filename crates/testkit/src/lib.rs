//! Never shipped: a server that misbehaves on purpose, and a harness that drives the real programs.
//!
//! # Layout
//! - [`program`]: where the programs under test are
//! - [`config`]: a config file in a folder of its own
//! - [`launch`]: how to start a program; [`driver`]: talking to it in bytes; [`client`]: talking to it in MCP
//! - [`run`]: start a program and wait for its end
//! - [`processes`]: what the kernel knows about a process; [`other_user`]: programs started as another user
//! - [`raw`]: looking into JSON without changing it
//! - `src/bin/fake-server`: the server
//! - [`collector`]: a collector of traces
//! - [`engine`]: a container engine to be thrown away
//! - [`model_server`]: scripted language models
//! - [`postgres`]: a PostgreSQL server to be thrown away; [`qdrant`]: a Qdrant
//! - [`puppet`]: a server whose every move the test directs; `src/bin/puppet`: its body
//! - [`serve`]: a running `mcp-aggregator serve`; [`http_client`]: talking to it in HTTP
//! - [`client_session`]: what all clients have in common; [`http_session`], [`sse_client`], [`modern`]: clients of all
//!   revisions
//! - [`http_server`]: a server over HTTP that follows a script; `src/bin/fake-http-server`: the same as a program
//!
//! Everything blocks, waits for a line or a state, and panics with the program's stderr when [`DEADLINE`] passes.
//!
//! ```no_run
//! use testkit::{Config, Driver, fake};
//!
//! let mut client = Driver::start(&Config::new().server("one", fake().arg("--junk")));
//! client.initialize();
//! let answer = client.call("one:echo", serde_json::json!({"text": "hello"}));
//! assert_eq!(answer["result"]["content"][0]["text"], "hello");
//! ```

mod background_post;
mod capture;
pub mod client;
pub mod client_session;
pub mod collector;
pub mod config;
pub mod driver;
pub mod engine;
pub mod http_client;
pub mod http_server;
pub mod http_session;
pub mod launch;
pub mod model_server;
pub mod modern;
pub mod other_user;
pub mod ports;
pub mod postgres;
pub mod processes;
pub mod program;
pub mod puppet;
pub mod qdrant;
pub mod raw;
pub mod run;
pub mod serve;
pub mod sse_client;
pub mod wait;

pub use client_session::ClientSession;
pub use collector::Collector;
pub use config::{Config, ServerEntry, fake};
pub use driver::Driver;
pub use engine::Engine;
pub use http_server::{HttpServer, Script};
pub use http_session::HttpSession;
pub use launch::Launch;
pub use model_server::{ModelReply, ModelRequestSeen, ModelServer};
pub use modern::{ModernHttp, ModernStdio};
pub use ports::free_port;
pub use postgres::Postgres;
pub use processes::{
    catches_signal, descendants, ignores_signal, open_fds, process_exists, process_state, processes_with_env, rss_kb,
    wait_gone, wait_gone_or_zombie,
};
pub use program::{copy_program, program, write_script};
pub use puppet::{Puppet, Spec};
pub use qdrant::Qdrant;
pub use run::{Output, run};
pub use rustix::process::Signal;
pub use serve::Serve;
pub use sse_client::SseClient;
pub use wait::{DEADLINE, takes_less_than, wait_until};
