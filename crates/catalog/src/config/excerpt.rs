//! An excerpt of a file with a caret below a column.

/// Characters shown before and after the column; a minified config is one very long line.
const BEFORE: usize = 50;
const AFTER: usize = 25;

/// The column in characters, and the two lines to show.
///
/// `line` starts at 1; `byte_column` is what `serde_json` reports: the bytes of the line up to and including the wrong
/// one, so 0 if the line was not even started.
pub(super) fn around(text: &str, line: usize, byte_column: usize) -> (usize, String) {
    let content = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let content = content.strip_suffix('\r').unwrap_or(content);
    let characters_before =
        content.char_indices().take_while(|(at, character)| at + character.len_utf8() < byte_column).count();

    let first = characters_before.saturating_sub(BEFORE);
    let cut_before = if first > 0 { "…" } else { "" };
    let mut shown: String = content
        .chars()
        .skip(first)
        .take(characters_before - first + AFTER)
        // One column each, without control characters.
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if content.chars().count() > characters_before + AFTER {
        shown.push('…');
    }

    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(cut_before.chars().count() + characters_before - first);
    let excerpt = format!("{number} | {cut_before}{shown}\n{margin} | {indent}^");
    (characters_before + 1, excerpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_column() {
        let (column, excerpt) = around("{\n  \"a\": oops\r\n}", 2, 8);
        assert_eq!(column, 8);
        assert_eq!(excerpt, "2 |   \"a\": oops\n  |        ^");
    }

    #[test]
    fn columns_are_characters_and_tabs_do_not_shift_the_caret() {
        let (column, excerpt) = around("\t\"é\": x", 1, 8);
        assert_eq!(column, 7);
        assert_eq!(excerpt, "1 |  \"é\": x\n  |       ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_column() {
        let text = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        let (column, excerpt) = around(&text, 1, 501);
        assert_eq!(column, 501);
        let (shown, caret) = excerpt.split_once('\n').unwrap();
        assert!(shown.starts_with("1 | …a") && shown.ends_with("b…"), "{shown}");
        assert!(shown.chars().count() < 90);
        let caret_at = caret.chars().position(|c| c == '^').unwrap();
        assert_eq!(shown.chars().nth(caret_at), Some('!'));
    }

    #[test]
    fn a_position_outside_the_text_is_harmless() {
        assert_eq!(around("a", 1, 0), (1, "1 | a\n  | ^".to_owned()));
        assert_eq!(around("a\n", 2, 0), (1, "2 | \n  | ^".to_owned()));
        assert_eq!(around("a", 9, 9).0, 1);
        assert_eq!(around("é", 1, 1), (1, "1 | é\n  | ^".to_owned()));
    }
}
