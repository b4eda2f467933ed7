//! Documents that run tools: listed, looked at and run, for editors and for the console.

use std::sync::Arc;

use http::header::ACCEPT;
use notebook::{Bindings, Document, Fault, Outline, OutlineSection, Place, RunOptions, Section, Selection, outline};
use registry::ToolRecord;
use serde::Serialize;
use serde_json::{Value, json};
use service::{Error, Service};

use crate::documents::{
    AssistantOptions, DocumentContext, Output, RequestedDocument, Run, RunRequest, ServiceTools, change_events,
    compute, own_session, planned, run_blocking,
};
use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas::documents as shapes;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/documents", "List documents", |request| Box::pin(list(request)))
            .about("The Markdown files below the folder of `serve --documents`; none without it.")
            .parts("Documents by path.", Schema::named("Document"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/documents/text", "Read a document", |request| Box::pin(text(request)))
            .needs("path", shapes::path())
            .answers(200, "Its text.", Schema::object().with("path", Schema::text()).with("text", Schema::text()))
            .fails(&["DOCUMENT_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/documents/map", "Draw the map of a document", |request| Box::pin(map(request)))
            .ends_with_client()
            .about(
                "Its sections and blocks, the server of each, and why it is that one. Nothing is called. Send `text`; or \
                 only the `path` of a document below the folder of `serve --documents`.",
            )
            .takes(shapes::requested())
            .answers(200, "The map.", Schema::named("DocumentMap"))
            .fails(&["DOCUMENT_NOT_FOUND"]),
        Endpoint::post("/documents/run", "Run the tools that a document names", |request| Box::pin(run(request)))
            .ends_with_client()
            .about(
                "Blocks are called one after the other, or `jobs` at once, with the source `user-codeblock`; all of one \
                 run count for one session. An `assistant` block is answered by the model of `serve --assistant-model`, \
                 whose calls have the source `ai-autonomous`; without one it is left as it is. A request that is given \
                 up cancels its calls. With `Accept: text/event-stream` how far it is comes as events `block.pending`, \
                 `block.executing` and `block.finished`, what an assistant does as `assistant.words`, \
                 `assistant.calling` and `assistant.called` with the `line` of its block, and the answer as the last \
                 one, `document.finished` (or `document.failed`, with an Error).",
            )
            .takes(shapes::run())
            .answers(200, "What became of every block, and the new text.", Schema::named("DocumentRun"))
            .answers_with(200, "The same, as it happens.", "text/event-stream", Some(Schema::text()))
            .fails(&["DOCUMENT_NOT_FOUND", "DOCUMENT_CHANGED", "DOCUMENT_NOT_WRITABLE"]),
        Endpoint::get("/documents/changes", "Hear of changes of a document", |request| Box::pin(changes(request)))
            .about("Server-sent events `document.changed`, each time the file is another than before, whoever wrote it.")
            .needs("path", shapes::path())
            .answers_with(200, "Events.", "text/event-stream", Some(Schema::text()))
            .fails(&["DOCUMENT_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::get("/documents/context", "What may be used in a line of a document", |request| {
            Box::pin(context(request))
        })
        .about(
            "The server that the line is bound to and why, the block there, and the tools that may be used. The text is \
             read below the folder of `serve --documents`; of other documents only what the registry binds by lines is \
             known, unless their text is sent by POST.",
        )
        .needs("path", shapes::path())
        .needs("line", shapes::line())
        .answers(200, "What holds there.", Schema::named("DocumentContext"))
        .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/documents/context", "The same for a text that is sent", |request| {
            Box::pin(context_of_text(request))
        })
        .ends_with_client()
        .takes(shapes::requested().with("line", shapes::line()))
        .answers(200, "What holds there.", Schema::named("DocumentContext"))
        .fails(&["DOCUMENT_NOT_FOUND"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let Some(folder) = request.documents.clone() else { return Ok(ApiResponse::page(&[(); 0], 0)) };
    let failed = |error: std::io::Error| Error::Internal { what: format!("documents cannot be listed: {error}") };
    let listed = run_blocking(move || folder.list().map_err(failed)).await?;
    let page = request.page();
    let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
    let limit = if request.has_limit() { usize::try_from(page.limit).unwrap_or(usize::MAX) } else { usize::MAX };
    let part: Vec<_> = listed.iter().skip(offset).take(limit).collect();
    Ok(ApiResponse::page(&part, listed.len() as u64))
}

async fn text(request: ApiRequest) -> Result<ApiResponse, Error> {
    let path = request.text("path").unwrap_or_default().to_owned();
    let requested = RequestedDocument::in_folder(request.documents.as_ref(), path).await?;
    Ok(ApiResponse::ok(&json!({ "path": requested.file, "text": requested.text })))
}

async fn changes(request: ApiRequest) -> Result<ApiResponse, Error> {
    let path = request.text("path").unwrap_or_default().to_owned();
    let Some(folder) = request.documents.clone() else {
        return Err(Error::DocumentNotFound { path, why: "no folder of documents is served".to_owned() });
    };
    Ok(ApiResponse::events(change_events(folder, path, request.closing.clone()).await?))
}

async fn map(request: ApiRequest) -> Result<ApiResponse, Error> {
    let requested = RequestedDocument::by_body(&request).await?;
    let DocumentContext { servers, registered } =
        DocumentContext::of(&request.service, requested.path.as_deref()).await?;
    compute(move || {
        let document = Document::parse(requested.text);
        let outline = outline(&document, &servers, &Bindings::of(&document, &registered));
        Ok(ApiResponse::ok(&ShownMap::of(&outline)))
    })
    .await
}

/// A map as it is sent. It is written as it stands: a tree of it would take many times the memory.
#[derive(Serialize)]
struct ShownMap<'a> {
    sections: Vec<ShownSection<'a>>,
    remarks: &'a [Fault],
    version: &'a str,
}

#[derive(Serialize)]
struct ShownSection<'a> {
    #[serde(flatten)]
    section: &'a OutlineSection,
    why: String,
}

