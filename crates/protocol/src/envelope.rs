//! The JSON-RPC envelope of one message, as spans into its line.
//!
//! One pass validates the whole message and records the positions of the few members that routing needs. To forward the
//! message, these spans are replaced (see [`crate::splice`]); every other byte stays unchanged.

use std::fmt;

use crate::bridge::meta;
use crate::scan::{Cursor, Malformed, Span};
use crate::text;

/// A valid JSON-RPC message.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    /// Request, notification or response.
    pub kind: Kind,
    /// The parts of `params` that routing needs.
    pub params: Params,
}

/// The kind of a message, with its spans.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A request.
    Request {
        /// The id token: a string or a number, as the sender wrote it.
        id: Span,
        /// The method token, including quotes.
        method: Span,
    },
    /// A notification.
    Notification {
        /// The method token, including quotes.
        method: Span,
    },
    /// A response to one of our requests.
    Response {
        /// The id token; `null` if the sender could not tell which request failed.
        id: Span,
        /// The value of `result`, or of `error`.
        outcome: Result<Span, Span>,
    },
}

/// A valid request. It has an id, so it can be answered.
#[derive(Debug, Clone, Copy)]
pub struct RequestEnvelope {
    /// The id token: a string or a number, as the sender wrote it.
    pub id: Span,
    /// The method token, including quotes.
    pub method: Span,
    /// The parts of `params` that routing needs.
    pub params: Params,
}

/// The members of `params` that name, page, correlate or cancel something.
#[derive(Debug, Default, Clone, Copy)]
pub struct Params {
    /// The whole value of `params`, whatever its type.
    pub span: Option<Span>,
    /// Whether `params` is an object; otherwise the other fields are empty.
    pub is_object: bool,
    /// `params.name`
    pub name: Option<Span>,
    /// `params.cursor`
    pub cursor: Option<Span>,
    /// `params.requestId` of a cancellation
    pub request_id: Option<Span>,
    /// `params.progressToken` of a progress notification
    pub progress_token: Option<Span>,
    /// `params.uri`
    pub uri: Option<Span>,
    /// `params.taskId`
    pub task_id: Option<Span>,
    /// The whole value of `params._meta`, if it is an object
    pub meta: Option<Span>,
    /// `params._meta.progressToken`: the request asks for progress
    pub wanted_progress: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`: the request is a modern one
    pub version: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/subscriptionId"]`: the subscription of a notification
    pub subscription: Option<Span>,
}

/// Why a line is not a message, and the id of the request it may respond to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeError {
    /// What is wrong.
    pub reason: Reason,
    /// The id, if it was read before the error.
    pub id: Option<Span>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is not JSON from this byte on.
    NotJson {
        /// Index into the line.
        at: usize,
    },
    /// It is not UTF-8 from this byte on.
    NotUtf8 {
        /// Index into the line.
        at: usize,
    },
    /// It is JSON, but not an object.
    NotAnObject,
    /// It is an array (a batch), which only one revision allows.
    Batch,
    /// It is an object, but not a valid JSON-RPC message.
    Invalid(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { at } => write!(out, "not valid JSON at byte {at}"),
            Self::NotUtf8 { at } => write!(out, "not valid UTF-8 at byte {at}"),
            Self::NotAnObject => out.write_str("a message must be a JSON object"),
            Self::Batch => out.write_str("batches are not allowed in this protocol revision"),
            Self::Invalid(rule) => out.write_str(rule),
        }
    }
}

impl Envelope {
    /// Parses one message. White space around it is allowed, a second value is not.
    pub fn scan(line: &[u8]) -> Result<Self, EnvelopeError> {
        let mut found = Found::default();
        let outcome = found.read(&mut Cursor::new(line), line);
        let fault = |reason| EnvelopeError { reason, id: found.id };
        let shape = outcome.map_err(|Malformed { at }| fault(Reason::NotJson { at }))?;
        if let Err(error) = std::str::from_utf8(line) {
            return Err(fault(Reason::NotUtf8 { at: error.valid_up_to() }));
        }
        match shape {
            Shape::Object => found.classify(line).map_err(|rule| fault(Reason::Invalid(rule))),
            Shape::Array => Err(fault(Reason::Batch)),
            Shape::Other => Err(fault(Reason::NotAnObject)),
        }
    }

