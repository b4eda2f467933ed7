//! Markdown documents that run tools: what is in them, what may run where, and where results go.

mod apply;
mod binding;
mod block;
mod document;
mod file;
mod lines;
mod outline;
mod plan;
mod problem;
mod region;
mod render;
mod run;
mod scan;
mod schema;
mod toolbox;
mod yaml;

pub use apply::{Applied, ApplyOptions, Edit, Fate, Placement, apply};
pub use binding::{Binding, Bindings, Bound, Origin, Section, matches_path};
pub use block::{Addressee, Block, Display, Format, blocks};
pub use document::{Document, Fence, Heading};
pub use file::{FileError, Saved, assets_folder, read, save, write_attachments};
pub use outline::{Outline, OutlineBlock, OutlineSection, outline};
pub use plan::{Plan, Selection, SelectionError, Step};
pub use problem::{Fault, Problem, Trouble};
pub use region::Note;
pub use render::Attachment;
pub use run::{Finished, Progress, Report, RunOptions, Status, run};
pub use toolbox::{Answer, Failure, Lookup, Question, Request, Server, Toolbox};
