//! Requests that take several rounds: a modern server that needs input answers `input_required`, and the client repeats
//! the request with the answers.

use std::borrow::Cow;

use bytes::Bytes;

use crate::bridge::change::{Change, is_object};
use crate::bridge::elicitation;
use crate::envelope::Params;
use crate::reply::{self, code};
use crate::scan::{Span, count_elements, elements, member, members};
use crate::text;

const REQUESTS: &str = "inputRequests";
const RESPONSES: &str = "inputResponses";
const STATE: &str = "requestState";

/// The input that a server requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRequired {
    /// The server requests, in the server's order.
    pub requests: Vec<InputRequest>,
    /// The request state that must be returned, as a JSON token.
    pub state: Option<Bytes>,
}

/// One server request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRequest {
    /// The key of its answer, as the JSON token that the server wrote.
    pub key: Bytes,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`, if the server follows the protocol.
    pub method: String,
    /// A JSON object.
    pub params: Bytes,
}

/// The input that an `input_required` result asks for; `None` if the result is invalid.
pub fn read(line: &Bytes, result: Span) -> Option<InputRequired> {
    let state = member(line, result, STATE);
    if state.is_some_and(|state| state.of(line).first() != Some(&b'"')) {
        return None;
    }
    let state = state.map(|state| cut(line, state));
    let requests = match member(line, result, REQUESTS) {
        Some(requests) => read_requests(line, requests)?,
        // A busy server may send only a state, to be asked again with it.
        None if state.is_some() => Vec::new(),
        None => return None,
    };
    Some(InputRequired { requests, state })
}

fn read_requests(line: &Bytes, requests: Span) -> Option<Vec<InputRequest>> {
    if !is_object(line, requests) {
        return None;
    }
    let mut found = Some(Vec::<InputRequest>::new());
    let mut names = std::collections::HashSet::new();
    members(line, requests, |key, request| {
        let name = text::decode(key.of(line)).unwrap_or_else(|| String::from_utf8_lossy(key.of(line)));
        // Two requests with the same key could get only one answer.
        let request = names.insert(name).then(|| read_request(line, key, request)).flatten();
        match (&mut found, request) {
            (Some(found), Some(request)) => found.push(request),
            _ => found = None,
        }
    });
    found
}

fn read_request(line: &Bytes, key: Span, request: Span) -> Option<InputRequest> {
    let method = text::decode(member(line, request, "method")?.of(line))?.into_owned();
    let params = match member(line, request, "params") {
        Some(params) if is_object(line, params) => cut(line, params),
        Some(params) if params.of(line) != b"null" => return None,
        _ => Bytes::from_static(b"{}"),
    };
    Some(InputRequest { key: cut(line, key), method, params })
}

fn cut(line: &Bytes, span: Span) -> Bytes {
    line.slice(span.start..span.end)
}

/// The result that asks a modern client for input: key, method and parameters of every server request, and the request
/// state.
pub fn required(requests: &[(String, &str, Bytes)], state: &str) -> Vec<u8> {
    let requests = requests.iter().map(|(key, method, params)| {
        let request = reply::object([("method", reply::string(method)), ("params", params.to_vec())]);
        (key.as_str(), request)
    });
    reply::object([
        ("resultType", reply::string("input_required")),
        (REQUESTS, reply::object(requests)),
        (STATE, reply::string(state)),
    ])
}

/// The original request with the answers and the state that the server sent. Those of an earlier round are replaced.
pub fn retry(line: &Bytes, params: &Params, responses: &[(Bytes, Bytes)], state: Option<&[u8]>) -> Bytes {
    let Some(params) = params.span else { return line.clone() };
    let mut change = Change::new(line);
    if responses.is_empty() {
        change.remove_member(params, RESPONSES);
    } else {
        let responses: Vec<_> = responses.iter().map(|(key, result)| [key, &b":"[..], result].concat()).collect();
        change.set_member(params, RESPONSES, &[b"{".as_slice(), &responses.join(&b','), b"}"].concat());
    }
    match state {
        Some(state) => change.set_member(params, STATE, state),
        None => {
            // A client must not send a state it was not given.
            change.remove_member(params, STATE);
        }
    }
    change.apply()
}

/// The input in a repeated request of a modern client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry<'l> {
    /// The answers, an object.
    pub responses: Option<Span>,
    /// The request state, if it is a string.
    pub state: Option<Cow<'l, str>>,
}

/// The input in a repeated request.
pub fn of_request<'l>(line: &'l [u8], params: &Params) -> Retry<'l> {
    let Some(params) = params.span else { return Retry { responses: None, state: None } };
    Retry {
        responses: member(line, params, RESPONSES).filter(|responses| is_object(line, *responses)),
        state: member(line, params, STATE).and_then(|state| text::decode(state.of(line))),
    }
}

/// The answer with the key `key`.
pub fn response(line: &[u8], responses: Span, key: &str) -> Option<Span> {
    member(line, responses, key)
}

/// The request without any input: what a legacy server gets, and what is compared to find out whether two requests are
/// the same.
pub fn without_retry(line: &Bytes, params: &Params) -> Bytes {
    let Some(params) = params.span else { return line.clone() };
    let mut change = Change::new(line);
    change.remove_member(params, RESPONSES);
    change.remove_member(params, STATE);
    change.apply()
}

/// The URLs that a legacy server wants the user to visit first, as server requests for [`required`]; `None` if the
/// error is another one.
pub fn from_url_error(line: &Bytes, error: Span) -> Option<Vec<(String, &'static str, Bytes)>> {
    let asked = visits(line, error);
    if asked.is_empty() {
        return None;
    }
    let question = |(index, params): (usize, &Span)| {
        member(line, *params, "url")?;
        let params = elicitation::url_to_modern(&cut(line, *params));
        Some((format!("url-{}", index + 1), elicitation::METHOD, params))
    };
    asked.iter().enumerate().map(question).collect()
}

/// An error with more URLs than this is an error like any other: nobody visits them all.
const MAX_VISITS: usize = 100;

/// The URLs that an error wants the user to visit first, each with its message; empty for any other error.
pub fn visits(line: &[u8], error: Span) -> Vec<Span> {
    let is_meant = |error_code: &Span| error_code.of(line) == code::URL_ELICITATION_REQUIRED.to_string().as_bytes();
    let asked = member(line, error, "code").filter(is_meant).and_then(|_| {
        let asked = member(line, member(line, error, "data")?, "elicitations")?;
        count_elements(line, asked).filter(|count| *count <= MAX_VISITS).and_then(|_| elements(line, asked))
    });
    asked.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::change::whole;
    use crate::envelope::Envelope;

    fn request(params: &str) -> (Bytes, Envelope) {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#));
        let envelope = Envelope::scan(&line).unwrap();
        (line, envelope)
    }

    fn params_of(line: &Bytes) -> String {
        let envelope = Envelope::scan(line).unwrap();
        String::from_utf8(envelope.params.span.unwrap().of(line).to_vec()).unwrap()
    }

    fn wanted(result: &str) -> Option<InputRequired> {
        let result = Bytes::copy_from_slice(result.as_bytes());
        read(&result, whole(&result))
    }

    #[test]
    fn input_requests_keep_the_servers_tokens() {
        let found = wanted(
            r#"{"resultType":"input_required","inputRequests":{"n\u0061me":{"method":"elicitation/create","params":{"x": 1.0}},"r":{"method":"roots/list"}},"requestState":"s\/t"}"#,
        )
        .unwrap();
        assert_eq!(found.state.unwrap(), r#""s\/t""#);
        assert_eq!(
            found.requests,
            [
                InputRequest {
                    key: r#""n\u0061me""#.into(),
                    method: "elicitation/create".into(),
                    params: r#"{"x": 1.0}"#.into()
                },
                InputRequest { key: r#""r""#.into(), method: "roots/list".into(), params: "{}".into() },
            ]
        );
    }

    #[test]
    fn a_state_alone_asks_for_a_retry() {
        let found = wanted(r#"{"requestState":"s"}"#).unwrap();
        assert_eq!((found.requests, found.state), (Vec::new(), Some("\"s\"".into())));
    }

    #[test]
    fn wishes_that_make_no_sense_are_refused() {
        for result in [
            "{}",
            "[]",
            r#"{"inputRequests":[]}"#,
            r#"{"inputRequests":null}"#,
            r#"{"inputRequests":{"a":1}}"#,
            r#"{"inputRequests":{"a":{}}}"#,
            r#"{"inputRequests":{"a":{"method":1}}}"#,
            r#"{"inputRequests":{"a":{"method":"m","params":[]}}}"#,
            r#"{"inputRequests":{"a":{"method":"m"},"\u0061":{"method":"m"}}}"#,
            r#"{"inputRequests":{"a":1,"b":{"method":"m"}}}"#,
            r#"{"inputRequests":{},"requestState":1}"#,
        ] {
            assert_eq!(wanted(result), None, "{result}");
        }
    }

    #[test]
    fn our_own_input_request_parses_like_any_other() {
        let questions = [("a\"b".to_owned(), "roots/list", Bytes::from_static(b"{}"))];
        let result = String::from_utf8(required(&questions, "st\"ate")).unwrap();
        assert_eq!(
            result,
            r#"{"resultType":"input_required","inputRequests":{"a\"b":{"method":"roots/list","params":{}}},"requestState":"st\"ate"}"#
        );
        let found = wanted(&result).unwrap();
        assert_eq!(text::decode(&found.requests[0].key).unwrap(), "a\"b");
    }

    #[test]
    fn a_retry_is_the_request_with_answers_and_state() {
        let (line, envelope) = request(r#"{"name":"t", "arguments":{"n":1.0}}"#);
        let answers = [(Bytes::from("\"a\""), Bytes::from("{\"action\":\"decline\"}")), ("\"b\"".into(), "{}".into())];
        let retried = retry(&line, &envelope.params, &answers, Some(b"\"s\""));
        assert_eq!(
            params_of(&retried),
            r#"{"name":"t", "arguments":{"n":1.0},"inputResponses":{"a":{"action":"decline"},"b":{}},"requestState":"s"}"#
        );
        let again = retry(&retried, &Envelope::scan(&retried).unwrap().params, &answers[1..], None);
        assert_eq!(params_of(&again), r#"{"name":"t", "arguments":{"n":1.0},"inputResponses":{"b":{}}}"#);
        let plain = retry(&again, &Envelope::scan(&again).unwrap().params, &[], None);
        assert_eq!(plain, line);
    }

    #[test]
    fn what_a_retry_carries_is_found_and_taken_away() {
        let (line, envelope) =
            request(r#"{"inputResponses":{"k":{"action":"accept"}},"name":"t","requestState":"s\n"}"#);
        let carried = of_request(&line, &envelope.params);
        assert_eq!(carried.state.unwrap(), "s\n");
        let answer = response(&line, carried.responses.unwrap(), "k").unwrap();
        assert_eq!(answer.of(&line), br#"{"action":"accept"}"#);
        assert_eq!(response(&line, carried.responses.unwrap(), "other"), None);
        assert_eq!(params_of(&without_retry(&line, &envelope.params)), r#"{"name":"t"}"#);
    }

    #[test]
    fn answers_and_states_of_the_wrong_type_are_none() {
        let (line, envelope) = request(r#"{"inputResponses":[1],"requestState":7}"#);
        assert_eq!(of_request(&line, &envelope.params), Retry { responses: None, state: None });
        let (line, envelope) = request("[1]");
        assert_eq!(of_request(&line, &envelope.params), Retry { responses: None, state: None });
        assert_eq!(without_retry(&line, &envelope.params), line);
    }

    #[test]
    fn a_url_elicitation_error_becomes_an_input_request() {
        let error = Bytes::from_static(
            br#"{"code":-32042,"message":"visit","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://a","message":"m"},{"url":"https://b","message":"n"}]}}"#,
        );
        assert_eq!(
            from_url_error(&error, whole(&error)).unwrap(),
            [
                ("url-1".to_owned(), "elicitation/create", r#"{"mode":"url","url":"https://a","message":"m"}"#.into()),
                ("url-2".to_owned(), "elicitation/create", r#"{"url":"https://b","message":"n","mode":"url"}"#.into()),
            ]
        );
    }

    #[test]
    fn any_other_error_is_no_input_request() {
        for error in [
            r#"{"code":-32602,"data":{"elicitations":[{"url":"https://a"}]}}"#,
            r#"{"code":-32042}"#,
            r#"{"code":-32042,"data":{"elicitations":[]}}"#,
            r#"{"code":-32042,"data":{"elicitations":[1]}}"#,
            r#"{"code":-32042,"data":[]}"#,
            "7",
        ] {
            let error = Bytes::copy_from_slice(error.as_bytes());
            assert_eq!(from_url_error(&error, whole(&error)), None);
        }
        let visits_of = |count: usize| {
            let urls = vec![r#"{"url":"https://a"}"#; count].join(",");
            let error = format!(r#"{{"code":-32042,"data":{{"elicitations":[{urls}]}}}}"#);
            visits(error.as_bytes(), whole(error.as_bytes())).len()
        };
        assert_eq!([MAX_VISITS, MAX_VISITS + 1].map(visits_of), [MAX_VISITS, 0]);
    }
}
