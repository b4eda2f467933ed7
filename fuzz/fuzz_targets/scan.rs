//! The scanner against `serde_json`: both must agree on what is JSON, and what the scanner finds must be there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::scan::Cursor;
use protocol::{Envelope, Kind};

fuzz_target!(|data: &[u8]| fuzz::bounded(|| check(data)));

fn check(data: &[u8]) {
    let mut cursor = Cursor::new(data);
    let accepted = cursor.value().and_then(|_| cursor.finish()).is_ok();
    // serde_json gives up on deep nesting; we do not.
    match serde_json::from_slice::<serde::de::IgnoredAny>(data) {
        Ok(_) => assert!(accepted, "serde_json accepts it"),
        Err(error) if error.to_string().contains("recursion limit") => {}
        Err(error) => assert!(!accepted, "serde_json refuses it: {error}"),
    }

    let Ok(envelope) = Envelope::scan(data) else { return };
    assert!(accepted && std::str::from_utf8(data).is_ok());
    let whole: serde_json::Value = match serde_json::from_slice(data) {
        Ok(value) => value,
        // Lone surrogates, numbers out of range, deep nesting: legal JSON that a tree cannot hold.
        Err(_) => return,
    };
    let same = |span: protocol::Span, value: &serde_json::Value| {
        assert_eq!(&serde_json::from_slice::<serde_json::Value>(span.of(data)).expect("a span is JSON"), value);
    };
    match envelope.kind {
        Kind::Request { id, method } => {
            same(id, &whole["id"]);
            same(method, &whole["method"]);
        }
        Kind::Notification { method } => same(method, &whole["method"]),
        Kind::Response { id, outcome } => {
            same(id, &whole["id"]);
            match outcome {
                Ok(result) => same(result, &whole["result"]),
                Err(error) => same(error, &whole["error"]),
            }
        }
    }
    if let Some(name) = envelope.params.name {
        same(name, &whole["params"]["name"]);
    }
    if let Some(token) = envelope.params.wanted_progress {
        same(token, &whole["params"]["_meta"]["progressToken"]);
    }
}
