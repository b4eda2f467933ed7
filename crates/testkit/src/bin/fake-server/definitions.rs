//! The tools of this server, and how it splits the list into pages.

use std::fs;

use anyhow::Context;
use testkit::raw;

use crate::hostile;
use crate::options::Options;

/// Name, description and the `properties` of the input schema of each behaviour tool.
const BEHAVIOURS: &[(&str, &str, &str)] = &[
    ("echo", "Gives the arguments back", r#"{"text":{"type":"string"}}"#),
    ("raw", "Answers with this text as the result", r#"{"result":{"type":"string"}}"#),
    ("raw_error", "Answers with this text as the error", r#"{"error":{"type":"string"}}"#),
    ("raw_line", "Writes this line; {id} is the request's id", r#"{"line":{"type":"string"},"hex":{"type":"string"}}"#),
    ("blob", "Answers with a text of this length", r#"{"bytes":{"type":"integer"}}"#),
    ("size", "Answers the length of the line it received", "{}"),
    ("sleep", "Answers later, and serves others meanwhile", r#"{"ms":{"type":"integer"}}"#),
    ("hang", "Never answers", "{}"),
    ("progress", "Reports progress, then answers", r#"{"steps":{"type":"integer"},"ms":{"type":"integer"}}"#),
    ("late_after_cancel", "Answers only when cancelled", "{}"),
    ("crash", "Ends the process", r#"{"code":{"type":"integer"},"signal":{"type":"integer"}}"#),
    ("reply_then_exit", "Answers and ends the process", r#"{"code":{"type":"integer"}}"#),
    ("change_tools", "Replaces the generated tools", r#"{"names":{"type":"array","items":{"type":"string"}}}"#),
    ("twice", "Answers twice", "{}"),
    ("wrong_id", "Answers to two ids nobody used, then rightly", "{}"),
    ("null_id", "Answers to the id null, then rightly", "{}"),
    ("junk_then_answer", "Writes junk to stdout, then answers", "{}"),
    ("split_answer", "Writes the answer in three chunks", "{}"),
    ("stderr", "Writes this many bytes to stderr", r#"{"bytes":{"type":"integer"}}"#),
    (
        "grandchild",
        "Starts a process of its own and answers its pid",
        r#"{"setsid":{"type":"boolean"},"ignore_term":{"type":"boolean"},"undumpable":{"type":"boolean"},"inherit":{"type":"boolean"}}"#,
    ),
    ("pid", "Answers the server's pid", "{}"),
    ("env", "Answers the value of a variable", r#"{"name":{"type":"string"}}"#),
    ("args", "Answers the server's arguments", "{}"),
    ("cwd", "Answers the server's working directory", "{}"),
    ("logs", "Sends a log message, then answers", "{}"),
    ("pending", "Answers the ids of the other open requests", "{}"),
    ("most_open", "Answers how many requests were open at once, at most", "{}"),
];

#[derive(Debug)]
pub(crate) struct Definitions {
    generated: Vec<String>,
    from_file: Vec<String>,
    behaviours: Vec<String>,
}

impl Definitions {
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let from_file = match &options.tool_file {
            Some(path) => fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?,
            None => String::new(),
        };
        let behaviours = if options.only_generated { &[] } else { BEHAVIOURS };
        let hostile = if options.hostile.tools { hostile::TOOLS } else { &[] };
        Ok(Self {
            generated: (0..options.tools).map(|number| generated(&format!("tool_{number}"))).collect(),
            from_file: from_file.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
            behaviours: behaviours.iter().chain(hostile).map(|behaviour| definition(*behaviour)).collect(),
        })
    }

    pub(crate) fn replace_generated(&mut self, names: &[String]) {
        self.generated = names.iter().map(|name| generated(name)).collect();
    }

    /// Whether a tool of this name is listed.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.all().any(|tool| raw::at(tool.as_bytes(), &["name"]).and_then(raw::text).as_deref() == Some(name))
    }

    /// The `tools/list` result for `cursor`, or `None` for an unknown cursor.
    pub(crate) fn page(&self, cursor: Option<&str>, options: &Options) -> Option<String> {
        let all: Vec<&str> = self.all().collect();
        let size = options.page_size.unwrap_or(usize::MAX);
        let start = match cursor {
            None => 0,
            Some("") if options.empty_cursor => size,
            Some(cursor) => cursor.strip_prefix(CURSOR_PREFIX)?.parse().ok()?,
        };
        if start > all.len() {
            return None;
        }
        let end = start.saturating_add(size).min(all.len());
        let mut result = format!(r#"{{"tools":[{}]"#, all[start..end].join(","));
        if end < all.len() {
            let next = if start == 0 && options.empty_cursor { String::new() } else { format!("{CURSOR_PREFIX}{end}") };
            result.push_str(&format!(r#","nextCursor":{}"#, raw::quote(&next)));
        }
        result.push('}');
        Some(result)
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.generated.iter().chain(&self.from_file).chain(&self.behaviours).map(String::as_str)
    }
}

/// Cursors are opaque, so ours contain characters that need escaping.
const CURSOR_PREFIX: &str = "→ \"page\" \\ ";

fn definition((name, description, properties): (&str, &str, &str)) -> String {
    format!(
        r#"{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object","properties":{properties}}}}}"#
    )
}

/// A definition of about 300 bytes, like those of real servers.
fn generated(name: &str) -> String {
    let name = raw::quote(name);
    format!(
        r#"{{"name":{name},"title":"A generated tool","description":"Does nothing but give its arguments back, as real tools of this size would do something useful.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Where"}},"limit":{{"type":"integer","minimum":1}}}},"required":["path"]}}}}"#
    )
}
