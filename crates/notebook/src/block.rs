//! The blocks of a document that can be run, and their content.

use std::collections::HashMap;
use std::str::FromStr;

use serde::Serialize;

use crate::document::{Document, Fence};
use crate::problem::{Fault, Problem, ProblemKind};
use crate::schema::PropertyRule;
use crate::toolbox::Server;
use crate::yaml::{self, Entry, Node, Value};

/// Languages in which a first line `tool: ...` is not a misspelled server.
const OTHER_LANGUAGES: [&str; 14] =
    ["yaml", "yml", "json", "jsonc", "json5", "toml", "text", "txt", "md", "markdown", "bash", "sh", "python", "ini"];

/// Who runs a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressee {
    /// This server: the language of the block is its name.
    Server(String),
    /// The server of the section, or the first one: the language of the block is `mcp`.
    AnyServer,
    /// The assistant: the language of the block is `assistant`.
    Assistant,
}

/// A block that can be run.
#[derive(Debug, Clone)]
pub struct Block<'a> {
    /// Its number among those that can be run, from 1.
    pub number: usize,
    /// Who runs it.
    pub addressee: Addressee,
    /// Its position and content.
    pub fence: &'a Fence,
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Display {
    /// On one line, where possible.
    Inline,
    /// As a block.
    Block,
    /// In a collapsible section.
    Collapsed,
}

/// The format of text in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Just text.
    Text,
    /// JSON.
    Json,
    /// Markdown, rendered if it is self-contained.
    Markdown,
}

/// The display options of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DisplayOptions {
    pub(crate) display: Option<Display>,
    pub(crate) format: Option<Format>,
}

impl FromStr for Display {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "inline" => Ok(Self::Inline),
            "block" => Ok(Self::Block),
            "collapsed" => Ok(Self::Collapsed),
            _ => Err("`display` must be inline, block or collapsed"),
        }
    }
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "markdown" => Ok(Self::Markdown),
            _ => Err("`format` must be text, json or markdown"),
        }
    }
}

/// The blocks of a document that can be run, and remarks about those that look as if they should.
pub fn blocks<'a>(document: &'a Document, servers: &[Server]) -> (Vec<Block<'a>>, Vec<Fault>) {
    let (mut found, mut remarks) = (Vec::new(), Vec::new());
    let table = ServerTable::of(servers);
    for fence in document.fences() {
        let language = fence.language();
        let addressee = match (language, table.called(language)) {
            ("", _) => continue,
            ("assistant", None) => Addressee::Assistant,
            ("mcp", None) => Addressee::AnyServer,
            (_, Some(server)) if names_tool(fence) => Addressee::Server(server.to_owned()),
            (_, Some(_)) => {
                let what = format!("a `{language}` block that does not start with `tool:` is ignored");
                remarks.push(Fault { line: fence.first_line, what });
                continue;
            }
            (other, None) => {
                if names_tool(fence) && !OTHER_LANGUAGES.contains(&other.to_ascii_lowercase().as_str()) {
                    let what = format!("there is no server `{other}`; this block is ignored");
                    remarks.push(Fault { line: fence.first_line, what });
                }
                continue;
            }
        };
        found.push(Block { number: found.len() + 1, addressee, fence });
    }
    (found, remarks)
}

/// Servers by their names.
pub(crate) struct ServerTable<'a> {
    exact: HashMap<&'a str, &'a Server>,
    /// By name, ignoring case; None if several differ only in case.
    folded: HashMap<String, Option<&'a str>>,
    first_enabled: Option<&'a str>,
}

impl<'a> ServerTable<'a> {
    pub(crate) fn of(servers: &'a [Server]) -> Self {
        let mut folded = HashMap::new();
        for server in servers {
            let same = folded.entry(server.name.to_ascii_lowercase());
            same.and_modify(|only| *only = None).or_insert(Some(server.name.as_str()));
        }
        let first_enabled = servers.iter().find(|server| server.is_enabled).map(|server| server.name.as_str());
        let exact = servers.iter().rev().map(|server| (server.name.as_str(), server)).collect();
        Self { exact, folded, first_enabled }
    }

    /// A server by name, or by the only name that differs only in case.
    pub(crate) fn called(&self, name: &str) -> Option<&'a str> {
        let exact = self.exact.get(name).map(|server| server.name.as_str());
        exact.or_else(|| self.folded.get(&name.to_ascii_lowercase()).copied().flatten())
    }

    /// A server by exact name.
    pub(crate) fn named(&self, name: &str) -> Option<&'a Server> {
        self.exact.get(name).copied()
    }

    pub(crate) fn first_enabled(&self) -> Option<&'a str> {
        self.first_enabled
    }
}

fn names_tool(fence: &Fence) -> bool {
    if info_option(fence, "tool").is_some() {
        return true;
    }
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with('#') && *line != "---";
    let first = fence.content.lines().map(str::trim).find(is_said).unwrap_or_default();
    let key = first.trim_start_matches(['{', ' ']).split(':').next().unwrap_or_default();
    first.contains(':') && key.trim().trim_matches(['"', '\'']) == "tool"
}

