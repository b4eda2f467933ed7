//! The steps of a sign-in without I/O: each makes a request, and is given its response.
//!
//! - `challenge`: what a 401 or 403 says
//! - `discovery`: which authorization server protects the server, and what it can do
//! - `registration`: who we are there
//! - `authorization`: the address that the user opens, and the redirect back from it
//! - `token`: requests to the token endpoint, and their answers
//! - `client_auth`: how a client authenticates there

pub(crate) mod authorization;
pub(crate) mod challenge;
pub(crate) mod client_auth;
pub(crate) mod discovery;
pub(crate) mod metadata;
pub(crate) mod registration;
pub(crate) mod token;

use bytes::Bytes;
use url::Url;

use crate::fetch::{HttpRequest, METADATA_TIMEOUT, Method, Network, Redirects, Wanted};

/// What a step that takes several requests wants.
pub(crate) enum Next<T> {
    /// To have this request sent, and to be given the response.
    Send(HttpRequest),
    /// Nothing more.
    Done(T),
}

/// A request for a document.
pub(crate) fn get(url: &Url, network: Network) -> HttpRequest {
    HttpRequest {
        method: Method::Get,
        url: url.to_string(),
        headers: vec![("accept", "application/json".into())],
        body: Bytes::new(),
        redirects: Redirects::Follow,
        network,
        timeout: METADATA_TIMEOUT,
        wanted: Wanted::Whole,
    }
}
