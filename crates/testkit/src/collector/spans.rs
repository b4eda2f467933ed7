//! Parses what was sent to a collector: protocol buffers, as far as spans need them.

use std::collections::BTreeMap;

/// One span, with ids in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its trace id.
    pub trace_id: String,
    /// Its own id.
    pub span_id: String,
    /// The id of its parent span; empty if it has none.
    pub parent_span_id: String,
    /// The state of its trace.
    pub trace_state: String,
    /// Its name.
    pub name: String,
    /// 2 is a server, 3 a client.
    pub kind: u64,
    /// When it began, in nanoseconds since 1970.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Its error.
    pub error: Option<String>,
    /// The attributes of the sender.
    pub resource: BTreeMap<String, String>,
}

impl Span {
    /// An attribute; empty if it is absent.
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// Its trace context for child spans.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }
}

/// The spans in the body of a request. Panics if it is invalid.
pub fn spans(body: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for group in messages(body, 1) {
        let resource = messages(group, 1).first().map(|resource| attributes(resource, 1)).unwrap_or_default();
        for span in messages(group, 2).into_iter().flat_map(|scope| messages(scope, 2)) {
            found.push(Span { resource: resource.clone(), ..read(span) });
        }
    }
    found
}

fn read(message: &[u8]) -> Span {
    let status = messages(message, 15);
    let is_error = |status: &&&[u8]| number(status, 3) == 2;
    Span {
        trace_id: hex(&bytes(message, 1)),
        span_id: hex(&bytes(message, 2)),
        trace_state: text(message, 3),
        parent_span_id: hex(&bytes(message, 4)),
        name: text(message, 5),
        kind: number(message, 6),
        from: number(message, 7),
        to: number(message, 8),
        attributes: attributes(message, 9),
        error: status.iter().find(is_error).map(|status| text(status, 2)),
        resource: BTreeMap::new(),
    }
}

fn attributes(message: &[u8], field: u64) -> BTreeMap<String, String> {
    let value = |pair: &[u8]| {
        let value = messages(pair, 2).first().map_or(&[][..], |value| value);
        match fields(value).first() {
            Some((_, Value::Number(number))) => number.to_string(),
            _ => text(value, 1),
        }
    };
    messages(message, field).into_iter().map(|pair| (text(pair, 1), value(pair))).collect()
}

enum Value<'v> {
    Number(u64),
    Bytes(&'v [u8]),
}

/// The fields of a message in their order.
fn fields(mut message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(u64::from_le_bytes(take(&mut message, 8).try_into().expect("eight bytes"))),
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("a length");
                Value::Bytes(take(&mut message, length))
            }
            5 => Value::Number(u32::from_le_bytes(take(&mut message, 4).try_into().expect("four bytes")).into()),
            other => panic!("nothing is written as {other}"),
        };
        found.push((tag >> 3, value));
    }
    found
}

fn messages(message: &[u8], field: u64) -> Vec<&[u8]> {
    let of = |(known, value)| match value {
        Value::Bytes(bytes) if known == field => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(of).collect()
}

fn bytes(message: &[u8], field: u64) -> Vec<u8> {
    messages(message, field).last().copied().unwrap_or_default().to_vec()
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(bytes(message, field)).expect("texts are UTF-8")
}

fn number(message: &[u8], field: u64) -> u64 {
    let of = |(known, value)| match value {
        Value::Number(number) if known == field => Some(number),
        _ => None,
    };
    fields(message).into_iter().filter_map(of).next_back().unwrap_or(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number without an end")
}

fn take<'m>(message: &mut &'m [u8], length: usize) -> &'m [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_the_official_library_is_read() {
        // `SerializeToString().hex()` in Python, with `opentelemetry-proto` 1.45.2.
        let hex = concat!(
            "0aa4010a150a130a0c736572766963652e6e616d6512030a0173128a010a170a0e6d63702d61676772656761746f721205302e312e30",
            "126f0a1011111111111111111111111111111111120822222222222222221a03613d31220833333333333333332a0c746f6f6c732f63",
            "616c6c207430023901000000000000004102010000000000004a080a016b12030a01764a080a016e120318ac027a0612026e6f180285",
            "0101000000"
        );
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let body: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        let [span] = &spans(&body)[..] else { panic!("there is one span") };
        assert_eq!((span.name.as_str(), span.kind, span.from, span.to), ("tools/call t", 2, 1, 258));
        assert_eq!((span.trace_id.as_str(), span.span_id.as_str()), (&*"11".repeat(16), &*"22".repeat(8)));
        assert_eq!((span.parent_span_id.as_str(), span.trace_state.as_str()), (&*"33".repeat(8), "a=1"));
        assert_eq!((span.attribute("k"), span.attribute("n")), ("v", "300"));
        assert_eq!((span.error.as_deref(), span.resource["service.name"].as_str()), (Some("no"), "s"));
    }
}
