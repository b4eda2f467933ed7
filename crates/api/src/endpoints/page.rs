//! The OpenAPI document, and the page that shows it.

use http::header::HeaderName;
use http::{HeaderValue, StatusCode};
use service::Error;

use crate::endpoint::Endpoint;
use crate::openapi;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;

/// The page loads nothing from elsewhere: no fonts, scripts or styles.
const PAGE: &str = include_str!("../page.html");

static CONTENT_SECURITY: HeaderName = HeaderName::from_static("content-security-policy");
/// Allows only the contents of the page itself, and requests to this service.
const OWN_ONLY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("", "The OpenAPI document", |request| Box::pin(document(request)))
            .at("/api/v1/openapi.json")
            .answers(200, "The OpenAPI 3.1 document, generated from the code of the endpoints.", Schema::any_object())
            .public(),
        Endpoint::get("", "The documentation page of the API", |request| Box::pin(page(request)))
            .at("/api/docs")
            .answers_with(200, "A page.", "text/html; charset=utf-8", Some(Schema::text()))
            .public(),
    ]
}

async fn document(_: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&openapi::document(&super::all())))
}

async fn page(_: ApiRequest) -> Result<ApiResponse, Error> {
    let mut answer = ApiResponse::text(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    answer.header(CONTENT_SECURITY.clone(), HeaderValue::from_static(OWN_ONLY));
    Ok(answer)
}
