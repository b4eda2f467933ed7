//! Requests to the token endpoint, and their answers, as servers really send them.

use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::error::{FlowError, FlowErrorKind, Step, excerpt};
use crate::fetch::{HttpRequest, HttpResponse, Method, Network, Redirects, TOKEN_TIMEOUT, Wanted};
use crate::flow::client_auth::Client;
use crate::flow::metadata::object;
use crate::flow::registration::{error_text, has_credentials};
use crate::grant::{Tokens, unix_now};
use crate::secret::Secret;

/// Form parameters. A value may be a secret.
pub(crate) type Parameters = Vec<(&'static str, Secret)>;

/// A request with a form, authenticated as the client.
pub(crate) fn request(
    step: Step,
    endpoint: &str,
    client: &Client<'_>,
    mut parameters: Parameters,
    network: Network,
) -> Result<HttpRequest, FlowError> {
    let authentication = client.authenticate(step).map_err(|error| error.at(endpoint))?;
    parameters.extend(authentication.parameters);
    let mut form = form_urlencoded::Serializer::new(String::new());
    for (name, value) in &parameters {
        form.append_pair(name, value.reveal());
    }
    let mut headers: Vec<(&'static str, Secret)> =
        vec![("accept", "application/json".into()), ("content-type", "application/x-www-form-urlencoded".into())];
    headers.extend(authentication.header.map(|header| ("authorization", header)));
    Ok(HttpRequest {
        method: Method::Post,
        url: endpoint.to_owned(),
        headers,
        body: form.finish().into(),
        redirects: Redirects::Return,
        network,
        timeout: TOKEN_TIMEOUT,
        wanted: Wanted::Whole,
    })
}

/// Reads the answer of the token endpoint. `requested` are the scopes that hold if it names none. Nothing of a success
/// is ever shown but its error: whatever else it contains may be a token, in a form that we do not know.
pub(crate) fn tokens(
    step: Step,
    endpoint: &str,
    response: &HttpResponse,
    requested: &[String],
) -> Result<Tokens, FlowError> {
    let members = object(&response.body).or_else(|| form(&response.body));
    // It says that it was carried out, so the tokens are lost unless they are in it.
    let fail = |problem: &str| FlowError::new(step, problem).at(endpoint).kind(FlowErrorKind::Lost);
    let Some(members) = members else {
        if response.is_success() {
            return Err(fail(&unreadable(response)));
        }
        // Something in front of the authorization server has answered.
        return Err(FlowError::response(step, endpoint, response).kind(FlowErrorKind::Temporary));
    };
    // Slack answers errors with HTTP 200, and puts the token of a user into a member of its own.
    if !response.is_success() || has_error(&members) || members.get("ok") == Some(&Value::Bool(false)) {
        return Err(refusal(step, endpoint, response, &members));
    }
    let found = match members.get("access_token") {
        Some(_) => &members,
        None => members.get("authed_user").and_then(Value::as_object).unwrap_or(&members),
    };
    let text = |key: &str| found.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let access_token = text("access_token").ok_or_else(|| fail("the answer has no `access_token`"))?;
    if !access_token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(fail("the access token cannot be sent in a header"));
    }
    let kind = text("token_type").unwrap_or("Bearer");
    // Slack calls the tokens of users and bots by these names.
    if !["bearer", "user", "bot"].iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        return Err(fail(&format!("the token is of the type {}, not Bearer", excerpt(kind.as_bytes()))));
    }
    let scopes = text("scope").map(|scope| scope.split([' ', ',']).filter(|scope| !scope.is_empty()));
    Ok(Tokens {
        access_token: access_token.into(),
        refresh_token: text("refresh_token").map(Into::into),
        issued_at: unix_now(),
        lifetime: found.get("expires_in").and_then(seconds),
        scopes: scopes.map_or_else(|| requested.to_vec(), |scopes| scopes.map(str::to_owned).collect()),
    })
}

/// A number of seconds, whatever its notation. One that is none is as if it were absent: a 401 will tell.
fn seconds(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite() && *number > 0.0).map(|number| number.max(1.0) as u64)
}

/// Whether an answer contains an error. Some servers always send the member.
fn has_error(members: &Map<String, Value>) -> bool {
    match members.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(code)) => !code.is_empty(),
        Some(_) => true,
    }
}

/// A success that is neither JSON nor a form, without quoting it.
pub(crate) fn unreadable(response: &HttpResponse) -> String {
    let kind = match excerpt(response.content_type.as_bytes()) {
        kind if kind.is_empty() => "no content type".to_owned(),
        kind => format!("the content type {kind}"),
    };
    format!("the answer is not JSON (HTTP {}, {} bytes, {kind})", response.status, response.body.len())
}

