//! All endpoints, one file per group: each declares them and implements them.

mod assistant;
mod backup;
mod bindings;
pub(crate) mod documents;
mod executions;
mod items;
mod limits;
mod overview;
mod page;
mod profiles;
mod search;
mod servers;
mod skills;
mod tools;

use crate::endpoint::Endpoint;

/// Every endpoint, in the order of the OpenAPI document.
pub(crate) fn all() -> Vec<Endpoint> {
    [
        group("Servers", servers::endpoints()),
        group("Tools", tools::endpoints()),
        group("Prompts and resources", items::endpoints()),
        group("Search", search::endpoints()),
        group("Skills", skills::endpoints()),
        group("Profiles", profiles::endpoints()),
        group("Executions", executions::endpoints()),
        group("Documents", documents::endpoints()),
        group("Documents", bindings::endpoints()),
        group("Assistant", assistant::endpoints()),
        group("Service", overview::endpoints()),
        group("Limits", limits::endpoints()),
        group("Backup", backup::endpoints()),
        group("OpenAPI", page::endpoints()),
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
    use http::Method;
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn every_endpoint_that_takes_a_body_refuses_members_that_it_does_not_know() {
        let endpoints = all();
        let taking: Vec<_> =
            endpoints.iter().filter_map(|endpoint| Some((endpoint, endpoint.body.as_ref()?))).collect();
        assert!(taking.len() > 15, "there are {}", taking.len());
        for (endpoint, content) in taking {
            let member = RawValue::from_string("1".to_owned()).unwrap();
            let mut problems = Vec::new();
            content.schema.check_members(&["body".to_owned()], &[("misspelt".to_owned(), member)], &mut problems);
            let is_refused =
                problems.iter().any(|problem| problem.loc == ["body", "misspelt"] && problem.kind == "extra_forbidden");
            assert!(is_refused, "{} {}: {problems:?}", endpoint.method, endpoint.path);
        }
    }

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
