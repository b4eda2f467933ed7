//! The trace of a request as in W3C Trace Context: `traceparent` and `tracestate`, in a request's `_meta` or in HTTP
//! headers.

use std::fmt;

use bytes::Bytes;

use crate::bridge::change::Change;
use crate::envelope::Params;
use crate::scan::{Span, member};
use crate::splice::Edit;
use crate::{reply, text};

/// The span that caused a request.
pub const TRACEPARENT: &str = "traceparent";
/// Data that tracing systems pass on for themselves.
pub const TRACESTATE: &str = "tracestate";

/// A longer value may be dropped by proxies.
const LONGEST_STATE: usize = 512;

/// A span of a caller, as requests refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of its trace.
    pub trace_id: [u8; 16],
    /// Its own id.
    pub span_id: [u8; 8],
    /// Whether it is recorded.
    pub is_sampled: bool,
}

/// The trace context of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The span that caused it.
    pub parent: SpanContext,
    /// Data that tracing systems pass on for themselves.
    pub state: Option<Box<str>>,
}

impl SpanContext {
    /// Parses a `traceparent`. Later versions start like the one we know.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        let (head, rest) = bytes.split_at_checked(55)?;
        let version = hex::<1>(&head[..2])?[0];
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest[0] == b'-',
        };
        let are_apart = [2, 35, 52].iter().all(|&at| head[at] == b'-');
        if !is_whole || !are_apart {
            return None;
        }
        let (trace_id, span_id) = (hex(&head[3..35])?, hex(&head[36..52])?);
        let flags = hex::<1>(&head[53..])?[0];
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        let (trace, span) = (u128::from_be_bytes(*trace_id), u64::from_be_bytes(*span_id));
        write!(out, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled))
    }
}

impl TraceContext {
    /// The trace context of these two values; `None` if the first is invalid.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let parent = SpanContext::parse(traceparent)?;
        let is_kept = |state: &&str| !state.is_empty() && state.len() <= LONGEST_STATE;
        Some(Self { parent, state: tracestate.filter(is_kept).map(Box::from) })
    }

    /// The trace context in the `_meta` of a request, if there is one.
    pub fn of(line: &[u8], meta: Option<Span>) -> Option<Self> {
        let meta = meta?;
        let context_of = |name| member(line, meta, name).and_then(|value| text::decode(value.of(line)));
        Self::parse(&context_of(TRACEPARENT)?, context_of(TRACESTATE).as_deref())
    }

    /// The same as members of `_meta`.
    pub fn members(&self) -> Vec<(&'static str, Vec<u8>)> {
        let state = self.state.as_ref().map(|state| (TRACESTATE, reply::string(state)));
        [(TRACEPARENT, reply::string(&self.parent.to_string()))].into_iter().chain(state).collect()
    }
}

/// A request with `span` as its cause, and another name if one is given; no other byte changes.
pub fn caused_by(line: &Bytes, params: &Params, span: &SpanContext, renamed: Option<Edit<'_>>) -> Bytes {
    let mut change = Change::new(line);
    if let Some(edit) = renamed {
        change.replace(edit.span, edit.with);
    }
    let traceparent = reply::string(&span.to_string());
    match (params.meta, params.span) {
        (Some(meta), _) => change.set_member(meta, TRACEPARENT, &traceparent),
        (None, Some(params)) => change.set_member(params, "_meta", &reply::object([(TRACEPARENT, traceparent)])),
        (None, None) => {}
    }
    change.apply()
}

/// Lower-case hex digits, as the specification requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OURS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000ab-00";

    #[test]
    fn a_traceparent_is_read_and_written() {
        for text in [THEIRS, OURS] {
            assert_eq!(SpanContext::parse(text).unwrap().to_string(), text);
        }
        assert!(SpanContext::parse(THEIRS).unwrap().is_sampled);
        assert!(!SpanContext::parse(OURS).unwrap().is_sampled);
    }

    #[test]
    fn what_later_versions_add_is_left_out() {
        let later = THEIRS.replacen("00-", "01-", 1);
        for text in [later.clone(), format!("{later}-more"), later.replace("-01", "-07")] {
            assert_eq!(SpanContext::parse(&text).unwrap().to_string(), THEIRS, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_trace() {
        let zeros = |from: &str| THEIRS.replacen(from, &"0".repeat(from.len()), 1);
        for text in [
            String::new(),
            THEIRS[..54].to_owned(),
            format!("{THEIRS}-"),
            format!("{THEIRS} "),
            THEIRS.to_uppercase(),
            THEIRS.replacen("00-", "ff-", 1),
            THEIRS.replace('-', "_"),
            THEIRS.replacen("4b", "4g", 1),
            THEIRS.replacen("4bf", "é", 1),
            zeros("4bf92f3577b34da6a3ce929d0e0e4736"),
            zeros("00f067aa0ba902b7"),
        ] {
            assert_eq!(SpanContext::parse(&text), None, "{text}");
        }
    }

    fn context_of(line: &str) -> Option<TraceContext> {
        TraceContext::of(line.as_bytes(), Envelope::scan(line.as_bytes()).unwrap().params.meta)
    }

    #[test]
    fn the_trace_context_is_read_from_meta() {
        let with = |meta: &str| {
            context_of(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{meta},"arguments":{{"traceparent":1}}}}}}"#
            ))
        };
        let context = with(&format!(r#"{{"traceparent":"{THEIRS}","tracestate":"a=1,b=\u0032"}}"#)).unwrap();
        assert_eq!(context.parent.to_string(), THEIRS);
        assert_eq!(context.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(with(&format!(r#"{{"traceparent":"{THEIRS}","tracestate":7}}"#)).unwrap().state, None);
        for none in ["{}", "null", r#"{"traceparent":7}"#, r#"{"traceparent":"x"}"#, r#"{"tracestate":"a=1"}"#] {
            assert_eq!(with(none), None, "{none}");
        }
    }

    #[test]
    fn a_request_gets_its_trace_context_and_keeps_every_other_byte() {
        let span = SpanContext::parse(OURS).unwrap();
        let caused = |params: &str| {
            let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1, "method":"tools/call","params":{params} }}"#));
            let params = Envelope::scan(&line).unwrap().params;
            let renamed = params.name.map(|span| Edit { span, with: b"\"own\"" });
            let line = String::from_utf8(caused_by(&line, &params, &span, renamed).to_vec()).unwrap();
            let start = r#"{"jsonrpc":"2.0","id":1, "method":"tools/call","params":"#;
            line.strip_prefix(start).unwrap().strip_suffix(" }").unwrap().to_owned()
        };
        let ours = format!(r#""traceparent":"{OURS}""#);
        assert_eq!(
            caused(r#"{"name" : "s:t", "arguments":{"n":1e400,"_meta":0}}"#),
            format!(r#"{{"name" : "own", "arguments":{{"n":1e400,"_meta":0}},"_meta":{{{ours}}}}}"#)
        );
        assert_eq!(
            caused(&format!(
                r#"{{"_meta":{{ "a": 1.0,"traceparent": "{THEIRS}","tracestate":"x=\u0031" }},"name":"s:t"}}"#
            )),
            format!(r#"{{"_meta":{{ "a": 1.0,"traceparent": "{OURS}","tracestate":"x=\u0031" }},"name":"own"}}"#)
        );
        assert_eq!(caused(r#"{"name":"s:t","_meta":{ }}"#), format!(r#"{{"name":"own","_meta":{{{ours} }}}}"#));
        assert_eq!(caused("[1]"), "[1]", "there is no place for it");
    }
}
