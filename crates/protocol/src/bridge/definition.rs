//! Translates definitions of tools between lifecycles.

use bytes::Bytes;

use crate::bridge::change::{Change, whole};
use crate::scan::{Span, member};
use crate::text;

/// A tool for legacy clients; `None` if it stays unchanged.
pub fn to_legacy(definition: &Bytes) -> Option<Bytes> {
    let mut change = Change::new(definition);
    keep_output_schema_an_object(&mut change, definition, whole(definition));
    (!change.is_empty()).then(|| change.apply())
}

/// Removes an output schema that is not clearly one of an object: legacy clients support no other, and some reject the
/// whole list because of it.
pub(crate) fn keep_output_schema_an_object(change: &mut Change, line: &[u8], tool: Span) {
    let Some(schema) = member(line, tool, "outputSchema") else { return };
    let kind = member(line, schema, "type");
    if !kind.is_some_and(|kind| text::token_is(kind.of(line), "object")) {
        change.remove_member(tool, "outputSchema");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_schema_of_an_object_is_shown_to_legacy_clients() {
        let legacy = |definition: &str| to_legacy(&Bytes::copy_from_slice(definition.as_bytes()));
        assert_eq!(legacy(r#"{"name":"a"}"#), None);
        assert_eq!(legacy(r#"{"name":"a","outputSchema":{"type":"object","properties":{}}}"#), None);
        for schema in [r#"{"type":"array"}"#, r#"{"type":["object","null"]}"#, "{}", "true", r#"{"anyOf":[]}"#] {
            let definition = format!(r#"{{"name":"a","outputSchema":{schema}, "x":1}}"#);
            assert_eq!(legacy(&definition).unwrap(), r#"{"name":"a", "x":1}"#);
        }
    }
}
