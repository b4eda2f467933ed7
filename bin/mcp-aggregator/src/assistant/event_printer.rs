//! Prints the progress of an assistant: its text to stdout, its calls to stderr.

use std::io::{self, IsTerminal};

use assistant::DialogueEvent;
use executions::with_local_times;
use protocol::escape;

use crate::output::{self, print_message};
use crate::progress;
use crate::table::{cut, printable};

/// How much of a call's arguments is displayed.
const ARGUMENTS_WIDTH: usize = 200;

/// Prints events.
pub(crate) struct EventPrinter {
    /// Whether text goes to stdout; otherwise only calls are printed.
    with_words: bool,
    is_terminal: bool,
    /// Whether the last text did not end with a line end.
    is_in_line: bool,
}

impl EventPrinter {
    pub(crate) fn all() -> Self {
        Self { with_words: true, is_terminal: io::stdout().is_terminal(), is_in_line: false }
    }

    pub(crate) fn calls_only() -> Self {
        Self { with_words: false, ..Self::all() }
    }

    pub(crate) fn print_event(&mut self, event: DialogueEvent<'_>) {
        match event {
            DialogueEvent::Words(words) if self.with_words && !words.is_empty() => {
                progress::pause_progress(true);
                self.print(&if self.is_terminal { escape::multi_line(words) } else { words.into() });
                self.is_in_line = !words.ends_with('\n');
            }
            DialogueEvent::Words(_) => {}
            DialogueEvent::EndOfWords => self.end_line(),
            DialogueEvent::Calling { tool, arguments } => {
                print_message(format_args!("calling {}", call_line(tool, arguments)));
            }
            DialogueEvent::Called { tool, took, problem: None } => {
                print_message(format_args!("done in {} ms: {}", took.as_millis(), printable(tool)));
            }
            DialogueEvent::Called { tool, problem: Some(problem), .. } => {
                print_message(format_args!("failed: {}: {}", printable(tool), printable(&with_local_times(problem))));
            }
        }
    }

    /// The next output starts on a new line, also after incomplete text.
    pub(crate) fn end_line(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            self.print("\n");
        }
        progress::pause_progress(false);
    }

    fn print(&self, words: &str) {
        if let Err(failure) = output::print(words.as_bytes()) {
            print_message(failure);
        }
    }
}

/// A call on one line.
pub(crate) fn call_line(tool: &str, arguments: &str) -> String {
    let arguments = arguments.trim();
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    format!("{} {}", printable(tool), cut(&printable(arguments), ARGUMENTS_WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_on_one_line_and_steers_no_terminal() {
        assert_eq!(call_line("a.b", "{\"x\":\n 1}"), "a.b {\"x\":␊ 1}");
        assert_eq!(call_line("a.b", " "), "a.b {}");
    }
}
