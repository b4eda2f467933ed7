//! A document as a map: its sections, the server that each is bound to and why, and its blocks.

use serde::Serialize;

use crate::binding::{Bindings, Bound};
use crate::block::{self, Addressee};
use crate::document::Document;
use crate::problem::Fault;
use crate::toolbox::Server;

/// A document as a map.
#[derive(Debug, Clone, Serialize)]
pub struct Outline {
    /// What stands before the first heading, then the sections, from the top.
    pub sections: Vec<OutlineSection>,
    /// What is odd about the document.
    pub remarks: Vec<Fault>,
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
}

impl OutlineSection {
    /// Why the server is the one that it is, in words.
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
    for block in blocks {
        let line = block.fence.first_line;
        let Some(around) = sections.iter_mut().rev().find(|section| section.line <= line) else { continue };
        let bound = bindings.at(line);
        around.blocks.push(OutlineBlock { number: block.number, line, addressee: block.addressee, bound });
    }
    Outline { sections, remarks }
}

fn unknown_servers(servers: &[Server], bindings: &Bindings<'_>) -> Vec<Fault> {
    let is_unknown = |name: &str| !servers.iter().any(|server| server.name == name);
    let unknown = bindings.servers().filter(|(name, _)| is_unknown(name));
    unknown.map(|(name, origin)| Fault { line: origin.line(), what: format!("no server is called `{name}`") }).collect()
}