impl<'a> ShownMap<'a> {
    fn of(outline: &'a Outline) -> Self {
        let shown = |section: &'a OutlineSection| ShownSection { section, why: section.why() };
        let sections = outline.sections.iter().map(shown).collect();
        Self { sections, remarks: &outline.remarks, version: &outline.version }
    }
}

async fn run(request: ApiRequest) -> Result<ApiResponse, Error> {
    let run = prepared(&request).await?;
    if wants_events(&request) {
        return Ok(ApiResponse::events(run.stream()));
    }
    Ok(ApiResponse::ok(&Box::pin(run.execute(|_| {})).await?))
}

/// The same for who is here already and waits until it is over.
pub(crate) async fn run_to_the_end(request: ApiRequest) -> Result<Value, Error> {
    let run = prepared(&request).await?;
    Box::pin(run.execute(|_| {})).await
}

async fn prepared(request: &ApiRequest) -> Result<Run, Error> {
    let requested = RequestedDocument::by_body(request).await?;
    let body = &request.body;
    let folder = match body.truth("save") {
        Some(true) if requested.file.is_none() => {
            let why = "only a document below the folder of `serve --documents` can be written: send its `path` alone";
            return Err(refuse(&["body", "save"], "value_error", why));
        }
        Some(true) => request.documents.clone(),
        _ => None,
    };
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let blocks = body.get("blocks").and_then(|blocks| blocks.as_array().cloned()).unwrap_or_default();
    let document_context = DocumentContext::of(&request.service, requested.path.as_deref()).await?;
    let servers = document_context.servers.clone();
    let wanted = RunRequest {
        selection: Selection {
            blocks: blocks.iter().filter_map(number).collect(),
            section: body.text("section"),
            line: body.get("line").as_ref().and_then(number),
        },
        force: request.says("force"),
        version: body.text("version"),
    };
    let plan = planned(&requested, folder.as_ref(), document_context, wanted).await?;
    Ok(Run {
        plan,
        tools: ServiceTools {
            service: Arc::clone(&request.service),
            actor: request.actor.clone(),
            servers,
            path: requested.path.clone(),
            session: body.text("session").unwrap_or_else(own_session),
            assistant_options: AssistantOptions {
                model: request.model.clone(),
                may_destroy: request.says("confirm_destructive"),
                text: requested.text.clone(),
            },
            event_sender: None,
        },
        options: RunOptions {
            jobs: body.get("jobs").as_ref().and_then(number).unwrap_or(1),
            is_dry: request.says("dry_run"),
        },
        force: request.says("force"),
        output: output(body.text("output").as_deref()),
        closing: request.closing.clone(),
        requested,
        folder,
    })
}

