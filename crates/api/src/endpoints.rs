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

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn what_changes_something_is_done_to_its_end() {
        let all = all();
        let given_up = all.iter().filter(|endpoint| endpoint.method != Method::GET && endpoint.ends_with_client);
        let mut given_up: Vec<&str> = given_up.map(|endpoint| endpoint.path.rsplit("/v1/").next().unwrap()).collect();
        given_up.sort_unstable();
        let expected = [
            "aggregator/assistant/ask",
            "aggregator/assistant/tools",
            "aggregator/documents/context",
            "aggregator/documents/map",
            "aggregator/documents/run",
            "aggregator/execute",
            "aggregator/prompts/get",
            "aggregator/resources/read",
            "aggregator/search",
            "aggregator/servers/test",
            "aggregator/servers/{server}/test",
            "aggregator/tools/call",
            "search",
        ];
        assert_eq!(given_up, expected);
    }
}
