//! Encodes spans as OTLP messages in protocol buffers, with the fields we need.
//!
//! The field numbers are those of `opentelemetry/proto/trace/v1/trace.proto`, which never change. Spans are encoded
//! when they end and concatenated when they are sent: a list in protocol buffers is just its items, one after the
//! other.

use protocol::trace::SpanContext;

/// One ended span.
#[derive(Debug)]
pub(crate) struct Span<'s> {
    pub(crate) context: SpanContext,
    /// The id of the parent span.
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) state: Option<&'s str>,
    pub(crate) name: &'s str,
    pub(crate) kind: Kind,
    /// In nanoseconds since 1970.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) attributes: Vec<(&'static str, Value<'s>)>,
    pub(crate) status: Status<'s>,
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// We handle a request.
    Server,
    /// We make a request.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'s> {
    Text(&'s str),
    Number(u64),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status<'s> {
    /// No error.
    Unset,
    /// What went wrong.
    Error(&'s str),
}

/// The instrumentation scope.
const SCOPE: &str = "mcp-aggregator";

/// Appends one item of a list of spans.
pub(super) fn put_span(out: &mut Vec<u8>, span: &Span<'_>) {
    let Span { context, parent, state, name, kind, from, to, attributes, status } = span;
    message(out, 2, |out| {
        bytes(out, 1, &context.trace_id);
        bytes(out, 2, &context.span_id);
        bytes(out, 3, state.unwrap_or_default().as_bytes());
        bytes(out, 4, parent.as_ref().map_or(&[], |id| id));
        bytes(out, 5, name.as_bytes());
        number(out, 6, if *kind == Kind::Server { 2 } else { 3 });
        fixed64(out, 7, *from);
        fixed64(out, 8, *to);
        for (key, value) in attributes {
            message(out, 9, |out| attribute(out, key, *value));
        }
        if let Status::Error(why) = status {
            message(out, 15, |out| {
                bytes(out, 2, why.as_bytes());
                number(out, 3, 2);
            });
        }
        fixed32(out, 16, u32::from(context.is_sampled));
    });
}

/// What all spans have in common: the resource.
pub(super) fn resource(attributes: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, 1, |out| {
        for (key, value) in attributes {
            message(out, 1, |out| attribute(out, key, Value::Text(value)));
        }
    });
    out
}

/// A whole request: the resource, our version, and a list of spans.
pub(super) fn request(resource: &[u8], version: &str, spans: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, 1, |out| {
        out.extend_from_slice(resource);
        message(out, 2, |out| {
            message(out, 1, |out| {
                bytes(out, 1, SCOPE.as_bytes());
                bytes(out, 2, version.as_bytes());
            });
            spans.for_each(|span| out.extend_from_slice(&span));
        });
    });
    out
}

fn attribute(out: &mut Vec<u8>, key: &str, value: Value<'_>) {
    bytes(out, 1, key.as_bytes());
    message(out, 2, |out| match value {
        // Even if it is empty: here, an omitted field is no value at all.
        Value::Text(text) => field(out, 1, text.as_bytes()),
        Value::Number(value) => {
            varint(out, 3 << 3);
            varint(out, value);
        }
    });
}

/// A nested message. Its length comes first, and is known last.
fn message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    varint(out, field << 3 | 2);
    let start = out.len();
    // Most lengths fit into one byte.
    out.push(0);
    write(out);
    match out.len() - start - 1 {
        short @ ..0x80 => out[start] = short as u8,
        long => {
            let mut length = Vec::with_capacity(10);
            varint(&mut length, long as u64);
            out.splice(start..=start, length);
        }
    }
}

/// Bytes or a text. An empty one is omitted.
fn bytes(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    if !value.is_empty() {
        field(out, number, value);
    }
}

fn field(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn fixed32(out: &mut Vec<u8>, field: u64, value: u32) {
    varint(out, field << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_are_encoded_as_protocol_buffers() {
        let mut out = Vec::new();
        for value in [0, 1, 127, 128, 300] {
            varint(&mut out, value);
        }
        assert_eq!(out, [0, 1, 0x7f, 0x80, 1, 0xac, 2]);
        let mut out = Vec::new();
        message(&mut out, 2, |out| bytes(out, 1, &[7; 200]));
        assert_eq!(out[..6], [2 << 3 | 2, 0xcb, 1, 1 << 3 | 2, 0xc8, 1]);
        assert_eq!(out.len(), 206);
    }

    #[test]
    fn a_request_is_what_the_official_library_makes_of_the_same_span() {
        let span = Span {
            context: SpanContext { trace_id: [0x11; 16], span_id: [0x22; 8], is_sampled: true },
            parent: Some([0x33; 8]),
            state: Some("a=1"),
            name: "tools/call t",
            kind: Kind::Server,
            from: 1,
            to: 258,
            attributes: vec![("k", Value::Text("v")), ("n", Value::Number(300))],
            status: Status::Error("no"),
        };
        let mut spans = Vec::new();
        put_span(&mut spans, &span);
        let made = request(&resource(&[("service.name".into(), "s".into())]), "0.1.0", [spans].into_iter());
        let hex: String = made.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, OFFICIAL.concat());
    }

    /// `SerializeToString().hex()` of the same in Python, with `opentelemetry-proto` 1.45.2.
    const OFFICIAL: [&str; 4] = [
        "0aa4010a150a130a0c736572766963652e6e616d6512030a0173128a010a170a0e6d63702d61676772656761746f72120530",
        "2e312e30126f0a1011111111111111111111111111111111120822222222222222221a03613d31220833333333333333332a",
        "0c746f6f6c732f63616c6c207430023901000000000000004102010000000000004a080a016b12030a01764a080a016e1203",
        "18ac027a0612026e6f1802850101000000",
    ];
}
