//! From a request to the endpoint that answers it.

use http::Method;

use crate::endpoint::Endpoint;
use crate::error;
use crate::response::ApiResponse;

/// An endpoint, and what the path says in place of its names.
pub(crate) type Found<'e> = (&'e Endpoint, Vec<(String, String)>);

/// The endpoint for a request, or the answer that there is none.
pub(crate) fn find<'e>(endpoints: &'e [Endpoint], method: &Method, path: &str) -> Result<Found<'e>, ApiResponse> {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    // Who asks for the head only is answered like who asks for all of it; the body is left out further down.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    // `/servers/test` is no server called `test`: what names nothing comes first.
    let mut fitting: Vec<Found<'e>> =
        endpoints.iter().filter_map(|endpoint| endpoint.fits(path).map(|found| (endpoint, found))).collect();
    fitting.sort_by_key(|(_, found)| found.len());
    let methods: Vec<&Method> = fitting.iter().map(|(endpoint, _)| &endpoint.method).collect();
    if methods.is_empty() {
        let why = format!("nothing is at `{path}`; /api/docs tells what is where");
        return Err(error::refused(http::StatusCode::NOT_FOUND, &why));
    }
    let allowed = methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = fitting.into_iter().find(|(endpoint, _)| endpoint.method == *method);
    wanted.ok_or_else(|| error::not_allowed(&allowed))
}
