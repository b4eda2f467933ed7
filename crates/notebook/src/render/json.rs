//! Formats JSON without changing its content: numbers, keys and their order stay.

use serde::de::IgnoredAny;

/// Whether a text is a JSON object or array.
pub(super) fn is_structure(text: &str) -> bool {
    let text = text.trim();
    (text.starts_with('{') || text.starts_with('[')) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Indentation grows with the square of the depth; JSON that would become longer is not formatted.
const MAX_INDENTED_BYTES: usize = 1024 * 1024;

/// Valid JSON with one value or key per line, indented by two spaces.
pub(super) fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut rest = json.trim();
    while let Some(next) = rest.chars().next() {
        if out.len() > MAX_INDENTED_BYTES {
            return json.to_owned();
        }
        let length = match next {
            '"' => string_length(rest),
            _ => next.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after.trim_start_matches([' ', '\t', '\n', '\r']);
        match next {
            '{' | '[' => {
                out.push(next);
                let closing = rest.chars().next().filter(|it| matches!(it, '}' | ']'));
                if let Some(closing) = closing {
                    out.push(closing);
                    rest = rest[1..].trim_start_matches([' ', '\t', '\n', '\r']);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = usize::saturating_sub(depth, 1);
                new_line(&mut out, depth);
                out.push(next);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => out.push_str(token),
        }
    }
    out
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::{indented, is_structure};

    #[test]
    fn json_is_indented_without_changing_its_value() {
        let json = r#"{"b":1e2,"a":[1.0,{},[ ],"x,{\"}"], "b" : {"c":null}}"#;
        let expected = "{\n  \"b\": 1e2,\n  \"a\": [\n    1.0,\n    {},\n    [],\n    \"x,{\\\"}\"\n  ],\n  \"b\": {\n    \"c\": null\n  }\n}";
        assert_eq!(indented(json), expected);
        assert_eq!(indented(expected), expected);
        assert_eq!(indented("\"a\""), "\"a\"");
    }

    #[test]
    fn only_objects_and_arrays_are_shown_as_json() {
        assert!(is_structure(" {\"a\": 1} \n") && is_structure("[]"));
        for text in ["12", "\"a\"", "{a: 1}", "[1] and more", "", "true"] {
            assert!(!is_structure(text), "{text}");
        }
    }

    #[test]
    fn json_nested_too_deeply_is_not_indented() {
        let deep = format!("{}{}", "[".repeat(120_000), "]".repeat(120_000));
        assert_eq!(super::indented(&deep), deep);
    }
}
