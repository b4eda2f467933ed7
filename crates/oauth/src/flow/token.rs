//! Requests to the token endpoint, and their answers, as servers really send them.

use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::error::{FlowError, FlowErrorKind, Step, excerpt};
use crate::fetch::{HttpRequest, HttpResponse, Method, Network, Redirects, TOKEN_TIMEOUT, Wanted};
use crate::flow::client_auth::Client;
use crate::flow::metadata::object;
use crate::flow::registration::error_text;
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

/// Reads the answer of the token endpoint. `requested` are the scopes that hold if it names none.
pub(crate) fn tokens(
    step: Step,
    endpoint: &str,
    response: &HttpResponse,
    requested: &[String],
) -> Result<Tokens, FlowError> {
    let members = object(&response.body).or_else(|| form(response));
    let Some(members) = members else {
        if response.is_success() {
            let problem = format!("the answer is not JSON: {}", excerpt(&response.body));
            return Err(FlowError::new(step, problem).at(endpoint).kind(FlowErrorKind::Lost));
        }
        return Err(FlowError::response(step, endpoint, response));
    };
    // Slack answers errors with HTTP 200, and puts the token of a user into a member of its own.
    let has_failed =
        !response.is_success() || members.contains_key("error") || members.get("ok") == Some(&Value::Bool(false));
    if has_failed {
        return Err(refusal(step, endpoint, response, &members));
    }
    let found = match members.get("access_token") {
        Some(_) => &members,
        None => members.get("authed_user").and_then(Value::as_object).unwrap_or(&members),
    };
    let text = |key: &str| found.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let fail = |problem: &str| FlowError::new(step, problem).at(endpoint);
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

fn refusal(step: Step, endpoint: &str, response: &HttpResponse, members: &Map<String, Value>) -> FlowError {
    let code = members.get("error").and_then(Value::as_str).unwrap_or_default();
    let kind = match code {
        "invalid_grant" | "invalid_refresh_token" | "token_expired" | "token_revoked" => FlowErrorKind::InvalidGrant,
        "invalid_client" | "unauthorized_client" | "invalid_client_id" | "bad_client_secret" => {
            FlowErrorKind::InvalidClient
        }
        "temporarily_unavailable" | "server_error" | "slow_down" | "ratelimited" => FlowErrorKind::Temporary,
        _ => match response.status {
            408 | 429 | 500.. => FlowErrorKind::Temporary,
            _ => FlowErrorKind::Final,
        },
    };
    let error = FlowError::response(step, endpoint, response);
    let problem = match error_text(members) {
        Some(text) => format!("HTTP {}: {text}", response.status),
        None => error.problem.clone(),
    };
    let hint = match (code, kind) {
        (_, FlowErrorKind::InvalidClient) => {
            Some("check `oauth.client_id`, `oauth.client_secret` and `oauth.token_endpoint_auth_method`")
        }
        ("invalid_target", _) => {
            Some("if the authorization server does not support the `resource` parameter, set `oauth.resource` to false")
        }
        ("invalid_scope", _) => Some("set `oauth.scopes` to scopes that the authorization server knows"),
        _ => None,
    };
    FlowError { problem, hint: hint.map(str::to_owned), kind, ..error }
}

/// An answer as a form, as GitHub sends unless it is asked otherwise.
fn form(response: &HttpResponse) -> Option<Map<String, Value>> {
    let is_form = response.content_type.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded");
    let pairs = is_form.then(|| form_urlencoded::parse(&response.body))?;
    Some(pairs.map(|(name, value)| (name.into_owned(), Value::String(value.into_owned()))).collect())
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
            (400, "", "HTTP 400", FlowErrorKind::Final),
            (400, "<html><h1>Bad request</h1></html>", "HTTP 400: Bad request", FlowErrorKind::Final),
            (503, "<html>down</html>", "HTTP 503: down", FlowErrorKind::Temporary),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"used"}"#,
                "invalid_grant (used)",
                FlowErrorKind::InvalidGrant,
            ),
            (400, r#"{"error":"invalid_target"}"#, "`oauth.resource` to false", FlowErrorKind::Final),
            (401, r#"{"error":"invalid_client"}"#, "`oauth.client_id`", FlowErrorKind::InvalidClient),
            (200, "<html>welcome</html>", "not JSON: welcome", FlowErrorKind::Lost),
            (200, "{}", "no `access_token`", FlowErrorKind::Final),
        ] {
            let error = read(status, body).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.kind, kind, "{body}");
        }
    }

    #[test]
    fn an_answer_as_a_form_is_read() {
        let response = HttpResponse {
            content_type: "application/x-www-form-urlencoded; charset=utf-8".into(),
            ..answer(200, "access_token=t&scope=a%20b&token_type=bearer")
        };
        let tokens = tokens(Step::TokenRequest, "https://as/token", &response, &[]).unwrap();
        assert_eq!(tokens.scopes, ["a", "b"]);
    }
}
