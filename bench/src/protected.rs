//! The part of the test server over HTTP that wants a token, and where to get one.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

/// Requests with this path need [`ACCESS_TOKEN`]; those with other paths need nothing.
pub const PROTECTED_PATH: &str = "/protected";

/// The token that everybody gets.
pub const ACCESS_TOKEN: &str = "bench-access-token";

/// The answer to a request about tokens, or without the one it needs. `None` if the server itself is to answer.
pub fn answer(request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
    let origin = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let origin = format!("http://{}", origin.unwrap_or_default());
    let document = match (request.method(), request.uri().path()) {
        (_, PROTECTED_PATH) => return (!has_token(request)).then(|| refusal(&origin)),
        (&Method::GET, "/.well-known/oauth-protected-resource/protected") => json!({
            "resource": format!("{origin}{PROTECTED_PATH}"),
            "authorization_servers": [origin],
        }),
        (&Method::GET, "/.well-known/oauth-authorization-server") => json!({
            "issuer": origin,
            "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
        }),
        (&Method::POST, "/token") => json!({
            "access_token": ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": 3600,
        }),
        _ => return None,
    };
    Some(response(StatusCode::OK, &document))
}

fn has_token(request: &Request<Incoming>) -> bool {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    token == Some(ACCESS_TOKEN.as_bytes())
}

fn refusal(origin: &str) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::UNAUTHORIZED, &json!({ "error": "invalid_token" }));
    let metadata = format!("{origin}/.well-known/oauth-protected-resource{PROTECTED_PATH}");
    let challenge = HeaderValue::from_str(&format!("Bearer resource_metadata=\"{metadata}\""));
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge.expect("a host can stand in a header"));
    response
}

fn response(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(document.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
