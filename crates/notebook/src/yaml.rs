//! YAML with line numbers: the parameters of a block, and front matter.
//!
//! Plain scalars follow the core schema of YAML 1.2 (`no` is a string, `0o17` a number). Numbers stay as written, so
//! that none is rounded on the way to a tool.

mod scalar;

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use crate::problem::clipped;
use scalar::Scalar;

/// Longer texts are refused.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The limits of values, including keys, and of their bytes. Aliases may repeat large values, so repetitions count.
const MAX_NODES: usize = 100_000;
const MAX_BYTES: usize = 2 * MAX_TEXT_BYTES;

/// The same for all blocks of a document together: many small blocks must not expand to more than one large one may.
const MAX_NODES_OF_DOCUMENT: usize = 500_000;
const MAX_BYTES_OF_DOCUMENT: usize = 16 * 1024 * 1024;

/// The limit of nesting, so that the stack suffices.
const MAX_DEPTH: usize = 100;

/// The limit of characters of an error. It may be repeated for every block of a document, and quotes the document.
const LONGEST_FAULT: usize = 300;

/// A value and its first line, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// A number in the syntax of JSON.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key, its line, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

/// A problem and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// The remaining budget of all texts of one document.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn of_document() -> Self {
        Self { nodes: MAX_NODES_OF_DOCUMENT, bytes: MAX_BYTES_OF_DOCUMENT }
    }

    fn take(&mut self, size: Size, line: usize) -> Result<(), Fault> {
        let too_many = |most: usize, what: &str| {
            fault(line, format!("the blocks of this document have too many values: more than {most}{what} in total"))
        };
        // What exceeds the budget is not taken from it, so that smaller blocks below still fit.
        let nodes = self.nodes.checked_sub(size.nodes).ok_or_else(|| too_many(MAX_NODES_OF_DOCUMENT, ""))?;
        self.bytes = self.bytes.checked_sub(size.bytes).ok_or_else(|| too_many(MAX_BYTES_OF_DOCUMENT, " bytes"))?;
        self.nodes = nodes;
        Ok(())
    }
}

/// Parses a single YAML document. An empty one is `Null`.
pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    parse_within(text, &mut Budget::of_document())
}

/// Parses one of the YAML documents that share a budget.
pub(crate) fn parse_within(text: &str, budget: &mut Budget) -> Result<Node, Fault> {
    if text.len() > MAX_TEXT_BYTES {
        let what = format!("the YAML has {} bytes; the limit is {MAX_TEXT_BYTES}", text.len());
        return Err(fault(1, what));
    }
    let events = Parser::new_from_str(text);
    let mut reader = Reader { text, events, anchors: HashMap::new(), nodes: 0, bytes: 0, budget };
    let mut root = None;
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => return Err(fault(line, "expected one YAML document, found several")),
            event => root = Some(reader.node(event, line, 0)?),
        }
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Null }))
}

impl Node {
    /// The node at the end of a path of keys and indexes, or the last existing one on the way.
    pub(crate) fn nearest<'a>(&'a self, path: impl IntoIterator<Item = &'a str>) -> &'a Self {
        let mut here = self;
        for step in path {
            let next = match &here.value {
                Value::Map(entries) => entries.iter().find(|entry| entry.key == step).map(|entry| &entry.node),
                Value::List(nodes) => step.parse::<usize>().ok().and_then(|place| nodes.get(place)),
                _ => None,
            };
            let Some(next) = next else { break };
            here = next;
        }
        here
    }

    /// The entry with a key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key)
    }

    /// The value as JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut json = String::new();
        self.write_json(&mut json);
        json
    }

    fn write_json(&self, json: &mut String) {
        match &self.value {
            Value::Null => json.push_str("null"),
            Value::Bool(it) => json.push_str(if *it { "true" } else { "false" }),
            Value::Number(digits) => json.push_str(digits),
            Value::Text(text) => json.push_str(&quoted(text)),
            Value::List(nodes) => {
                json.push('[');
                for (place, node) in nodes.iter().enumerate() {
                    json.push_str(if place == 0 { "" } else { "," });
                    node.write_json(json);
                }
                json.push(']');
            }
            Value::Map(entries) => write_object(entries, json),
        }
    }
}

fn write_object(entries: &[Entry], json: &mut String) {
    json.push('{');
    for (place, entry) in entries.iter().enumerate() {
        json.push_str(if place == 0 { "" } else { "," });
        json.push_str(&quoted(&entry.key));
        json.push(':');
        entry.node.write_json(json);
    }
    json.push('}');
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("every text is a JSON string")
}

fn fault(line: usize, what: impl Into<String>) -> Fault {
    Fault { line, what: clipped(what.into(), LONGEST_FAULT) }
}

struct Reader<'a, 'b> {
    text: &'a str,
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    bytes: usize,
    budget: &'b mut Budget,
}

