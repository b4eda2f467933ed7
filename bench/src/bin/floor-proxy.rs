//! `floor-proxy HOST:PORT`: the least an HTTP relay can do. A plain reverse proxy on hyper that parses no message.
//!
//! Bodies stream through as they come; connections are kept on both sides. Whatever a real relay adds on top of this
//! is the price of understanding the messages. Ends when its stdin does.

use anyhow::{Context, Result};
use bench::listener::serve;
use hyper::Request;
use hyper::body::Incoming;
use hyper::http::uri::{Authority, Scheme, Uri};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

fn main() -> Result<()> {
    let to = std::env::args().nth(1).context("usage: floor-proxy HOST:PORT")?;
    let to: Authority = to.parse().context("usage: floor-proxy HOST:PORT")?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).set_host(false).build(connector);
    let service = service_fn(move |request| client.request(addressed(request, &to)));
    serve(service)
}

/// The same request, headers and all (`Host` included, as proxies may), to the server behind us. One without a usable
/// path fails in the client.
fn addressed(mut request: Request<Incoming>, to: &Authority) -> Request<Incoming> {
    let path = request.uri().path_and_query().cloned();
    let mut parts = hyper::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(to.clone());
    parts.path_and_query = path;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request
}
