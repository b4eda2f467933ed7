//! Sets or removes one member of a JSON text with comments; every other byte stays, including comments and white space.

use serde_json::{Map, Value};

use super::scan::{Member, Object, object_at};
use crate::import::jsonc;

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditError {
    /// It is not JSON, with or without comments.
    Unreadable(String),
    /// A value that must be an object is not one.
    NoObject(String),
    /// The edit would change more than it should: the text has a form that we do not know.
    Strange,
}

impl std::error::Error for EditError {}

impl std::fmt::Display for EditError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(why) => write!(out, "it is not valid JSON: {why}"),
            Self::NoObject(what) => write!(out, "{what} in it is not an object"),
            Self::Strange => write!(out, "its layout cannot be edited safely"),
        }
    }
}

/// The members of the object `group`; empty if there is no such object, or no text.
pub(crate) fn entries(text: &str, group: &str) -> Result<Map<String, Value>, EditError> {
    if is_blank(text) {
        return Ok(Map::new());
    }
    match read(text)? {
        Value::Object(mut whole) => match whole.remove(group) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(entries)) => Ok(entries),
            Some(_) => Err(EditError::NoObject(format!("`{group}`"))),
        },
        _ => Err(EditError::NoObject("the whole".to_owned())),
    }
}

/// The text of the member `name` of the object `group`, including comments.
pub(crate) fn written<'t>(text: &'t str, group: &str, name: &str) -> Result<Option<&'t str>, EditError> {
    if is_blank(text) {
        return Ok(None);
    }
    let root = root(text)?;
    let servers = last(&root, group).and_then(|member| object_at(text, member.value.start));
    Ok(servers.and_then(|servers| last(&servers, name).map(|member| &text[member.value.clone()])))
}

/// The text with a member of the object `group` as it was written elsewhere, byte for byte.
pub(crate) fn set_written(text: &str, group: &str, name: &str, written: &str) -> Result<String, EditError> {
    // Setting the value first creates missing objects, and shows where the member belongs.
    let text = set(text, group, name, &read(written)?)?;
    let servers = last(&root(&text)?, group).and_then(|member| object_at(&text, member.value.start));
    let member = servers.as_ref().and_then(|servers| last(servers, name)).ok_or(EditError::Strange)?;
    let exact = format!("{}{written}{}", &text[..member.value.start], &text[member.value.end..]);
    if read(&exact)? == read(&text)? { Ok(exact) } else { Err(EditError::Strange) }
}

/// The text with `value` as the member `name` of the object `group`. Missing objects are created.
pub(crate) fn set(text: &str, group: &str, name: &str, value: &Value) -> Result<String, EditError> {
    let layout = Layout::of(text);
    if is_blank(text) {
        let whole = serde_json::json!({ group: { name: value } });
        return Ok(format!("{}{}{}", text.trim_end(), layout.pretty(&whole, ""), layout.newline));
    }
    let before = read(text)?;
    let root = root(text)?;
    let edited = match last(&root, group) {
        None => insert(text, &root, group, &serde_json::json!({ name: value }), &layout),
        Some(member) => {
            let Some(servers) = object_at(text, member.value.start) else {
                return Err(EditError::NoObject(format!("`{group}`")));
            };
            match last(&servers, name) {
                None => insert(text, &servers, name, value, &layout),
                Some(old) => {
                    let indent = line_indent(text, old.key_start);
                    let inside = &text[servers.start..servers.end];
                    let new = if inside.contains('\n') { layout.pretty(value, indent) } else { value.to_string() };
                    format!("{}{new}{}", &text[..old.value.start], &text[old.value.end..])
                }
            }
        }
    };
    let mut wanted = before;
    wanted[group][name] = value.clone();
    if jsonc::read(&edited).is_ok_and(|edited| edited == wanted) { Ok(edited) } else { Err(EditError::Strange) }
}

/// The text without the member `name` of the object `group`.
pub(crate) fn take_out(text: &str, group: &str, name: &str) -> Result<String, EditError> {
    let mut wanted = read(text)?;
    let root = root(text)?;
    let servers = last(&root, group).and_then(|member| object_at(text, member.value.start));
    let Some(servers) = servers else { return Err(EditError::NoObject(format!("`{group}`"))) };
    let Some(place) = servers.members.iter().rposition(|member| member.key == name) else { return Ok(text.to_owned()) };
    let edited = without(text, &servers, place);
    if let Some(group) = wanted[group].as_object_mut() {
        group.shift_remove(name);
    }
    if jsonc::read(&edited).is_ok_and(|edited| edited == wanted) { Ok(edited) } else { Err(EditError::Strange) }
}

