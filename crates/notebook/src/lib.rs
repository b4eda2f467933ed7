//! Markdown documents that run tools: what is in them, what may run where, and where results go.

mod document;
mod lines;
mod problem;
mod region;
mod scan;
mod schema;
mod toolbox;
mod yaml;

pub use document::{Document, Fence, Heading};
pub use problem::{Fault, Problem, Trouble};
pub use region::Note;
pub use toolbox::{Answer, Failure, Lookup, Question, Request, Server, Toolbox};
