//! Parses the arguments of a call: one JSON object, `-` for one on stdin, or `key=value` pairs.

use std::io::Read;

use protocol::reply;
use serde_json::Value;
use serde_json::value::RawValue;

const FORMS: &str = "write one JSON object, `-` to read one from stdin, or key=value pairs";

/// Whether a value was parsed as a number or a JSON word but may be meant as text, which the schema decides.
pub(crate) fn are_guessed(words: &[String]) -> bool {
    !matches!(words, [only] if only == "-" || only.trim_start().starts_with('{'))
        && words.iter().any(|word| is_guessed(word))
}

fn is_guessed(word: &str) -> bool {
    let Some((key, value)) = word.split_once('=') else { return false };
    let json = serde_json::from_str::<Value>(value);
    !key.ends_with(':') && json.is_ok_and(|json| json.is_number() || json.is_boolean() || json.is_null())
}

/// The arguments with the types of the input schema: `zip=12345` is text if the tool expects text.
pub(crate) fn fitted(words: &[String], schema: &Value) -> Vec<String> {
    let fitted = |word: &String| match word.split_once('=') {
        Some((key, value)) if is_guessed(word) && is_text(&schema["properties"][key]["type"]) => {
            format!("{key}={}", Value::from(value))
        }
        _ => word.clone(),
    };
    words.iter().map(fitted).collect()
}

/// Whether the schema accepts only text.
fn is_text(kind: &Value) -> bool {
    kind == "string" || kind.as_array().is_some_and(|kinds| matches!(kinds.as_slice(), [only] if only == "string"))
}

/// Parses the words after the tool's name to a JSON object on one line. The error is a sentence for the user.
pub(crate) fn read(words: &[String], stdin: impl Read) -> Result<Vec<u8>, String> {
    match words {
        [only] if only == "-" => {
            let text = std::io::read_to_string(stdin).map_err(|error| format!("could not read stdin: {error}"))?;
            object(&text).map_err(|problem| format!("stdin {problem}"))
        }
        [only] if only.trim_start().starts_with('{') => {
            object(only).map_err(|problem| format!("the argument {problem}"))
        }
        pairs => object_of_pairs(pairs),
    }
}

/// The object in `text`, as it was written. Line ends are replaced by spaces between tokens, because a message must be
/// one line.
fn object(text: &str) -> Result<Vec<u8>, String> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))?;
    if !raw.get().starts_with('{') {
        return Err("is not a JSON object".to_owned());
    }
    Ok(on_one_line(raw.get()))
}

fn on_one_line(json: &str) -> Vec<u8> {
    json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

fn object_of_pairs(words: &[String]) -> Result<Vec<u8>, String> {
    let mut members: Vec<(&str, Vec<u8>)> = Vec::with_capacity(words.len());
    for word in words {
        let (key, value) = pair(word)?;
        if members.iter().any(|&(known, _)| known == key) {
            return Err(format!("`{key}` is given twice"));
        }
        members.push((key, value));
    }
    Ok(reply::object(members))
}

/// `key=value`: the value is JSON if it parses as JSON, otherwise text. `key:=json`: it must be JSON.
fn pair(word: &str) -> Result<(&str, Vec<u8>), String> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(format!("`{word}` is not a key=value pair; {FORMS}"));
    };
    let json = serde_json::from_str::<&RawValue>(value).map(|raw| on_one_line(raw.get()));
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => (key, json.map_err(|error| format!("the value of `{key}` is not valid JSON: {error}"))?),
        None => (key, json.unwrap_or_else(|_| reply::string(value))),
    };
    if key.is_empty() { Err(format!("`{word}` has no key; {FORMS}")) } else { Ok((key, value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_takes_as_text_stays_text() {
        let schema = serde_json::json!({"properties": {"zip": {"type": "string"}, "count": {"type": "integer"}}});
        let words = ["zip=012", "zip=12345", "count=5", "other=6", "zip:=7"].map(str::to_owned);
        assert!(are_guessed(&words) && !are_guessed(&["a=b".to_owned(), "c=\"1\"".to_owned()]));
        assert!(!are_guessed(&["{\"a\": \"b=1\"}".to_owned()]));
        assert_eq!(fitted(&words, &schema), ["zip=012", "zip=\"12345\"", "count=5", "other=6", "zip:=7"]);
    }

    fn typed(words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        read(&words, &b" {\"from\": 1e2,\r\n \"stdin\":\"\\ud800\"} "[..]).map(|json| String::from_utf8(json).unwrap())
    }

    #[test]
    fn an_object_is_passed_verbatim() {
        assert_eq!(typed(&[]).unwrap(), "{}");
        assert_eq!(typed(&[r#"{"a" :1.50, "b":{}}"#]).unwrap(), r#"{"a" :1.50, "b":{}}"#);
        assert_eq!(typed(&["{\n\"a\":1\n}"]).unwrap(), "{ \"a\":1 }");
        assert_eq!(typed(&["-"]).unwrap(), r#"{"from": 1e2,   "stdin":"\ud800"}"#);
    }

    #[test]
    fn a_value_is_json_if_it_reads_as_json_else_text() {
        let json = typed(&["n=5", "big=1e400", "t=true", "s=hello world", "q=\"5\"", "zip=01234", "e=", "l=[1, 2]"]);
        assert_eq!(
            json.unwrap(),
            r#"{"n":5,"big":1e400,"t":true,"s":"hello world","q":"5","zip":"01234","e":"","l":[1, 2]}"#
        );
        assert_eq!(typed(&["url=http://x/?a=b", "broken=[1"]).unwrap(), r#"{"url":"http://x/?a=b","broken":"[1"}"#);
        assert_eq!(typed(&["text=a\nb", "k ey:={\"x\":\n1}"]).unwrap(), r#"{"text":"a\nb","k ey":{"x": 1}}"#);
    }

    #[test]
    fn every_mistake_is_named() {
        for (words, expected) in [
            (&["{\"a\":}"][..], "the argument is not valid JSON"),
            (&["{}{}"], "not valid JSON"),
            (&["hello"], "`hello` is not a key=value pair"),
            (&["[1]"], "is not a key=value pair"),
            (&["{}", "a=1"], "is not a key=value pair"),
            (&["=1"], "has no key"),
            (&[":=1"], "has no key"),
            (&["a=1", "a:=2"], "`a` is given twice"),
            (&["a:=hello"], "the value of `a` is not valid JSON"),
        ] {
            let error = typed(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
        let error = read(&["-".to_owned()], &b"[]"[..]).unwrap_err();
        assert!(error.contains("stdin is not a JSON object"), "{error}");
    }
}
