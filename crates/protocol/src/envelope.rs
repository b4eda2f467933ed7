//! The JSON-RPC envelope of one message, as spans into its line.
//!
//! One pass validates the whole message and remembers where the few things stand that routing needs. Whoever forwards
//! the message replaces those spans (see [`crate::splice`]) and leaves every other byte alone.

use std::fmt;

use crate::bridge::meta;
use crate::scan::{Cursor, Malformed, Span};
use crate::text;

/// A valid JSON-RPC message.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    /// Request, notification or response.
    pub kind: Kind,
    /// What routing needs of `params`.
    pub params: Params,
}

/// What a message is, with the spans that tell it.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Wants an answer.
    Request {
        /// The id token: a string or a number, in the sender's own spelling.
        id: Span,
        /// The method name token, quotes included.
        method: Span,
    },
    /// Wants none.
    Notification {
        /// The method name token, quotes included.
        method: Span,
    },
    /// Answers a request of ours.
    Response {
        /// The id token; `null` when the sender could not tell which request failed.
        id: Span,
        /// The value of `result`, or of `error`.
        outcome: Result<Span, Span>,
    },
}

/// The members of `params` that name, page, correlate or cancel something.
#[derive(Debug, Default, Clone, Copy)]
pub struct Params {
    /// The whole value of `params`, whatever it is.
    pub span: Option<Span>,
    /// `params` is an object, so the other fields mean something.
    pub is_object: bool,
    /// `params.name`
    pub name: Option<Span>,
    /// `params.cursor`
    pub cursor: Option<Span>,
    /// `params.requestId`, which a cancellation carries
    pub request_id: Option<Span>,
    /// `params.progressToken`, which a progress notification carries
    pub progress_token: Option<Span>,
    /// `params.uri`
    pub uri: Option<Span>,
    /// `params.taskId`
    pub task_id: Option<Span>,
    /// The whole value of `params._meta`, where it is an object
    pub meta: Option<Span>,
    /// `params._meta.progressToken`, with which a request asks for progress
    pub wanted_progress: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`, with which a request says that it is a modern one
    pub version: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/subscriptionId"]`, which tells what a notification belongs to
    pub subscription: Option<Span>,
}

/// Why a line is not a message, and whose answer it might have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeError {
    /// What is wrong.
    pub reason: Reason,
    /// The id, where one was read before the trouble began.
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
    /// It is JSON, but no object.
    NotAnObject,
    /// It is an array: several messages at once, allowed in one revision only.
    Batch,
    /// It is an object, but breaks a rule of JSON-RPC.
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
    /// Reads one message. The line may carry white space around it, but no second value.
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
}

enum Shape {
    Object,
    Array,
    Other,
}

/// The members of the envelope as they turn up.
#[derive(Default)]
struct Found {
    jsonrpc: Option<Span>,
    id: Option<Span>,
    method: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    params: Params,
    /// A member that decides where a message goes stands there twice. Parsers disagree on which one counts, so a
    /// message that means one thing to us and another to its receiver could be built from it.
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
                // Some writers name both and leave one empty.
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

/// Takes an object, handing each key to `member`, which must take the value.
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

/// Any number and any string may be an id; `null`, booleans and containers may not.
pub fn is_id(span: Span, line: &[u8]) -> bool {
    matches!(line[span.start], b'"' | b'-' | b'0'..=b'9')
}

/// The id in a line that was cut off, or that broke, behind it or before it.
///
/// An answer too long to pass on, or broken in the middle, still has an owner who waits for it. Servers write the id
/// first or last, so a look at both ends finds it.
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