    /// The message as a request, if it is one.
    pub fn into_request(self) -> Option<RequestEnvelope> {
        match self {
            Self { kind: Kind::Request { id, method }, params } => Some(RequestEnvelope { id, method, params }),
            Self { kind: Kind::Notification { .. } | Kind::Response { .. }, .. } => None,
        }
    }
}

enum Shape {
    Object,
    Array,
    Other,
}

/// The members of the envelope found so far.
#[derive(Default)]
struct Found {
    jsonrpc: Option<Span>,
    id: Option<Span>,
    method: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    params: Params,
    /// A member that decides where a message goes occurs twice. Parsers disagree on which one counts, so such a message
    /// could mean one thing to us and another to its receiver.
    twice: bool,
}

impl Found {
    fn read(&mut self, cursor: &mut Cursor<'_>, line: &[u8]) -> Result<Shape, Malformed> {
        let shape = match cursor.peek() {
            Some(b'{') => {
                self.read_object(cursor, line)?;
                Shape::Object
            }
            first => {
                cursor.value()?;
                if first == Some(b'[') { Shape::Array } else { Shape::Other }
            }
        };
        cursor.finish()?;
        Ok(shape)
    }

    fn read_object(&mut self, cursor: &mut Cursor<'_>, line: &[u8]) -> Result<(), Malformed> {
        walk(cursor, |cursor, key| {
            match text::decode(key.of(line)).as_deref() {
                Some("params") => {
                    self.twice |= self.params.span.is_some();
                    return self.read_params(cursor, line);
                }
                Some("id") => return set(&mut self.id, cursor.value()?, &mut self.twice),
                Some("method") => return set(&mut self.method, cursor.value()?, &mut self.twice),
                Some("result") => return set(&mut self.result, cursor.value()?, &mut self.twice),
                Some("error") => return set(&mut self.error, cursor.value()?, &mut self.twice),
                Some("jsonrpc") => return set(&mut self.jsonrpc, cursor.value()?, &mut self.twice),
                _ => {}
            }
            cursor.value().map(drop)
        })
    }

    fn read_params(&mut self, cursor: &mut Cursor<'_>, line: &[u8]) -> Result<(), Malformed> {
        self.params.is_object = cursor.peek() == Some(b'{');
        let start = cursor.position();
        if !self.params.is_object {
            self.params.span = Some(cursor.value()?);
            return Ok(());
        }
        let (params, twice) = (&mut self.params, &mut self.twice);
        walk(cursor, |cursor, key| match text::decode(key.of(line)).as_deref() {
            Some("name") => set(&mut params.name, cursor.value()?, twice),
            Some("cursor") => set(&mut params.cursor, cursor.value()?, twice),
            Some("requestId") => set(&mut params.request_id, cursor.value()?, twice),
            Some("progressToken") => set(&mut params.progress_token, cursor.value()?, twice),
            Some("uri") => set(&mut params.uri, cursor.value()?, twice),
            Some("taskId") => set(&mut params.task_id, cursor.value()?, twice),
            Some("_meta") if cursor.peek() == Some(b'{') => {
                let start = cursor.position();
                walk(cursor, |cursor, key| {
                    let value = cursor.value()?;
                    match text::decode(key.of(line)).as_deref() {
                        Some("progressToken") => set(&mut params.wanted_progress, value, twice),
                        Some(meta::PROTOCOL_VERSION) => set(&mut params.version, value, twice),
                        Some(meta::SUBSCRIPTION_ID) => set(&mut params.subscription, value, twice),
                        _ => Ok(()),
                    }
                })?;
                let whole = Span { start, end: cursor.position() };
                set(&mut params.meta, whole, twice)
            }
            _ => cursor.value().map(drop),
        })?;
        self.params.span = Some(Span { start, end: cursor.position() });
        Ok(())
    }

