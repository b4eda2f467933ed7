//! A document with its outline, and what would keep its blocks from running. It is found in advance by a dry run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use notebook::{
    Bindings, Document, Failure, Folder, Outline, Plan, Request, RunOptions, Selection, Server, Status, ToolTable,
    Toolbox, WantedTools, outline,
};
use service::{Error, Service};

use super::tools::tool_table;
use super::{DocumentContext, RequestedDocument, compute};
use crate::assistant::NO_MODEL;

/// How long the blocks of one document are checked. A page with more blocks opens without the remaining checks.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(3);

/// A document of a folder, and its outline: sections, blocks, the server of each and why, and problems.
pub async fn open_document(
    service: &Service,
    folder: &Arc<Folder>,
    path: String,
    has_assistant: bool,
) -> Result<(Document, Outline), Error> {
    let requested = RequestedDocument::in_folder(Some(folder), path).await?;
    let DocumentContext { servers, registered } = DocumentContext::of(service, requested.path.as_deref()).await?;
    let (document, mut outline, plan, servers) = compute(move || {
        let document = Document::parse(requested.text);
        let bindings = Bindings::of(&document, &registered);
        let outline = outline(&document, &servers, &bindings);
        let plan = Plan::new(&document, &servers, &bindings, &Selection::default(), true).ok();
        Ok((document, outline, plan, servers))
    })
    .await?;
    let Some(plan) = plan else { return Ok((document, outline)) };
    let known = KnownTools { service, servers, has_assistant };
    let dry = RunOptions { is_dry: true, ..RunOptions::default() };
    // A dry run contacts no server, so it waits only for the registry and for the checks of parameters.
    let report = notebook::run(&plan, &known, dry, tokio::time::sleep(PREFLIGHT_TIMEOUT), |_| {}).await;
    let mut finished: HashMap<usize, _> = report.finished.into_iter().map(|over| (over.number, over)).collect();
    for block in outline.sections.iter_mut().flat_map(|section| &mut section.blocks) {
        let Some(over) = finished.remove(&block.number) else { continue };
        if over.status == Status::Stopped {
            block.not_checked = Some("checking the other blocks of this document took too long".to_owned());
            continue;
        }
        (block.problem, block.not_checked) = (over.problem, over.not_checked);
    }
    Ok((document, outline))
}

/// A toolbox that knows tools but calls none.
struct KnownTools<'a> {
    service: &'a Service,
    servers: Vec<Server>,
    has_assistant: bool,
}

impl Toolbox for KnownTools<'_> {
    fn servers(&self) -> Vec<Server> {
        self.servers.clone()
    }

    async fn tools(&self, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        tool_table(self.service, server, wanted).await
    }

    async fn call(&self, _: &Request) -> Result<String, Failure> {
        Err(Failure::new("the preflight check does not call tools"))
    }

    async fn assistant_unavailable(&self) -> Option<String> {
        (!self.has_assistant).then(|| NO_MODEL.to_owned())
    }
}
