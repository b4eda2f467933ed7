//! Documents that run tools, for the commands `run` and `doc`.
//!
//! - here: the servers for a document, and its bindings in the registry
//! - `by_config`, `by_service`: make the calls; `assistant_blocks`: answers `assistant` blocks
//! - `progress`: prints the progress

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

/// The page size of bindings: the maximum of REST.
const PAGE: usize = 1000;

/// The servers of a config. Disabled ones come last, because only an enabled one can be the first.
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

/// The error about an unknown binding of a service. Ignoring it would allow what it may forbid.
fn not_understood(what: &str, described: &Value) -> Failure {
    let failure = Failure::new(format!("the service describes {what} in an unknown format: {described}"));
    failure.with_hint("check its version with `GET /health`, and this one with `mcp-aggregator --version`")
}

/// The bindings of documents in the registry.
pub(crate) async fn registered(target: &Target, document: &Path) -> Result<Vec<Binding>, Failure> {
    for_document(&all_bindings(target).await?, document)
}

/// The same, requested from a service.
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

/// The document of a binding, and its section; `None` if we do not know its form.
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

/// The absolute path of a document, for other programs.
pub(crate) fn whole_path(document: &Path) -> PathBuf {
    let absolute = || std::path::absolute(document).unwrap_or_else(|_| document.to_owned());
    document.canonicalize().unwrap_or_else(|_| absolute())
}

/// The failure of a file operation.
#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
pub(crate) fn file_failed(error: FileError) -> Failure {
    Failure::new(with_causes(&error))
}
