//! Wraps help to the width of a terminal. A line that fits is left unchanged; a longer one is wrapped between words and
//! indented to the start of its text. Commands are never wrapped, because users copy them.

use crate::table::width;

/// Lines are at least this wide, however narrow the terminal is.
const MIN_WIDTH: usize = 40;
/// The minimum width of the last column of a table; with less, its text moves to the next line.
const MIN_COLUMN: usize = 24;
/// The indentation of text that moves to the next line.
const BELOW: usize = 6;
/// After these headings, lines are commands or configs, perhaps with a remark.
const TO_BE_PASTED: [&str; 3] = ["Examples:", "In the config of your MCP client:", "with a token:"];

/// The text, with lines of at most `width` columns where possible.
pub(super) fn wrapped_help(text: &str, columns: usize) -> String {
    let columns = columns.max(MIN_WIDTH);
    let mut lines = Vec::new();
    let mut is_pasted = false;
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        if indent(line) == 0 {
            is_pasted = TO_BE_PASTED.contains(&line);
        }
        if is_pasted || line.trim_start().starts_with(['{', '"']) {
            lines.extend(with_remark_below(line, columns));
            continue;
        }
        let hanging = column_of_text(line);
        let mut written = vec![line];
        while let Some(next) = rest.next_if(|next| continues(next, written[written.len() - 1], hanging)) {
            written.push(next);
        }
        if written.iter().all(|line| width(line) <= columns) {
            lines.extend(written.into_iter().map(str::to_owned));
        } else {
            lines.extend(filled(&written, hanging, columns));
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line continues the sentence of the previous one.
fn continues(line: &str, before: &str, hanging: usize) -> bool {
    let is_over = before.trim_end().is_empty() || before.ends_with(['.', ':']);
    !is_over && !line.trim().is_empty() && indent(line) == hanging && gap(line).is_none()
}

/// The column where the text of a line starts: after the term it explains, if there is one.
fn column_of_text(line: &str) -> usize {
    if line.trim_start().starts_with("Usage:") { "Usage: ".len() } else { gap(line).map_or(indent(line), |(_, to)| to) }
}

/// The end of the first columns of a table row and the start of the last one, in displayed columns. A row is a line
/// with two adjacent spaces.
fn gap(line: &str) -> Option<(usize, usize)> {
    let plain = crate::colour::without(line);
    let start = indent(&plain);
    let from = start + plain[start..].trim_end().find("  ")?;
    let to = from + indent(&plain[from..]);
    (start > 0).then(|| (plain[..from].chars().count(), plain[..to].chars().count()))
}

/// A command line; if it is too long, its remark moves to the next line.
fn with_remark_below(line: &str, columns: usize) -> Vec<String> {
    let Some((from, to)) = gap(line).filter(|_| width(line) > columns) else { return vec![line.to_owned()] };
    let (command, remark) = (line.chars().take(from).collect(), line.chars().skip(to).collect::<String>());
    let below = " ".repeat(BELOW);
    std::iter::once(command).chain(fill(&below, &below, remark.split(' '), columns)).collect()
}

/// Lines that form one sentence or one table row, wrapped again.
fn filled(written: &[&str], hanging: usize, columns: usize) -> Vec<String> {
    let first = written[0];
    let more = written[1..].iter().flat_map(|line| line.trim().split(' '));
    let Some((from, to)) = gap(first) else {
        let (before, text) = first.split_at(indent(first));
        return fill(before, &" ".repeat(hanging), text.trim_end().split(' ').chain(more), columns);
    };
    let (row, text) = (upto(first, to), first[upto(first, to).len()..].trim_end());
    let words = text.split(' ').chain(more);
    if columns.saturating_sub(to) >= MIN_COLUMN {
        return fill(row, &" ".repeat(to), words, columns);
    }
    let below = " ".repeat(BELOW);
    std::iter::once(upto(first, from).to_owned()).chain(fill(&below, &below, words, columns)).collect()
}

/// The start of a line up to a column, with its colours.
fn upto(line: &str, column: usize) -> &str {
    let ends = line.char_indices().map(|(at, letter)| at + letter.len_utf8());
    // Colours are reset after the words that have them, so the longest prefix of that width includes the reset.
    let end = ends.take_while(|&end| width(&line[..end]) <= column).last().unwrap_or(0);
    &line[..end]
}

/// Wraps words; the first line starts with `before`, the others with `indent`.
fn fill<'w>(before: &str, indent: &str, words: impl Iterator<Item = &'w str>, columns: usize) -> Vec<String> {
    let mut lines = vec![before.to_owned()];
    let mut is_empty = true;
    for word in words {
        let line = lines.last_mut().expect("there is a first line");
        if is_empty {
            line.push_str(word);
            is_empty = false;
        } else if width(line) + 1 + width(word) <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(text: &str, columns: usize, wrapped: &str) {
        assert_eq!(wrapped_help(text, columns), wrapped);
    }

    #[test]
    fn what_has_room_is_left_alone() {
        let text = "Two lines that\ncould be one.\n\n  -h, --help  Print help\n";
        expect(text, 80, text);
    }

    #[test]
    fn a_sentence_is_filled_again_and_the_next_one_begins_its_own_line() {
        let text = "This sentence is one that goes on over\ntwo lines.\nAnother one.\n";
        expect(text, 40, text);
        let text = "This sentence is one that goes on over more\nthan one line.\nAnother one.\n";
        expect(text, 40, "This sentence is one that goes on over\nmore than one line.\nAnother one.\n");
    }

    #[test]
    fn the_last_column_of_a_table_stays_one() {
        let text = "Environment:\n  NAME  what it is for, in many words\n        and then more\n  X     y\n";
        let narrow = "Environment:\n  NAME  what it is for, in many words\n        and then more\n  X     y\n";
        expect(text, 40, narrow);
        let text = "Environment:\n  NAME  what it is for, in many more words\n        and then\n  X     y\n";
        expect(text, 40, "Environment:\n  NAME  what it is for, in many more\n        words and then\n  X     y\n");
        let text = "Environment:\n  A_VERY_LONG_NAME_OF_IT  what it is for, in words\n";
        expect(text, 40, "Environment:\n  A_VERY_LONG_NAME_OF_IT\n      what it is for, in words\n");
    }

    #[test]
    fn a_command_is_not_wrapped_and_its_remark_moves_below() {
        let text = "Examples:\n  mcp-aggregator check --config mcp.json   is it right?\n  mcp-aggregator check --config mcp.json --start --json\n";
        let narrow = "Examples:\n  mcp-aggregator check --config mcp.json\n      is it right?\n  mcp-aggregator check --config mcp.json --start --json\n";
        expect(text, 40, narrow);
    }

    #[test]
    fn colours_have_no_width_and_stay_with_their_words() {
        let text = "Verbs:\n  \u{1b}[1mserve \u{1b}[0m  Serve all servers as one MCP server, to many\n";
        expect(
            text,
            40,
            "Verbs:\n  \u{1b}[1mserve \u{1b}[0m  Serve all servers as one MCP\n          server, to many\n",
        );
    }
}
