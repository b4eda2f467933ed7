//! Adds the name of the server to elicitations and log messages, because users of several servers must see which one
//! sent them.

use bytes::Bytes;

use crate::bridge::change::{Change, whole};
use crate::envelope::Params;
use crate::reply;
use crate::scan::{Span, member};
use crate::text;

/// An elicitation with the name of the server before its message. Without a message, it stays unchanged.
pub fn elicitation(line: &Bytes, params: &Params, server: &str) -> Bytes {
    params.span.map_or_else(|| line.clone(), |params| labelled(line, params, server))
}

/// The same for its parameters alone.
pub fn elicitation_params(params: &Bytes, server: &str) -> Bytes {
    labelled(params, whole(params), server)
}

fn labelled(text: &Bytes, params: Span, server: &str) -> Bytes {
    match member(text, params, "message") {
        Some(message) if is_string(text, message) => prefixed(text, message, &format!("[{server}] ")),
        _ => text.clone(),
    }
}

/// A log message with the name of the server as its logger, or before the existing logger.
pub fn log(line: &Bytes, params: &Params, server: &str) -> Bytes {
    let Some(params) = params.span else { return line.clone() };
    match member(line, params, "logger") {
        Some(logger) if is_string(line, logger) && logger.of(line) != b"\"\"" => {
            prefixed(line, logger, &format!("{server}."))
        }
        _ => {
            let mut change = Change::new(line);
            change.set_member(params, "logger", &reply::string(server));
            change.apply()
        }
    }
}

fn is_string(text: &[u8], value: Span) -> bool {
    value.of(text).first() == Some(&b'"')
}

/// The text with `prefix` inserted after the opening quote of the string at `token`.
fn prefixed(text: &Bytes, token: Span, prefix: &str) -> Bytes {
    let mut escaped = Vec::with_capacity(prefix.len());
    text::encode_inner(prefix, &mut escaped);
    let inside = token.start + 1;
    let mut change = Change::new(text);
    change.replace(Span { start: inside, end: inside }, escaped);
    change.apply()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    fn scanned(params: &str) -> (Bytes, Params) {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#));
        let params = Envelope::scan(&line).unwrap().params;
        (line, params)
    }

    #[test]
    fn a_server_request_names_its_server() {
        let question = r#"{"x": 1.0,"message":"a\u0062\ud800"}"#;
        let labelled = r#"{"x": 1.0,"message":"[my \"s\"] a\u0062\ud800"}"#;
        let (line, params) = scanned(question);
        assert_eq!(elicitation(&line, &params, "my \"s\""), scanned(labelled).0);
        assert_eq!(elicitation_params(&Bytes::copy_from_slice(question.as_bytes()), "my \"s\""), labelled);
    }

    #[test]
    fn a_server_request_without_a_message_stays_unchanged() {
        for question in [r#"{"message":7}"#, "{}", "[]", "null"] {
            let (line, params) = scanned(question);
            assert_eq!(elicitation(&line, &params, "s"), line);
            assert_eq!(elicitation_params(&Bytes::copy_from_slice(question.as_bytes()), "s"), question);
        }
    }

    #[test]
    fn a_log_message_names_its_server() {
        for (before, after) in [
            (r#"{"level":"info","data":1.0}"#, r#"{"level":"info","data":1.0,"logger":"s"}"#),
            (r#"{"logger":"db","data":1}"#, r#"{"logger":"s.db","data":1}"#),
            (r#"{"logger":"","data":1}"#, r#"{"logger":"s","data":1}"#),
            (r#"{"logger":null,"data":1}"#, r#"{"logger":"s","data":1}"#),
            ("[]", "[]"),
        ] {
            let (line, params) = scanned(before);
            assert_eq!(log(&line, &params, "s"), scanned(after).0);
        }
    }
}
