//! A line of a document: the sections it is in, the server it is bound to and why, and the block there.

use serde::Serialize;

use crate::binding::{Bindings, Bound};
use crate::document::Document;
use crate::outline::why;
use crate::plan::{Plan, Selection};
use crate::problem::Problem;
use crate::toolbox::Server;

/// A line of a document.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The headings that it stands under, from the outermost: `# Notes`, `## Issues`.
    pub sections: Vec<String>,
    /// What it is bound to.
    pub bound: Option<Bound>,
    /// The server that an `mcp` block here would run at.
    pub server: Option<String>,
    /// Why it is that one, in words.
    pub why: String,
    /// The servers whose tools may be used here.
    pub allowed_servers: Vec<String>,
    /// What of the document's own bindings makes no sense. As long as there is something, a line that is bound to
    /// nothing may use no tools: perhaps it was meant to be bound.
    pub remarks: Vec<String>,
    /// The block that the line is in, or in whose result.
    pub block: Option<PlaceBlock>,
}

/// The block that a line is in.
#[derive(Debug, Clone, Serialize)]
pub struct PlaceBlock {
    /// Its number, from 1.
    pub number: usize,
    /// The line of its opening fence.
    pub line: usize,
    /// The line of its closing fence.
    pub last_line: usize,
    /// `server.tool`, or `assistant`.
    pub title: String,
    /// Why it would not be run, as far as that is known without asking any server.
    pub problem: Option<Problem>,
}

/// Looks at a line of a document.
pub fn place(document: &Document, servers: &[Server], bindings: &Bindings<'_>, line: usize) -> Place {
    let selection = Selection { line: Some(line), ..Selection::default() };
    // That a line is in no block is no error here.
    let plan = Plan::new(document, servers, bindings, &selection, false).ok();
    let step = plan.as_ref().and_then(|plan| plan.steps.first());
    let bound = bindings.at(step.map_or(line, |step| step.fence.first_line));
    let enabled = || servers.iter().filter(|server| server.is_enabled).map(|server| &server.name);
    let server = bound.as_ref().map(|bound| &bound.binding.server).or_else(|| enabled().next()).cloned();
    let is_unclear = bound.is_none() && !bindings.faults.is_empty();
    let is_allowed = |name: &&String| {
        let is_bound_to = |bound: &Bound| bound.binding.server == **name;
        bindings.excess.is_none() && bound.as_ref().map_or(!is_unclear, is_bound_to)
    };
    let heading = |place: &usize| {
        let heading = &document.headings[*place];
        format!("{} {}", "#".repeat(heading.level), heading.text)
    };
    Place {
        line,
        sections: document.sections_at(line).iter().map(heading).collect(),
        why: match bindings.unclear() {
            Some(unclear) if is_unclear => unclear,
            _ => why(bound.as_ref(), server.as_deref()),
        },
        allowed_servers: enabled().filter(is_allowed).cloned().collect(),
        remarks: bindings.faults.iter().map(ToString::to_string).collect(),
        block: step.map(|step| PlaceBlock {
            number: step.number,
            line: step.fence.first_line,
            last_line: step.fence.last_line,
            title: step.title().to_owned(),
            problem: step.problem().cloned(),
        }),
        bound,
        server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Notes\n\n## Issues\n<!-- mcp: two -->\n\n```one\ntool: a\n```\n\n### Old\n\n# Rest\n";

    fn at(line: usize) -> Place {
        let server = |name: &str, is_enabled| Server { name: name.to_owned(), is_enabled };
        let servers = [server("off", false), server("one", true), server("two", true)];
        let document = Document::parse(TEXT);
        place(&document, &servers, &Bindings::of(&document, &[]), line)
    }

    #[test]
    fn a_line_is_bound_by_its_section_and_only_that_server_is_allowed() {
        let old = at(10);
        assert_eq!(old.sections, ["# Notes", "## Issues", "### Old"]);
        assert_eq!((old.server.as_deref(), &old.allowed_servers[..]), (Some("two"), &["two".to_owned()][..]));
        assert!(old.why.contains("inherited from `## Issues`"), "{}", old.why);
        assert!(old.block.is_none());
    }

    #[test]
    fn a_line_that_is_bound_to_nothing_may_use_every_enabled_server() {
        let rest = at(12);
        assert_eq!(rest.allowed_servers, ["one", "two"]);
        assert_eq!((rest.server.as_deref(), rest.bound), (Some("one"), None));
        assert_eq!(at(999).allowed_servers, ["one", "two"]);
    }

    #[test]
    fn where_a_binding_makes_no_sense_only_what_is_bound_otherwise_may_use_tools() {
        let servers = ["one", "two"].map(|name| Server { name: name.to_owned(), is_enabled: true });
        for matter in ["mcp: [oops", "mcp:\n- heading: Secret\n  servr: one", "mcp:\n- heading: Gone\n  server: one"] {
            let text = format!("---\n{matter}\n---\n\n# Bound\n<!-- mcp: two -->\n\n# Secret\n\nx\n");
            let document = Document::parse(&text);
            let line = |heading: &str| text.lines().position(|line| line == heading).unwrap() + 1;
            let at = |line| place(&document, &servers, &Bindings::of(&document, &[]), line);
            let secret = at(line("# Secret"));
            assert!(secret.allowed_servers.is_empty() && !secret.remarks.is_empty(), "{matter}: {secret:?}");
            assert!(secret.why.contains("no tools may be used"), "{}", secret.why);
            assert_eq!(at(line("# Bound")).allowed_servers, ["two"], "{matter}");
        }
    }

    #[test]
    fn the_block_in_a_line_is_reported_with_what_stands_in_its_way() {
        let block = at(7).block.unwrap();
        assert_eq!((block.number, block.line, block.last_line, block.title.as_str()), (1, 6, 8, "one.a"));
        assert!(block.problem.unwrap().to_string().contains("only tools of `two`"));
    }
}
