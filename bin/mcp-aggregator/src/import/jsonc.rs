//! JSON with comments and trailing commas, as editors keep their settings.

use serde_json::Value;

/// Reads it. What is plain JSON is read as such.
pub(crate) fn read(text: &str) -> Result<Value, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&plain(text)))
}

/// The same without comments and trailing commas. Lines stay where they are, so that errors name the right one.
fn plain(text: &str) -> String {
    without_trailing_commas(&without_comments(text))
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => {
                let length = string_length(rest);
                plain.push_str(&rest[..length]);
                length
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let length = rest[2..].find("*/").map_or(rest.len(), |end| end + 4);
                plain.extend(rest[..length].chars().filter(|&character| character == '\n'));
                length
            }
            other => {
                plain.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    plain
}

fn without_trailing_commas(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = if next == '"' { string_length(rest) } else { next.len_utf8() };
        let is_trailing = next == ',' && rest[1..].trim_start().starts_with(['}', ']']);
        if !is_trailing {
            plain.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    plain
}

/// How long the string is that `text` begins with, quotes included.
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
    use serde_json::json;

    #[test]
    fn comments_and_trailing_commas_are_left_out_but_not_in_strings() {
        let text = r#"{
            // a comment, with "quotes"
            "url": "http://x/*y*/", /* another
            one */ "list": [1, 2, ],
            "text": "a \" // b,}",
        }"#;
        assert_eq!(read(text).unwrap(), json!({"url": "http://x/*y*/", "list": [1, 2], "text": "a \" // b,}"}));
    }

    #[test]
    fn what_is_broken_stays_broken_and_is_told_by_its_line() {
        assert_eq!(read("{\n/* \n */ \"a\": }").unwrap_err().line(), 3);
        for text in ["", "{", "\"", "/*", "{\"a\": \"\\"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
