//! Text in columns.

use std::io;

use protocol::escape;

use crate::colour;

/// The line width if stdout is not a terminal.
const DEFAULT_WIDTH: usize = 100;
/// The minimum line width, however narrow the terminal is.
const MIN_ROOM: usize = 20;
/// The gap between columns.
const GAP: &str = "  ";

/// Rows of cells; every column is as wide as its widest cell, except the last, which is not padded.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| padded(cell, width)).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The displayed width of a cell, without its colours.
pub(crate) fn width(cell: &str) -> usize {
    colour::without(cell).chars().map(columns).sum()
}

/// Ranges of characters of double width: East Asian ones and emoji.
const WIDE: [std::ops::RangeInclusive<u32>; 12] = [
    0x1100..=0x115f,
    0x2e80..=0x303e,
    0x3041..=0xa4cf,
    0xa960..=0xa97f,
    0xac00..=0xd7a3,
    0xf900..=0xfaff,
    0xfe30..=0xfe6f,
    0xff00..=0xff60,
    0xffe0..=0xffe6,
    0x1f300..=0x1f64f,
    0x1f680..=0x1f9ff,
    0x20000..=0x3fffd,
];

/// Ranges of combining characters.
const COMBINING: [std::ops::RangeInclusive<u32>; 4] =
    [0x0300..=0x036f, 0x1ab0..=0x1aff, 0x20d0..=0x20ff, 0xfe00..=0xfe0f];

/// The displayed width of a character, as terminals define it.
fn columns(letter: char) -> usize {
    let is_in = |ranges: &[std::ops::RangeInclusive<u32>]| ranges.iter().any(|range| range.contains(&letter.into()));
    match letter {
        letter if letter.is_ascii() => 1,
        _ if is_in(&COMBINING) => 0,
        _ if is_in(&WIDE) => 2,
        _ => 1,
    }
}

fn padded(cell: &str, to: usize) -> String {
    format!("{cell}{}", " ".repeat(to.saturating_sub(width(cell))))
}

/// Truncates `line` to `room` columns, and marks the truncation.
pub(crate) fn cut(line: &str, room: usize) -> String {
    if width(line) <= room {
        return line.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |letter: &char| {
        let fits = columns(*letter) <= left;
        left = left.saturating_sub(columns(*letter));
        fits
    };
    let mut short: String = line.chars().take_while(fits).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// `text` on one line with control characters escaped: names and descriptions come from servers.
pub(crate) fn printable(text: &str) -> String {
    escape::one_line(text).into_owned()
}

/// Wraps `text` at the width of a terminal, each line after `indent`; does not wrap without a terminal.
pub(crate) fn wrapped(text: &str, indent: &str) -> Vec<String> {
    wrapped_to(text, indent, seen_width())
}

fn wrapped_to(text: &str, indent: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![format!("{indent}{text}")] };
    let room = width.saturating_sub(indent.chars().count()).max(MIN_ROOM);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if self::width(line) + 1 + self::width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}

/// The line width on a terminal; `None` in a pipe, where nothing is truncated.
pub(crate) fn seen_width() -> Option<usize> {
    let is_seen = std::env::var_os("COLUMNS").is_some() || io::IsTerminal::is_terminal(&io::stdout());
    is_seen.then(line_width)
}

/// The line width: `COLUMNS` if it is set, otherwise that of the terminal.
pub(crate) fn line_width() -> usize {
    let wished = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    wished.or_else(of_terminal).filter(|&width| width > 0).unwrap_or(DEFAULT_WIDTH)
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
    fn wide_letters_take_two_columns_and_combining_ones_none() {
        assert_eq!((width("工具一"), width("e\u{301}x")), (6, 2));
        assert_eq!(cut("日本語の道具", 8), "日本語…");
        let rows = [["工具", "1"], ["plain", "2"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), ["工具   1", "plain  2"]);
    }

    #[test]
    fn long_words_are_wrapped_on_a_terminal_and_unchanged_in_a_pipe() {
        let text = "one two three four five six seven";
        assert_eq!(wrapped_to(text, "  ", Some(24)), ["  one two three four", "  five six seven"]);
        assert_eq!(wrapped_to(text, "  ", None), ["  one two three four five six seven"]);
    }

    #[test]
    fn a_stranger_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a␛[2Jb␊c");
        assert_eq!(printable("safe\u{202e}txt.exe"), "safe⟨U+202E⟩txt.exe");
    }
}
