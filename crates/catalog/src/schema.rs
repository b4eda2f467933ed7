//! What clients cannot take of a tool's schemas: one member that legacy clients refuse of modern servers, and what all of
//! them refuse.

use protocol::scan::{Span, member, members};
use protocol::text::token_is;

const OUTPUT_SCHEMA: &str = "outputSchema";

/// The spans to leave out of a modern tool's definition for legacy clients: its `outputSchema`, comma included, unless it
/// describes an object. In modern revisions a result may be any value, and legacy clients refuse such a schema.
pub(crate) fn unfit_for_legacy(definition: &[u8]) -> Vec<Span> {
    let whole = Span { start: 0, end: definition.len() };
    match member(definition, whole, OUTPUT_SCHEMA) {
        Some(schema) if !describes_an_object(definition, schema) => spans_of(definition, whole, OUTPUT_SCHEMA),
        _ => Vec::new(),
    }
}

/// What is wrong with the `inputSchema` of a tool, if strict clients refuse the whole list for it. That one is missing, or
/// does not say of which type it is, most of them forgive.
pub(crate) fn flaw(definition: &[u8]) -> Option<&'static str> {
    let whole = Span { start: 0, end: definition.len() };
    let schema = member(definition, whole, "inputSchema")?;
    let is_object = |value: Span| definition.get(value.start) == Some(&b'{');
    if !is_object(schema) {
        return Some("its inputSchema is not an object");
    }
    if member(definition, schema, "type").is_some() && !describes_an_object(definition, schema) {
        return Some("the type of its inputSchema is not `object`");
    }
    let properties = member(definition, schema, "properties")?;
    if !is_object(properties) {
        return Some("the properties of its inputSchema are not an object");
    }
    let mut are_objects = true;
    members(definition, properties, |_, value| are_objects &= is_object(value));
    (!are_objects).then_some("a property of its inputSchema is not described by an object")
}

fn describes_an_object(text: &[u8], schema: Span) -> bool {
    member(text, schema, "type").is_some_and(|kind| token_is(kind.of(text), "object"))
}

/// What to cut out of `object` so that nothing called `name` is left in it, however often it was given.
fn spans_of(text: &[u8], object: Span, name: &str) -> Vec<Span> {
    let mut all = Vec::new();
    members(text, object, |key, value| all.push((key, value)));
    let mut cuts = Vec::new();
    let mut has_kept = false;
    for (at, (key, value)) in all.iter().enumerate() {
        if !token_is(key.of(text), name) {
            has_kept = true;
            continue;
        }
        // The comma in front goes too; the first member that stays has none, so before it the comma behind goes.
        cuts.push(match (has_kept, all.get(at + 1)) {
            (true, _) => Span { start: all[at - 1].1.end, end: value.end },
            (false, Some((next, _))) => Span { start: key.start, end: next.start },
            (false, None) => Span { start: key.start, end: value.end },
        });
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_legacy(definition: &str) -> String {
        let mut left = definition.as_bytes().to_vec();
        for cut in unfit_for_legacy(definition.as_bytes()).into_iter().rev() {
            left.drain(cut.start..cut.end);
        }
        String::from_utf8(left).unwrap()
    }

    #[test]
    fn a_tool_for_which_clients_refuse_the_whole_list_is_told_from_others() {
        let flaw_of = |schema: &str| flaw(format!(r#"{{"name":"a","inputSchema":{schema}}}"#).as_bytes());
        for schema in ["{}", r#"{"type":"object"}"#, r#"{"type":"object","properties":{"a":{},"b":{"type":5}}}"#] {
            assert_eq!(flaw_of(schema), None, "{schema}");
        }
        assert_eq!(flaw(br#"{"name":"a"}"#), None);
        let flawed =
            ["5", "null", "[]", r#"{"type":"array"}"#, r#"{"properties":[]}"#, r#"{"properties":{"a":{},"f":5}}"#];
        for schema in flawed {
            assert!(flaw_of(schema).is_some(), "{schema}");
        }
    }

    #[test]
    fn a_schema_of_an_object_stays() {
        for definition in [
            r#"{"name":"a"}"#,
            r#"{"name":"a","outputSchema":{"type":"object"}}"#,
            r#"{"outputSchema":{"type":"obj\u0065ct"},"name":"a"}"#,
            r#"{"name":"a","inputSchema":{"outputSchema":{"type":"array"}}}"#,
        ] {
            assert_eq!(for_legacy(definition), definition);
        }
    }

    #[test]
    fn any_other_schema_goes_and_takes_one_comma_with_it() {
        for (definition, left) in [
            (r#"{"name":"a","outputSchema":{"type":"array"}}"#, r#"{"name":"a"}"#),
            (r#"{"outputSchema":{"type":["object","null"]}, "name":"a"}"#, r#"{"name":"a"}"#),
            (r#"{"name":"a" , "output\u0053chema" : {} ,"n":1.0 }"#, r#"{"name":"a" ,"n":1.0 }"#),
            (r#"{"outputSchema":true,"name":"a","outputSchema":{"anyOf":[]},"b":2}"#, r#"{"name":"a","b":2}"#),
            (r#"{"outputSchema":1,"outputSchema":2,"name":"a"}"#, r#"{"name":"a"}"#),
            (r#"{"name":"a","outputSchema":1,"outputSchema":2}"#, r#"{"name":"a"}"#),
            (r#"{"outputSchema":1,"outputSchema":2}"#, r#"{}"#),
            (r#"{ "outputSchema":null }"#, r#"{  }"#),
        ] {
            assert_eq!(for_legacy(definition), left, "{definition}");
        }
    }
}