/// What an error of the token endpoint means. Only codes of authorization servers decide: whatever else answers, such
/// as a firewall or a page about maintenance, says nothing about the grant.
fn kind_of(code: &str, members: &Map<String, Value>) -> FlowErrorKind {
    match code {
        "invalid_grant"
        | "invalid_refresh_token"
        | "bad_refresh_token"
        | "expired_token"
        | "token_expired"
        | "token_revoked"
        | "account_inactive"
        | "access_denied"
        | "login_required"
        | "consent_required"
        | "interaction_required" => FlowErrorKind::InvalidGrant,
        // Atlassian says so of a refresh token that has expired.
        "unauthorized_client" if describes_refresh_token(members) => FlowErrorKind::InvalidGrant,
        "invalid_client" | "unauthorized_client" | "invalid_client_id" | "bad_client_secret" => {
            FlowErrorKind::InvalidClient
        }
        "invalid_request" | "invalid_scope" | "invalid_target" | "unsupported_grant_type" => FlowErrorKind::Final,
        _ => FlowErrorKind::Temporary,
    }
}

fn describes_refresh_token(members: &Map<String, Value>) -> bool {
    let description = members.get("error_description").and_then(Value::as_str).unwrap_or_default();
    let description = description.to_ascii_lowercase();
    description.contains("refresh_token") || description.contains("refresh token")
}

fn refusal(step: Step, endpoint: &str, response: &HttpResponse, members: &Map<String, Value>) -> FlowError {
    let code = members.get("error").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let kind = match (kind_of(&code, members), response.status) {
        (FlowErrorKind::Final, 408 | 429 | 500..) => FlowErrorKind::Temporary,
        (kind, _) => kind,
    };
    let problem = match error_text(members) {
        Some(text) => format!("HTTP {}: {text}", response.status),
        None if response.is_success() || has_credentials(members) => {
            format!("HTTP {}, and the answer does not say what is wrong", response.status)
        }
        None => FlowError::response(step, endpoint, response).problem,
    };
    let hint = match (code.as_str(), kind) {
        (_, FlowErrorKind::InvalidClient) => {
            Some("correct `oauth.client_secret`, and check `oauth.client_id` and `oauth.token_endpoint_auth_method`")
        }
        ("invalid_target", _) => {
            Some("if the authorization server does not support the `resource` parameter, set `oauth.resource` to false")
        }
        ("invalid_scope", _) => Some("set `oauth.scopes` to scopes that the authorization server knows"),
        _ => None,
    };
    let error = FlowError::new(step, problem).at(endpoint).kind(kind);
    FlowError { hint: hint.map(str::to_owned), ..error }
}

