//! Server requests: elicitations between lifecycles, and whether a client supports a server request.

use bytes::Bytes;

use crate::bridge::change::{Change, is_object, whole};
use crate::reply;
use crate::scan::{Span, member};
use crate::text;

/// Asks the user.
pub const METHOD: &str = "elicitation/create";
/// Asks the client's model.
pub const SAMPLING: &str = "sampling/createMessage";
/// Asks for the client's roots.
pub const ROOTS: &str = "roots/list";

const URL_ID: &str = "elicitationId";

/// The parameters of an elicitation for a legacy client. A URL elicitation needs an id there; it gets `wants_url_id` if
/// it has none.
pub fn to_legacy(params: &Bytes, wants_url_id: Option<&str>) -> Bytes {
    let object = whole(params);
    let Some(id) = wants_url_id else { return params.clone() };
    if !is_for_url(params, object) || member(params, object, URL_ID).is_some() {
        return params.clone();
    }
    let mut change = Change::new(params);
    change.set_member(object, URL_ID, &reply::string(id));
    change.apply()
}

/// The parameters of an elicitation for a modern client: without the id of a URL elicitation.
pub fn to_modern(params: &Bytes) -> Bytes {
    if is_for_url(params, whole(params)) { url_to_modern(params) } else { params.clone() }
}

/// The same for an elicitation that is known to be a URL elicitation, even if it does not say so.
pub(crate) fn url_to_modern(params: &Bytes) -> Bytes {
    let mut change = Change::new(params);
    change.remove_member(whole(params), URL_ID);
    change.set_member(whole(params), "mode", b"\"url\"");
    change.apply()
}

fn is_for_url(params: &[u8], object: Span) -> bool {
    member(params, object, "mode").is_some_and(|mode| text::token_is(mode.of(params), "url"))
}

/// The capabilities that a client must have declared for this server request: the `requiredCapabilities` of an error.
/// Empty if no capability covers it.
pub fn required_capabilities(method: &str, params: &[u8]) -> Vec<u8> {
    let json = Needed::of(method, params).map_or("{}", |needed| match needed {
        Needed::Form => r#"{"elicitation":{"form":{}}}"#,
        Needed::Url => r#"{"elicitation":{"url":{}}}"#,
        Needed::Sampling => r#"{"sampling":{}}"#,
        Needed::SamplingWithTools => r#"{"sampling":{"tools":{}}}"#,
        Needed::Roots => r#"{"roots":{}}"#,
    });
    json.into()
}

/// Whether a client with these capabilities supports this server request. False for a method that is none of the three.
pub fn is_offered(capabilities: &[u8], method: &str, params: &[u8]) -> bool {
    let offers = whole(capabilities);
    let object = |of: Span, name| member(capabilities, of, name).filter(|value| is_object(capabilities, *value));
    let Some(needed) = Needed::of(method, params) else { return false };
    match needed {
        Needed::Form => object(offers, "elicitation").is_some_and(|elicitation| {
            // A client that names no mode supports forms, as it did before there were modes.
            object(elicitation, "form").is_some() || member(capabilities, elicitation, "url").is_none()
        }),
        Needed::Url => object(offers, "elicitation").and_then(|elicitation| object(elicitation, "url")).is_some(),
        Needed::Sampling => object(offers, "sampling").is_some(),
        Needed::SamplingWithTools => {
            object(offers, "sampling").and_then(|sampling| object(sampling, "tools")).is_some()
        }
        Needed::Roots => object(offers, "roots").is_some(),
    }
}

enum Needed {
    Form,
    Url,
    Sampling,
    SamplingWithTools,
    Roots,
}

impl Needed {
    fn of(method: &str, params: &[u8]) -> Option<Self> {
        let object = whole(params);
        match method {
            METHOD if is_for_url(params, object) => Some(Self::Url),
            METHOD => Some(Self::Form),
            SAMPLING if ["tools", "toolChoice"].iter().any(|name| member(params, object, name).is_some()) => {
                Some(Self::SamplingWithTools)
            }
            SAMPLING => Some(Self::Sampling),
            ROOTS => Some(Self::Roots),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_elicitation_has_an_id_with_sessions_only() {
        let modern = Bytes::from_static(br#"{"mode":"url","url":"https://a","message":"m"}"#);
        let legacy = to_legacy(&modern, Some("e\"1"));
        assert_eq!(legacy, r#"{"mode":"url","url":"https://a","message":"m","elicitationId":"e\"1"}"#);
        assert_eq!(to_modern(&legacy), modern);
        assert_eq!(to_legacy(&legacy, Some("other")), legacy, "its own id stays");
        assert_eq!(to_legacy(&modern, None), modern);
    }

    #[test]
    fn a_form_is_the_same_in_both_lifecycles() {
        for form in [r#"{"message":"m","requestedSchema":{}}"#, r#"{"mode":"form","elicitationId":"x"}"#, "[]", "7"] {
            let form = Bytes::copy_from_slice(form.as_bytes());
            assert_eq!(to_legacy(&form, Some("e")), form);
            assert_eq!(to_modern(&form), form);
        }
    }

    #[test]
    fn a_client_gets_only_server_requests_it_supports() {
        let url = r#"{"mode":"url"}"#;
        let tools = r#"{"tools":[]}"#;
        let cases = [
            ("{}", METHOD, "{}", false),
            (r#"{"elicitation":{}}"#, METHOD, "{}", true),
            (r#"{"elicitation":{}}"#, METHOD, url, false),
            (r#"{"elicitation":{"url":{}}}"#, METHOD, url, true),
            (r#"{"elicitation":{"url":{}}}"#, METHOD, "{}", false),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, METHOD, "{}", true),
            (r#"{"elicitation":null}"#, METHOD, "{}", false),
            (r#"{"sampling":{}}"#, SAMPLING, "{}", true),
            (r#"{"sampling":{}}"#, SAMPLING, tools, false),
            (r#"{"sampling":{"tools":{}}}"#, SAMPLING, tools, true),
            (r#"{"roots":{"listChanged":true}}"#, ROOTS, "{}", true),
            (r#"{"sampling":{}}"#, ROOTS, "{}", false),
            (r#"{"roots":{},"ping":{}}"#, "ping", "{}", false),
            ("", ROOTS, "", false),
        ];
        for (capabilities, method, params, offered) in cases {
            let found = is_offered(capabilities.as_bytes(), method, params.as_bytes());
            assert_eq!(found, offered, "{capabilities} {method} {params}");
        }
    }

    #[test]
    fn what_would_be_needed_suffices() {
        for (method, params, needed) in [
            (METHOD, "{}", r#"{"elicitation":{"form":{}}}"#),
            (METHOD, r#"{"mode":"url"}"#, r#"{"elicitation":{"url":{}}}"#),
            (SAMPLING, "{}", r#"{"sampling":{}}"#),
            (SAMPLING, r#"{"toolChoice":{}}"#, r#"{"sampling":{"tools":{}}}"#),
            (ROOTS, "{}", r#"{"roots":{}}"#),
        ] {
            let capabilities = required_capabilities(method, params.as_bytes());
            assert_eq!(capabilities, needed.as_bytes());
            assert!(is_offered(&capabilities, method, params.as_bytes()), "{needed}");
        }
        assert_eq!(required_capabilities("ping", b"{}"), b"{}");
    }
}
