//! Everything that can be asked for, group by group: each file says what, and does it.

mod assistant;
mod backup;
mod bindings;
pub(crate) mod documents;
mod executions;
mod items;
mod overview;
mod page;
mod search;
mod servers;
mod skills;
mod tools;

use crate::endpoint::Endpoint;

/// Every endpoint, in the order of the document.
pub(crate) fn all() -> Vec<Endpoint> {
    [
        group("Servers", servers::endpoints()),
        group("Tools", tools::endpoints()),
        group("Prompts and resources", items::endpoints()),
        group("Search", search::endpoints()),
        group("Skills", skills::endpoints()),
        group("Executions", executions::endpoints()),
        group("Documents", documents::endpoints()),
        group("Documents", bindings::endpoints()),
        group("Assistant", assistant::endpoints()),
        group("Service", overview::endpoints()),
        group("Backup", backup::endpoints()),
        group("This document", page::endpoints()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn group(name: &'static str, endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    endpoints.into_iter().map(|endpoint| Endpoint { group: name, ..endpoint }).collect()
}