/// An answer as a form, as GitHub sends unless it is asked otherwise. Its type is often another one.
fn form(body: &[u8]) -> Option<Map<String, Value>> {
    let body = body.trim_ascii();
    if body.iter().any(|byte| byte.is_ascii_whitespace() || b"<>{}".contains(byte)) {
        return None;
    }
    let pairs = form_urlencoded::parse(body);
    let members: Map<_, _> =
        pairs.map(|(name, value)| (name.into_owned(), Value::String(value.into_owned()))).collect();
    (members.contains_key("access_token") || members.contains_key("error")).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse { status, content_type: String::new(), www_authenticate: Vec::new(), body: body.to_owned().into() }
    }

    fn read(status: u16, body: &str) -> Result<Tokens, FlowError> {
        tokens(Step::TokenRequest, "https://as/token", &answer(status, body), &["asked".to_owned()])
    }

    #[test]
    fn lifetimes_and_types_come_in_many_notations() {
        for (body, lifetime) in [
            (r#"{"access_token":"t","token_type":"bearer","expires_in":3600}"#, Some(3600)),
            (r#"{"access_token":"t","token_type":"BEARER","expires_in":"3600"}"#, Some(3600)),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":3600.5}"#, Some(3600)),
            (r#"{"access_token":"t","expires_in":null}"#, None),
            (r#"{"access_token":"t","expires_in":"soon"}"#, None),
            (r#"{"access_token":"t"}"#, None),
        ] {
            let tokens = read(200, body).unwrap();
            assert_eq!((tokens.lifetime, tokens.access_token.reveal()), (lifetime, "t"), "{body}");
            assert_eq!(tokens.scopes, ["asked"]);
        }
        let tokens = read(200, r#"{"access_token":"t","scope":"a b","refresh_token":"r"}"#).unwrap();
        assert_eq!((tokens.scopes.join(","), tokens.refresh_token), ("a,b".to_owned(), Some("r".into())));
        assert!(read(200, r#"{"access_token":"t","token_type":"DPoP"}"#).unwrap_err().problem.contains("DPoP"));
    }

    #[test]
    fn the_answers_of_slack_are_understood() {
        let tokens =
            read(200, r#"{"ok":true,"authed_user":{"access_token":"xoxp","token_type":"user","scope":"a,b"}}"#);
        assert_eq!(tokens.unwrap().scopes, ["a", "b"]);
        let error = read(200, r#"{"ok":false,"error":"bad_client_secret"}"#).unwrap_err();
        assert_eq!(error.kind, FlowErrorKind::InvalidClient);
        assert!(error.to_string().contains("bad_client_secret"), "{error}");
    }

    #[test]
    fn errors_without_json_are_explained() {
        for (status, body, said, kind) in [
            (400, "", "HTTP 400", FlowErrorKind::Temporary),
            (400, "<html><h1>Bad request</h1></html>", "HTTP 400: Bad request", FlowErrorKind::Temporary),
            (404, r#"{"status":404,"error":"Not Found"}"#, "HTTP 404: Not Found", FlowErrorKind::Temporary),
            (302, "", "HTTP 302", FlowErrorKind::Temporary),
            (503, "<html>down</html>", "HTTP 503: down", FlowErrorKind::Temporary),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"used"}"#,
                "invalid_grant (used)",
                FlowErrorKind::InvalidGrant,
            ),
            (400, r#"{"error":"invalid_target"}"#, "`oauth.resource` to false", FlowErrorKind::Final),
            (401, r#"{"error":"invalid_client"}"#, "`oauth.client_id`", FlowErrorKind::InvalidClient),
            (
                403,
                r#"{"error":"unauthorized_client","error_description":"refresh_token is invalid"}"#,
                "refresh_token is invalid",
                FlowErrorKind::InvalidGrant,
            ),
            (500, r#"{"error":"invalid_grant"}"#, "invalid_grant", FlowErrorKind::InvalidGrant),
            (500, r#"{"error":"invalid_request"}"#, "invalid_request", FlowErrorKind::Temporary),
            (200, "<html>welcome</html>", "not JSON (HTTP 200, 20 bytes, no content type)", FlowErrorKind::Lost),
            (200, "{}", "no `access_token`", FlowErrorKind::Lost),
        ] {
            let error = read(status, body).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.kind, kind, "{body}");
        }
    }

    #[test]
    fn an_answer_as_a_form_is_read_whatever_its_type() {
        for content_type in ["application/x-www-form-urlencoded; charset=utf-8", "text/plain", ""] {
            let body = "access_token=t&refresh_token=r&scope=a%20b&token_type=bearer\n";
            let response = HttpResponse { content_type: content_type.into(), ..answer(200, body) };
            let tokens = tokens(Step::TokenRequest, "https://as/token", &response, &[]).unwrap();
            assert_eq!((tokens.scopes.join(","), tokens.refresh_token), ("a,b".to_owned(), Some("r".into())));
        }
        let error = read(200, "error=bad_refresh_token&error_description=It+has+expired").unwrap_err();
        assert_eq!(error.kind, FlowErrorKind::InvalidGrant);
        assert!(error.problem.contains("bad_refresh_token (It has expired)"), "{error}");
    }

    #[test]
    fn an_error_that_is_empty_is_none() {
        for error in ["null", "\"\"", "false"] {
            let body = format!(r#"{{"access_token":"t","error":{error},"error_description":null}}"#);
            assert_eq!(read(200, &body).unwrap().access_token.reveal(), "t", "{body}");
        }
    }

    #[test]
    fn no_token_of_an_answer_is_ever_shown() {
        for (status, body) in [
            (200, "fresh-token-secret"),
            (200, "access_token: fresh-token-secret"),
            (200, r#"["fresh-token-secret"]"#),
            (200, r#"{"access_token":{"value":"fresh-token-secret"}}"#),
            (200, r#"{"token":"fresh-token-secret"}"#),
            (200, r#"{"access_token":"fresh-token-secret\u0000"}"#),
            (200, r#"{"access_token":"fresh-token-secret","token_type":"DPoP"}"#),
            (200, r#"{"ok":false,"token":"fresh-token-secret"}"#),
            (200, r#"{"error":{"token":"fresh-token-secret"}}"#),
            (200, r#"{"error":"odd","error_description":"fresh-token-secret","access_token":"fresh-token-secret"}"#),
            (400, r#"{"error":"odd","error_description":"fresh-token-secret","refresh_token":"fresh-token-secret"}"#),
            (400, r#"{"authed_user":{"access_token":"fresh-token-secret"}}"#),
            (500, "refresh_token=fresh-token-secret&access_token=fresh-token-secret"),
        ] {
            let error = read(status, body).unwrap_err();
            assert!(!error.to_string().contains("fresh"), "{body}: {error}");
        }
    }
}
