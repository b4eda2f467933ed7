//! Endpoints of documents that run tools: list, read, map, run and follow them, for editors and the console.

use std::sync::Arc;

use http::header::ACCEPT;
use notebook::{
    Bindings, Document, Fault, LineContext, Outline, OutlineSection, RunOptions, Section, Selection, outline,
};
use registry::{Role, ToolRecord};
use serde::Serialize;
use serde_json::{Map, Value, json};
use service::{Error, ListPlace, ListSize, Service, ToolList, ToolSelection};

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
            .within_profile()
            .for_users()
            .about(
                "Lists the Markdown files in the folder of `serve --documents`. Without that option, the list is empty.",
            )
            .parts("Documents ordered by path.", Schema::named("Document"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/documents/text", "Read a document", |request| Box::pin(text(request)))
            .within_profile()
            .for_users()
            .required_query("path", shapes::path())
            .answers(
                200,
                "The text of the document.",
                Schema::object().with("path", Schema::text()).with("text", Schema::text()),
            )
            .fails(&["DOCUMENT_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/documents/map", "Map a document", |request| Box::pin(map(request)))
            .within_profile()
            .for_users()
            .ends_with_client()
            .about(
                "Returns the sections and blocks of a document, the server of each, and why it is that server. Calls \
                 no tool. Send the `text`, or only the `path` of a document in the folder of `serve --documents`.",
            )
            .takes(shapes::requested())
            .answers(200, "The map.", Schema::named("DocumentMap"))
            .fails(&["DOCUMENT_NOT_FOUND"]),
        Endpoint::post("/documents/run", "Run the tool calls of a document", |request| Box::pin(run(request)))
            .within_profile()
            .for_users()
            .with_flag_for("save", Role::Operator)
            .ends_with_client()
            .about(
                "Runs blocks one after the other, or up to `jobs` at a time, with the source `user-codeblock`. All \
                 calls of a run belong to one session. The model of `serve --assistant-model` answers `assistant` \
                 blocks; its calls have the source `ai-autonomous`. Without a model, these blocks stay as they are. \
                 Closing the connection cancels the calls. With `Accept: text/event-stream`, the response is a stream: \
                 progress arrives as `block.pending`, `block.executing` and `block.finished`, the work of an assistant \
                 as `assistant.words`, `assistant.calling` and `assistant.called` with the `line` of its block, and \
                 the result as the last event, `document.finished` (or `document.failed`, with an Error).",
            )
            .takes(shapes::run())
            .answers(200, "The outcome of each block, and the new text.", Schema::named("DocumentRun"))
            .answers_with(200, "The same, as a stream of events.", "text/event-stream", Some(Schema::text()))
            .fails(&["DOCUMENT_NOT_FOUND", "DOCUMENT_CHANGED", "DOCUMENT_NOT_WRITABLE"]),
        Endpoint::get("/documents/changes", "Follow changes of a document", |request| Box::pin(changes(request)))
            .within_profile()
            .for_users()
            .about(
                "A stream of server-sent events. Sends `document.changed` each time the content of the file \
                 changes, no matter which program wrote it.",
            )
            .required_query("path", shapes::path())
            .answers_with(200, "Events.", "text/event-stream", Some(Schema::text()))
            .fails(&["DOCUMENT_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::get("/documents/context", "Show what can be used on a line of a document", |request| {
            Box::pin(context(request))
        })
        .for_users()
        .within_profile()
        .about(
            "Returns the server that the line is bound to and why, the block on that line, and the tools that may be \
             used there. The document is read from the folder of `serve --documents`. For any other document, only \
             bindings by line are known; send its text with POST to get all of them.",
        )
        .required_query("path", shapes::path())
        .required_query("line", shapes::line())
        .answers(200, "The binding, the block and the tools.", Schema::named("DocumentContext"))
        .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/documents/context", "Show what can be used on a line of a given text", |request| {
            Box::pin(context_of_text(request))
        })
        .for_users()
        .within_profile()
        .ends_with_client()
        .takes(shapes::requested().with("line", shapes::line()))
        .answers(200, "The binding, the block and the tools.", Schema::named("DocumentContext"))
        .fails(&["DOCUMENT_NOT_FOUND"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let Some(folder) = request.documents.clone() else { return Ok(ApiResponse::page(&[(); 0], 0)) };
    let failed = |error: std::io::Error| Error::Internal { what: format!("failed to list documents: {error}") };
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
        return Err(Error::DocumentNotFound { path, why: "no documents folder is configured".to_owned() });
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

/// A map as it is sent. It is serialized directly, because a tree of values would need several times the memory.
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
        return Ok(ApiResponse::events(run.stream(request.job_limit)));
    }
    Ok(ApiResponse::ok(&Box::pin(run.execute(|_| {})).await?))
}

/// Runs a document for a caller in this process that waits for the end.
pub(crate) async fn run_to_the_end(request: ApiRequest) -> Result<Value, Error> {
    let run = prepared(&request).await?;
    Box::pin(run.execute(|_| {})).await
}

async fn prepared(request: &ApiRequest) -> Result<Run, Error> {
    let requested = RequestedDocument::by_body(request).await?;
    let body = &request.body;
    let folder = match body.truth("save") {
        Some(true) if requested.file.is_none() => {
            let why = "`save` needs a document in the folder of `serve --documents`: send its `path` without `text`";
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
        force: request.flag("force"),
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
                may_destroy: request.flag("confirm_destructive"),
                text: requested.text.clone(),
            },
            event_sender: None,
        },
        options: RunOptions {
            jobs: body.get("jobs").as_ref().and_then(number).unwrap_or(1),
            is_dry: request.flag("dry_run"),
        },
        force: request.flag("force"),
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

/// Whether the client accepts events, and does not prefer JSON.
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
    respond(&request.service, found).await
}

async fn context_of_text(request: ApiRequest) -> Result<ApiResponse, Error> {
    let requested = RequestedDocument::by_body(&request).await?;
    let line = request.body.number("line").unwrap_or(1);
    respond(&request.service, Context::of(&request.service, requested, line).await?).await
}

async fn respond(service: &Service, context: Context) -> Result<ApiResponse, Error> {
    let hint = "pass a line that is bound to a server, or list the tools of each server";
    let ToolList { place, tools } = context.tools(service, &[], &[], hint).await?;
    place.run(move |_| Ok(ApiResponse::ok(&context.described(&tools)))).await
}

/// The context of a line of a document.
pub(super) struct Context {
    path: Option<String>,
    pub(super) context: LineContext,
    /// Whether the text is known.
    is_read: bool,
    /// The number of registry bindings that name headings or blocks.
    needs_text: usize,
}

/// The answer to `/documents/context`. The schemas of tools are passed on as they were written.
#[derive(Serialize)]
struct DescribedContext<'c> {
    #[serde(flatten)]
    about: Map<String, Value>,
    tools: &'c [ToolRecord],
}

