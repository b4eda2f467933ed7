//! A validated request: path parameters, query and body.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use models::Model;
use notebook::Folder;
use registry::{Actor, Page};
use serde::Serialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use service::{Error, Problem, Service};
use tokio::sync::watch;

use crate::AuthCounter;
use crate::endpoint::{Content, Endpoint, Parameter};
use crate::error;
use crate::response::ApiResponse;
use crate::schema::problem;

/// A validated request.
pub(crate) struct ApiRequest {
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    pub(crate) headers: HeaderMap,
    /// Becomes true when the service stops.
    pub(crate) closing: watch::Receiver<bool>,
    /// The served documents.
    pub(crate) documents: Option<Arc<Folder>>,
    /// The model of the assistant.
    pub(crate) model: Option<Arc<Model>>,
    /// Bytes of the events of a job that may be unread.
    pub(crate) job_limit: usize,
    /// Counts refused requests.
    pub(crate) auth_counter: Option<AuthCounter>,
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Map<String, Value>,
    pub(crate) body: Members,
}

/// The members of a body, split but not parsed.
#[derive(Debug, Default)]
pub(crate) struct Members(Vec<(String, Box<RawValue>)>);

impl ApiRequest {
    /// The value of the path parameter `name`.
    pub(crate) fn path_parameter(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The server in the path.
    pub(crate) fn server(&self) -> &str {
        self.path_parameter("server")
    }

    /// A string in the query.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.query.get(name).and_then(Value::as_str)
    }

