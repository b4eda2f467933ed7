//! Colours: on terminals only, and not for who does not want them (`NO_COLOR`).

use std::io::{self, IsTerminal};

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Doubtful,
    Bad,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Doubtful => "33",
            Self::Bad => "31",
        }
    }

    /// `text` in this colour, for stdout.
    pub(crate) fn paint(self, text: &str) -> String {
        if is_wanted(io::stdout().is_terminal()) { self.always(text) } else { text.to_owned() }
    }

    /// `text` in this colour, whoever reads it.
    pub(crate) fn always(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
    }
}

/// Whether colours are wanted, as <https://no-color.org> has it.
pub(crate) fn is_wanted(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !is_set("NO_COLOR") && !is_dumb()
}