fn read(text: &str) -> Result<Value, EditError> {
    jsonc::read(text).map_err(|error| EditError::Unreadable(error.to_string()))
}

fn root(text: &str) -> Result<Object, EditError> {
    let start = super::scan::skip_blank(text, 0);
    object_at(text, start).ok_or_else(|| EditError::NoObject("the whole".to_owned()))
}

/// Of duplicate members the last one counts, as in every parser we know.
fn last<'o>(object: &'o Object, name: &str) -> Option<&'o Member> {
    object.members.iter().rev().find(|member| member.key == name)
}

fn is_blank(text: &str) -> bool {
    super::scan::skip_blank(text, 0) == text.len()
}

/// Appends a member.
fn insert(text: &str, object: &Object, name: &str, value: &Value, layout: &Layout) -> String {
    let close = object.end - 1;
    let inside = &text[object.start + 1..close];
    let key = Value::from(name);
    // After the last text, including a comment; white space before the brace stays before it.
    let end = object.start + 1 + inside.trim_end().len();
    let Some(previous) = object.members.last() else {
        let outer = line_indent(text, object.start).to_owned();
        let indent = format!("{outer}{}", layout.unit);
        let (newline, value) = (layout.newline, layout.pretty(value, &indent));
        let tail = if inside.contains('\n') { String::new() } else { format!("{newline}{outer}") };
        return format!("{}{newline}{indent}{key}: {value}{tail}{}", &text[..end], rest_of(text, end, close, &tail));
    };
    let comma = if object.has_trailing_comma { "" } else { "," };
    let head = format!("{}{comma}{}", &text[..previous.value.end], &text[previous.value.end..end]);
    if !inside.contains('\n') {
        return format!("{head} {key}: {value}{}", &text[end..]);
    }
    let indent = line_indent(text, previous.key_start);
    format!("{head}{}{indent}{key}: {}{}", layout.newline, layout.pretty(value, indent), &text[end..])
}

/// The text after an insertion into an empty object: with a line break of our own, the old white space is not needed.
fn rest_of<'t>(text: &'t str, end: usize, close: usize, tail: &str) -> &'t str {
    if tail.is_empty() { &text[end..] } else { &text[close..] }
}

/// Removes a member with one comma and the white space before it.
fn without(text: &str, object: &Object, place: usize) -> String {
    let member = &object.members[place];
    let start = text[..member.key_start].trim_end().len();
    // A line comment must be followed by a line break: this one, unless another follows.
    let own_comma = member.comma.filter(|_| place == 0);
    let rest = own_comma.map_or(&text[member.value.end..], |comma| &text[comma + 1..]);
    let is_followed = rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n')
        && own_comma.is_none_or(|comma| text[member.value.end..comma].trim().is_empty());
    let keeps_break = !is_followed && super::scan::ends_in_line_comment(text, object.start, start);
    let start = if keeps_break { member.key_start } else { start };
    let mut gone: Vec<_> = std::iter::once(start..member.value.end).collect();
    match (place.checked_sub(1).map(|before| &object.members[before]), member.comma) {
        (Some(before), _) => gone.extend(before.comma.map(|comma| comma..comma + 1)),
        (None, Some(comma)) => gone.push(comma..comma + 1),
        (None, None) => {}
    }
    gone.sort_by_key(|range| range.start);
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for range in gone {
        kept.push_str(text.get(at..range.start).unwrap_or_default());
        at = at.max(range.end);
    }
    kept + &text[at..]
}

/// The indentation of the line at `at`.
fn line_indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The layout of a text.
struct Layout {
    newline: &'static str,
    unit: String,
}

impl Layout {
    /// Detects the layout: the first indented line shows the indentation.
    fn of(text: &str) -> Self {
        let indent = |line: &str| line[..line.len() - line.trim_start_matches([' ', '\t']).len()].to_owned();
        let unit =
            text.lines().filter(|line| line.trim_start().starts_with('"')).map(indent).find(|unit| !unit.is_empty());
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { newline, unit: unit.unwrap_or_else(|| "  ".to_owned()) }
    }

