//! JSON that is kept as it was written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// What is nested deeper is shown as a text: readers of JSON give up at 128 levels (`serde_json`) or at 64 (.NET), and what
/// we put around it counts, too.
const MAX_SHOWN_DEPTH: usize = 100;

/// A JSON text, valid, and not a byte of it changed: schemas, definitions, arguments, results.
///
/// `Debug` shows only its length, because arguments and results are nobody's business but the user's.
///
/// Written into a larger text it stays as it is, unless it is nested so deeply that nobody could read the whole: then it
/// becomes a text. To make a tree of it, use [`RawJson::to_value`]: serializing it into one fails for JSON that no tree can
/// hold, and `json!` panics then.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes a text that must be JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// The text, as it was written.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The same as a tree. What a tree cannot hold (deep nesting, numbers out of range, lone surrogates) is its text.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).unwrap_or_else(|_| Value::String(self.get().to_owned()))
    }

    /// How many objects and arrays are within each other at most.
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
    fn a_text_that_can_be_read_is_written_as_it_is() {
        for text in [r#"{"a": [1.0, "[[\\\"["]}"#, "1e400", r#""\ud800""#] {
            assert_eq!(serde_json::to_string(&RawJson::parse(text).unwrap()).unwrap(), text);
        }
        let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(serde_json::to_string(&RawJson::parse(nested.as_str()).unwrap()).unwrap(), nested);
    }

    #[test]
    fn what_nobody_could_read_is_shown_as_a_text() {
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
