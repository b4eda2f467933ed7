//! The HTTP server: many clients, over Streamable HTTP of both lifecycles and over HTTP+SSE.
//!
//! # Layout, in the order of a request
//! - `serve`: connections (`socket`), and the shutdown; `connection`: one of them, from the TLS handshake (`tls`,
//!   `client_stream`) to its last request; `http2`; `self_wake`: how they are polled; `watch`: those that take too long
//! - `routes`: from the connection to the handler; `guard`: hosts and origins; `path`: the paths; `cors`: the headers
//!   for browsers
//! - `trusted_proxies`: whose word about a client counts, if it is not the client's own connection
//! - `admission`: authentication, by a token (`tokens`, `token_line`), by an identity provider (`resource`) or, without
//!   tokens, by the user of the connection (`local`, which uses `sock_diag`); `credential`: the result; `auth_failures`:
//!   failures
//! - `sight`: which servers a request sees, by its address and the profile of its principal
//! - `post`: a message that is read (`read_body`, `accept`) and passed to its lifecycle
//! - `modern`: self-contained requests; `legacy`: sessions; `sse`: the oldest transport; `health`
//! - `respond`: JSON if the response comes first, else a stream of events; `answer`: responses and refusals
//! - `stream`: messages to one reader, which may reconnect; `sse_frame`: one message as an event; `body`: what the
//!   connection writes; `on_disconnect`: what happens when the reader disconnects
//! - `identity`: how much of the HTTP server each token, or the local user, uses
//! - `session`, `sessions`, `usage`: legacy sessions, one and all, and their activity
//! - `panics`: panics become responses; `startup`: responses while the service cannot start yet
//! - `fallback`: other paths at the same address, served by another crate
//! - `server`: what all of it shares; `limits`; `fuzzing`: what the fuzz target calls
//!
//! Bytes, not trees: a body is passed to the aggregator as it arrived, and a response is sent as it was written.

mod accept;
mod admission;
mod answer;
mod auth_failures;
mod body;
mod client_certificate;
mod client_stream;
mod connection;
mod cors;
mod credential;
mod fallback;
mod fuzzing;
mod guard;
mod health;
mod http2;
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
mod resource;
mod respond;
mod routes;
mod self_wake;
mod serve;
mod server;
mod session;
mod sessions;
mod sight;
#[cfg(target_os = "linux")]
mod sock_diag;
mod socket;
mod sse;
mod sse_frame;
mod startup;
mod stream;
mod tls;
mod token_line;
mod tokens;
mod trusted_proxies;
mod usage;
mod watch;

pub use auth_failures::{AuthFailures, AuthReading};
pub use client_certificate::CertificateRules;
pub use fallback::{AdmittedByConnection, FallbackBody, FallbackResponse, FallbackService, Voucher};
pub use fuzzing::check_request;
pub use guard::GuardError;
pub use health::{Health, HealthCheck};
pub use limits::Limits;
pub use local::{LocalAccess, PeerLookup, random_secret};
pub use resource::ProtectedResource;
pub use serve::{Listener, serve};
pub use server::{HttpServer, check_host, check_origin, has_port};
pub use socket::ListeningSocket;
pub use startup::answer_while;
pub use tls::{Tls, TlsError, TlsMaterial};
pub use tokens::{MIN_SECURE_TOKEN_CHARS, TokenError, Tokens};
pub use trusted_proxies::{NotAProxy, TrustedProxy};
