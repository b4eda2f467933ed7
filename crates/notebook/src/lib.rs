//! Markdown documents that run tools: parsing, bindings, planning, running, and writing results.
//!
//! A fenced block whose language is a server's name (or `mcp`, or `assistant`) names a tool and its parameters in YAML.
//! Running a document calls the tools and writes each result below its block, between two marks. Everything else in the
//! document stays as it is, byte for byte.
//!
//! ````markdown
//! ```time
//! tool: get_current_time
//! timezone: Europe/Rome
//! ```
//! <!-- mcp-result id=0f8e9d0c1b2a3948 status=ok at=2026-01-02T03:04:05Z ms=120 -->
//! `04:04` *120 ms · 2026-01-02T03:04:05Z*
//! <!-- /mcp-result id=0f8e9d0c1b2a3948 -->
//! ````
//!
//! # From a document to its results
//!
//! 1. [`read`] a file, or use any text; [`Document::parse`] it.
//! 2. [`Bindings::of`]: which section is bound to which server, in the document or in the registry ([`bindings_for`]).
//!    [`outline`] shows them.
//! 3. [`Plan::new`]: which blocks run ([`Selection`]), on which servers, and what keeps them from running.
//! 4. [`run`] the plan with a [`Toolbox`], which knows servers and calls tools. It reports its [`Progress`], can be
//!    stopped, and returns a [`Report`]; the document is not changed.
//! 5. [`apply`] the report to a text, or [`save`] it into a file as it is on disk then.
//!
//! [`line_context`] describes one line. A [`Folder`] limits which documents on disk clients may access.
//!
//! # Options of a block
//!
//! After the language, `display` (`inline`, `block`, `collapsed`) and `format` (`text`, `json`, `markdown`) define how the
//! result is shown: ```` ```github tool=search display=collapsed ````. Among the parameters they are arguments of the
//! tool unless its schema forbids arguments of these names.

mod apply;
mod binding;
mod block;
mod context;
mod document;
mod file;
mod folder;
mod fuzz_input;
mod line_context;
mod lines;
mod outline;
mod plan;
mod problem;
mod region;
mod render;
mod run;
mod scan;
mod schema;
mod threads;
mod toolbox;
mod yaml;

pub use self::schema::{ArgumentCheck, CHECK_TIME_OF_RUN, check_arguments};
pub use apply::{Applied, ApplyOptions, Edit, Placement, PlacementOutcome, apply};
#[doc(hidden)]
pub use binding::fuzz_glob;
pub use binding::{
    Binding, Bindings, Bound, MAX_BINDING_TEXT, MAX_BINDINGS, MAX_PATTERN_LENGTH, Origin, Section, bindings_for,
    matches_path,
};
pub use block::{Addressee, Block, Display, Format, blocks};
pub use document::{Document, Fence, Heading, MAX_BYTES_PARSED_ALONGSIDE, MAX_DOCUMENT_BYTES};
pub use file::{FileError, Saved, assets_folder, check_writable, read, save, write_attachments};
pub use folder::{Folder, FolderError, Listing, Stamp};
pub use fuzz_input::{read_fuzz_document, read_fuzz_yaml};
pub use line_context::{LineBlock, LineContext, line_context};
pub use offload::{Interrupt, NotDone, PoolCounts};
pub use outline::{Outline, OutlineBlock, OutlineSection, outline};
pub use plan::{Plan, Selection, SelectionError, Step};
pub use problem::{Fault, Problem, ProblemKind};
pub use region::Note;
pub use render::Attachment;
pub use run::{Finished, Progress, Report, RunOptions, Status, run};
pub use threads::{WorkCounts, interruptible, off_runtime, work_counts};
pub use toolbox::{Answer, Extent, Failure, Question, Request, Server, ToolSchema, ToolTable, Toolbox, WantedTools};
