//! Decides which servers are added, and their names. Existing servers are never changed.

use registry::ConnectionConfig;
use serde_json::{Value, json};
use service::Registration;

use super::Found;

/// The names of our programs.
const OURS: [&str; 2] = ["mcp-aggregator", "mcp-simple-aggregator"];
/// The default port.
const DEFAULT_URL: &str = "http://127.0.0.1:8808";
const MAX_NAME_LEN: usize = 255;

/// A server, and the decision about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) found: Found,
    /// Its new name.
    pub(crate) name: String,
    pub(crate) fate: ImportDecision,
}

/// The decision about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImportDecision {
    Add,
    /// A server with that name exists.
    Exists,
    /// The same server was already found elsewhere.
    Twice {
        first: String,
    },
    /// It is this aggregator, which would serve itself.
    Ours,
    /// It is invalid.
    Unusable {
        why: String,
    },
}

impl Planned {
    /// How it is reached, without secrets.
    pub(crate) fn masked_config(&self) -> Value {
        match &self.found.registration["connection_config"] {
            Value::Object(config) => ConnectionConfig::from(config.clone()).masked(),
            _ => Value::Null,
        }
    }

    /// Whether its name was changed.
    pub(crate) fn is_renamed(&self) -> bool {
        self.name != self.found.name
    }
}

/// Decides about every server that was found. `known` are existing names, `url` is our address.
pub(crate) fn plan(found: Vec<Found>, known: &[String], url: Option<&str>) -> Vec<Planned> {
    let mut planned: Vec<Planned> = Vec::new();
    for found in found {
        let next = decide(found, known, url, &planned);
        planned.push(next);
    }
    planned
}

fn decide(mut found: Found, known: &[String], url: Option<&str>, before: &[Planned]) -> Planned {
    let wished = fitting(&found.name);
    let is_ours = is_ours(&found.registration["connection_config"], url);
    let twin = before.iter().find(|other| {
        other.found.name == found.name && is_same(&other.found, &found) && other.fate == ImportDecision::Add
    });
    let (name, fate) = if is_ours {
        (wished, ImportDecision::Ours)
    } else if let Some(twin) = twin {
        (wished, ImportDecision::Twice { first: twin.found.from.clone() })
    } else if known.contains(&wished) {
        (wished, ImportDecision::Exists)
    } else {
        let is_taken = |name: &str| {
            known.iter().any(|known| known == name)
                || before.iter().any(|other| other.fate == ImportDecision::Add && other.name == name)
        };
        (free(&wished, is_taken), ImportDecision::Add)
    };
    found.registration.insert("name".to_owned(), json!(name));
    let problem = match fate {
        ImportDecision::Add => problem_with(&found),
        _ => None,
    };
    Planned { found, name, fate: problem.map_or(fate, |why| ImportDecision::Unusable { why }) }
}

fn is_same(one: &Found, other: &Found) -> bool {
    let config = |found: &Found| found.registration["connection_config"].clone();
    config(one) == config(other)
}

fn problem_with(found: &Found) -> Option<String> {
    if !found.registration["connection_config"].is_object() {
        return Some("its entry is not an object".to_owned());
    }
    match serde_json::from_value::<Registration>(Value::Object(found.registration.clone())) {
        Ok(new) => new.problems().into_iter().next().map(|problem| problem.msg),
        Err(error) => Some(error.to_string()),
    }
}