fn output(word: Option<&str>) -> Output {
    match word.map(str::to_ascii_lowercase).as_deref() {
        Some("edits") => Output::Edits,
        Some("both") => Output::Both,
        Some("none") => Output::Nothing,
        _ => Output::Text,
    }
}

/// Whether events are accepted, and not JSON before them.
pub(super) fn wants_events(request: &ApiRequest) -> bool {
    let accepted = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let kinds = accepted.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let mut known = kinds.filter(|kind| matches!(*kind, "text/event-stream" | "application/json" | "*/*"));
    known.next() == Some("text/event-stream")
}

async fn context(request: ApiRequest) -> Result<ApiResponse, Error> {
    let path = request.text("path").unwrap_or_default().to_owned();
    let line = request.query.get("line").and_then(Value::as_u64).unwrap_or(1);
    let found = match RequestedDocument::in_folder(request.documents.as_ref(), path.clone()).await {
        Ok(requested) => Context::of(&request.service, requested, line).await?,
        Err(Error::DocumentNotFound { .. }) => {
            let requested = RequestedDocument { text: String::new(), path: Some(path), file: None };
            Context { is_read: false, ..Context::of(&request.service, requested, line).await? }
        }
        Err(error) => return Err(error),
    };
    Ok(ApiResponse::ok(&found.described()))
}

async fn context_of_text(request: ApiRequest) -> Result<ApiResponse, Error> {
    let requested = RequestedDocument::by_body(&request).await?;
    let line = request.body.number("line").unwrap_or(1);
    Ok(ApiResponse::ok(&Context::of(&request.service, requested, line).await?.described()))
}

/// What holds in a line of a document.
pub(super) struct Context {
    path: Option<String>,
    pub(super) place: Place,
    pub(super) tools: Vec<ToolRecord>,
    /// Whether the text is known.
    is_read: bool,
    /// How many bindings of the registry are for headings or blocks of it.
    needs_text: usize,
}

impl Context {
    pub(super) async fn of(service: &Service, requested: RequestedDocument, line: u64) -> Result<Self, Error> {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let DocumentContext { servers, registered } = DocumentContext::of(service, requested.path.as_deref()).await?;
        let needs_text = registered.iter().filter(|it| !matches!(it.section, Section::Range { .. })).count();
        let text = requested.text;
        let place = compute(move || {
            let document = Document::parse(text);
            Ok(notebook::place(&document, &servers, &Bindings::of(&document, &registered), line))
        });
        let place = place.await?;
        let tools = allowed_tools(service, &place).await?;
        Ok(Self { path: requested.path, place, tools, is_read: true, needs_text })
    }

    fn described(&self) -> Value {
        let mut shown = json!(self.place);
        shown["path"] = json!(self.path);
        shown["text_is_known"] = json!(self.is_read);
        let remark = (!self.is_read && self.needs_text > 0).then_some(
            "the text is not known here, so what the registry binds by heading or block could not be placed; send the text",
        );
        shown["remarks"] = json!(self.place.remarks.iter().map(String::as_str).chain(remark).collect::<Vec<_>>());
        shown["tools"] = self.tools.iter().map(ToolRecord::to_value).collect();
        shown
    }
}

/// The tools that may be used at a place.
async fn allowed_tools(service: &Service, place: &Place) -> Result<Vec<ToolRecord>, Error> {
    let tools = match (&place.bound, place.allowed_servers.as_slice()) {
        (_, []) => Vec::new(),
        (Some(_), [only, ..]) => service.tools(Some(only)).await?,
        (None, _) => service.tools(None).await?,
    };
    Ok(tools.into_iter().filter(|tool| tool.enabled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_of_the_text_is_the_text_unless_said_otherwise() {
        assert_eq!(output(None), Output::Text);
        assert_eq!(output(Some("Edits")), Output::Edits);
        assert_eq!(output(Some("none")), Output::Nothing);
    }
}
