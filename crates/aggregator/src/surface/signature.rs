//! A tool's parameters in one line: `(path: string, head?: integer)`.

use std::collections::HashSet;

use protocol::scan::{Span, member, members};
use protocol::text;

/// How many parameters are shown; the definition has the rest.
const MAX_PARAMETERS: usize = 12;
/// How many levels of nested lists are shown.
const MAX_LIST_DEPTH: usize = 4;
/// How many of a parameter's possible values are shown.
const MAX_VALUES: usize = 6;

/// The parameters of a tool with this definition, required ones first.
pub(super) fn signature(definition: &[u8]) -> String {
    let whole = Span { start: 0, end: definition.len() };
    let Some(schema) = member(definition, whole, "inputSchema") else { return "()".to_owned() };
    let required: HashSet<String> = strings(definition, member(definition, schema, "required")).into_iter().collect();
    let mut parameters = Vec::new();
    if let Some(properties) = member(definition, schema, "properties") {
        members(definition, properties, |key, value| {
            if let Some(name) = text::decode(key.of(definition)) {
                let is_required = required.contains(&*name);
                parameters.push((is_required, name.into_owned(), value));
            }
        });
    }
    // Stable: each group stays in the server's order.
    parameters.sort_by_key(|(is_required, ..)| !is_required);
    let mut parts: Vec<String> = parameters
        .iter()
        .take(MAX_PARAMETERS)
        .map(|(is_required, name, value)| {
            let mark = if *is_required { "" } else { "?" };
            format!("{}{mark}: {}", super::meta_tools::one_line(name, 60), type_of(definition, *value, MAX_LIST_DEPTH))
        })
        .collect();
    if parameters.len() > MAX_PARAMETERS {
        parts.push(format!("… {} more", parameters.len() - MAX_PARAMETERS));
    }
    format!("({})", parts.join(", "))
}

/// `lists` is how many levels of nested lists are still shown.
fn type_of(text: &[u8], schema: Span, lists: usize) -> String {
    let values = elements(text, member(text, schema, "enum"));
    if !values.is_empty() {
        let mut parts: Vec<String> = values.iter().take(MAX_VALUES).map(|&value| token(text, value)).collect();
        if values.len() > MAX_VALUES {
            parts.push("…".to_owned());
        }
        return parts.join("|");
    }
    let Some(kind) = member(text, schema, "type") else { return "any".to_owned() };
    let kinds = match text::decode(kind.of(text)) {
        Some(kind) => vec![kind.into_owned()],
        None => strings(text, Some(kind)),
    };
    let mut seen = HashSet::new();
    // Each type once: in a list that repeats a type, each occurrence would be expanded completely.
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| seen.insert(kind.clone())).take(MAX_VALUES).collect();
    let one = |kind: &String| match kind.as_str() {
        "array" if lists > 0 => {
            let of = member(text, schema, "items").map_or("any".to_owned(), |items| type_of(text, items, lists - 1));
            if of.contains('|') { format!("({of})[]") } else { format!("{of}[]") }
        }
        kind => super::meta_tools::one_line(kind, 20),
    };
    if kinds.is_empty() { "any".to_owned() } else { kinds.iter().map(one).collect::<Vec<_>>().join("|") }
}

fn token(text: &[u8], value: Span) -> String {
    super::meta_tools::one_line(&String::from_utf8_lossy(value.of(text)), 30)
}

fn strings(text: &[u8], array: Option<Span>) -> Vec<String> {
    let all = elements(text, array);
    all.into_iter().filter_map(|value| Some(text::decode(value.of(text))?.into_owned())).collect()
}

fn elements(text: &[u8], array: Option<Span>) -> Vec<Span> {
    array.and_then(|array| protocol::scan::elements(text, array)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_come_first_with_their_types() {
        let definition = br#"{"name":"x","inputSchema":{"type":"object","properties":{
            "head":{"type":"integer"},"path":{"type":"string"},"mode":{"enum":["a","b"]},
            "tags":{"type":"array","items":{"type":"string"}},"any":{},"n":{"type":["number","null"]}
        },"required":["path"]}}"#;
        let expected = r#"(path: string, head?: integer, mode?: "a"|"b", tags?: string[], any?: any, n?: number|null)"#;
        assert_eq!(signature(definition), expected);
    }

    #[test]
    fn tools_without_arguments_or_schema_have_an_empty_form() {
        assert_eq!(signature(br#"{"name":"x"}"#), "()");
        assert_eq!(signature(br#"{"name":"x","inputSchema":{"type":"object"}}"#), "()");
        assert_eq!(signature(br#"{"name":"x","inputSchema":7}"#), "()");
    }

    #[test]
    fn nested_lists_and_repeated_types_are_written_once() {
        let nested = r#"{"type":["array","array"],"items":"#.repeat(40) + "{}" + &"}".repeat(40);
        let definition = format!(r#"{{"inputSchema":{{"properties":{{"a":{nested}}}}}}}"#);
        assert_eq!(signature(definition.as_bytes()), "(a?: array[][][][])");
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let properties: Vec<_> = (0..20).map(|index| format!(r#""p{index}":{{"type":"string"}}"#)).collect();
        let definition = format!(r#"{{"inputSchema":{{"properties":{{{}}}}}}}"#, properties.join(","));
        assert!(signature(definition.as_bytes()).ends_with("p11?: string, … 8 more)"));
    }
}
