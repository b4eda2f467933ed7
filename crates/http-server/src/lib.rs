//! The HTTP server: many clients, over Streamable HTTP of both lifecycles and over HTTP+SSE.
//!
//! # Layout, in the order a request travels
//! - `serve`: connections, and the end of everything when we are told to stop; `self_wake`: how they are polled; `watch`:
//!   those that take too long
//! - `routes`: from the door to the one who answers; `guard`: whose page or program asks; `path`: where to; `cors`: what
//!   browsers want to be told
//! - `admission`: whether a request is let in, by a token (`tokens`) or, without tokens, by the user of its connection
//!   (`local`, which asks `sock_diag`); `auth_failures`: those that were not
//! - `post`: a message, taken in (`read_body`, `accept`) and given to its lifecycle
//! - `modern`: requests that stand for themselves; `legacy`: sessions; `sse`: the oldest transport; `health`
//! - `respond`: JSON if the answer comes first, else a stream of events; `answer`: responses and refusals
//! - `stream`: messages on their way to one reader, who may come back; `sse_frame`: one message in its frame; `body`: what
//!   the connection writes; `on_disconnect`: what is to be done when nobody reads any more
//! - `identity`: how much of the HTTP server each token, or the local user, uses
//! - `session`, `sessions`, `usage`: legacy clients, one and all, and how much they do
//! - `fallback`: what else is served at the same address, by somebody else
//! - `server`: what all of it shares; `limits`; `fuzzing`: what the fuzz target calls
//!
//! Bytes, not trees: a body goes to the aggregator as it came, and an answer comes back as it was written.

mod accept;
mod admission;
mod answer;
mod auth_failures;
mod body;
mod cors;
mod fallback;
mod fuzzing;
mod guard;
mod health;
mod identity;
mod legacy;
mod limits;
mod local;
mod modern;
mod on_disconnect;
mod panics;
mod path;
mod post;
mod read_body;
mod respond;
mod routes;
mod self_wake;
mod serve;
mod server;
mod session;
mod sessions;
#[cfg(target_os = "linux")]
mod sock_diag;
mod sse;
mod sse_frame;
mod startup;
mod stream;
mod tokens;
mod usage;
mod watch;

pub use auth_failures::{AuthFailures, AuthReading};
pub use fallback::{AdmittedByConnection, FallbackBody, FallbackResponse, FallbackService};
pub use fuzzing::check_request;
pub use guard::GuardError;
pub use health::{Health, HealthCheck};
pub use limits::Limits;
pub use local::{LocalAccess, PeerLookup, random_secret};
pub use serve::serve;
pub use server::{HttpServer, check_host, check_origin, has_port};
pub use startup::answer_while;
pub use tokens::{MIN_SECURE_TOKEN_CHARS, TokenError, Tokens};
