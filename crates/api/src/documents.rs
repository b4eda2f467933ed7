//! Documents that run tools, over REST. The text comes with the request or from the one folder that may be read.
//!
//! - here: which document a request is about, and its context: the servers, and the bindings of the registry
//! - `tools`: makes the calls of a document; `run`: a run, answered in one piece or as events
//! - `preflight`: finds what would keep blocks from running; `file_events`: reports changes of a file

mod file_events;
mod preflight;
mod run;
mod tools;

use std::path::Path;
use std::sync::Arc;

use executions::Error as CallError;
use notebook::{Binding, FileError, Folder, FolderError, MAX_DOCUMENT_BYTES, NotDone, Origin, Section, Server};
use registry::Page;
use service::{BindingView, Error, Service};

use crate::request::{ApiRequest, refuse};
pub(crate) use file_events::change_events;
pub use preflight::open_document;
pub(crate) use run::{Output, Run, RunRequest, planned};
pub(crate) use tools::{AssistantOptions, ServiceTools, own_session};

/// The document that a request is about.
#[derive(Debug, Clone)]
pub(crate) struct RequestedDocument {
    pub(crate) text: String,
    /// Its path, for bindings and executions: as the client sent it, or the absolute path of a served file.
    pub(crate) path: Option<String>,
    /// Its path in the documents folder, if its text is from there.
    pub(crate) file: Option<String>,
}

impl RequestedDocument {
    /// The document that a body contains or names.
    pub(crate) async fn by_body(request: &ApiRequest) -> Result<Self, Error> {
        let path = request.body.text("path");
        match (request.body.text("text"), path) {
            (Some(text), _) if text.len() > MAX_DOCUMENT_BYTES => {
                let why =
                    format!("the text has {} bytes; a document may have at most {MAX_DOCUMENT_BYTES}", text.len());
                Err(refuse(&["body", "text"], "value_error", why))
            }
            (Some(text), path) => Ok(Self { text, path, file: None }),
            (None, Some(path)) => Self::in_folder(request.documents.as_ref(), path).await,
            (None, None) => {
                Err(refuse(&["body", "text"], "missing", "send `text`, or the `path` of a served document"))
            }
        }
    }

    /// A document of the served folder.
    pub(crate) async fn in_folder(folder: Option<&Arc<Folder>>, path: String) -> Result<Self, Error> {
        let Some(folder) = folder.cloned() else {
            let why =
                "no documents folder is configured; start the service with `mcp-aggregator serve --documents DIR`";
            return Err(Error::DocumentNotFound { path, why: why.to_owned() });
        };
        run_blocking(move || {
            let path = folder.relative(&path).unwrap_or(path);
            let text = folder.read(&path).map_err(|error| not_found(&path, &error))?;
            let whole = folder.whole_path(&path).map_err(|error| not_found(&path, &error))?;
            Ok(Self { text, path: Some(whole.to_string_lossy().into_owned()), file: Some(path) })
        })
        .await
    }

    /// The folder for attachments, as the document names it.
    pub(crate) fn assets_folder(&self) -> String {
        notebook::assets_folder(Path::new(self.path.as_deref().unwrap_or("document.md")))
    }
}

/// The context of a document.
#[derive(Debug, Clone)]
pub(crate) struct DocumentContext {
    /// All servers, in order.
    pub(crate) servers: Vec<Server>,
    /// The bindings of the registry for this document.
    pub(crate) registered: Vec<Binding>,
}

impl DocumentContext {
    pub(crate) async fn of(service: &Service, path: Option<&str>) -> Result<Self, Error> {
        let servers = service.servers(None, Page::ALL).items;
        let servers =
            servers.into_iter().map(|view| Server { name: view.record.name, is_enabled: view.record.enabled });
        let registered = match path {
            Some(path) => {
                let all = service.bindings(None, None, Page::ALL).await?.items;
                notebook::bindings_for(path, all.into_iter().map(binding))
            }
            None => Vec::new(),
        };
        Ok(Self { servers: servers.collect(), registered })
    }
}

/// The document path of a stored binding, and the binding itself.
fn binding(shown: BindingView) -> (String, Binding) {
    let kept = shown.record.binding;
    let line = |line: u32| usize::try_from(line).unwrap_or(usize::MAX);
    let section = match kept.section {
        registry::Section::Heading { heading_text } => Section::Heading { heading_text },
        registry::Section::Block { block_id } => Section::Block { block_id },
        registry::Section::Range { start_line, end_line } => {
            Section::Range { start_line: line(start_line), end_line: line(end_line) }
        }
    };
    let inherit_to_children = kept.inherit_to_children;
    let binding = Binding { section, server: shown.server_name, inherit_to_children, origin: Origin::Registry };
    (kept.document, binding)
}

/// Why a document cannot be read or written. I/O errors go to the log, not to the client.
pub(crate) fn not_found(path: &str, error: &FolderError) -> Error {
    let why = match error {
        FolderError::File(FileError::Write { source, .. }) => {
            tracing::warn!(%path, error = %source, "failed to write a document");
            let why = match source.kind() {
                std::io::ErrorKind::PermissionDenied => "the service has no permission to write it",
                std::io::ErrorKind::ReadOnlyFilesystem => "it is on a read-only file system",
                std::io::ErrorKind::StorageFull => "the disk is full",
                _ => "the write failed; see the log for details",
            };
            return Error::DocumentNotWritable { path: path.to_owned(), why: why.to_owned() };
        }
        FolderError::File(FileError::Restless { .. }) => {
            let why = "another program keeps changing it".to_owned();
            return Error::DocumentNotWritable { path: path.to_owned(), why };
        }
        FolderError::NoDocument { why, .. } => (*why).to_owned(),
        FolderError::File(FileError::NotText { .. }) => "it is not UTF-8 text".to_owned(),
        FolderError::File(error) => {
            tracing::warn!(%path, %error, cause = ?std::error::Error::source(error), "failed to read a document");
            "it could not be read".to_owned()
        }
    };
    Error::DocumentNotFound { path: path.to_owned(), why }
}

/// Processes a document on the threads for that. They are few, so that documents never use all CPUs.
pub(crate) async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    notebook::off_runtime(work).await.unwrap_or_else(|error| match error {
        NotDone::Busy(_) => {
            let message = format!("the document cannot be processed now: {error}; try again later");
            Err(Error::Call(CallError::LimitReached { message, context: serde_json::Map::new() }))
        }
        NotDone::Failed(_) => Err(Error::Internal { what: format!("failed to process a document: {error}") }),
    })
}

/// Runs blocking disk access outside the threads that relay calls.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Internal { what: format!("failed to process a document: {error}") }))
}
