//! Properties of every translation, on generated messages: the output is one valid message, other members stay
//! unchanged, and nothing panics.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::change::{Change, is_object, whole};
use super::{definition, elicitation, error, header_params, headers, input, label, listen, meta, problem, result};
use crate::scan::{Span, member, members};
use crate::{Envelope, Kind, text};

/// The members of an object in order, key and value as they were written. Panics if the object is invalid.
fn members_of(object: &[u8]) -> Vec<(&[u8], &[u8])> {
    serde_json::from_slice::<serde::de::IgnoredAny>(object).expect("valid JSON");
    assert!(is_object(object, whole(object)));
    let mut found = Vec::new();
    members(object, whole(object), |key, value| found.push((key.of(object), value.of(object))));
    found
}

/// Asserts that two objects are equal except for the members in `concerned`.
fn agree(before: &[u8], after: &[u8], concerned: &[&str]) {
    let rest = |object| {
        let mut members = members_of(object);
        members.retain(|(key, _)| !concerned.iter().any(|name| text::token_is(key, name)));
        members
    };
    assert_eq!(rest(before), rest(after));
}

fn params_of(line: &[u8]) -> &[u8] {
    Envelope::scan(line).expect("a message").params.span.expect("params").of(line)
}

/// A value, often one that some translation looks for.
fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("\"\"".to_owned()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        "-320[0-9]{2}",
        "\"([a-z é]|\\\\n|\\\\\"|\\\\ud800){0,6}\"",
        prop::sample::select(vec!["\"url\"", "\"object\"", "\"complete\"", "\"input_required\"", "\"2026-07-28\""])
            .prop_map(str::to_owned),
    ];
    scalar.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            object(inner),
        ]
    })
}

/// An object with names that translations look for, in various spellings, sometimes twice.
fn object(value: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "\"resultType\"",
        "\"\\u0072esultType\"",
        "\"ttlMs\"",
        "\"cacheScope\"",
        "\"structuredContent\"",
        "\"content\"",
        "\"tools\"",
        "\"outputSchema\"",
        "\"inputSchema\"",
        "\"properties\"",
        "\"x-mcp-header\"",
        "\"type\"",
        "\"message\"",
        "\"logger\"",
        "\"mode\"",
        "\"elicitationId\"",
        "\"inputRequests\"",
        "\"inputResponses\"",
        "\"\\u0069nputResponses\"",
        "\"requestState\"",
        "\"method\"",
        "\"notifications\"",
        "\"resourceSubscriptions\"",
        "\"code\"",
        "\"data\"",
        "\"elicitations\"",
        "\"url\"",
        "\"io.modelcontextprotocol/clientInfo\"",
        "\"io.modelcontextprotocol/clientCapabilities\"",
        "\"io.modelcontextprotocol\\/logLevel\"",
        "\"other\"",
        "\"\\ud800\"",
        "\"\"",
    ]);
    let blank = prop::sample::select(vec!["", "", " ", "\t"]);
    prop::collection::vec((blank.clone(), name, blank.clone(), value, blank), 0..7).prop_map(|members| {
        let members = members.iter().map(|(a, name, b, value, c)| format!("{a}{name}{b}:{b}{value}{c}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

/// A valid request with or without parameters and `_meta`.
fn request() -> impl Strategy<Value = String> {
    let meta = prop_oneof![object(value()), Just("null".to_owned())];
    let params = (object(value()), prop::option::of(meta)).prop_map(|(params, meta)| match meta {
        Some(meta) if params == "{}" => format!("{{\"_meta\":{meta}}}"),
        Some(meta) => format!("{{\"_meta\" : {meta},{}", &params[1..]),
        None => params,
    });
    let params = prop_oneof![4 => params, 1 => value()];
    prop::option::of(params).prop_map(|params| match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0", "id":1.0,"method":"tools/call","params": {params} }}"#),
        None => r#"{"jsonrpc":"2.0","id":"x","method":"tools/call"}"#.to_owned(),
    })
}

/// The name of a member to set or remove, which may be absent.
fn name_to_change() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["other", "ttlMs", "new", "resultType", ""])
}

/// The result in a response, if the line is one.
fn result_of(line: &[u8]) -> Option<Span> {
    match Envelope::scan(line).ok()?.kind {
        Kind::Response { outcome, .. } => outcome.ok(),
        _ => None,
    }
}

const OURS: [&str; 4] = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL];

