//! Inspects JSON without changing a byte of it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The members of a JSON object, each as it was written. `None` if this is not an object.
///
/// Of a repeated key, the last one counts.
pub fn members(object: &[u8]) -> Option<BTreeMap<String, &str>> {
    let raw: BTreeMap<String, &RawValue> = serde_json::from_slice(object).ok()?;
    Some(raw.into_iter().map(|(key, value)| (key, value.get())).collect())
}

/// The value found by following `path` through nested objects, as it was written.
pub fn at<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a str> {
    let Some((first, rest)) = path.split_first() else {
        return std::str::from_utf8(json).ok();
    };
    let value = members(json)?.remove(*first)?;
    at(value.as_bytes(), rest)
}

/// The elements of a JSON array, each as it was written. `None` if this is not an array.
pub fn elements(array: &[u8]) -> Option<Vec<&str>> {
    let raw: Vec<&RawValue> = serde_json::from_slice(array).ok()?;
    Some(raw.into_iter().map(RawValue::get).collect())
}

/// The decoded text of a JSON string. `None` if this is not a string.
pub fn text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// `text` as a JSON string, quotes included.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let line = br#"{"id": 1e2 ,"result":{"a" :[ 1.0,"\u0041\ud800" ]}}"#;
        assert_eq!(at(line, &["id"]), Some("1e2"));
        let array = at(line, &["result", "a"]).unwrap();
        assert_eq!(array, r#"[ 1.0,"\u0041\ud800" ]"#);
        assert_eq!(elements(array.as_bytes()).unwrap(), ["1.0", r#""\u0041\ud800""#]);
        assert_eq!(at(line, &["result", "b"]), None);
    }
}
