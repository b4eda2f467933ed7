//! Command line arguments.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::hostile::Hostile;

/// A phase of a connection in which something can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Start,
    Initialize,
    Initialized,
    List,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) name: String,
    /// The number of `tool_<n>` besides the behaviour tools.
    pub(crate) tools: usize,
    pub(crate) only_generated: bool,
    /// One tool definition per line, listed verbatim.
    pub(crate) tool_file: Option<PathBuf>,
    pub(crate) page_size: Option<usize>,
    /// The cursor of the second page is the empty string, which is a valid cursor.
    pub(crate) empty_cursor: bool,
    pub(crate) fail_at: Option<Phase>,
    pub(crate) hang_at: Option<Phase>,
    pub(crate) error_at: Option<Phase>,
    pub(crate) garbage_at: Option<Phase>,
    pub(crate) start_delay: Duration,
    pub(crate) ignore_term: bool,
    pub(crate) ignore_eof: bool,
    pub(crate) flood_stderr: usize,
    pub(crate) junk: bool,
    pub(crate) stderr_line: Option<String>,
    /// The protocol version of the response; the client's by default.
    pub(crate) version: Option<String>,
    pub(crate) journal: Option<PathBuf>,
    /// Send requests to the client once it is initialized.
    pub(crate) asks: bool,
    /// Write the members of a response in the order of the TypeScript SDK.
    pub(crate) result_first: bool,
    pub(crate) close_stdout_after_init: bool,
    /// Answer the first list and close stdout immediately.
    pub(crate) close_stdout_after_list: bool,
    /// Announce a change after every list.
    pub(crate) restless: bool,
    /// What is excessive.
    pub(crate) hostile: Hostile,
}

impl Options {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self::quiet();
        let mut arguments = arguments.into_iter();
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("`{flag}` needs a value"));
            match flag.as_str() {
                "--name" => options.name = value()?,
                "--tools" => options.tools = value()?.parse()?,
                "--only-generated" => options.only_generated = true,
                "--tool-file" => options.tool_file = Some(value()?.into()),
                "--page-size" => options.page_size = Some(value()?.parse()?),
                "--empty-cursor" => options.empty_cursor = true,
                "--fail-at" => options.fail_at = Some(value()?.parse()?),
                "--hang-at" => options.hang_at = Some(value()?.parse()?),
                "--error-at" => options.error_at = Some(value()?.parse()?),
                "--garbage-at" => options.garbage_at = Some(value()?.parse()?),
                "--start-delay-ms" => options.start_delay = Duration::from_millis(value()?.parse()?),
                "--ignore-term" => options.ignore_term = true,
                "--ignore-eof" => options.ignore_eof = true,
                "--flood-stderr" => options.flood_stderr = value()?.parse()?,
                "--junk" => options.junk = true,
                "--stderr-line" => options.stderr_line = Some(value()?),
                "--version" => options.version = Some(value()?),
                "--journal" => options.journal = Some(value()?.into()),
                "--asks" => options.asks = true,
                "--result-first" => options.result_first = true,
                "--close-stdout-after-init" => options.close_stdout_after_init = true,
                "--close-stdout-after-list" => options.close_stdout_after_list = true,
                "--restless" => options.restless = true,
                _ if options.hostile.take(&flag, value)? => {}
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        if options.page_size == Some(0) {
            bail!("`--page-size` must be at least 1");
        }
        Ok(options)
    }

    /// A well-behaved server.
    fn quiet() -> Self {
        Self {
            name: "fake-server".to_owned(),
            tools: 0,
            only_generated: false,
            tool_file: None,
            page_size: None,
            empty_cursor: false,
            fail_at: None,
            hang_at: None,
            error_at: None,
            garbage_at: None,
            start_delay: Duration::ZERO,
            ignore_term: false,
            ignore_eof: false,
            flood_stderr: 0,
            junk: false,
            stderr_line: None,
            version: None,
            journal: None,
            asks: false,
            result_first: false,
            close_stdout_after_init: false,
            close_stdout_after_list: false,
            restless: false,
            hostile: Hostile::default(),
        }
    }
}

impl FromStr for Phase {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "start" => Self::Start,
            "initialize" => Self::Initialize,
            "initialized" => Self::Initialized,
            "list" => Self::List,
            _ => bail!("unknown phase `{text}`"),
        })
    }
}
