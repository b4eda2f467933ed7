//! A run of a document, answered in one piece or as events that end with the result.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use notebook::{
    Applied, ApplyOptions, Bindings, Document, Edit, Finished, Folder, Plan, Progress, Report, RunOptions, Selection,
    SelectionError, outline,
};
use serde::Serialize;
use serde_json::{Value, json};
use service::Error;
use tokio::sync::watch;

use super::tools::ServiceTools;
use super::{DocumentContext, RequestedDocument, compute, not_found, run_blocking};
use crate::error;
use crate::request::refuse;
use crate::sse_job::SseJob;

/// How the new text is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Edits,
    Both,
    Nothing,
}

/// A planned run.
pub(crate) struct Run {
    pub(crate) requested: RequestedDocument,
    pub(crate) plan: Plan,
    pub(crate) tools: ServiceTools,
    pub(crate) options: RunOptions,
    pub(crate) force: bool,
    pub(crate) output: Output,
    /// The folder to write the results into, if they are saved.
    pub(crate) folder: Option<Arc<Folder>>,
    /// Becomes true when the service stops.
    pub(crate) closing: watch::Receiver<bool>,
}

/// Which part of a document to run, and how.
pub(crate) struct RunRequest {
    pub(crate) selection: Selection,
    /// Whether results that were edited by hand are replaced.
    pub(crate) force: bool,
    /// The version of the document that the client saw, if only that one may run.
    pub(crate) version: Option<String>,
}

/// Plans a run and checks that its results can be written, before any block runs.
pub(crate) async fn planned(
    requested: &RequestedDocument,
    folder: Option<&Arc<Folder>>,
    document_context: DocumentContext,
    wanted: RunRequest,
) -> Result<Plan, Error> {
    if let (Some(folder), Some(file)) = (folder.cloned(), requested.file.clone()) {
        run_blocking(move || folder.check_writable(&file).map_err(|error| not_found(&file, &error))).await?;
    }
    let text = requested.text.clone();
    let path = requested.file.clone().or_else(|| requested.path.clone()).unwrap_or_default();
    compute(move || {
        let DocumentContext { servers, registered } = document_context;
        let document = Document::parse(text);
        let bindings = Bindings::of(&document, &registered);
        // Blocks are selected by number, and the numbers are only valid in the same text.
        if let Some(version) = wanted.version
            && outline(&document, &servers, &bindings).version != version
        {
            return Err(Error::DocumentChanged { path });
        }
        Plan::new(&document, &servers, &bindings, &wanted.selection, wanted.force).map_err(|error| {
            let member = match &error {
                SelectionError::NoBlock { .. } => "blocks",
                SelectionError::NoSection { .. } => "section",
                SelectionError::NoBlockAt { .. } => "line",
                SelectionError::TooMuch(_) => "text",
            };
            refuse(&["body", member], "value_error", error.to_string())
        })
    })
    .await
}

