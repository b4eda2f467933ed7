//! Excessive output: endless lists, and handshakes, log lines and requests of any size.
//!
//! Flags define what the server does by itself; tools, listed with `--hostile`, what a single call causes.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use testkit::raw;

use crate::behaviours::text_result;
use crate::session::Session;

/// What is excessive.
#[derive(Debug, Default)]
pub(crate) struct Hostile {
    /// This list is endless.
    pub(crate) endless_list: Option<List>,
    /// It ends after so many pages all the same.
    pub(crate) pages: Option<usize>,
    /// The size of each of its pages in bytes.
    pub(crate) page_bytes: usize,
    /// Two cursors alternate forever.
    pub(crate) repeats_cursors: bool,
    /// The size of the instructions in bytes.
    pub(crate) instructions_bytes: usize,
    /// Bytes added to the server's name, its version and its capabilities.
    pub(crate) info_bytes: usize,
    /// The size of a log message in bytes, which is sent repeatedly after initialization.
    pub(crate) log_bytes: usize,
    pub(crate) log_pause: Duration,
    /// The size of a line without an end in bytes, on stdout and on stderr.
    pub(crate) line_bytes: usize,
    pub(crate) stderr_line_bytes: usize,
    /// The tools below are listed.
    pub(crate) tools: bool,
}

/// One of the lists of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl FromStr for List {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "tools" => Self::Tools,
            "prompts" => Self::Prompts,
            "resources" => Self::Resources,
            "templates" => Self::Templates,
            _ => bail!("unknown list `{text}`; there are tools, prompts, resources and templates"),
        })
    }
}

