//! Colours: on terminals only, unless `NO_COLOR` disables them.

use std::io::{self, IsTerminal};

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Warning,
    Bad,
    /// The user should act.
    Advice,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Advice => "36",
        }
    }

    /// `text` in this colour, for stdout.
    pub(crate) fn paint(self, text: &str) -> String {
        if is_wanted(io::stdout().is_terminal()) { self.always(text) } else { text.to_owned() }
    }

    /// `text` in this colour, for stderr.
    pub(crate) fn paint_words(self, text: &str) -> String {
        if is_wanted(io::stderr().is_terminal()) { self.always(text) } else { text.to_owned() }
    }

    /// `text` in this colour, unconditionally.
    pub(crate) fn always(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
    }
}

/// Whether colours are enabled, as <https://no-color.org> defines it.
pub(crate) fn is_wanted(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !is_set("NO_COLOR") && !is_dumb()
}

/// The colour of a server status. A status that the user requested has none.
pub(crate) fn of_status(status: &str) -> Option<Colour> {
    match status {
        "connected" | "healthy" | "ok" => Some(Colour::Good),
        "connecting" | "degraded" | "warning" | "sign_in_required" => Some(Colour::Warning),
        "error" | "unhealthy" | "failed" => Some(Colour::Bad),
        _ => None,
    }
}

/// Colours the words that start a message.
pub(crate) fn with_coloured_beginnings(words: &str, paint: impl Fn(Colour, &str) -> String) -> String {
    const BEGINNINGS: [(&str, Colour); 3] =
        [("error:", Colour::Bad), ("warning:", Colour::Warning), ("hint:", Colour::Advice)];
    let line = |line: &str| {
        let begins = BEGINNINGS.iter().find_map(|(word, colour)| Some((word, colour, line.strip_prefix(word)?)));
        begins.map_or_else(|| line.to_owned(), |(word, colour, rest)| format!("{}{rest}", paint(*colour, word)))
    };
    words.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// `text` without our colours.
pub(crate) fn without(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// `text` with `change` applied to everything but our colours.
pub(crate) fn between(text: &str, change: impl Fn(&str) -> String) -> String {
    const OURS: [&str; 5] = ["0m", "31m", "32m", "33m", "36m"];
    let mut changed = String::with_capacity(text.len());
    let (mut rest, mut plain_until) = (text, 0);
    while let Some(at) = rest[plain_until..].find("\u{1b}[").map(|at| at + plain_until) {
        let behind = &rest[at + 2..];
        match OURS.iter().find(|code| behind.starts_with(**code)) {
            Some(code) => {
                changed += &change(&rest[..at]);
                changed += &rest[at..at + 2 + code.len()];
                (rest, plain_until) = (&behind[code.len()..], 0);
            }
            None => plain_until = at + 2,
        }
    }
    changed + &change(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_colours_is_changed_and_they_are_not() {
        let text = format!("a{}c\u{1b}[2Jd", Colour::Bad.always("b"));
        let marked = between(&text, |part| part.replace('\u{1b}', "!").to_uppercase());
        assert_eq!(marked, "A\u{1b}[31mB\u{1b}[0mC![2JD");
        assert_eq!(between("", str::to_owned), "");
    }

    #[test]
    fn errors_warnings_and_hints_begin_in_colour_and_nothing_else_is_touched() {
        let painted = with_coloured_beginnings("error: no\nhint: an error: no", |colour, word| colour.always(word));
        assert_eq!(painted, "\u{1b}[31merror:\u{1b}[0m no\n\u{1b}[36mhint:\u{1b}[0m an error: no");
        assert_eq!(without(&painted), "error: no\nhint: an error: no");
    }
}
