//! The positions of an object's members in a JSON text with comments.

use std::ops::Range;

/// An object in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// The position of its opening brace.
    pub(crate) start: usize,
    /// The position after its closing brace.
    pub(crate) end: usize,
    pub(crate) members: Vec<Member>,
    pub(crate) has_trailing_comma: bool,
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) key: String,
    /// The position of the quote before the key.
    pub(crate) key_start: usize,
    pub(crate) value: Range<usize>,
    /// The position of the comma after it.
    pub(crate) comma: Option<usize>,
}

/// The object that starts at `start`, if it is complete.
pub(crate) fn object_at(text: &str, start: usize) -> Option<Object> {
    if !text.get(start..)?.starts_with('{') {
        return None;
    }
    let mut members: Vec<Member> = Vec::new();
    let mut at = skip_blank(text, start + 1);
    loop {
        match text[at..].chars().next()? {
            '}' => {
                let has_trailing_comma = members.last().is_some_and(|member| member.comma.is_some());
                return Some(Object { start, end: at + 1, members, has_trailing_comma });
            }
            '"' => {
                let key_end = skip_string(text, at)?;
                let key = serde_json::from_str(&text[at..key_end]).ok()?;
                let colon = skip_blank(text, key_end);
                if !text[colon..].starts_with(':') {
                    return None;
                }
                let value_start = skip_blank(text, colon + 1);
                let value_end = skip_value(text, value_start)?;
                let next = skip_blank(text, value_end);
                let comma = text[next..].starts_with(',').then_some(next);
                members.push(Member { key, key_start: at, value: value_start..value_end, comma });
                at = comma.map_or(next, |comma| skip_blank(text, comma + 1));
            }
            _ => return None,
        }
    }
}

/// Skips white space and comments.
pub(crate) fn skip_blank(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len();
        at += blank;
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(comment) = rest.strip_prefix("/*") {
            at += comment.find("*/").map_or(rest.len(), |end| end + 4);
        } else {
            return at;
        }
    }
}

/// Whether the text before `end` is a line comment.
pub(crate) fn ends_in_line_comment(text: &str, start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        let rest = &text[at..];
        if rest.starts_with('"') {
            at = skip_string(text, at).unwrap_or(text.len());
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            if at >= end {
                return true;
            }
        } else if let Some(comment) = rest.strip_prefix("/*") {
            at += comment.find("*/").map_or(rest.len(), |end| end + 4);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    false
}

fn skip_string(text: &str, at: usize) -> Option<usize> {
    let mut is_escaped = false;
    for (offset, byte) in text[at..].bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + offset + 1),
            _ => {}
        }
    }
    None
}

/// Behind the value at `at`: brackets are counted, and what is in strings and comments does not count.
fn skip_value(text: &str, start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        let rest = text.get(at..)?;
        match rest.chars().next()? {
            '"' => at = skip_string(text, at)?,
            '{' | '[' => {
                depth += 1;
                at += 1;
            }
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            '/' => {
                let next = skip_blank(text, at);
                if next == at {
                    return None;
                }
                at = next;
                continue;
            }
            character if depth == 0 => {
                // A number or a word.
                let length = rest.find([',', '}', ']', '/', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                return (length > 0 && !character.is_whitespace()).then_some(at + length);
            }
            character => {
                at += character.len_utf8();
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_between_comments_and_strings() {
        let text = r#"{ /* } */ "a": "}", "b\"": [{"c": "]"}, 1.5e3], // "x": 1
            "d": true, }"#;
        let object = object_at(text, 0).unwrap();
        let found: Vec<(&str, &str)> =
            object.members.iter().map(|member| (member.key.as_str(), &text[member.value.clone()])).collect();
        assert_eq!(found, [("a", "\"}\""), ("b\"", "[{\"c\": \"]\"}, 1.5e3]"), ("d", "true")]);
        assert!(object.has_trailing_comma && object.end == text.len());
    }

    #[test]
    fn what_does_not_end_is_no_object() {
        for text in ["", "{", "{\"a\"", "{\"a\": ", "{\"a\": {", "{\"a\": \"", "{x}", "[", "{\"a\": ]}", "{/*"] {
            assert_eq!(object_at(text, 0), None, "{text}");
        }
    }
}
