//! The bytes of the Model Context Protocol: finds the parts of a message without parsing it into a tree.
//!
//! # Layout
//!
//! - [`scan`]: a validating cursor over JSON text that returns spans instead of values
//! - [`envelope`]: the JSON-RPC envelope of one message, as spans into its line
//! - [`splice`]: a message with a few spans replaced, written without copying the rest
//! - [`lines`]: newline-delimited framing over a growing buffer; [`replace_line_breaks`]: joins a message of several
//!   lines
//! - [`events`]: server-sent events, the framing of streams over HTTP
//! - [`escape`]: makes text of others safe for a terminal or a log
//! - [`text`]: JSON string tokens, decoded and encoded
//! - [`reply`]: the messages that we create
//! - [`revision`]: the protocol revisions, and how one is negotiated
//! - [`trace`]: the trace context of a request
//! - [`bridge`]: translates messages between legacy and modern revisions
//!
//! Nothing here does I/O, reads a clock or spawns anything. Payloads are never parsed into a tree: messages are
//! validated byte by byte and passed on unchanged.

mod block;
pub mod bridge;
pub mod envelope;
pub mod escape;
pub mod events;
mod grammar;
mod line_breaks;
pub mod lines;
pub mod reply;
pub mod revision;
pub mod scan;
pub mod splice;
pub mod text;
pub mod trace;

pub use envelope::{Envelope, EnvelopeError, Kind, Params, RequestEnvelope};
pub use line_breaks::replace_line_breaks;
pub use lines::{Line, Lines};
pub use revision::{Lifecycle, Revision};
pub use scan::Span;
