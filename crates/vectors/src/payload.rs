//! Converts the payload of a vector to Qdrant's types and back.

use std::collections::HashMap;

use qdrant_client::qdrant::value::Kind;
use qdrant_client::qdrant::{FieldType, ListValue, Value};
use search::Payload;

pub(crate) const SERVER: &str = "source_server_id";
pub(crate) const SKILLS: &str = "skill_ids";
pub(crate) const IS_CLASSIFIED: &str = "is_classified";
const SERVER_NAME: &str = "source_server_name";
const NAME: &str = "original_name";
const IS_EXTERNAL: &str = "is_external";
const PRIMARY_SKILL: &str = "primary_skill_id";
const TEXT_HASH: &str = "text_hash";

/// The indexed fields, by which points can be filtered without a scan.
pub(crate) const INDEXED: [(&str, FieldType); 8] = [
    (SERVER, FieldType::Keyword),
    (SERVER_NAME, FieldType::Keyword),
    (NAME, FieldType::Keyword),
    (SKILLS, FieldType::Keyword),
    (PRIMARY_SKILL, FieldType::Keyword),
    (TEXT_HASH, FieldType::Keyword),
    (IS_EXTERNAL, FieldType::Bool),
    (IS_CLASSIFIED, FieldType::Bool),
];

/// A payload in Qdrant's types.
pub(crate) fn written(payload: Payload) -> qdrant_client::Payload {
    let mut fields = qdrant_client::Payload::with_capacity(INDEXED.len());
    fields.insert(SERVER, payload.source_server_id);
    fields.insert(SERVER_NAME, payload.source_server_name);
    fields.insert(NAME, payload.original_name);
    fields.insert(IS_EXTERNAL, payload.is_external);
    fields.insert(IS_CLASSIFIED, payload.is_classified);
    fields.insert(SKILLS, payload.skill_ids);
    // Null must be explicit: a value without a kind is refused.
    let primary_skill = payload.primary_skill_id.map_or(Kind::NullValue(0), Kind::StringValue);
    fields.insert(PRIMARY_SKILL, Value { kind: Some(primary_skill) });
    fields.insert(TEXT_HASH, payload.text_hash);
    fields
}

/// A payload from Qdrant's types. Missing or invalid fields are empty, so that they differ from what is expected and
/// are written again.
pub(crate) fn read(fields: &HashMap<String, Value>) -> Payload {
    let kind = |name: &str| fields.get(name).and_then(|value| value.kind.as_ref());
    let text = |kind: Option<&Kind>| match kind {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    };
    let is = |name: &str| matches!(kind(name), Some(Kind::BoolValue(true)));
    let skills = match kind(SKILLS) {
        Some(Kind::ListValue(ListValue { values })) => {
            values.iter().filter_map(|value| text(value.kind.as_ref())).collect()
        }
        _ => Vec::new(),
    };
    Payload {
        source_server_id: text(kind(SERVER)).unwrap_or_default(),
        source_server_name: text(kind(SERVER_NAME)).unwrap_or_default(),
        original_name: text(kind(NAME)).unwrap_or_default(),
        is_external: is(IS_EXTERNAL),
        is_classified: is(IS_CLASSIFIED),
        skill_ids: skills,
        primary_skill_id: text(kind(PRIMARY_SKILL)),
        text_hash: text(kind(TEXT_HASH)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_values_round_trip() {
        let payload = Payload {
            source_server_id: "id".to_owned(),
            source_server_name: "files".to_owned(),
            original_name: "read".to_owned(),
            is_external: true,
            is_classified: false,
            skill_ids: vec!["files".to_owned(), "text".to_owned()],
            primary_skill_id: None,
            text_hash: "hash".to_owned(),
        };
        assert_eq!(read(&written(payload.clone()).into()), payload);
        let classified = Payload { primary_skill_id: Some("files".to_owned()), is_classified: true, ..payload };
        assert_eq!(read(&written(classified.clone()).into()), classified);
    }
}