impl List {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn item(self, name: &str, padding: &str) -> String {
        match self {
            Self::Tools => {
                format!(r#"{{"name":"{name}","description":"{padding}","inputSchema":{{"type":"object"}}}}"#)
            }
            Self::Prompts => format!(r#"{{"name":"{name}","description":"{padding}"}}"#),
            Self::Resources => format!(r#"{{"uri":"x://{name}","name":"{name}","description":"{padding}"}}"#),
            Self::Templates => {
                format!(r#"{{"uriTemplate":"x://{name}/{{a}}","name":"{name}","description":"{padding}"}}"#)
            }
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }
}

/// The size of the items of a page in bytes.
const ITEM_BYTES: usize = 4096;

/// Name, description and the `properties` of the input schema of each tool.
pub(crate) const TOOLS: &[(&str, &str, &str)] = &[
    (
        "log_bytes",
        "Sends log messages of this size, then answers",
        r#"{"bytes":{"type":"integer"},"times":{"type":"integer"}}"#,
    ),
    (
        "progress_bytes",
        "Reports progress of this size, then answers",
        r#"{"bytes":{"type":"integer"},"times":{"type":"integer"}}"#,
    ),
    ("error_bytes", "Answers with an error of this size", r#"{"bytes":{"type":"integer"}}"#),
    (
        "ask_bytes",
        "Sends requests of this size, then answers",
        r#"{"bytes":{"type":"integer"},"times":{"type":"integer"}}"#,
    ),
    ("line_bytes", "Writes this many bytes of a line, and never its end", r#"{"bytes":{"type":"integer"}}"#),
];

impl Hostile {
    /// Reads a flag, if it is one of these.
    pub(crate) fn take(
        &mut self,
        flag: &str,
        mut value: impl FnMut() -> anyhow::Result<String>,
    ) -> anyhow::Result<bool> {
        match flag {
            "--endless-list" => self.endless_list = Some(value()?.parse()?),
            "--pages" => self.pages = Some(value()?.parse()?),
            "--page-bytes" => self.page_bytes = value()?.parse()?,
            "--repeat-cursors" => self.repeats_cursors = true,
            "--instructions-bytes" => self.instructions_bytes = value()?.parse()?,
            "--info-bytes" => self.info_bytes = value()?.parse()?,
            "--log-bytes" => self.log_bytes = value()?.parse()?,
            "--log-pause-ms" => self.log_pause = Duration::from_millis(value()?.parse()?),
            "--line-bytes" => self.line_bytes = value()?.parse()?,
            "--stderr-line-bytes" => self.stderr_line_bytes = value()?.parse()?,
            "--hostile" => self.tools = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The capabilities, with what the endless list and log messages need.
    pub(crate) fn capabilities(&self) -> String {
        let padding = "x".repeat(self.info_bytes);
        let padding =
            if padding.is_empty() { String::new() } else { format!(r#","experimental":{{"{padding}":{{}}}}"#) };
        format!(r#"{{"tools":{{"listChanged":true}},"prompts":{{}},"resources":{{}},"logging":{{}}{padding}}}"#)
    }

    /// Whether the server's self-description is excessive.
    pub(crate) fn is_talkative(&self) -> bool {
        self.endless_list.is_some() || self.info_bytes > 0 || self.log_bytes > 0 || self.tools
    }

    /// The instructions as a member to append to a result.
    pub(crate) fn instructions(&self) -> String {
        match self.instructions_bytes {
            0 => String::new(),
            bytes => format!(r#","instructions":"{}""#, "x".repeat(bytes)),
        }
    }

    /// The result of the endless list, if it is requested.
    pub(crate) fn page(&self, method: &str, params: &str) -> Option<String> {
        let list = self.endless_list.filter(|list| list.method() == method)?;
        let cursor = raw::at(params.as_bytes(), &["cursor"]).and_then(raw::text);
        let number: usize = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let padding = "x".repeat(ITEM_BYTES);
        let items = (self.page_bytes / ITEM_BYTES).max(1);
        let items: Vec<_> = (0..items).map(|item| list.item(&format!("i{number}_{item}"), &padding)).collect();
        let next = if self.repeats_cursors { 1 + number % 2 } else { number + 1 };
        let cursor = match self.pages {
            Some(pages) if number + 1 >= pages => String::new(),
            _ => format!(r#","nextCursor":"{next}""#),
        };
        Some(format!(r#"{{"{}":[{}]{cursor}}}"#, list.key(), items.join(",")))
    }

    /// Runs what the flags define after initialization.
    pub(crate) fn begin(&self, session: &Arc<Session>) {
        if self.stderr_line_bytes > 0 {
            let line = vec![b'x'; self.stderr_line_bytes];
            // The reader may be gone.
            drop(io::stderr().write_all(&line));
        }
        if self.line_bytes > 0 {
            session.output.write(&[b"{\"jsonrpc\":\"2.0\",\"x\":\"", &vec![b'x'; self.line_bytes]]);
        }
        if self.log_bytes > 0 {
            let (session, bytes, pause) = (Arc::clone(session), self.log_bytes, self.log_pause);
            std::thread::spawn(move || {
                loop {
                    log(&session, bytes);
                    std::thread::sleep(pause.max(Duration::from_millis(1)));
                }
            });
        }
    }
}

fn log(session: &Session, bytes: usize) {
    let params = format!(r#"{{"level":"error","logger":"hostile","data":"{}"}}"#, "x".repeat(bytes));
    session.output.notification("notifications/message", &params);
}

/// Runs one of the tools. Returns whether it is one.
pub(crate) fn call(session: &Session, id: &str, name: &str, token: Option<&str>, bytes: usize, times: u64) -> bool {
    let output = &session.output;
    let padding = || "x".repeat(bytes);
    match name {
        "log_bytes" => (0..times).for_each(|_| log(session, bytes)),
        "progress_bytes" => {
            let token = token.unwrap_or("0");
            for step in 0..times {
                let params = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{}"}}"#, padding());
                output.notification("notifications/progress", &params);
            }
        }
        "error_bytes" => {
            output.error(id, &format!(r#"{{"code":-32000,"message":"{}"}}"#, padding()));
            return true;
        }
        "ask_bytes" => {
            for number in 0..times {
                let schema = r#"{"type":"object","properties":{}}"#;
                let params = format!(r#"{{"message":"{}","requestedSchema":{schema}}}"#, padding());
                output.request(&format!("\"ask-{number}\""), "elicitation/create", &params);
            }
        }
        "line_bytes" => {
            output.write(&[b"{\"jsonrpc\":\"2.0\",\"id\":", id.as_bytes(), b",\"result\":\"", padding().as_bytes()]);
            return true;
        }
        _ => return false,
    }
    output.result(id, &text_result("done"));
    true
}
