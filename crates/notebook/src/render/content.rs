//! Parses the result of a tool.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The parts of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) is_error: bool,
    pub(crate) tokens: Option<u64>,
}

impl Content {
    /// The size of all parts.
    pub(crate) fn bytes(&self) -> usize {
        let sum = |texts: &[&str]| texts.iter().map(|text| text.len()).sum::<usize>();
        let of = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Json(text) | Piece::Markdown(text) => text.len(),
            Piece::Media { mime, bytes, name } => bytes.len() + sum(&[mime, name.as_deref().unwrap_or_default()]),
            Piece::Link { uri, name, description } => sum(&[uri, name, description.as_deref().unwrap_or_default()]),
            Piece::Resource { uri, mime, text } => sum(&[uri, mime, text]),
        };
        self.pieces.iter().map(of).sum()
    }
}

/// One part of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Json(String),
    Markdown(String),
    Media {
        mime: String,
        bytes: Vec<u8>,
        name: Option<String>,
    },
    Link {
        uri: String,
        name: String,
        description: Option<String>,
    },
    /// Text with a name.
    Resource {
        uri: String,
        mime: String,
        text: String,
    },
}

/// Parses a `result`. An invalid one is shown as it is.
pub(crate) fn parse_result(result: &str) -> Content {
    let as_it_is = || Content { pieces: vec![Piece::Json(result.to_owned())], is_error: false, tokens: None };
    let Ok(outer) = serde_json::from_str::<Outer>(result) else { return as_it_is() };
    let mut pieces: Vec<Piece> = outer.content.iter().map(|part| piece(part)).collect();
    if let Some(structured) = outer.structured_content.filter(|it| it.get() != "null") {
        // Servers should send the same as text, for clients without support for structured content.
        let texts =
            pieces.iter().filter_map(|piece| if let Piece::Text(text) = piece { Some(text.as_str()) } else { None });
        let is_told = says_the_same(&texts.collect::<Vec<_>>(), structured);
        if !is_told {
            pieces.push(Piece::Json(structured.get().to_owned()));
        }
    }
    if pieces.is_empty() && outer.content_is_missing {
        return as_it_is();
    }
    Content { pieces, is_error: outer.is_error, tokens: outer.meta.and_then(tokens) }
}

