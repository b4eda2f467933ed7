//! JSON that is stored as it was written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON that is nested deeper is shown as a string: JSON parsers stop at 128 levels (`serde_json`) or 64 (.NET),
/// including the levels that we add.
const MAX_SHOWN_DEPTH: usize = 100;

/// A valid JSON text, unchanged: schemas, definitions, arguments, results.
///
/// `Debug` shows only its length, because arguments and results are private to the user.
///
/// Serialized into a larger text it stays unchanged, unless it is nested so deeply that the whole could not be parsed:
/// then it becomes a string. To build a tree, use [`RawJson::to_value`]: serializing it into a tree fails for JSON that
/// a tree cannot represent, and `json!` panics then.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Parses a text that must be JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// The text, as it was written.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value as a tree; as a string if a tree cannot represent it (deep nesting, numbers out of range, lone
    /// surrogates).
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).unwrap_or_else(|_| Value::String(self.get().to_owned()))
    }

    /// The maximum nesting depth.
    fn depth(&self) -> usize {
        let (mut depth, mut deepest, mut bytes) = (0_usize, 0, self.get().bytes());
        while let Some(byte) = bytes.next() {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => skip_string(&mut bytes),
                _ => {}
            }
        }
        deepest
    }
}

/// Skips the rest of a string.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.depth() > MAX_SHOWN_DEPTH { serializer.serialize_str(self.get()) } else { self.0.serialize(serializer) }
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self(serde_json::value::to_raw_value(value).expect("a value can be written"))
    }
}

impl FromStr for RawJson {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        Self::parse(text)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.get().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readable_text_is_written_unchanged() {
        for text in [r#"{"a": [1.0, "[[\\\"["]}"#, "1e400", r#""\ud800""#] {
            assert_eq!(serde_json::to_string(&RawJson::parse(text).unwrap()).unwrap(), text);
        }
        let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(serde_json::to_string(&RawJson::parse(nested.as_str()).unwrap()).unwrap(), nested);
    }

    #[test]
    fn unreadable_schemas_are_displayed_as_text() {
        for depth in [101, 128, 100_000] {
            let nested = format!("{}\"]\"{}", "[".repeat(depth), "]".repeat(depth));
            let json = RawJson::parse(nested.as_str()).unwrap();
            assert_eq!(serde_json::to_value(&json).unwrap(), Value::String(nested.clone()));
            let shown = serde_json::to_string(&json).unwrap();
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), nested);
        }
    }

    #[test]
    fn every_text_becomes_a_tree_or_stays_a_text() {
        assert_eq!(RawJson::parse(r#"{"a":1}"#).unwrap().to_value(), serde_json::json!({"a": 1}));
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["[1e400]", r#""\ud800""#, nested.as_str()] {
            assert_eq!(RawJson::parse(text).unwrap().to_value(), Value::String(text.to_owned()));
        }
    }
}
