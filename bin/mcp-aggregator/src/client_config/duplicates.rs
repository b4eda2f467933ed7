//! Servers in a client's config that mcp-aggregator serves, too: the client would list their tools twice.

use registry::masked_address;
use serde_json::Value;

use crate::import::{Found, found_in};

/// The mask of a secret.
const MASK: &str = "***";

/// The names of a client's servers that mcp-aggregator also serves, in the order of the file.
///
/// `served` are servers as REST describes them, with masked secrets. Two servers are equal if they are reached in the
/// same way: the same program with the same arguments and the same variable names, or the same address. If several
/// entries of the client match one server, only one with the same name counts, because the others may have other
/// credentials.
pub(crate) fn duplicates(file: &Value, group: &str, served: &[Value]) -> Vec<String> {
    let own = found_in(&serde_json::json!({ group: file[group] }), "");
    let mut meant: Vec<&Found> = Vec::new();
    for server in served.iter().filter(|server| server["enabled"] != false) {
        let fits: Vec<&Found> = own.iter().filter(|found| is_same(found, server)).collect();
        match fits.as_slice() {
            [only] => meant.push(only),
            several => meant.extend(several.iter().filter(|found| server["name"] == found.name.as_str())),
        }
    }
    let is_meant = |found: &&Found| meant.iter().any(|other| other.name == found.name);
    own.iter().filter(is_meant).map(|found| found.name.clone()).collect()
}

fn is_same(found: &Found, server: &Value) -> bool {
    let (own, served) = (&found.registration["connection_config"], &server["connection_config"]);
    if own["command"].is_string() {
        let words = |config: &Value| config["args"].as_array().cloned().unwrap_or_default();
        return fits(&own["command"], &served["command"])
            && words(own).len() == words(served).len()
            && words(own).iter().zip(&words(served)).all(|(own, served)| fits(own, served))
            && own["cwd"] == served["cwd"]
            && have_same(&own["env"], &served["env"]);
    }
    let address = |config: &Value| ["url", "base_url"].iter().find_map(|key| config[*key].as_str().map(normal));
    match (address(own), address(served)) {
        (Some(own_url), Some(url)) => own_url == url && have_same(&own["headers"], &served["headers"]),
        _ => false,
    }
}

/// Whether both have the same names, with values that may be equal.
fn have_same(own: &Value, served: &Value) -> bool {
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (own, served) = (members(own), members(served));
    own.len() == served.len()
        && own.iter().all(|(name, value)| served.get(name).is_some_and(|shown| fits(value, shown)))
}

/// Whether a value may be equal to a displayed one. A mask matches anything.
fn fits(own: &Value, shown: &Value) -> bool {
    let (Some(own_text), Some(shown_text)) = (own.as_str(), shown.as_str()) else { return own == shown };
    match shown_text.split_once(MASK) {
        Some((start, end)) => {
            let rest = own_text.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end.rsplit(MASK).next().unwrap_or_default()))
        }
        None => own_text == shown_text,
    }
}

fn normal(url: &str) -> String {
    masked_address(url).trim_end_matches('/').replace("://localhost", "://127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(entries: &Value, served: &Value) -> Vec<String> {
        let served = served.as_array().unwrap().clone();
        duplicates(&json!({ "mcpServers": entries }), "mcpServers", &served)
    }

    #[test]
    fn what_is_reached_in_the_same_way_is_the_same_whatever_it_is_called() {
        let served = json!([
            {"name": "memory", "connection_config": {"command": "npx", "args": ["-y", "memory"]}},
            {"name": "docs", "connection_config": {"url": "http://127.0.0.1:9/mcp", "headers": {"A": "***"}}},
            {"name": "db", "connection_config": {"command": "db", "args": ["--key=***"], "env": {"T": "***"}}},
        ]);
        let entries = json!({
            "mem": {"command": "npx", "args": ["-y", "memory"]},
            "other": {"command": "npx", "args": ["-y", "other"]},
            "site": {"type": "http", "url": "http://localhost:9/mcp/", "headers": {"A": "Bearer x"}},
            "base": {"command": "db", "args": ["--key=5"], "env": {"T": "t"}},
            "base-2": {"command": "db", "args": ["--key=5"], "env": {"U": "t"}},
        });
        assert_eq!(found(&entries, &served), ["mem", "site", "base"]);
    }

    #[test]
    fn of_several_that_fit_only_one_of_the_same_name_is_meant() {
        let served = json!([{"name": "work", "connection_config": {"command": "gh", "env": {"TOKEN": "***"}}}]);
        let entry = |token: &str| json!({"command": "gh", "env": {"TOKEN": token}});
        assert_eq!(found(&json!({"work": entry("a"), "home": entry("b")}), &served), ["work"]);
        assert_eq!(found(&json!({"one": entry("a"), "two": entry("b")}), &served), Vec::<String>::new());
    }
}
