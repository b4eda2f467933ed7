//! Bindings in front matter: `mcp: SERVER` for the whole document, or a list of parts and servers.

use crate::binding::{Binding, MAX_BINDING_TEXT, MAX_BINDINGS, Origin, Section};
use crate::document::Document;
use crate::problem::{Fault, clipped};
use crate::yaml::{self, Entry, Node, Value};

/// The limit of characters of an error that quotes the document: it is repeated for every affected block.
const LONGEST_FAULT: usize = 300;

/// The bindings in front matter, and their problems.
pub(super) fn bindings(document: &Document) -> (Vec<Binding>, Vec<Fault>) {
    let Some(matter) = &document.front_matter else { return (Vec::new(), Vec::new()) };
    let shift = matter.line - 1;
    let root = match yaml::parse(&document.text[matter.yaml.clone()]) {
        Ok(root) => root,
        // Front matter without `mcp` is not ours to judge.
        Err(_) if !document.text[matter.yaml.clone()].contains("mcp:") => return (Vec::new(), Vec::new()),
        Err(fault) => {
            let what = format!("the front matter is not valid YAML: {}", fault.what);
            return (Vec::new(), vec![Fault { line: fault.line + shift, what }]);
        }
    };
    let Some(entry) = root.entry("mcp") else { return (Vec::new(), Vec::new()) };
    let nodes = match &entry.node.value {
        Value::List(nodes) => nodes.as_slice(),
        Value::Null => &[],
        _ => std::slice::from_ref(&entry.node),
    };
    if nodes.len() > MAX_BINDINGS {
        let what = format!("the front matter has {} bindings; the limit is {MAX_BINDINGS}", nodes.len());
        return (Vec::new(), vec![Fault { line: entry.line + shift, what }]);
    }
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for node in nodes {
        match binding(node, shift) {
            Ok(binding) => found.push(binding),
            Err((line, what)) => faults.push(Fault { line: line + shift, what: clipped(what, LONGEST_FAULT) }),
        }
    }
    (found, faults)
}

type Wrong = (usize, String);

fn binding(node: &Node, shift: usize) -> Result<Binding, Wrong> {
    let origin = Origin::FrontMatter { line: node.line + shift };
    let entries = match &node.value {
        Value::Text(server) => {
            let server = short(server, "mcp", node.line)?;
            return Ok(Binding { section: Section::Document, server, inherit_to_children: true, origin });
        }
        Value::Map(entries) => entries,
        _ => return Err((node.line, "a binding must name a server".to_owned())),
    };
    let mut parts = Parts::default();
    for entry in entries {
        parts.take(entry)?;
    }
    let section = parts.section(node.line)?;
    let server = parts.server.ok_or_else(|| (node.line, "a binding must name a `server`".to_owned()))?;
    Ok(Binding { section, server, inherit_to_children: parts.inherit.unwrap_or(true), origin })
}

#[derive(Default)]
struct Parts {
    server: Option<String>,
    inherit: Option<bool>,
    heading: Option<String>,
    block: Option<String>,
    start: Option<usize>,
    end: Option<usize>,
}

impl Parts {
    fn take(&mut self, entry: &Entry) -> Result<(), Wrong> {
        match entry.key.as_str() {
            "server" | "serverId" | "server_id" => self.server = Some(text(entry)?),
            "inherit" | "inheritToChildren" | "inherit_to_children" => self.inherit = Some(truth(entry)?),
            "heading" | "headingText" | "heading_text" => self.heading = Some(text(entry)?),
            "block" | "blockId" | "block_id" => self.block = Some(text(entry)?),
            "start" | "startLine" | "start_line" => self.start = Some(number(entry)?),
            "end" | "endLine" | "end_line" => self.end = Some(number(entry)?),
            "lines" => {
                let written = text(entry)?;
                let (start, end) = written.split_once('-').unwrap_or((&written, ""));
                let parsed = line_number(start.trim()).zip(line_number(end.trim()));
                let (start, end) = parsed.ok_or_else(|| (entry.line, "write lines as `10-20`".to_owned()))?;
                (self.start, self.end) = (Some(start), Some(end));
            }
            "sectionType" | "section_type" => {}
            other => return Err((entry.line, format!("`{other}` is not a member of a binding"))),
        }
        Ok(())
    }

    fn section(&mut self, line: usize) -> Result<Section, Wrong> {
        let lines = self.start.is_some() || self.end.is_some();
        let kinds = usize::from(self.heading.is_some()) + usize::from(self.block.is_some()) + usize::from(lines);
        if kinds > 1 {
            return Err((
                line,
                "a binding is for exactly one of a heading, a block or lines, not for several".to_owned(),
            ));
        }
        if let Some(heading_text) = self.heading.take() {
            return Ok(Section::Heading { heading_text });
        }
        if let Some(block_id) = self.block.take() {
            return Ok(Section::Block { block_id });
        }
        match (self.start, self.end) {
            (None, None) => Ok(Section::Document),
            (Some(start_line), Some(end_line)) if 0 < start_line && start_line < end_line => {
                Ok(Section::Range { start_line, end_line })
            }
            (Some(0), Some(_)) => Err((line, "line numbers start at 1".to_owned())),
            (Some(_), Some(_)) => Err((line, "the last line of a range must come after its first line".to_owned())),
            _ => Err((line, "a range must have a first and a last line".to_owned())),
        }
    }
}

fn text(entry: &Entry) -> Result<String, Wrong> {
    match &entry.node.value {
        Value::Text(text) | Value::Number(text) if !text.trim().is_empty() => short(text, &entry.key, entry.line),
        _ => Err((entry.line, format!("`{}` must be a string", entry.key))),
    }
}

fn short(text: &str, key: &str, line: usize) -> Result<String, Wrong> {
    let count = text.chars().count();
    if count > MAX_BINDING_TEXT {
        let what = format!("`{key}` has {count} characters; the limit in a binding is {MAX_BINDING_TEXT}");
        return Err((line, what));
    }
    Ok(text.to_owned())
}

fn truth(entry: &Entry) -> Result<bool, Wrong> {
    match entry.node.value {
        Value::Bool(it) => Ok(it),
        _ => Err((entry.line, format!("`{}` must be true or false", entry.key))),
    }
}

fn number(entry: &Entry) -> Result<usize, Wrong> {
    let written = if let Value::Number(digits) = &entry.node.value { line_number(digits) } else { None };
    written.ok_or_else(|| (entry.line, format!("`{}` must be a line number", entry.key)))
}

/// A line number that leaves room for the line after it.
fn line_number(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|line| *line < usize::MAX)
}