#[derive(Deserialize)]
#[serde(from = "Lenient<'a>", bound(deserialize = "'de: 'a"))]
struct Outer<'a> {
    content: Vec<&'a RawValue>,
    content_is_missing: bool,
    structured_content: Option<&'a RawValue>,
    is_error: bool,
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Lenient<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow, rename = "structuredContent")]
    structured_content: Option<&'a RawValue>,
    #[serde(rename = "isError")]
    is_error: Option<bool>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> From<Lenient<'a>> for Outer<'a> {
    fn from(it: Lenient<'a>) -> Self {
        Self {
            content_is_missing: it.content.is_none(),
            content: it.content.unwrap_or_default(),
            structured_content: it.structured_content,
            is_error: it.is_error.unwrap_or_default(),
            meta: it.meta,
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text {
        text: String,
    },
    #[serde(alias = "audio")]
    Image {
        data: String,
        #[serde(rename = "mimeType", default)]
        mime: String,
    },
    ResourceLink {
        uri: String,
        name: Option<String>,
        title: Option<String>,
        description: Option<String>,
    },
    Resource {
        resource: Embedded,
    },
}

#[derive(Deserialize)]
struct Embedded {
    #[serde(default)]
    uri: String,
    #[serde(rename = "mimeType", default)]
    mime: String,
    text: Option<String>,
    blob: Option<String>,
}

fn piece(raw: &RawValue) -> Piece {
    let as_it_is = || Piece::Json(raw.get().to_owned());
    match serde_json::from_str::<Part>(raw.get()) {
        Ok(Part::Text { text }) => Piece::Text(text),
        Ok(Part::Image { data, mime }) => match decoded(&data) {
            Some(bytes) => Piece::Media { mime, bytes, name: None },
            None => as_it_is(),
        },
        Ok(Part::ResourceLink { uri, name, title, description }) => {
            let name = title.or(name).filter(|name| !name.trim().is_empty()).unwrap_or_else(|| uri.clone());
            Piece::Link { uri, name, description: description.filter(|it| !it.trim().is_empty()) }
        }
        Ok(Part::Resource { resource }) => embedded(resource).unwrap_or_else(as_it_is),
        Err(_) => as_it_is(),
    }
}

fn embedded(resource: Embedded) -> Option<Piece> {
    let Embedded { uri, mime, text, blob } = resource;
    match (text, blob) {
        (Some(text), _) => Some(Piece::Resource { uri, mime, text }),
        (None, Some(blob)) => Some(Piece::Media { mime, bytes: decoded(&blob)?, name: Some(uri) }),
        (None, None) => None,
    }
}

fn decoded(data: &str) -> Option<Vec<u8>> {
    let data: String = data.split_ascii_whitespace().collect();
    STANDARD.decode(&data).or_else(|_| STANDARD_NO_PAD.decode(&data)).ok()
}

/// Whether texts equal the structured content. Libraries wrap other values than objects and send only the value as
/// text: `3` and `{"result": 3}`; or its elements, one text each.
fn says_the_same(texts: &[&str], structured: &RawValue) -> bool {
    let Ok(structured) = serde_json::from_str::<Value>(structured.get()) else { return false };
    let only = structured.as_object().filter(|members| members.len() == 1).and_then(|members| members.values().next());
    let means = |text: &str, value: &Value| {
        value.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
    };
    let is_one_by_one = |value: &Value| {
        let elements = value.as_array().filter(|elements| !elements.is_empty() && elements.len() == texts.len());
        elements.is_some_and(|elements| texts.iter().zip(elements).all(|(text, element)| means(text, element)))
    };
    std::iter::once(&structured).chain(only).any(|value| {
        let is_joined = || texts.len() > 1 && value.as_str().is_some_and(|value| value == texts.concat());
        texts.iter().any(|text| means(text, value)) || is_one_by_one(value) || is_joined()
    })
}

/// How many tokens a tool reports. There is no standard; these are common conventions.
fn tokens(meta: &RawValue) -> Option<u64> {
    let meta: serde_json::Value = serde_json::from_str(meta.get()).ok()?;
    let number = |of: &serde_json::Value, keys: &[&str]| keys.iter().find_map(|key| of.get(key)?.as_u64());
    let direct = number(&meta, &["tokensUsed", "tokens_used", "totalTokens", "total_tokens", "tokens"]);
    let usage = meta.get("usage");
    let total = usage.and_then(|usage| number(usage, &["totalTokens", "total_tokens", "tokens"]));
    let both = usage.and_then(|usage| {
        let input = number(usage, &["inputTokens", "input_tokens", "promptTokens", "prompt_tokens"])?;
        let output = number(usage, &["outputTokens", "output_tokens", "completionTokens", "completion_tokens"])?;
        input.checked_add(output)
    });
    direct.or(total).or(both)
}

#[cfg(test)]
mod tests {
    use super::{Piece, parse_result};

    #[test]
    fn every_kind_of_content_is_distinguished() {
        let result = r#"{"content":[
            {"type":"text","text":"hello"},
            {"type":"image","data":"AAEC","mimeType":"image/png"},
            {"type":"audio","data":"AAEC","mimeType":"audio/wav"},
            {"type":"resource_link","uri":"https://example.com/a","name":"a","title":"The A"},
            {"type":"resource","resource":{"uri":"file:///x.md","mimeType":"text/markdown","text":"x"}},
            {"type":"resource","resource":{"uri":"file:///x.bin","blob":"AAEC"}},
            {"type":"hologram","depth":1e2}
        ],"isError":true,"_meta":{"usage":{"input_tokens":3,"output_tokens":4}}}"#;
        let content = parse_result(result);
        assert!(content.is_error);
        assert_eq!(content.tokens, Some(7));
        assert!(matches!(&content.pieces[0], Piece::Text(text) if text == "hello"));
        assert!(matches!(&content.pieces[1], Piece::Media { bytes, .. } if bytes == &[0, 1, 2]));
        assert!(matches!(&content.pieces[3], Piece::Link { name, .. } if name == "The A"));
        assert!(matches!(&content.pieces[4], Piece::Resource { mime, .. } if mime == "text/markdown"));
        assert!(matches!(&content.pieces[5], Piece::Media { name: Some(name), .. } if name == "file:///x.bin"));
        assert!(matches!(&content.pieces[6], Piece::Json(json) if json.contains("1e2")));
    }

    #[test]
    fn structure_is_shown_once() {
        let both = r#"{"content":[{"type":"text","text":"{\"a\": 1}"}],"structuredContent":{"a":1}}"#;
        assert_eq!(parse_result(both).pieces.len(), 1);
        let more = r#"{"content":[{"type":"text","text":"one"}],"structuredContent":{"a":1}}"#;
        assert_eq!(parse_result(more).pieces.len(), 2);
        for same in [
            r#"{"content":[{"type":"text","text":"3"}],"structuredContent":{"result":3}}"#,
            r#"{"content":[{"type":"text","text":"hello"}],"structuredContent":{"content":"hello"}}"#,
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"structuredContent":{"result":["a","b"]}}"#,
        ] {
            assert!(parse_result(same).pieces.iter().all(|piece| matches!(piece, Piece::Text(_))), "{same}");
        }
        let other = r#"{"content":[{"type":"text","text":"3"}],"structuredContent":{"result":3,"unit":"m"}}"#;
        assert_eq!(parse_result(other).pieces.len(), 2);
        let only = r#"{"structuredContent":{"a":1.0}}"#;
        assert_eq!(parse_result(only).pieces, vec![Piece::Json(r#"{"a":1.0}"#.to_owned())]);
    }

    #[test]
    fn invalid_values_are_displayed_unchanged() {
        for result in ["nonsense", "[1]", r#"{"toolResult":7}"#, r#"{"content":7}"#, "null"] {
            assert_eq!(parse_result(result).pieces, vec![Piece::Json(result.to_owned())], "{result}");
        }
        let bad_image = r#"{"content":[{"type":"image","data":"***","mimeType":"image/png"}]}"#;
        assert!(matches!(&parse_result(bad_image).pieces[0], Piece::Json(_)));
    }
}
