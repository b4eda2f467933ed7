//! Checks all tools together as clients do: their names, their number, and their cost in tokens.

use super::diagnosis::Diagnosis;
use crate::table::cut;
use crate::tool_cost::tokens;

/// A tool as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Its canonical name.
    pub(crate) name: String,
    /// The length of its definition in bytes.
    pub(crate) size: usize,
}

/// The rule of the specification for names.
const MAX_NAME_LEN: usize = 128;
/// The rule of the strictest clients and model APIs.
const MAX_SAFE_NAME_LEN: usize = 64;
/// The maximum number of tools of some clients, which ignore further tools or refuse them all.
const CLIENT_LIMITS: [(&str, usize); 3] = [("Cursor", 40), ("Windsurf", 100), ("VS Code and Copilot", 128)];
/// A tenth of a common context window.
const MANY_TOKENS: usize = 20_000;
/// The maximum number of names in a finding.
const MAX_NAMED_TOOLS: usize = 3;
/// How much of a name is displayed.
const MAX_SHOWN_LEN: usize = 72;

/// The findings about all tools.
pub(crate) fn examine(tools: &[Tool]) -> Vec<Diagnosis> {
    if tools.is_empty() {
        return Vec::new();
    }
    let mut findings = names(tools);
    findings.push(count(tools.len()));
    findings.push(cost(tools));
    findings
}

fn names(tools: &[Tool]) -> Vec<Diagnosis> {
    let is_known = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    let odd = |tool: &&Tool| !tool.name.chars().all(is_known) || tool.name.len() > MAX_NAME_LEN;
    let odd: Vec<&Tool> = tools.iter().filter(odd).collect();
    let long: Vec<&Tool> = tools.iter().filter(|tool| tool.name.len() > MAX_SAFE_NAME_LEN).collect();
    let mut findings = Vec::new();
    if !odd.is_empty() {
        let message = format!(
            "{}: the specification does not allow such names, so some clients reject them; safe names are not affected",
            some(&odd)
        );
        findings.push(Diagnosis::warning("names", message).advise("serve with `--names safe`"));
    }
    if !long.is_empty() {
        let message = format!(
            "{}: longer than {MAX_SAFE_NAME_LEN} characters; most clients see them shortened, with a number appended",
            some(&long)
        );
        findings.push(Diagnosis::warning("names", message).advise("give the server a shorter name"));
    }
    if findings.is_empty() {
        let message =
            "with `--names auto`, `server.tool` for clients known to accept a dot, `server__tool` for all others";
        findings.push(Diagnosis::ok("names", message));
    }
    findings
}

fn count(tools: usize) -> Diagnosis {
    let beyond: Vec<String> = CLIENT_LIMITS
        .iter()
        .filter(|(_, limit)| tools > *limit)
        .map(|(client, limit)| format!("{client} ({limit})"))
        .collect();
    if beyond.is_empty() {
        return Diagnosis::ok("tools", format!("{tools}, which every client accepts"));
    }
    Diagnosis::warning("tools", format!("{tools}: more than {} accept", beyond.join(", ")))
        .advise("serve with `--surface auto`, or let such a client connect to /mcp?surface=search")
}

fn cost(tools: &[Tool]) -> Diagnosis {
    let total = tokens(tools.iter().map(|tool| tool.size).sum());
    let largest = tools.iter().max_by_key(|tool| tool.size).expect("nobody asks about no tools");
    let message = format!(
        "the list costs a model about {total} tokens; the largest is {} with {}",
        shown(largest),
        tokens(largest.size)
    );
    if total <= MANY_TOKENS {
        return Diagnosis::ok("cost", message);
    }
    Diagnosis::warning("cost", message).advise("disable what you do not need, or serve with `--surface search`")
}

/// The name of a tool for display, truncated.
fn shown(tool: &Tool) -> String {
    cut(&tool.name, MAX_SHOWN_LEN)
}

/// The first few names, and the number of the others.
fn some(tools: &[&Tool]) -> String {
    let first: Vec<String> = tools.iter().take(MAX_NAMED_TOOLS).map(|tool| format!("`{}`", shown(tool))).collect();
    match tools.len().saturating_sub(MAX_NAMED_TOOLS) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    fn levels(tools: &[Tool]) -> Vec<(&'static str, Level)> {
        examine(tools).into_iter().map(|finding| (finding.topic, finding.level)).collect()
    }

    fn tool(name: &str, size: usize) -> Tool {
        Tool { name: name.to_owned(), size }
    }

    #[test]
    fn a_few_ordinary_tools_are_fine_and_none_are_nothing() {
        assert_eq!(levels(&[tool("git.log", 400)]), [("names", Level::Ok), ("tools", Level::Ok), ("cost", Level::Ok)]);
        assert_eq!(levels(&[]), []);
    }

    #[test]
    fn names_that_some_client_refuses_are_reported() {
        let findings = examine(&[tool("git.über", 4), tool(&format!("git.{}", "x".repeat(70)), 4)]);
        assert!(findings[0].message.starts_with("`git.über`: the specification does not allow"), "{findings:?}");
        assert!(findings[1].message.contains("longer than 64"), "{findings:?}");
        assert!(findings[..2].iter().all(|finding| finding.level == Level::Warning && finding.advice.is_some()));
    }

    #[test]
    fn a_very_long_name_is_reported_in_short() {
        for finding in examine(&[tool(&"x".repeat(300), 4)]) {
            assert!(finding.message.chars().count() < 200, "{finding:?}");
        }
    }

    #[test]
    fn more_tools_than_a_client_takes_are_reported_with_the_client() {
        let tools: Vec<Tool> = (0..101).map(|number| tool(&format!("a.t{number}"), 4)).collect();
        let count = &examine(&tools)[1];
        assert_eq!(count.message, "101: more than Cursor (40), Windsurf (100) accept");
    }

    #[test]
    fn a_list_that_fills_the_context_is_reported_with_its_largest() {
        let cost = examine(&[tool("a.small", 4), tool("a.huge", 100_000)]).remove(2);
        assert_eq!(cost.level, Level::Warning);
        assert!(cost.message.contains("25001 tokens") && cost.message.contains("a.huge with 25000"), "{cost:?}");
    }
}
