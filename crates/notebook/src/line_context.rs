//! A line of a document: its sections, its binding, and its block.

use serde::Serialize;

use crate::binding::{Bindings, Bound};
use crate::document::Document;
use crate::outline::why;
use crate::plan::{Plan, Selection};
use crate::problem::Problem;
use crate::toolbox::Server;

/// A line of a document.
#[derive(Debug, Clone, Serialize)]
pub struct LineContext {
    /// The line, from 1.
    pub line: usize,
    /// The headings above it, from the outermost: `# Notes`, `## Issues`.
    pub sections: Vec<String>,
    /// Its binding.
    pub bound: Option<Bound>,
    /// The server on which an `mcp` block here would run.
    pub server: Option<String>,
    /// Why it is that server, as text.
    pub why: String,
    /// The servers whose tools may be used here.
    pub allowed_servers: Vec<String>,
    /// Problems with the bindings in the document. While there are any, an unbound line may use no tools: it may be
    /// meant to be bound.
    pub remarks: Vec<String>,
    /// The block of the line, or the block whose result contains it.
    pub block: Option<LineBlock>,
}

/// The block of a line.
#[derive(Debug, Clone, Serialize)]
pub struct LineBlock {
    /// Its number, from 1.
    pub number: usize,
    /// The line of its opening fence.
    pub line: usize,
    /// The line of its closing fence.
    pub last_line: usize,
    /// `server.tool`, or `assistant`.
    pub title: String,
    /// Why it cannot run, as far as that is known without contacting a server.
    pub problem: Option<Problem>,
}

/// Inspects a line of a document.
pub fn line_context(document: &Document, servers: &[Server], bindings: &Bindings<'_>, line: usize) -> LineContext {
    let selection = Selection { line: Some(line), ..Selection::default() };
    // A line outside of blocks is not an error here.
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
    let heading = |line_context: &usize| {
        let heading = &document.headings[*line_context];
        format!("{} {}", "#".repeat(heading.level), heading.text)
    };
    LineContext {
        line,
        sections: document.sections_at(line).iter().map(heading).collect(),
        why: match bindings.unclear() {
            Some(unclear) if is_unclear => unclear,
            _ => why(bound.as_ref(), server.as_deref()),
        },
        allowed_servers: enabled().filter(is_allowed).cloned().collect(),
        remarks: bindings.faults.iter().map(ToString::to_string).collect(),
        block: step.map(|step| LineBlock {
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

    fn at(line: usize) -> LineContext {
        let server = |name: &str, is_enabled| Server { name: name.to_owned(), is_enabled };
        let servers = [server("off", false), server("one", true), server("two", true)];
        let document = Document::parse(TEXT);
        line_context(&document, &servers, &Bindings::of(&document, &[]), line)
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
    fn with_an_invalid_binding_only_otherwise_bound_sections_may_use_tools() {
        let servers = ["one", "two"].map(|name| Server { name: name.to_owned(), is_enabled: true });
        for matter in ["mcp: [oops", "mcp:\n- heading: Secret\n  servr: one", "mcp:\n- heading: Gone\n  server: one"] {
            let text = format!("---\n{matter}\n---\n\n# Bound\n<!-- mcp: two -->\n\n# Secret\n\nx\n");
            let document = Document::parse(&text);
            let line = |heading: &str| text.lines().position(|line| line == heading).unwrap() + 1;
            let at = |line| line_context(&document, &servers, &Bindings::of(&document, &[]), line);
            let secret = at(line("# Secret"));
            assert!(secret.allowed_servers.is_empty() && !secret.remarks.is_empty(), "{matter}: {secret:?}");
            assert!(secret.why.contains("no tools may be used"), "{}", secret.why);
            assert_eq!(at(line("# Bound")).allowed_servers, ["two"], "{matter}");
        }
    }

    #[test]
    fn the_block_in_a_line_is_reported_with_its_problem() {
        let block = at(7).block.unwrap();
        assert_eq!((block.number, block.line, block.last_line, block.title.as_str()), (1, 6, 8, "one.a"));
        assert!(block.problem.unwrap().to_string().contains("only tools of `two`"));
    }
}