impl<'a> Reader<'a, '_> {
    fn next(&mut self) -> Result<(Event<'a>, usize), Fault> {
        match self.events.next_event() {
            None => Ok((Event::StreamEnd, 1)),
            Some(Ok((event, span))) => Ok((event, span.start.line().max(1))),
            Some(Err(error)) => Err(fault(self.line_of(&error), error.info())),
        }
    }

    /// The line of an error. Missing text is noticed after the end, but can be fixed on the last line; and a tab in the
    /// indentation belongs to the indented line, not to the one before.
    fn line_of(&self, error: &ScanError) -> usize {
        let last = self.text.trim_end().lines().count().max(1);
        let line = error.marker().line().clamp(1, last);
        if !error.info().contains("tab") {
            return line;
        }
        let is_indented_by_tab = |text: &str| text[..text.len() - text.trim_start().len()].contains('\t');
        let blamed = self.text.lines().skip(line - 1).position(is_indented_by_tab);
        blamed.map_or(line, |further| line + further)
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, Fault> {
        if depth > MAX_DEPTH {
            return Err(fault(line, "the YAML is nested too deeply"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = matches!(style, ScalarStyle::Plain);
                self.count(Size { nodes: 1, bytes: text.len() }, line)?;
                (anchor, scalar_value(&text, is_plain, tag.as_deref(), line)?)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), "seq", line)?;
                self.count(Size { nodes: 1, bytes: 0 }, line)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), "map", line)?;
                self.count(Size { nodes: 1, bytes: 0 }, line)?;
                (anchor, self.map(depth)?)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(fault(line, "an alias must not refer to a node that contains it"));
                };
                if depth + levels(node) > MAX_DEPTH {
                    return Err(fault(line, "the YAML is nested too deeply"));
                }
                let size = Size::of(node);
                self.count(size, line)?;
                return self
                    .anchors
                    .get(&anchor)
                    .cloned()
                    .ok_or_else(|| fault(line, "an alias refers to an unknown anchor"));
            }
            _ => return Err(fault(line, "a value is missing")),
        };
        let node = Node { line, value };
        if anchor > 0 {
            self.count(Size::of(&node), line)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, size: Size, line: usize) -> Result<(), Fault> {
        self.nodes += size.nodes;
        self.bytes += size.bytes;
        if self.nodes > MAX_NODES {
            return Err(fault(line, format!("the YAML has too many values: more than {MAX_NODES}")));
        }
        if self.bytes > MAX_BYTES {
            return Err(fault(line, format!("the values are too long: more than {MAX_BYTES} bytes")));
        }
        self.budget.take(size, line)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(nodes)),
                (event, line) => nodes.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut keys: HashSet<String> = HashSet::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Value::Map(entries));
            }
            let key = match (&event, self.node(event.clone(), line, depth + 1)?.value) {
                (Event::Scalar(written, ..), _) => written.to_string(),
                (_, Value::Text(text) | Value::Number(text)) => text,
                _ => return Err(fault(line, "a key must be a scalar")),
            };
            if !keys.insert(key.clone()) {
                return Err(fault(line, format!("`{key}` is given twice")));
            }
            let (event, value_line) = self.next()?;
            let node = self.node(event, value_line, depth + 1)?;
            entries.push(Entry { key, line, node });
        }
    }
}

/// The size of a value.
#[derive(Debug, Clone, Copy)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn of(node: &Node) -> Self {
        let sum = |sum: Self, more: Self| Self { nodes: sum.nodes + more.nodes, bytes: sum.bytes + more.bytes };
        let one = |bytes| Self { nodes: 1, bytes };
        match &node.value {
            Value::List(nodes) => nodes.iter().map(Self::of).fold(one(0), sum),
            Value::Map(entries) => {
                let of = |entry: &Entry| sum(Self::of(&entry.node), one(entry.key.len()));
                entries.iter().map(of).fold(one(0), sum)
            }
            Value::Text(text) | Value::Number(text) => one(text.len()),
            Value::Null | Value::Bool(_) => one(0),
        }
    }
}

/// The nesting depth.
fn levels(node: &Node) -> usize {
    match &node.value {
        Value::List(nodes) => 1 + nodes.iter().map(levels).max().unwrap_or_default(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| levels(&entry.node)).max().unwrap_or_default(),
        _ => 0,
    }
}

fn scalar_value(text: &str, is_plain: bool, tag: Option<&Tag>, line: usize) -> Result<Value, Fault> {
    let tag = tag.map(|tag| (tag.is_yaml_core_schema(), tag.suffix.as_str()));
    let scalar = match tag {
        None if is_plain => Scalar::of(text),
        None | Some((true, "str") | (false, "")) => Scalar::Text,
        Some((true, "null" | "bool" | "int" | "float")) => Scalar::of(text),
        Some((_, other)) => return Err(fault(line, format!("the tag `{other}` is not supported"))),
    };
    match scalar {
        Scalar::Null => Ok(Value::Null),
        Scalar::Bool(it) => Ok(Value::Bool(it)),
        Scalar::Number(digits) => Ok(Value::Number(digits)),
        Scalar::Text => Ok(Value::Text(text.to_owned())),
        Scalar::NoJson => Err(fault(line, format!("`{text}` is not a number in JSON; quote it to make it text"))),
    }
}

