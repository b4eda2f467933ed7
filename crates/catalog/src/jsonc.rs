//! JSON with comments and trailing commas, as in settings of editors and hand-written configs.

/// Converts to plain JSON: comments and trailing commas become spaces. Everything else keeps its line and byte, so that
/// errors name the right place.
pub fn plain(text: &str) -> String {
    without_trailing_commas(&without_comments(text))
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => string_length(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            other => other.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length);
        match piece.starts_with("//") || piece.starts_with("/*") {
            true => plain.extend(piece.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
            false => plain.push_str(piece),
        }
        rest = behind;
    }
    plain
}

fn without_trailing_commas(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = if next == '"' { string_length(rest) } else { next.len_utf8() };
        let (piece, behind) = rest.split_at(length);
        // A comma after nothing is an error.
        let is_trailing = next == ','
            && behind.trim_start().starts_with(['}', ']'])
            && !plain.trim_end().ends_with(['{', '[', ',', ':']);
        plain.push_str(if is_trailing { " " } else { piece });
        rest = behind;
    }
    plain
}

/// The length of the string at the start of `text`, including quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_blanks_but_not_in_strings() {
        let text = "{// é \"x\"\n\"u\": \"http://x/*y*/\", /* a\n*/ \"l\": [1, ], \"t\": \"a \\\" // b,}\",\n}";
        let plain = plain(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.matches('\n').count(), text.matches('\n').count());
        assert_eq!(plain.split_whitespace().collect::<String>(), r#"{"u":"http://x/*y*/","l":[1],"t":"a\"//b,}"}"#);
    }

    #[test]
    fn plain_and_invalid_text_stays_unchanged() {
        for text in ["", "{", "\"", "{\"a\": \"\\", "[1, 2]", "{,}", "[1,,]", "{\"a\":,}", "/"] {
            assert_eq!(plain(text), text);
        }
    }
}
