//! Finds the endpoint of a request.

use http::Method;

use crate::endpoint::Endpoint;
use crate::error;
use crate::response::ApiResponse;

/// An endpoint and its path parameters.
pub(crate) type Found<'e> = (&'e Endpoint, Vec<(String, String)>);

/// The endpoint of a request, or the response that there is none.
pub(crate) fn find<'e>(endpoints: &'e [Endpoint], method: &Method, path: &str) -> Result<Found<'e>, ApiResponse> {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    // HEAD is answered like GET; the HTTP server removes the body.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    // `/servers/test` is not the server `test`: paths without parameters take precedence.
    let mut fitting: Vec<Found<'e>> =
        endpoints.iter().filter_map(|endpoint| endpoint.fits(path).map(|found| (endpoint, found))).collect();
    fitting.sort_by_key(|(_, found)| found.len());
    let methods: Vec<&Method> = fitting.iter().map(|(endpoint, _)| &endpoint.method).collect();
    if methods.is_empty() {
        let why = format!("there is no endpoint at `{path}`; /api/docs lists all endpoints");
        return Err(error::refused(http::StatusCode::NOT_FOUND, &why));
    }
    let allowed = methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = fitting.into_iter().find(|(endpoint, _)| endpoint.method == *method);
    wanted.ok_or_else(|| error::not_allowed(&allowed))
}
