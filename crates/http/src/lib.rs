//! The HTTP front: many clients, over Streamable HTTP of both eras and over HTTP+SSE.
//!
//! # Layout, in the order a request travels
//! - `serve`: connections, and the end of everything when we are told to stop; `at_once`: how they are polled; `watch`:
//!   those that take too long
//! - `routes`: from the door to the one who answers; `guard`: whose page or program asks; `place`: where to; `cors`: what
//!   browsers want to be told
//! - `admission`: whether a request is let in, by a token (`tokens`) or, without tokens, by the user of its connection
//!   (`local`, which asks `sock_diag`); `auth_failures`: those that were not
//! - `post`: a message, taken in (`intake`, `accept`) and given to its era
//! - `modern`: requests that stand for themselves; `legacy`: sessions; `sse`: the oldest transport; `health`
//! - `respond`: JSON if the answer comes first, else a stream of events; `answer`: responses and refusals
//! - `stream`: messages on their way to one reader, who may come back; `parcel`: one message in its frame; `body`: what
//!   the connection writes; `leaving`: what is to be done when nobody reads any more
//! - `identity`: how much of the front each token, or the local user, uses
//! - `session`, `sessions`, `usage`: legacy clients, one and all, and how much they do
//! - `annexe`: what else is served at the same address, by somebody else
//! - `front`: what all of it shares; `limits`; `fuzzing`: what the fuzz target calls
//!
//! Bytes, not trees: a body goes to the aggregator as it came, and an answer comes back as it was written.

mod accept;
mod admission;
mod annexe;
mod answer;
mod at_once;
mod auth_failures;
mod body;
mod cors;
mod front;
mod fuzzing;
mod guard;
mod health;
mod identity;
mod intake;
mod leaving;
mod legacy;
mod limits;
mod local;
mod modern;
mod panics;
mod parcel;
mod place;
mod post;
mod respond;
mod routes;
mod serve;
mod session;
mod sessions;
#[cfg(target_os = "linux")]
mod sock_diag;
mod sse;
mod starting;
mod stream;
mod tokens;
mod usage;
mod watch;

pub use annexe::{Annexe, Foreign, ForeignBody, LetInByConnection};
pub use auth_failures::{AuthFailures, AuthReading};
pub use front::{Front, check_host, check_origin, has_port};
pub use fuzzing::check_request;
pub use guard::GuardError;
pub use health::{Health, HealthCheck};
pub use limits::Limits;
pub use local::{LocalAccess, PeerLookup, random_secret};
pub use serve::serve;
pub use starting::answer_while;
pub use tokens::{SHORTEST_GOOD, TokenError, Tokens};