    /// A value over several lines, the first of which is not indented.
    fn pretty(&self, value: &Value, indent: &str) -> String {
        let written = format!("{value:#}");
        let lines = written.lines().map(|line| {
            let text = line.trim_start();
            format!("{}{text}", self.unit.repeat((line.len() - text.len()) / 2))
        });
        lines.collect::<Vec<_>>().join(&format!("{}{indent}", self.newline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn added(text: &str) -> String {
        set(text, "mcpServers", "all", &json!({"url": "u"})).unwrap()
    }

    #[test]
    fn an_empty_file_becomes_a_whole_one() {
        let whole = "{\n  \"mcpServers\": {\n    \"all\": {\n      \"url\": \"u\"\n    }\n  }\n}\n";
        assert_eq!(added(""), whole);
        assert_eq!(added("\n"), whole);
        assert_eq!(added("{}"), whole.trim_end());
    }

    #[test]
    fn comments_blanks_and_order_stay() {
        let text = "// mine\n{\n\t\"z\": 1, // last\n\t\"mcpServers\": {\n\t\t\"b\": {\"command\": \"x\"} /* b */ // why\n\t},\n\t\"a\": [1,  2],\n}\n";
        let expected = "// mine\n{\n\t\"z\": 1, // last\n\t\"mcpServers\": {\n\t\t\"b\": {\"command\": \"x\"}, /* b */ // why\n\t\t\"all\": {\n\t\t\t\"url\": \"u\"\n\t\t}\n\t},\n\t\"a\": [1,  2],\n}\n";
        assert_eq!(added(text), expected);
        assert_eq!(take_out(expected, "mcpServers", "all").unwrap(), text);
    }

    #[test]
    fn one_line_stays_one_line_and_a_trailing_comma_is_used() {
        assert_eq!(added(r#"{"mcpServers": {"b": {}}}"#), r#"{"mcpServers": {"b": {}, "all": {"url":"u"}}}"#);
        let trailing = "{\n  \"mcpServers\": {\n    \"b\": {},\n  }\n}";
        assert!(added(trailing).contains("\"b\": {},\n    \"all\": {\n"), "{}", added(trailing));
        assert_eq!(
            added("{\r\n  \"x\": 1\r\n}").matches("\r\n").count(),
            added("{\n  \"x\": 1\n}").matches('\n').count()
        );
    }

    #[test]
    fn what_is_there_is_replaced_and_a_second_time_changes_nothing() {
        let text = "{\n  \"mcpServers\": {\n    \"all\": {\"old\": true}, // ours\n    \"b\": {}\n  }\n}\n";
        let once = added(text);
        assert!(once.contains("\"all\": {\n      \"url\": \"u\"\n    }, // ours\n    \"b\": {}"), "{once}");
        assert_eq!(added(&once), once);
    }

    #[test]
    fn a_member_is_removed_at_any_position() {
        for text in [
            r#"{"mcpServers":{"all":{},"b":1,"c":2}}"#,
            r#"{"mcpServers":{"b":1,"all":{},"c":2}}"#,
            r#"{"mcpServers":{"b":1,"c":2,"all":{}}}"#,
            r#"{"mcpServers":{"b":1,"c":2,"all":{},}}"#,
            "{\"mcpServers\":{\"b\":1, // x\n\"all\":{}, // y\n\"c\":2}}",
            "{\"mcpServers\":{// x\n\"all\":{}, // y\n\"b\":1,\"c\":2}}",
        ] {
            let rest = take_out(text, "mcpServers", "all").unwrap_or_else(|error| panic!("{error} {text}"));
            assert_eq!(jsonc::read(&rest).unwrap(), json!({"mcpServers": {"b": 1, "c": 2}}), "{text}\n{rest}");
            assert_eq!(text.contains("// x"), rest.contains("// x"), "{rest}");
        }
        let only = take_out(r#"{"mcpServers": {"all": {}}}"#, "mcpServers", "all").unwrap();
        assert_eq!(only, r#"{"mcpServers": {}}"#);
        assert_eq!(take_out(r#"{"mcpServers": {}}"#, "mcpServers", "all").unwrap(), r#"{"mcpServers": {}}"#);
    }

    #[test]
    fn a_member_is_restored_byte_for_byte() {
        let raw = "{ /* why */ \"command\":  \"x\",\n\t\"args\": [1,2,] }";
        for text in
            ["", "{}", "{\"mcpServers\": {\"b\": {}}}", "// mine\n{\n  \"mcpServers\": {\n    \"b\": {} // b\n  }\n}\n"]
        {
            let set = set_written(text, "mcpServers", "a", raw).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(set.contains(&format!("\"a\": {raw}")), "{set}");
            assert_eq!(written(&set, "mcpServers", "a"), Ok(Some(raw)));
            assert_eq!(text.contains("// b"), set.contains("// b"), "{set}");
        }
        assert_eq!(written("", "mcpServers", "a"), Ok(None));
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        for (text, why) in [
            ("[1]", EditError::NoObject("the whole".to_owned())),
            (r#"{"mcpServers": []}"#, EditError::NoObject("`mcpServers`".to_owned())),
        ] {
            assert_eq!(set(text, "mcpServers", "all", &json!({})), Err(why));
        }
        assert!(set("{,}", "mcpServers", "all", &json!({})).is_err());
    }
}
