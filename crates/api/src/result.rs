//! The result of a call with metadata, and with `isError` if the server omits it: one or two members more, all other
//! bytes unchanged.

use std::collections::HashSet;
use std::fmt;

use executions::Outcome;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// The name of the metadata member, and the name to use if the server's result already has the first.
const NAMES: [&str; 2] = ["metadata", "_aggregator"];

/// Whether the tool failed. Servers may omit it on success; REST clients can rely on it.
const IS_ERROR: &str = "isError";

/// Adds the metadata to the result.
pub(crate) fn with_metadata(outcome: &Outcome) -> String {
    let note = serde_json::to_string(&outcome.metadata).expect("what we show has texts as its keys");
    noted(outcome.result.get(), &note)
}

fn noted(result: &str, note: &str) -> String {
    let result = result.trim();
    let Some(taken) = names_in(result) else {
        return format!(r#"{{"result":{result},"{IS_ERROR}":false,"metadata":{note}}}"#);
    };
    let success = (!taken.contains(IS_ERROR)).then(|| format!(r#""{IS_ERROR}":false"#));
    let name = NAMES.iter().find(|name| !taken.contains(**name));
    let note = name.map(|name| format!(r#""{name}":{note}"#));
    let added = success.into_iter().chain(note).collect::<Vec<_>>().join(",");
    let body = result.strip_suffix('}').unwrap_or(result);
    let comma = if taken.is_empty() || added.is_empty() { "" } else { "," };
    format!("{body}{comma}{added}}}")
}

/// The names of an object's members; None if it is not an object.
fn names_in(result: &str) -> Option<HashSet<String>> {
    serde_json::Deserializer::from_str(result).deserialize_map(Names).ok()
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = HashSet<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry()? {
            names.insert(name);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_added_and_nothing_else_is_different() {
        let result = r#"{ "content" : [1e400, "\ud800"],"isError":false }"#;
        let expected = r#"{ "content" : [1e400, "\ud800"],"isError":false ,"metadata":{"a":1}}"#;
        assert_eq!(noted(result, r#"{"a":1}"#), expected);
        assert_eq!(noted("{}", "{}"), r#"{"isError":false,"metadata":{}}"#);
    }

    #[test]
    fn a_servers_own_metadata_stays_and_ours_gets_another_name() {
        let own = r#"{"isError":true,"metadata":1}"#;
        assert_eq!(noted(own, "{}"), r#"{"isError":true,"metadata":1,"_aggregator":{}}"#);
        assert_eq!(noted(r#"{"met\u0061data":1}"#, "{}"), r#"{"met\u0061data":1,"isError":false,"_aggregator":{}}"#);
        let both = r#"{"isError":null,"metadata":1,"_aggregator":2}"#;
        assert_eq!(noted(both, "{}"), both);
    }

    #[test]
    fn what_is_no_object_becomes_a_member_of_one() {
        assert_eq!(noted("[1]", "{}"), r#"{"result":[1],"isError":false,"metadata":{}}"#);
    }
}