fn refuse_tag(tag: Option<&Tag>, expected: &str, line: usize) -> Result<(), Fault> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == expected) => {
            Err(fault(line, format!("the tag `{}` is not supported", tag.suffix)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, MAX_BYTES, MAX_NODES, MAX_TEXT_BYTES, parse};

    fn json(yaml: &str) -> String {
        parse(yaml).unwrap_or_else(|fault| panic!("{yaml}: {fault:?}")).to_json()
    }

    #[test]
    fn what_people_write_becomes_the_json_they_mean() {
        for (yaml, expected) in [
            ("a: 1\nb: [x, 'y', \"z\\n\"]", r#"{"a":1,"b":["x","y","z\n"]}"#),
            ("a:\n  b:\n    - c: d\n      e: f\n    - g", r#"{"a":{"b":[{"c":"d","e":"f"},"g"]}}"#),
            (
                "t: |\n  one\n    two\n\n  three\nu: >-\n  folded\n  words",
                r#"{"t":"one\n  two\n\nthree\n","u":"folded words"}"#,
            ),
            (
                "a: yes\nb: no\nc: on\nd: true\ne: ~\nf:\ng: null",
                r#"{"a":"yes","b":"no","c":"on","d":true,"e":null,"f":null,"g":null}"#,
            ),
            ("a: 2026-01-02\nb: 12:30\nc: 1.10\nd: '1.10'", r#"{"a":"2026-01-02","b":"12:30","c":1.10,"d":"1.10"}"#),
            (
                "a: 0x1F\nb: 0o17\nc: 007\nd: +5\ne: .5\nf: 1.\ng: 1e3",
                r#"{"a":31,"b":15,"c":7,"d":5,"e":0.5,"f":1.0,"g":1e3}"#,
            ),
            ("a: 123456789012345678901234567890", r#"{"a":123456789012345678901234567890}"#),
            ("a: &x [1, 2]\nb: *x", r#"{"a":[1,2],"b":[1,2]}"#),
            ("1: a\ntrue: b\n", r#"{"1":"a","true":"b"}"#),
            ("a: !!str 5\nb: !!int '7'", r#"{"a":"5","b":7}"#),
            ("a: # nothing\n  # at all\n  b: c # end", r#"{"a":{"b":"c"}}"#),
            ("{\"a\": {\"b\": [1, null]}}", r#"{"a":{"b":[1,null]}}"#),
            ("", "null"),
            ("# only words", "null"),
            ("a: ünïcødé 🦀", r#"{"a":"ünïcødé 🦀"}"#),
        ] {
            assert_eq!(json(yaml), expected, "{yaml}");
        }
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        for (yaml, line, part) in [
            ("a: 1\nb: [1, 2\nc: 3", 3, ""),
            ("a: 1\n\tb: 2", 2, ""),
            ("a: 1\n\na: 2", 3, "twice"),
            ("a: .inf", 1, "not a number"),
            ("a: 1\n---\nb: 2", 3, "one YAML document"),
            ("a: &x [*x]", 1, "alias"),
            ("a: !secret b", 1, "tag"),
            ("? [a]\n: b", 1, "key"),
            ("a: b: c", 1, ""),
        ] {
            let Fault { line: found, what } = parse(yaml).expect_err(yaml);
            assert_eq!(found, line, "{yaml}: {what}");
            assert!(what.contains(part), "{yaml}: {what}");
        }
    }

    #[test]
    fn what_would_grow_or_nest_without_end_is_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(parse(&bomb).expect_err("a bomb").what.contains("too many"));
        let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(&deep).expect_err("deep").what.contains("deeply"));
    }

    #[test]
    fn one_text_has_bounds_of_its_own_for_its_length_its_values_and_their_bytes() {
        let refused = |text: &str| parse(text).expect_err("it is beyond a bound").what;
        assert!(parse(&"#".repeat(MAX_TEXT_BYTES)).is_ok());
        let long = refused(&"#".repeat(MAX_TEXT_BYTES + 1));
        assert_eq!(long, format!("the YAML has {} bytes; the limit is {MAX_TEXT_BYTES}", MAX_TEXT_BYTES + 1));
        // The list counts as well.
        assert!(parse(&"- 1\n".repeat(MAX_NODES - 1)).is_ok());
        let many = refused(&"- 1\n".repeat(MAX_NODES));
        assert_eq!(many, format!("the YAML has too many values: more than {MAX_NODES}"));
        // The value counts where it stands, for its anchor, and for its alias: three times.
        let repeated = |bytes: usize| format!("- &a {}\n- *a\n", "x".repeat(bytes));
        assert!(parse(&repeated(MAX_BYTES / 3)).is_ok());
        let large = refused(&repeated(MAX_BYTES / 3 + 1));
        assert_eq!(large, format!("the values are too long: more than {MAX_BYTES} bytes"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "[-a: \\n\\t\\r\\[\\]{},&*!|>'\"%@`?#~0x1.<=\\\\\u{feff}é]{0,60}") {
            if let Ok(node) = parse(&text) {
                let json = node.to_json();
                proptest::prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&json).is_ok(), "{}", json);
            }
        }
    }
}
