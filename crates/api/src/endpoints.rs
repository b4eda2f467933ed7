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
    use serde_json::value::RawValue;

    #[test]
    fn every_endpoint_that_takes_a_body_refuses_members_that_it_does_not_know() {
        let endpoints = super::all();
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
}