/// The value of `key=value` after a fence's language.
fn info_option<'a>(fence: &'a Fence, key: &str) -> Option<&'a str> {
    fence.info.split_whitespace().skip(1).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The content of a block: a tool, parameters, and possibly display options among them.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) tool: String,
    pub(crate) tool_line: usize,
    /// The members except `tool`, with lines of the document.
    entries: Vec<Entry>,
    from_info: DisplayOptions,
}

/// Parses a block. Lines in errors are those of the document.
pub(crate) fn read(fence: &Fence, budget: &mut yaml::Budget) -> Result<Written, Problem> {
    let bad = |line: usize, what: String| Problem::new(ProblemKind::BadYaml, line, what);
    let from_info = display_options_of_info(fence).map_err(|what| bad(fence.first_line, what.to_owned()))?;
    let node = yaml::parse_within(&fence.content, budget);
    let mut node = node.map_err(|fault| bad(fence.first_line + fault.line, fault.what))?;
    move_down(&mut node, fence.first_line);
    let first_line = node.line;
    let mut entries = match node.value {
        Value::Map(entries) => entries,
        Value::Null => Vec::new(),
        _ => return Err(bad(first_line, "a block consists of `tool: NAME` and `parameter: value` lines".to_owned())),
    };
    if let Some(tool) = info_option(fence, "tool") {
        return Ok(Written { tool: tool.to_owned(), tool_line: fence.first_line, entries, from_info });
    }
    if entries.first().is_none_or(|entry| entry.key != "tool") {
        return Err(bad(first_line, "a block must start with `tool: NAME`".to_owned()));
    }
    let Entry { line: tool_line, node, .. } = entries.remove(0);
    match node.value {
        Value::Text(tool) | Value::Number(tool) if !tool.is_empty() => {
            Ok(Written { tool, tool_line, entries, from_info })
        }
        _ => Err(bad(tool_line, "`tool` must be the name of a tool".to_owned())),
    }
}

/// The question to an assistant, and how its answer is shown.
pub(crate) fn read_question(fence: &Fence) -> Result<(String, DisplayOptions), Problem> {
    let bad = |what: &str| Problem::new(ProblemKind::BadYaml, fence.first_line, what);
    let display_options = display_options_of_info(fence).map_err(bad)?;
    let words = fence.content.trim();
    if words.is_empty() { Err(bad("the block contains no question")) } else { Ok((words.to_owned(), display_options)) }
}

impl Written {
    /// Separates arguments and display hints. `display` and `format` in the body are hints only if the schema of the
    /// tool forbids an argument of that name: no argument is ever lost. If the schema leaves that open (see
    /// [`PropertyRule::Unspecified`]), a valid hint is both. An option after the language takes precedence.
    pub(crate) fn sorted(&self, schema: Option<&serde_json::Value>) -> Result<(Node, DisplayOptions), Problem> {
        let rule = |name: &str| schema.map_or(PropertyRule::Unspecified, |schema| PropertyRule::of(schema, name));
        let mut display_options = self.from_info;
        let mut parameters = Vec::new();
        for entry in &self.entries {
            let is_argument = match entry.key.as_str() {
                "display" if self.from_info.display.is_none() => {
                    take_hint(entry, rule("display"), &mut display_options.display)?
                }
                "format" if self.from_info.format.is_none() => {
                    take_hint(entry, rule("format"), &mut display_options.format)?
                }
                _ => true,
            };
            if is_argument {
                parameters.push(entry.clone());
            }
        }
        Ok((Node { line: self.tool_line, value: Value::Map(parameters) }, display_options))
    }
}

/// Reads a display hint from the body of a block. Returns whether the entry is an argument of the tool.
fn take_hint<T: FromStr<Err = &'static str>>(
    entry: &Entry,
    rule: PropertyRule,
    hint: &mut Option<T>,
) -> Result<bool, Problem> {
    match rule {
        PropertyRule::Allowed => Ok(true),
        PropertyRule::Unspecified => {
            *hint = display_option(entry).ok();
            Ok(true)
        }
        PropertyRule::Forbidden => {
            *hint = Some(display_option(entry)?);
            Ok(false)
        }
    }
}

fn display_option<T: FromStr<Err = &'static str>>(entry: &Entry) -> Result<T, Problem> {
    let word = if let Value::Text(word) = &entry.node.value { word.as_str() } else { "" };
    word.parse().map_err(|what| Problem::new(ProblemKind::BadYaml, entry.line, what))
}

fn display_options_of_info(fence: &Fence) -> Result<DisplayOptions, &'static str> {
    let display = info_option(fence, "display").map(str::parse).transpose()?;
    let format = info_option(fence, "format").map(str::parse).transpose()?;
    Ok(DisplayOptions { display, format })
}

/// Converts lines of the block to lines of the document.
fn move_down(node: &mut Node, by: usize) {
    node.line += by;
    match &mut node.value {
        Value::List(nodes) => nodes.iter_mut().for_each(|node| move_down(node, by)),
        Value::Map(entries) => {
            for entry in entries {
                entry.line += by;
                move_down(&mut entry.node, by);
            }
        }
        _ => {}
    }
}
