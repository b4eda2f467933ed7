//! Tests that docs/security.md lists every limit with its default.

use std::collections::BTreeMap;
use std::time::Duration;

use aggregator::bounds;
use catalog::{limits, uri_template};
use http_server::Limits;
use upstream::Limit;

/// The rows of all tables whose first cell is a name in backticks: the name, and the second cell.
fn named_rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut rows = BTreeMap::<_, Vec<_>>::new();
    for line in PAGE.lines() {
        let mut cells = line.trim().trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
        if let (Some(name), Some(value)) = (name, cells.next()) {
            rows.entry(name).or_default().push(value);
        }
    }
    rows
}

const PAGE: &str = include_str!("../../../docs/security.md");

/// A number as the page writes it.
fn written(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn every_limit_of_clients_is_on_the_page_with_its_default() {
    let rows = named_rows();
    for (name, default, _) in Limits::changeable() {
        assert_eq!(rows.get(name), Some(&vec![&*written(default)]), "`--limit {name}` in docs/security.md");
    }
}

#[test]
fn every_limit_of_servers_is_on_the_page_with_its_default() {
    let rows = named_rows();
    for limit in Limit::ALL {
        let default = written(limit.default_value() as usize);
        assert_eq!(rows.get(limit.setting()), Some(&vec![&*default]), "{} in docs/security.md", limit.setting());
    }
}

#[test]
fn the_page_names_no_limit_that_does_not_exist() {
    let limits: Vec<&str> = Limits::changeable().into_iter().map(|(name, ..)| name).collect();
    let settings: Vec<&str> = Limit::ALL.iter().map(|limit| limit.setting()).collect();
    for (name, values) in named_rows() {
        let is_default = values.iter().any(|value| value.replace(',', "").parse::<usize>().is_ok());
        assert!(!is_default || limits.contains(&name) || settings.contains(&name), "`{name}` in docs/security.md");
    }
}

#[test]
fn retention_is_on_the_page_with_its_defaults() {
    let defaults = service::Settings::default();
    for (days, most, names) in [
        (defaults.keep_executions_days, defaults.keep_executions, "`keep_executions_days`, `keep_executions`"),
        (defaults.keep_audit_days, defaults.keep_audit, "`keep_audit_days`, `keep_audit`"),
        (defaults.keep_history_days, defaults.keep_history, "`keep_history_days`, `keep_history`"),
    ] {
        let row = PAGE.lines().find(|line| line.contains(names)).unwrap_or_else(|| panic!("no row has {names}"));
        let expected = format!("| {} days, {} ", days, written(most as usize));
        assert!(row.contains(&expected), "`{expected}` is not in `{row}`");
    }
}

#[test]
fn limits_of_definitions_and_templates_are_on_the_page() {
    for (what, value) in [
        ("| nesting (objects and arrays", format!("| {} levels |", limits::MAX_DEPTH)),
        ("| members and elements", format!("| {} |", written(limits::MAX_VALUES))),
        ("| references (`$ref`", format!("| {} |", written(limits::MAX_REFERENCES))),
        ("| size |", format!("| {} MiB |", limits::MAX_BYTES >> 20)),
        ("| name of a tool or prompt", format!("| {} bytes |", written(limits::MAX_NAME_BYTES))),
        ("| URI or URI template", format!("| {} bytes |", written(limits::MAX_URI_BYTES))),
        ("| `capabilities`, and `serverInfo`", format!("| {} KiB each", limits::MAX_SERVER_INFO_BYTES >> 10)),
        ("| compiled URI templates", format!("| {} |", written(uri_template::STEPS_PER_SERVER))),
    ] {
        let row =
            PAGE.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no row begins with {what}"));
        assert!(row.contains(&value), "`{value}` is not in `{row}`");
    }
    let steps = format!(
        "{} steps for each URI and {} for the request",
        written(uri_template::STEPS_PER_URI),
        written(uri_template::STEPS_PER_REQUEST)
    );
    assert!(PAGE.contains(&steps), "{steps}");
}

#[test]
fn other_bounds_are_on_the_page() {
    let seconds = |duration: Duration| format!("| {} s |", duration.as_secs());
    let total_and_token = |total, of_token| format!("| {} in total, {} per token |", written(total), written(of_token));
    for (what, value) in [
        ("| messages of a batch", format!("| {} |", bounds::MAX_BATCH_MESSAGES)),
        ("| tasks that are remembered", total_and_token(bounds::MAX_TASKS, bounds::MAX_TASKS_PER_TOKEN)),
        (
            "| calls of modern clients at legacy servers",
            total_and_token(bounds::MAX_BRIDGED_CALLS, bounds::MAX_BRIDGED_CALLS_PER_TOKEN),
        ),
        ("| requests of one session that wait", format!("| {} |", bounds::MAX_DEFERRED)),
        ("| elicitations with a URL", format!("| {} |", bounds::MAX_REMEMBERED_ELICITATIONS)),
        (
            "| names that several servers have",
            format!(
                "| {} are reported, {} characters of each |",
                written(bounds::MAX_REPORTED),
                bounds::LONGEST_REPORTED
            ),
        ),
        ("| definitions in one list of REST", format!("| {} MB |", service::MAX_LISTED_BYTES >> 20)),
        ("| describing such a list", seconds(service::LIST_DEADLINE)),
        ("| such lists at once", format!("at most {} s,", service::LONGEST_LIST_WAIT.as_secs())),
        ("| schema checks of one run", seconds(notebook::CHECK_TIME_OF_RUN)),
        ("| a document |", format!("| {} MiB |", notebook::MAX_DOCUMENT_BYTES >> 20)),
        (
            "| parsing a document",
            format!("more than {} KiB are parsed one at a time", notebook::MAX_BYTES_PARSED_ALONGSIDE >> 10),
        ),
    ] {
        let row =
            PAGE.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no row begins with {what}"));
        assert!(row.contains(&value), "`{value}` is not in `{row}`");
    }
}