    fn classify(&self, line: &[u8]) -> Result<Envelope, &'static str> {
        if self.twice {
            return Err("a member that decides where the message goes is given twice");
        }
        if self.jsonrpc.is_none_or(|version| version.of(line) != b"\"2.0\"") {
            return Err("`jsonrpc` must be \"2.0\"");
        }
        let kind = match (self.method, self.id) {
            (Some(method), _) if !is_string(method, line) => {
                return Err("`method` must be a string");
            }
            (Some(_), Some(id)) if !is_id(id, line) => {
                return Err("`id` must be a string or a number");
            }
            (Some(method), Some(id)) => Kind::Request { id, method },
            (Some(method), None) => Kind::Notification { method },
            (None, Some(id)) if is_id(id, line) || id.of(line) == b"null" => match (self.result, self.error) {
                (Some(result), None) => Kind::Response { id, outcome: Ok(result) },
                (None, Some(error)) => Kind::Response { id, outcome: Err(error) },
                // Some senders write both members, one of them null.
                (Some(result), Some(error)) if error.of(line) == b"null" => Kind::Response { id, outcome: Ok(result) },
                (Some(result), Some(error)) if result.of(line) == b"null" => Kind::Response { id, outcome: Err(error) },
                (Some(_), Some(_)) => {
                    return Err("a response has `result` or `error`, not both");
                }
                (None, None) => return Err("`method` is missing"),
            },
            (None, Some(_)) => return Err("`id` must be a string or a number"),
            (None, None) => return Err("`method` is missing"),
        };
        Ok(Envelope { kind, params: self.params })
    }
}

