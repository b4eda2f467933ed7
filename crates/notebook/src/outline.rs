//! A document as a map: its sections, the server that each is bound to and why, and its blocks.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::binding::{Bindings, Bound};
use crate::block::{self, Addressee, ServerTable};
use crate::document::Document;
use crate::plan::{Plan, Selection};
use crate::problem::{Fault, Problem};
use crate::toolbox::Server;

/// A document as a map.
#[derive(Debug, Clone, Serialize)]
pub struct Outline {
    /// What stands before the first heading, then the sections, from the top.
    pub sections: Vec<OutlineSection>,
    /// What is odd about the document.
    pub remarks: Vec<Fault>,
    /// One word for what the document says and which of its blocks would run where: another one if any of that is
    /// another. Results do not count, so a run does not change it.
    pub version: String,
}

/// A section of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlineSection {
    /// The heading's level; 0 for what stands before the first heading.
    pub level: usize,
    /// The heading's words.
    pub heading: String,
    /// Its line, from 1.
    pub line: usize,
    /// What it is bound to.
    pub bound: Option<Bound>,
    /// The server that an `mcp` block here would run at.
    pub server: Option<String>,
    /// The blocks in it that can be run, those of its children not included.
    pub blocks: Vec<OutlineBlock>,
}

/// A block that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlineBlock {
    /// Its number, from 1.
    pub number: usize,
    /// Its line, from 1.
    pub line: usize,
    /// Who is to do what it says.
    pub addressee: Addressee,
    /// What it is bound to: perhaps more closely than its section.
    pub bound: Option<Bound>,
    /// What it runs, for people: `server.tool`, or `assistant`.
    pub title: String,
    /// Why it would not be run, as far as that is known without asking any server.
    pub problem: Option<Problem>,
    /// Why its parameters were not checked against the tool's schema, or not completely, where somebody tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<String>,
}

impl Outline {
    /// All blocks, each with the section it stands in.
    pub fn blocks(&self) -> impl Iterator<Item = (&OutlineSection, &OutlineBlock)> {
        self.sections.iter().flat_map(|section| section.blocks.iter().map(move |block| (section, block)))
    }
}

impl OutlineBlock {
    /// The server that is to do what it says, if there is one.
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
    /// Why the server is the one that it is, in words. Assistants are not meant: in a section that is bound to nothing
    /// they may use all servers.
    pub fn why(&self) -> String {
        why(self.bound.as_ref(), self.server.as_deref())
    }
}

/// Why a place has the server that it has, in words.
pub(crate) fn why(bound: Option<&Bound>, server: Option<&str>) -> String {
    match (bound, server) {
        (Some(bound), _) => bound.to_string(),
        (None, Some(_)) => "not bound: the first enabled server".to_owned(),
        (None, None) => "not bound, and there is no enabled server".to_owned(),
    }
}

/// Draws the map of a document.
pub fn outline(document: &Document, servers: &[Server], bindings: &Bindings<'_>) -> Outline {
    let (blocks, mut remarks) = block::blocks(document, servers);
    // Nothing of a document that has too much is planned; the remarks say why.
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

/// What stands for a document as its users wrote it, and for where its blocks run.
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
    unknown.map(|(name, origin)| Fault { line: origin.line(), what: format!("no server is called `{name}`") }).collect()
}
