//! Text in columns.

use std::io;

use protocol::escape;

use crate::colour;

/// The width of a line that nobody looks at on a terminal.
const DEFAULT_WIDTH: usize = 100;
/// However narrow a terminal is, this much stands on a line.
const MIN_ROOM: usize = 20;
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

/// How many columns of a terminal a cell takes: its colour takes none.
pub(crate) fn width(cell: &str) -> usize {
    colour::without(cell).chars().map(columns).sum()
}

/// Where letters are twice as wide as others: those of East Asia, and pictures.
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

/// Where they stand on the letter before them.
const COMBINING: [std::ops::RangeInclusive<u32>; 4] =
    [0x0300..=0x036f, 0x1ab0..=0x1aff, 0x20d0..=0x20ff, 0xfe00..=0xfe0f];

/// How many columns a letter takes, as terminals have it.
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

/// Cuts `line` to `room` columns, showing that something is missing.
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

/// `text` on one line, and without what would steer a terminal: names and descriptions are a stranger's words.
pub(crate) fn printable(text: &str) -> String {
    escape::one_line(text).into_owned()
}

/// `text` on as many lines as it takes, each behind `indent`: broken between words at the width of a terminal, and not at
/// all where nobody looks at one.
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

/// How wide a line may be where somebody looks at it; nothing in a pipe, where nothing has to be cut.
pub(crate) fn seen_width() -> Option<usize> {
    let is_seen = std::env::var_os("COLUMNS").is_some() || io::IsTerminal::is_terminal(&io::stdout());
    is_seen.then(line_width)
}

/// How wide a line may be: `COLUMNS` if it is set, else the terminal's width.
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
    fn long_words_are_wrapped_for_who_looks_and_left_alone_in_a_pipe() {
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