impl Context {
    pub(super) async fn of(service: &Service, requested: RequestedDocument, line: u64) -> Result<Self, Error> {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let DocumentContext { servers, registered } = DocumentContext::of(service, requested.path.as_deref()).await?;
        let needs_text = registered.iter().filter(|it| !matches!(it.section, Section::Range { .. })).count();
        let text = requested.text;
        let context = compute(move || {
            let document = Document::parse(text);
            Ok(notebook::line_context(&document, &servers, &Bindings::of(&document, &registered), line))
        });
        Ok(Self { path: requested.path, context: context.await?, is_read: true, needs_text })
    }

    /// The tools that may be used there, of these servers and with these skills, if there are any.
    pub(super) async fn tools(
        &self,
        service: &Service,
        servers: &[String],
        skills: &[String],
        hint: &'static str,
    ) -> Result<ToolList, Error> {
        let server = match (&self.context.bound, self.context.allowed_servers.as_slice()) {
            (_, []) => return Ok(ToolList { place: ListPlace::of(ListSize::default()).await?, tools: Vec::new() }),
            (Some(_), [only, ..]) => Some(only.as_str()),
            (None, _) => None,
        };
        service.list_tools(&ToolSelection { server, servers, skills, enabled: Some(true), hint }).await
    }

    fn described<'c>(&self, tools: &'c [ToolRecord]) -> DescribedContext<'c> {
        let remark = (!self.is_read && self.needs_text > 0)
            .then_some("the text is unknown, so bindings by heading or block were ignored; send the text");
        let mut about = match json!(self.context) {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        let remarks: Vec<&str> = self.context.remarks.iter().map(String::as_str).chain(remark).collect();
        about.insert("path".to_owned(), json!(self.path));
        about.insert("text_is_known".to_owned(), json!(self.is_read));
        about.insert("remarks".to_owned(), json!(remarks));
        DescribedContext { about, tools }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_passed_verbatim_by_default() {
        assert_eq!(output(None), Output::Text);
        assert_eq!(output(Some("Edits")), Output::Edits);
        assert_eq!(output(Some("none")), Output::Nothing);
    }
}