/// Whether the entry refers to mcp-aggregator: by the program, or by an address anywhere in it, because bridges have it
/// as an argument.
pub(crate) fn is_ours(config: &Value, url: Option<&str>) -> bool {
    let command = config["command"].as_str().unwrap_or_default();
    let program = command.rsplit(['/', '\\']).next().unwrap_or_default().trim_end_matches(".exe");
    let addresses: Vec<String> = [Some(DEFAULT_URL), url].into_iter().flatten().map(normal).collect();
    let leads_here = |text: &Value| {
        let text = normal(text.as_str().unwrap_or_default());
        addresses.iter().any(|address| {
            text.strip_prefix(address.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    OURS.contains(&program)
        || leads_here(&config["url"])
        || config["args"].as_array().is_some_and(|args| args.iter().any(leads_here))
}

fn normal(url: &str) -> String {
    url.trim_end_matches('/').replace("://localhost", "://127.0.0.1")
}

/// A valid name: `My Server (2)` becomes `my-server-2`.
fn fitting(name: &str) -> String {
    let mut fit = String::new();
    for character in name.chars().flat_map(char::to_lowercase) {
        match character {
            'a'..='z' | '0'..='9' | '_' => fit.push(character),
            _ if fit.ends_with('-') => {}
            _ => fit.push('-'),
        }
    }
    let fit = fit.trim_start_matches(|first: char| !first.is_ascii_lowercase()).trim_end_matches('-');
    let fit = fit.get(..MAX_NAME_LEN).unwrap_or(fit);
    if fit.is_empty() { "server".to_owned() } else { fit.to_owned() }
}

/// The name, with a number if it is taken.
fn free(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(name) {
        return name.to_owned();
    }
    let numbered = |number: u32| {
        let number = format!("-{number}");
        let short = name.get(..MAX_NAME_LEN - number.len()).unwrap_or(name);
        format!("{short}{number}")
    };
    (2..).map(numbered).find(|name| !is_taken(name)).expect("there are more numbers than servers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::found_in;

    fn planned(servers: &Value, known: &[&str]) -> Vec<(String, ImportDecision)> {
        let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
        let found = found_in(servers, "f");
        plan(found, &known, Some("http://127.0.0.1:9000")).into_iter().map(|one| (one.name, one.fate)).collect()
    }

    #[test]
    fn an_entry_that_is_not_an_object_is_reported_and_not_dropped() {
        let planned = planned(&json!({"mcpServers": {"a": null, "b": {"command": "x"}}}), &[]);
        let unusable = ImportDecision::Unusable { why: "its entry is not an object".to_owned() };
        assert_eq!(planned, [("a".to_owned(), unusable), ("b".to_owned(), ImportDecision::Add)]);
    }

    #[test]
    fn names_are_made_to_fit() {
        for (name, fit) in [
            ("github", "github"),
            ("My Server (2)", "my-server-2"),
            ("@scope/pkg", "scope-pkg"),
            ("123", "server"),
            ("9lives", "lives"),
            ("Übung", "bung"),
        ] {
            assert_eq!(fitting(name), fit, "{name}");
        }
        assert_eq!(fitting(&"a".repeat(300)).len(), 255);
    }

    #[test]
    fn existing_names_stay_duplicates_are_merged_and_others_get_a_number() {
        let file = json!({
            "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}},
            "projects": {"/p": {"mcpServers": {"b": {"command": "x"}}}, "/q": {"mcpServers": {"b": {"command": "y"}}}}
        });
        let name = |name: &str, fate: ImportDecision| (name.to_owned(), fate);
        let twice = ImportDecision::Twice { first: "f".to_owned() };
        assert_eq!(
            planned(&file, &["a"]),
            [
                name("a", ImportDecision::Exists),
                name("b", ImportDecision::Add),
                name("b", twice),
                name("b-2", ImportDecision::Add)
            ]
        );
        assert!(planned(&file, &["a", "b", "b-2"]).iter().all(|(_, fate)| *fate == ImportDecision::Exists));
    }

    #[test]
    fn we_do_not_serve_ourselves() {
        let file = json!({"mcpServers": {
            "a": {"command": "/usr/bin/mcp-aggregator", "args": ["stdio"]},
            "b": {"url": "http://localhost:9000/mcp"},
            "c": {"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:8808/sse"]},
            "d": {"url": "http://localhost:90001/mcp"},
        }});
        let fates: Vec<ImportDecision> = planned(&file, &[]).into_iter().map(|(_, fate)| fate).collect();
        assert_eq!(fates, [ImportDecision::Ours, ImportDecision::Ours, ImportDecision::Ours, ImportDecision::Add]);
    }

    #[test]
    fn what_makes_no_sense_is_reported() {
        let fates = planned(&json!({"mcpServers": {"a": {"args": []}}}), &[]);
        assert!(matches!(&fates[0].1, ImportDecision::Unusable { why } if why.contains("command")), "{fates:?}");
    }
}