    /// An enum value in the query.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name).and_then(|word| word.parse().ok())
    }

    /// Whether the query or the body has `true` for this name.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query.get(name) == Some(&Value::Bool(true)) || self.body.get(name) == Some(Value::Bool(true))
    }

    /// A list without the items before the offset.
    pub(crate) fn rest_of<T: Serialize>(&self, all: &[T]) -> ApiResponse {
        let offset = usize::try_from(self.page().offset).unwrap_or(usize::MAX);
        ApiResponse::page(all.get(offset..).unwrap_or_default(), all.len() as u64)
    }

    /// One page of a list; without a limit, the rest of it.
    pub(crate) fn part_of<T: Serialize>(&self, all: &[T]) -> ApiResponse {
        let page = self.page_or_rest();
        let rest = all.get(usize::try_from(page.offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        ApiResponse::page(&rest[..limit.min(rest.len())], all.len() as u64)
    }

    /// The requested page; without a limit, the rest of the list.
    pub(crate) fn page_or_rest(&self) -> Page {
        if self.has_limit() { self.page() } else { Page { limit: u32::MAX, ..self.page() } }
    }

    /// Whether the query has a limit.
    pub(crate) fn has_limit(&self) -> bool {
        self.query.contains_key("limit")
    }

    /// The requested page.
    pub(crate) fn page(&self) -> Page {
        let number = |name: &str| self.query.get(name).and_then(Value::as_u64);
        let default = Page::default();
        Page {
            limit: number("limit").and_then(|limit| u32::try_from(limit).ok()).unwrap_or(default.limit),
            offset: number("offset").unwrap_or(default.offset),
        }
    }
}

impl Members {
    /// The members of an object.
    pub(crate) fn of(object: &Value) -> Result<Self, Error> {
        cut(object.to_string().as_bytes()).map_err(|problem| Error::Validation { problems: vec![problem] })
    }

    /// A member as it was sent; the last one if it occurs twice.
    pub(crate) fn raw(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A parsed member.
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.raw(name).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// A member that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.as_str().map(str::to_owned)
    }

    /// A member that is a string or null.
    pub(crate) fn text_or_null(&self, name: &str) -> Option<Option<String>> {
        self.get(name).map(|value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    pub(crate) fn truth(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    pub(crate) fn object(&self, name: &str) -> Option<Map<String, Value>> {
        match self.get(name)? {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// All members, parsed.
    pub(crate) fn whole(&self) -> Map<String, Value> {
        let read = |value: &RawValue| serde_json::from_str(value.get()).unwrap_or(Value::Null);
        self.0.iter().map(|(name, value)| (name.clone(), read(value))).collect()
    }
}

/// Reads and checks the query.
pub(crate) fn query(endpoint: &Endpoint, query: Option<&str>) -> Result<Map<String, Value>, Vec<Problem>> {
    let mut given = Map::new();
    let mut problems = Vec::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name);
        let Some(parameter) = endpoint.query.iter().find(|parameter| parameter.name == name) else {
            // Refuse unknown names, because a misspelled filter would return everything. Scripts add `_` to bypass
            // caches.
            if !name.starts_with('_') {
                problems.push(problem(
                    vec!["query".to_owned(), name.into_owned()],
                    "extra_forbidden",
                    known_parameters(endpoint),
                ));
            }
            continue;
        };
        let value = parameter.read(&decoded(value));
        let place = ["query".to_owned(), parameter.name.to_owned()];
        parameter.schema.check(&place, &value, &mut problems);
        given.insert(parameter.name.to_owned(), value);
    }
    for missing in endpoint.query.iter().filter(|it| it.is_required && !given.contains_key(it.name)) {
        let place = vec!["query".to_owned(), missing.name.to_owned()];
        problems.push(problem(place, "missing", "this parameter is required".to_owned()));
    }
    if problems.is_empty() { Ok(given) } else { Err(problems) }
}

fn known_parameters(endpoint: &Endpoint) -> String {
    let known: Vec<_> = endpoint.query.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
    match known.as_slice() {
        [] => "unknown parameter; this endpoint has none".to_owned(),
        known => format!("unknown parameter; expected one of {}", known.join(", ")),
    }
}

impl Parameter {
    /// A query value in the type of the schema. A value of another type stays a string, and the check refuses it.
    fn read(&self, text: &str) -> Value {
        let text_itself = || Value::from(text);
        if self.schema.is_integer() {
            return text.parse().map_or_else(|_| text_itself(), |number: i64| number.into());
        }
        if self.schema.is_truth() {
            return match text.to_ascii_lowercase().as_str() {
                "true" | "1" => true.into(),
                "false" | "0" => false.into(),
                _ => text_itself(),
            };
        }
        text_itself()
    }
}

/// Reads and checks the body.
pub(crate) fn body(content: &Content, headers: &HeaderMap, body: &Bytes) -> Result<Members, ApiResponse> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let missing = || problem(vec!["body".to_owned()], "missing", "a JSON body is required".to_owned());
        return if content.is_optional { Ok(Members::default()) } else { Err(error::invalid(&[missing()])) };
    }
    if !is_json(headers) {
        let why = "send the body as JSON, with `Content-Type: application/json`";
        return Err(error::refused(http::StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let members = cut(body).map_err(|problem| error::invalid(&[problem]))?;
    let mut problems = Vec::new();
    content.schema.check_members(&["body".to_owned()], &members.0, &mut problems);
    if problems.is_empty() {
        return Ok(members);
    }
    for further in content.extra_checks.map(|look| look(&members)).unwrap_or_default() {
        if problems.iter().all(|known| known.loc != further.loc) {
            problems.push(further);
        }
    }
    Err(error::invalid(&problems))
}

/// Whether the content type is JSON or absent.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(given) = headers.get(CONTENT_TYPE) else { return true };
    let given = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    given == "application/json" || (given.starts_with("application/") && given.ends_with("+json"))
}

fn cut(body: &[u8]) -> Result<Members, Problem> {
    let place = || vec!["body".to_owned()];
    let invalid = |why: String| problem(place(), "json_invalid", format!("invalid JSON: {why}"));
    let text = std::str::from_utf8(body).map_err(|error| invalid(error.to_string()))?;
    // First check whether it is JSON at all, then whether it is an object.
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    if !raw.get().starts_with('{') {
        return Err(problem(place(), "dict_type", "expected an object".to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    deserializer.deserialize_map(MemberSplitter).map(Members).map_err(|error| invalid(error.to_string()))
}

/// Splits an object into its members, in order and with duplicates.
struct MemberSplitter;

impl<'de> Visitor<'de> for MemberSplitter {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// Decodes a part of a query, where a plus is a space.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(percent_decoded(&text.replace('+', " ")))
}

/// Decodes a part of a path, where a plus is a plus.
pub(crate) fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A validation error with one problem.
pub(crate) fn refuse(place: &[&str], kind: &'static str, msg: impl Into<String>) -> Error {
    let loc = place.iter().map(|&part| part.to_owned()).collect();
    Error::Validation { problems: vec![problem(loc, kind, msg.into())] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_split_into_its_members_without_changing_them() {
        let members = cut(br#"{"a": {"n":1e400, "s":"\ud800"}, "b":1, "b":2}"#).unwrap();
        assert_eq!(members.raw("a").unwrap().get(), r#"{"n":1e400, "s":"\ud800"}"#);
        assert_eq!(members.number("b"), Some(2));
        assert_eq!(members.raw("c").map(RawValue::get), None);
    }

    #[test]
    fn what_is_no_json_and_what_is_no_object_are_distinguished() {
        let kind = |text: &[u8]| cut(text).unwrap_err().kind;
        assert_eq!(kind(b"{"), "json_invalid");
        assert_eq!(kind(b"\xff"), "json_invalid");
        assert_eq!(kind(b"{} {}"), "json_invalid");
        assert_eq!(kind(b"[1]"), "dict_type");
    }

    #[test]
    fn addresses_are_read_as_they_were_meant() {
        assert_eq!(percent_decoded("a%2Fb+c%"), "a/b+c%");
        assert_eq!(decoded("a+b%20c"), "a b c");
        assert_eq!(percent_decoded("%ff"), "\u{fffd}");
    }
}
