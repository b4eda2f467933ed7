//! Text in columns.

use std::io;

use crate::colour;
use crate::visible::{is_unseen, push_sign};

/// The width of a line that nobody looks at on a terminal.
const USUAL_WIDTH: usize = 100;
/// However narrow a terminal is, this much stands on a line.
const LEAST_ROOM: usize = 20;
/// What stands between two columns.
const GAP: &str = "  ";

/// Rows of cells, every column as wide as its widest cell but for the last, which is never padded.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| padded(cell, width)).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// How many characters of a cell are seen: its colour is not.
pub(crate) fn width(cell: &str) -> usize {
    colour::without(cell).chars().count()
}

fn padded(cell: &str, to: usize) -> String {
    format!("{cell}{}", " ".repeat(to.saturating_sub(width(cell))))
}

/// Cuts `line` to `width` characters, showing that something is missing.
pub(crate) fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(width.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// `text` on one line, and without what would steer a terminal: names and descriptions are a stranger's words.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if letter.is_control() => shown.push(' '),
            letter if is_unseen(letter) => push_sign(&mut shown, letter),
            letter => shown.push(letter),
        }
    }
    shown
}

/// `text` on as many lines as it takes, each behind `indent`: broken between words at the width of a terminal, and not at
/// all where nobody looks at one.
pub(crate) fn wrapped(text: &str, indent: &str) -> Vec<String> {
    wrapped_to(text, indent, seen_width())
}

fn wrapped_to(text: &str, indent: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![format!("{indent}{text}")] };
    let room = width.saturating_sub(indent.chars().count()).max(LEAST_ROOM);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}

/// How wide a line may be where somebody looks at it; nothing in a pipe, where nothing has to be cut.
pub(crate) fn seen_width() -> Option<usize> {
    let is_seen = std::env::var_os("COLUMNS").is_some() || io::IsTerminal::is_terminal(&io::stdout());
    is_seen.then(line_width)
}

/// How wide a line may be: `COLUMNS` if it is set, else the terminal's width.
pub(crate) fn line_width() -> usize {
    let wished = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    wished.or_else(of_terminal).filter(|&width| width > 0).unwrap_or(USUAL_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Colour;

    #[test]
    fn columns_are_aligned_by_characters_and_lines_do_not_end_in_blanks() {
        let rows = [["é", "1"], ["long", ""], ["x", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), ["é     1", "long", "x     22"]);
    }

    #[test]
    fn colours_take_no_room() {
        let rows = [[Colour::Good.always("ok"), "1".to_owned()], ["plain".to_owned(), "2".to_owned()]];
        assert_eq!(aligned(&rows), ["\u{1b}[32mok\u{1b}[0m     1", "plain  2"]);
    }

    #[test]
    fn a_cut_is_shown() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer words", 8), "longer…");
        assert_eq!(cut("ééééé", 3), "éé…");
        assert_eq!(cut("x", 0), "…");
    }

    #[test]
    fn long_words_are_wrapped_for_who_looks_and_left_alone_in_a_pipe() {
        let text = "one two three four five six seven";
        assert_eq!(wrapped_to(text, "  ", Some(24)), ["  one two three four", "  five six seven"]);
        assert_eq!(wrapped_to(text, "  ", None), ["  one two three four five six seven"]);
    }

    #[test]
    fn a_stranger_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(printable("safe\u{202e}txt.exe"), "safe⟨U+202E⟩txt.exe");
    }
}
