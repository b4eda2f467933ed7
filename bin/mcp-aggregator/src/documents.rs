//! Documents that run tools, for the verbs `run` and `doc`.
//!
//! - here: which servers there are for a document, and what the registry binds its parts to
//! - `by_config`, `by_service`: who makes the calls; `assistant_blocks`: who answers `assistant` blocks
//! - `progress`: what is told meanwhile

mod assistant_blocks;
mod by_config;
mod by_service;
mod progress;

use std::path::{Path, PathBuf};

use catalog::Config;
use notebook::{Binding, FileError, Origin, Section, Server};
use serde_json::Value;

use crate::client::Client;
use crate::failure::Failure;
use crate::local_registry;
use crate::storage::with_causes;
use crate::target::Target;
pub(crate) use assistant_blocks::AssistantBlocks;
pub(crate) use by_config::ConfigTools;
pub(crate) use by_service::{Execution, ServiceTools};
pub(crate) use progress::{RunPrinter, in_words};

/// How many bindings are asked for at once: as many as REST gives.
const PAGE: usize = 1000;

/// The servers of a config. Those that are switched off come last: only those that are not can be the first.
pub(crate) fn servers_of_config(config: &Config) -> Vec<Server> {
    let enabled = config.servers.iter().map(|spec| Server { name: spec.name.to_string(), is_enabled: true });
    let disabled = config.disabled.iter().map(|name| Server { name: name.to_string(), is_enabled: false });
    enabled.chain(disabled).collect()
}

/// Servers as REST describes them.
pub(crate) fn servers_of_service(described: &[Value]) -> Result<Vec<Server>, Failure> {
    let server = |server: &Value| {
        let name = server["name"].as_str()?.to_owned();
        Some(Server { name, is_enabled: server["enabled"].as_bool()? })
    };
    described.iter().map(|it| server(it).ok_or_else(|| not_understood("a server", it))).collect()
}

/// What a service says that we cannot make sense of. To leave it out would be to allow what it may forbid.
fn not_understood(what: &str, described: &Value) -> Failure {
    let failure = Failure::new(format!("the service describes {what} in a way that is not understood: {described}"));
    failure.with_hint("is it of another version? `mcp-aggregator --version` and `GET /health` tell")
}

/// What the registry binds parts of a document to.
pub(crate) async fn registered(target: &Target, document: &Path) -> Result<Vec<Binding>, Failure> {
    for_document(&all_bindings(target).await?, document)
}

/// The same, where a service is asked for it.
pub(crate) async fn registered_at(service: &Client, document: &Path) -> Result<Vec<Binding>, Failure> {
    for_document(&bindings_of(service).await?, document)
}

/// All bindings in the registry, as REST describes them.
pub(crate) async fn all_bindings(target: &Target) -> Result<Vec<Value>, Failure> {
    match target {
        Target::Service(service) => bindings_of(service).await,
        Target::Registry(store) => local_registry::bindings(store).await,
    }
}

async fn bindings_of(service: &Client) -> Result<Vec<Value>, Failure> {
    let mut bindings = Vec::new();
    loop {
        let page = service.list(&format!("/bindings?limit={PAGE}&offset={}", bindings.len())).await?;
        let is_last = page.len() < PAGE;
        bindings.extend(page);
        if is_last {
            return Ok(bindings);
        }
    }
}

fn for_document(described: &[Value], document: &Path) -> Result<Vec<Binding>, Failure> {
    let path = whole_path(document);
    let all = described.iter().map(|it| binding(it).ok_or_else(|| not_understood("a binding", it)));
    Ok(notebook::bindings_for(&path.to_string_lossy(), all.collect::<Result<Vec<_>, Failure>>()?))
}

/// The document that a binding is for, and what it says; nothing if it makes no sense to us.
fn binding(described: &Value) -> Option<(String, Binding)> {
    let text = |name: &str| described[name].as_str().map(str::to_owned);
    let line = |name: &str| usize::try_from(described[name].as_u64()?).ok();
    let section = match described["section_type"].as_str()? {
        "heading" => Section::Heading { heading_text: text("heading_text")? },
        "block" => Section::Block { block_id: text("block_id")? },
        "range" => Section::Range { start_line: line("start_line")?, end_line: line("end_line")? },
        _ => return None,
    };
    let (server, inherit_to_children) = (text("server_name")?, described["inherit_to_children"].as_bool()?);
    Some((text("document")?, Binding { section, server, inherit_to_children, origin: Origin::Registry }))
}

/// Where a document is, for those who do not know where we are.
pub(crate) fn whole_path(document: &Path) -> PathBuf {
    let absolute = || std::path::absolute(document).unwrap_or_else(|_| document.to_owned());
    document.canonicalize().unwrap_or_else(|_| absolute())
}

/// What went wrong with a file.
#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
pub(crate) fn file_failed(error: FileError) -> Failure {
    Failure::new(with_causes(&error))
}