proptest! {
    #[test]
    fn a_change_leaves_the_other_members_in_their_order_and_spelling(
        text in object(value()),
        operations in prop::collection::vec((name_to_change(), prop::option::of(value())), 0..8),
    ) {
        let line = Bytes::from(text);
        let object = whole(&line);
        let mut expected = BTreeMap::new();
        for (name, _) in &operations {
            expected.insert(*name, member(&line, object, name).map(|value| value.of(&line)));
        }
        let mut change = Change::new(&line);
        for (name, value) in &operations {
            let value = value.as_ref().map(|value| value.as_bytes());
            let before = expected.insert(name, value);
            match value {
                Some(value) => change.set_member(object, name, value),
                None => prop_assert_eq!(change.remove_member(object, name), before != Some(None)),
            }
        }
        let after = change.apply();
        let names: Vec<_> = expected.keys().copied().collect();
        agree(&line, &after, &names);
        for (name, value) in expected {
            let found: Vec<_> = members_of(&after).into_iter().filter(|(key, _)| text::token_is(key, name)).collect();
            prop_assert_eq!(found.first().map(|(_, value)| *value), value);
            prop_assert!(found.len() < 2, "there is one member of that name");
        }
    }

    #[test]
    fn a_request_is_translated_with_everything_it_carries(line in request()) {
        let line = Bytes::from(line);
        let Ok(envelope) = Envelope::scan(&line) else { return Ok(()) };
        let client_meta = meta::ClientMeta {
            capabilities: Bytes::from_static(b"{\"roots\":{}}"),
            info: None,
            log_level: Some("debug".into()),
        };
        let modern = meta::to_modern(&line, &envelope.params, &client_meta);
        let scanned = Envelope::scan(&modern).expect("still a message");
        if envelope.params.is_object {
            agree(params_of(&line), params_of(&modern), &["_meta"]);
            prop_assert_eq!(problem::check_modern(&modern, &scanned.params), Ok(()));
            prop_assert_eq!(meta::problem(&modern, &scanned.params), None);
            if let Some(before) = envelope.params.meta {
                agree(before.of(&line), scanned.params.meta.expect("meta").of(&modern), &OURS);
            }
        }
        let legacy = meta::to_legacy(&modern, &scanned.params);
        let scanned = Envelope::scan(&legacy).expect("still a message");
        prop_assert_eq!(meta::read(&legacy, &scanned.params), meta::RequestMeta::default());
        if let (Some(before), Some(after)) = (envelope.params.meta, scanned.params.meta) {
            agree(before.of(&line), after.of(&legacy), &OURS);
        }
    }

    #[test]
    fn a_retry_and_back_is_the_same_request(
        line in request(), state in prop::option::of("[a-z\"\n]{0,5}"), answer in object(value())
    ) {
        let line = Bytes::from(line);
        let Ok(envelope) = Envelope::scan(&line) else { return Ok(()) };
        let token = state.as_ref().map(|state| crate::reply::string(state));
        let answers = [(Bytes::from_static(b"\"k\""), Bytes::from(answer.clone()))];
        let retried = input::retry(&line, &envelope.params, &answers, token.as_deref());
        let scanned = Envelope::scan(&retried).expect("still a message");
        if envelope.params.is_object {
            agree(params_of(&line), params_of(&retried), &["inputResponses", "requestState"]);
            let carried = input::of_request(&retried, &scanned.params);
            prop_assert_eq!(carried.state.as_deref(), state.as_deref());
            let found = input::response(&retried, carried.responses.expect("answers"), "k").expect("an answer");
            prop_assert_eq!(found.of(&retried), answer.as_bytes());
        }
        let plain = input::without_retry(&retried, &scanned.params);
        prop_assert_eq!(plain, input::without_retry(&line, &envelope.params));
    }

    #[test]
    fn a_result_is_translated_with_everything_it_carries(
        text in prop_oneof![4 => object(value()), 1 => value()],
        method in prop::sample::select(vec!["tools/call", "tools/list", "resources/read", "ping"]),
    ) {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{text}}}"#));
        let span = result_of(&line).expect("a result");
        let concerned = ["resultType", "ttlMs", "cacheScope", "structuredContent", "content", "tools"];
        for translate in [result::to_legacy, result::to_modern] {
            let Some(translated) = translate(&line, span, method) else { continue };
            let after = result_of(&translated).expect("still a result");
            agree(span.of(&line), after.of(&translated), &concerned);
            prop_assert_eq!(translate(&translated, after, method), None, "what has crossed stays");
        }
        let _kind = result::kind(&line, span);
        let _wanted = input::read(&line, span);
    }

    #[test]
    fn an_error_is_translated_with_everything_it_carries(text in object(value())) {
        let line = Bytes::from(text);
        let span = whole(&line);
        for translate in [error::to_legacy, error::to_modern] {
            let translated = translate(&line, span, "resources/read").unwrap_or_else(|| line.clone());
            agree(&line, &translated, &["code"]);
        }
        let questions = input::from_url_error(&line, span).unwrap_or_default();
        for (_, _, params) in questions {
            members_of(&params);
        }
    }

    #[test]
    fn labels_change_nothing_but_their_place(line in request(), server in any::<String>()) {
        let line = Bytes::from(line);
        let Ok(envelope) = Envelope::scan(&line) else { return Ok(()) };
        let labels = [
            (label::elicitation(&line, &envelope.params, &server), "message"),
            (label::log(&line, &envelope.params, &server), "logger"),
            (listen::retag(&line, &envelope.params, Some(b"7")), "_meta"),
            (listen::retag(&line, &envelope.params, None), "_meta"),
        ];
        for (labelled, place) in labels {
            Envelope::scan(&labelled).expect("still a message");
            if envelope.params.is_object {
                agree(params_of(&line), params_of(&labelled), &[place]);
            }
        }
    }

    #[test]
    fn junk_makes_nothing_panic(
        text in prop_oneof![value(), ".{0,20}", "[{}\\[\\]\",:\\\\u0a]{0,14}"],
        at in any::<prop::sample::Index>(),
    ) {
        let text = Bytes::from(text);
        let all = Span { start: 0, end: text.len() };
        let params = crate::Params { span: Some(all), is_object: true, ..Default::default() };
        let part = Span { start: at.index(text.len() + 1), end: text.len() };
        let _of_texts = (
            elicitation::to_legacy(&text, Some("x")),
            elicitation::to_modern(&text),
            elicitation::is_offered(&text, elicitation::METHOD, &text),
            elicitation::required_capabilities(elicitation::SAMPLING, &text),
            label::elicitation_params(&text, "s"),
            definition::to_legacy(&text),
            header_params::of_tool(&text),
            listen::tagged("m", Some(&text), b"1"),
            std::str::from_utf8(&text).ok().map(headers::decode),
        );
        let _of_parts = (
            result::kind(&text, part),
            result::to_legacy(&text, part, "tools/call"),
            result::to_modern(&text, part, "tools/list"),
            error::to_modern(&text, part, "m"),
            input::read(&text, part),
            input::from_url_error(&text, part),
        );
        let _of_messages = (
            label::log(&text, &params, "s"),
            listen::read(&text, &params),
            listen::retag(&text, &params, Some(b"1")),
            input::of_request(&text, &params),
            input::without_retry(&text, &params),
            meta::to_legacy(&text, &params),
        );
    }
}
