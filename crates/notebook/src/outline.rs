//! The outline of a document: sections, the server of each and why, and blocks.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::binding::{Bindings, Bound};
use crate::block::{self, Addressee, ServerTable};
use crate::document::Document;
use crate::plan::{Plan, Selection};
use crate::problem::{Fault, Problem};
use crate::toolbox::Server;

/// The outline of a document.
#[derive(Debug, Clone, Serialize)]
pub struct Outline {
    /// The text before the first heading, then the sections, from top to bottom.
    pub sections: Vec<OutlineSection>,
    /// Remarks about the document.
    pub remarks: Vec<Fault>,
    /// Identifies the content of the document and the servers of its blocks. Results do not count, so a run does not
    /// change it.
    pub version: String,
}

/// A section of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlineSection {
    /// The level of the heading; 0 for the text before the first heading.
    pub level: usize,
    /// The text of the heading.
    pub heading: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its binding.
    pub bound: Option<Bound>,
    /// The server on which an `mcp` block here would run.
    pub server: Option<String>,
    /// Its blocks, without those of its children.
    pub blocks: Vec<OutlineBlock>,
}

/// A block that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlineBlock {
    /// Its number, from 1.
    pub number: usize,
    /// Its line, from 1.
    pub line: usize,
    /// Who runs it.
    pub addressee: Addressee,
    /// Its binding, which may differ from that of its section.
    pub bound: Option<Bound>,
    /// What it runs, for display: `server.tool`, or `assistant`.
    pub title: String,
    /// Why it cannot run, as far as that is known without contacting a server.
    pub problem: Option<Problem>,
    /// Why its parameters were not, or not completely, checked against the schema of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<String>,
}

impl Outline {
    /// All blocks with their sections.
    pub fn blocks(&self) -> impl Iterator<Item = (&OutlineSection, &OutlineBlock)> {
        self.sections.iter().flat_map(|section| section.blocks.iter().map(move |block| (section, block)))
    }
}

impl OutlineBlock {
    /// The server that runs it, if any.
    pub fn server<'a>(&'a self, section: &'a OutlineSection) -> Option<&'a str> {
        let bound = self.bound.as_ref().map(|bound| bound.binding.server.as_str());
        match &self.addressee {
            Addressee::Server(name) => Some(name),
            Addressee::AnyServer => bound.or(section.server.as_deref()),
            Addressee::Assistant => None,
        }
    }
}

impl OutlineSection {
    /// Why it is that server, as text. Does not apply to assistants: in an unbound section they may use all servers.
    pub fn why(&self) -> String {
        why(self.bound.as_ref(), self.server.as_deref())
    }
}

/// Why a place has its server, as text.
pub(crate) fn why(bound: Option<&Bound>, server: Option<&str>) -> String {
    match (bound, server) {
        (Some(bound), _) => bound.to_string(),
        (None, Some(_)) => "not bound: the first enabled server".to_owned(),
        (None, None) => "not bound, and there is no enabled server".to_owned(),
    }
}

/// Builds the outline of a document.
pub fn outline(document: &Document, servers: &[Server], bindings: &Bindings<'_>) -> Outline {
    let (blocks, mut remarks) = block::blocks(document, servers);
    // A document beyond a limit is not planned; the remarks have the reason.
    let plan = Plan::new(document, servers, bindings, &Selection::default(), true);
    let steps = plan.map(|plan| plan.steps).unwrap_or_default();
    remarks.extend(bindings.faults.iter().cloned());
    remarks.extend(unknown_servers(servers, bindings));
    remarks.sort_by_key(|remark| remark.line);
    remarks.dedup();
    let first = servers.iter().find(|server| server.is_enabled).map(|server| &server.name);
    let section = |level: usize, heading: &str, line: usize| {
        let bound = bindings.at(line);
        let server = bound.as_ref().map(|bound| &bound.binding.server).or(first).cloned();
        OutlineSection { level, heading: heading.to_owned(), line, bound, server, blocks: Vec::new() }
    };
    let mut sections: Vec<OutlineSection> = Vec::new();
    if document.headings().first().is_none_or(|heading| heading.line > 1) {
        sections.push(section(0, "", 1));
    }
    sections.extend(document.headings().iter().map(|heading| section(heading.level, &heading.text, heading.line)));
    for (block, step) in blocks.into_iter().zip(&steps) {
        let line = block.fence.first_line;
        let before = sections.partition_point(|section| section.line <= line);
        let Some(around) = before.checked_sub(1).map(|last| &mut sections[last]) else { continue };
        let bound = bindings.at(line);
        let (title, problem) = (step.title().to_owned(), step.problem().cloned());
        around.blocks.push(OutlineBlock {
            number: block.number,
            line,
            addressee: block.addressee,
            bound,
            title,
            problem,
            not_checked: None,
        });
    }
    let version = version(document, &sections);
    Outline { sections, remarks, version }
}

/// Hashes the document without results, and the servers of its blocks.
fn version(document: &Document, sections: &[OutlineSection]) -> String {
    let mut digest = Sha256::new();
    digest.update(document.without_results());
    for (section, block) in sections.iter().flat_map(|section| section.blocks.iter().map(move |block| (section, block)))
    {
        let bound = block.bound.as_ref().map(|bound| bound.binding.server.as_str());
        let line = document.line_without_results(block.line);
        digest.update(format!("\0{line}\0{:?}\0{bound:?}\0{:?}", block.addressee, section.server));
    }
    digest.finalize().iter().take(8).fold(String::new(), |mut word, byte| {
        write!(word, "{byte:02x}").expect("a string takes everything");
        word
    })
}

fn unknown_servers(servers: &[Server], bindings: &Bindings<'_>) -> Vec<Fault> {
    let table = ServerTable::of(servers);
    let unknown = bindings.servers().filter(|(name, _)| table.named(name).is_none());
    unknown.map(|(name, origin)| Fault { line: origin.line(), what: format!("there is no server `{name}`") }).collect()
}