/// Reads an object, and calls `member` with each key; `member` must read the value.
#[inline]
fn walk(
    cursor: &mut Cursor<'_>,
    mut member: impl FnMut(&mut Cursor<'_>, Span) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    cursor.expect(b'{')?;
    if cursor.take(b'}') {
        return Ok(());
    }
    loop {
        let key = cursor.key()?;
        member(cursor, key)?;
        if !cursor.take(b',') {
            return cursor.expect(b'}');
        }
    }
}

fn set(slot: &mut Option<Span>, value: Span, twice: &mut bool) -> Result<(), Malformed> {
    *twice |= slot.replace(value).is_some();
    Ok(())
}

fn is_string(span: Span, line: &[u8]) -> bool {
    line[span.start] == b'"'
}

/// Ids are numbers and strings; not `null`, booleans, objects or arrays.
pub fn is_id(span: Span, line: &[u8]) -> bool {
    matches!(line[span.start], b'"' | b'-' | b'0'..=b'9')
}

/// The id in a line that is truncated or invalid, found from either end.
///
/// A response that is too long, or invalid in the middle, still belongs to a request that waits for it. Servers write
/// the id first or last, so looking at both ends finds it.
pub fn salvage_id<'t>(head: &'t [u8], tail: &'t [u8]) -> Option<&'t [u8]> {
    let mut found = Found::default();
    if let Err(Malformed { .. }) = found.read(&mut Cursor::new(head), head)
        && let Some(id) = found.id
        && is_id(id, head)
    {
        return Some(id.of(head));
    }
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let mut cursor = Cursor::new(&tail[at..]);
    let (Ok(_), Ok(id)) = (cursor.key(), cursor.value()) else {
        return None;
    };
    let closes = cursor.take(b'}') && cursor.finish().is_ok();
    (closes && is_id(id, &tail[at..])).then(|| id.of(&tail[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(line: &str) -> &'static str {
        match Envelope::scan(line.as_bytes()).unwrap_err().reason {
            Reason::Invalid(rule) => rule,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_found_in_any_order_and_spelling() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a:b","arguments":{}}}"#,
            r#" { "params" : {"arguments":{"name":"x"},"name" : "a:b"} , "method":"tools/call","id": 7 ,"jsonrpc":"2.0"} "#,
            r#"{"jsonrpc":"2.0","\u0069d":7,"m\u0065thod":"tools/call","params":{"n\u0061me":"a:b"}}"#,
        ] {
            let envelope = Envelope::scan(line.as_bytes()).unwrap();
            let Kind::Request { id, method } = envelope.kind else { panic!("{envelope:?}") };
            assert_eq!(id.of(line.as_bytes()), b"7");
            assert_eq!(method.of(line.as_bytes()), b"\"tools/call\"");
            assert_eq!(envelope.params.name.unwrap().of(line.as_bytes()), b"\"a:b\"");
        }
    }

    #[test]
    fn ids_keep_their_spelling() {
        for id in ["0", "-1", "1.0", "1e2", "123456789012345678901234567890", "\"\"", "\"a\\u0062\"", "\"\\ud800\""] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Kind::Request { id: span, .. } = Envelope::scan(line.as_bytes()).unwrap().kind else { panic!() };
            assert_eq!(span.of(line.as_bytes()), id.as_bytes());
        }
    }

    #[test]
    fn progress_tokens_are_found_where_they_stand() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":{"progressToken":0},"progressToken":"t"},"arguments":{"_meta":{"progressToken":9}}}}"#;
        let params = Envelope::scan(line).unwrap().params;
        assert_eq!(params.wanted_progress.unwrap().of(line), b"\"t\"");
        assert_eq!(params.progress_token, None);

        let line = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}"#;
        assert_eq!(Envelope::scan(line).unwrap().params.progress_token.unwrap().of(line), b"5");
    }

    #[test]
    fn only_a_message_with_method_and_id_is_a_request() {
        let line = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let request = Envelope::scan(line).unwrap().into_request().unwrap();
        assert_eq!((request.id.of(line), request.method.of(line)), (&b"7"[..], &b"\"ping\""[..]));
        for line in [r#"{"jsonrpc":"2.0","method":"ping"}"#, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#] {
            assert!(Envelope::scan(line.as_bytes()).unwrap().into_request().is_none(), "{line}");
        }
    }

    #[test]
    fn results_and_errors_are_distinguished() {
        let line = br#"{"result":{},"jsonrpc":"2.0","id":3}"#;
        assert!(matches!(Envelope::scan(line).unwrap().kind, Kind::Response { outcome: Ok(_), .. }));
        let line = br#"{"jsonrpc":"2.0","id":3,"result":{},"error":null}"#;
        assert!(matches!(Envelope::scan(line).unwrap().kind, Kind::Response { outcome: Ok(_), .. }));
        let line = br#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#;
        assert!(matches!(Envelope::scan(line).unwrap().kind, Kind::Response { outcome: Err(_), .. }));
    }

    #[test]
    fn what_breaks_json_rpc_is_named() {
        assert!(invalid(r#"{"id":1,"method":"x"}"#).contains("jsonrpc"));
        assert!(invalid(r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#).contains("jsonrpc"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1}"#).contains("method"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1,"method":5}"#).contains("method"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#).contains("`id`"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#).contains("`id`"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":1}"#).contains("not both"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#).contains("twice"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"x"}"#).contains("twice"));
        assert!(invalid(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","name":"b"}}"#).contains("twice"));
    }

    #[test]
    fn other_lines_get_the_fault_they_deserve() {
        let reason = |line: &[u8]| Envelope::scan(line).unwrap_err().reason;
        assert_eq!(reason(b"hello"), Reason::NotJson { at: 0 });
        assert_eq!(reason(b""), Reason::NotJson { at: 0 });
        assert_eq!(reason(b"{}{}"), Reason::NotJson { at: 2 });
        assert_eq!(reason(b"42"), Reason::NotAnObject);
        assert_eq!(reason(b"[]"), Reason::Batch);
        assert_eq!(reason(b"[{]"), Reason::NotJson { at: 2 });
        assert!(matches!(reason(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"), Reason::NotUtf8 { at: 27 }));
    }

    #[test]
    fn the_owner_of_a_broken_answer_is_found_at_either_end() {
        let head = br#"{"jsonrpc":"2.0","id":12,"result":{"text":"aaaa"#;
        assert_eq!(salvage_id(head, b"aaaa"), Some(&b"12"[..]));
        let head = br#"{"result":{"text":"aaaa"#;
        assert_eq!(salvage_id(head, br#"aaa"},"jsonrpc":"2.0","id":12}"#), Some(&b"12"[..]));
        assert_eq!(salvage_id(head, br#"aaa"id":12 but not the end"#), None);
        assert_eq!(salvage_id(b"junk", b"junk"), None);
    }
}
