//! Bytes of the Model Context Protocol: what a message says, found without taking it apart.
//!
//! # Layout
//! - [`scan`]: a validating cursor over JSON text that yields spans instead of values
//! - [`envelope`]: the JSON-RPC envelope of one message, as spans into its line
//! - [`splice`]: a message with a few spans replaced, ready to be written without copying the rest
//! - [`lines`]: newline-delimited framing over a growing buffer; [`replace_line_breaks`]: a message over several lines as one
//! - [`events`]: server-sent events, the framing of streams over HTTP
//! - [`escape`]: text that others wrote, made safe for a terminal or a log
//! - [`text`]: JSON string tokens, decoded and encoded
//! - [`reply`]: the messages we write ourselves
//! - [`revision`]: the protocol revisions and how one is agreed on
//! - [`trace`]: which trace a request belongs to
//! - [`bridge`]: what crosses from one kind of conversation to the other, translated
//!
//! Nothing here does I/O, reads a clock or spawns anything. Payloads are never parsed into a tree:
//! what passes through is validated byte by byte and handed on as it came.

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

pub use envelope::{Envelope, EnvelopeError, Kind, Params};
pub use line_breaks::replace_line_breaks;
pub use lines::{Line, Lines};
pub use revision::{Lifecycle, Revision};
pub use scan::Span;