impl Run {
    /// Runs the document and returns the response. Dropping the future cancels the calls.
    pub(crate) async fn execute(self, progress: impl FnMut(Progress<'_>) + Send) -> Result<Value, Error> {
        let mut closing = self.closing.clone();
        let stop = async move {
            // The sender is dropped only when the program ends.
            closing.wait_for(|is_closing| *is_closing).await.ok();
        };
        let report = notebook::run(&self.plan, &self.tools, self.options, stop, progress).await;
        let (output, is_dry) = (self.output, self.options.is_dry);
        compute(move || {
            let applied = if is_dry { None } else { Some(self.apply(&report)?) };
            Ok(described(&report, applied.as_ref(), output))
        })
        .await
    }

    /// Inserts the results into the text, and saves the text if requested.
    fn apply(self, report: &Report) -> Result<Done, Error> {
        let assets = self.requested.assets_folder();
        if let (Some(folder), Some(file)) = (&self.folder, &self.requested.file) {
            let saved = folder.save(file, report, self.force).map_err(|error| not_found(file, &error))?;
            return Ok(Done { before: self.requested.text, applied: saved.applied, assets, is_saved: true });
        }
        let options = ApplyOptions { force: self.force, folder: &assets };
        let applied = notebook::apply(&self.requested.text, report, &options);
        Ok(Done { before: self.requested.text, applied, assets, is_saved: false })
    }

    /// The same, as a stream of events.
    pub(crate) fn stream(mut self, most_unread: usize) -> SseJob {
        SseJob::of(most_unread, |event_sender| async move {
            self.tools.event_sender = Some(event_sender.clone());
            let progress = |progress: Progress<'_>| match progress {
                Progress::Pending(step) => event_sender.event("block.pending", &about(step)),
                Progress::Executing(step) => event_sender.event("block.executing", &about(step)),
                Progress::Finished(over) => event_sender.event("block.finished", &json!(over)),
            };
            match Box::pin(self.execute(progress)).await {
                Ok(answer) => event_sender.event("document.finished", &answer),
                Err(error) => event_sender.event("document.failed", &error::to_value(&error)),
            }
        })
    }
}

fn about(step: &notebook::Step) -> Value {
    json!({ "number": step.number, "line": step.fence.first_line, "title": step.title() })
}

/// The effect of a run on the text.
struct Done {
    before: String,
    applied: Applied,
    assets: String,
    is_saved: bool,
}

/// An edit with positions for every editor: in UTF-8 bytes and in UTF-16 code units.
#[derive(Serialize)]
struct EditView<'a> {
    #[serde(flatten)]
    edit: &'a Edit,
    start_utf16: usize,
    end_utf16: usize,
}

fn described(report: &Report, done: Option<&Done>, output: Output) -> Value {
    let placements = done.map(|done| done.applied.placements.as_slice()).unwrap_or_default();
    let fates: HashMap<usize, _> = placements.iter().map(|placement| (placement.number, placement.fate)).collect();
    let block = |over: &Finished| {
        let mut block = json!(over);
        block["written"] = json!(fates.get(&over.number));
        block
    };
    let mut answer = json!({
        "ok": report.is_success(),
        "blocks": report.finished.iter().map(block).collect::<Vec<_>>(),
        "remarks": report.remarks,
        "saved": done.is_some_and(|done| done.is_saved),
        "attachments": [],
    });
    let Some(done) = done else { return answer };
    if !done.is_saved {
        let shown = |file: &notebook::Attachment| json!({ "path": format!("{}/{}", done.assets, file.name), "base64": STANDARD.encode(&file.bytes) });
        answer["attachments"] = done.applied.attachments.iter().map(shown).collect();
    }
    if matches!(output, Output::Text | Output::Both) {
        answer["text"] = json!(done.applied.text);
    }
    if matches!(output, Output::Edits | Output::Both) {
        answer["edits"] = json!(edit_views(&done.before, &done.applied.edits));
    }
    answer
}

fn edit_views<'a>(text: &str, edits: &'a [Edit]) -> Vec<EditView<'a>> {
    // Edits are ordered from top to bottom, so the text before each is counted once.
    let (mut at, mut units) = (0, 0);
    let mut units_at = |byte: usize| {
        units += text.get(at..byte).map_or(0, |between| between.encode_utf16().count());
        at = byte;
        units
    };
    edits
        .iter()
        .map(|edit| EditView { edit, start_utf16: units_at(edit.start), end_utf16: units_at(edit.end) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_in_bytes_and_in_utf16() {
        let text = "é𝄞x\ny";
        let edit = |start, end| Edit { start, end, line: 1, text: String::new() };
        let edits = [edit(2, 6), edit(8, 9)];
        let shown = edit_views(text, &edits);
        let counted: Vec<(usize, usize)> = shown.iter().map(|edit| (edit.start_utf16, edit.end_utf16)).collect();
        assert_eq!(counted, [(1, 3), (5, 6)]);
    }
}
