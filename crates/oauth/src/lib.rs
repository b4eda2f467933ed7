//! Signing in to servers: OAuth 2.1 as the Model Context Protocol requires it.
//!
//! # Layout
//! - [`OAuth`]: all sign-ins of a process: begin, finish, log out, observe
//! - [`TokenSource`]: the `Authorization` header for one server, kept fresh
//! - `flow`: the steps without I/O: each makes a request, and is given its response
//! - [`Grant`]: what a sign-in leaves behind; [`GrantStore`]: where it is stored
//! - [`Fetch`]: who makes the HTTP requests
//! - [`Protected`]: a server that may require a sign-in
//! - [`Owner`]: which process refreshes, and whether it is gone
//! - [`FlowError`], [`CallbackError`], [`TokenError`]: what fails, and what to do about it

mod client_credentials;
mod error;
mod fetch;
mod flow;
mod grant;
mod mark;
mod owner;
mod pending;
mod probe;
mod protected;
mod refresh;
mod secret;
mod shared;
mod sign_in;
mod sign_in_wait;
mod source;
mod store;
#[cfg(test)]
mod tests;

pub use error::{CallbackError, FlowError, FlowErrorKind, Step, TokenError};
pub use fetch::{
    Fetch, FetchError, HttpRequest, HttpResponse, MAX_REDIRECTS, MAX_RESPONSE_BYTES, METADATA_TIMEOUT, Method, Network,
    Redirects, TOKEN_TIMEOUT, Wanted,
};
pub use flow::metadata::server_metadata_addresses;
pub use grant::{AuthorizationServer, ClientIdentity, ClientSource, Grant, MalformedGrant, RefreshMark, Tokens};
pub use owner::Owner;
pub use protected::Protected;
pub use secret::Secret;
pub use sign_in::{Attempt, Change, ChangeKind, LoggedOut, LoginState, OAuth, OAuthOptions, SignedIn};
pub use source::TokenSource;
pub use store::{GrantStore, MemoryStore, Replaced, StoreError, StoreFuture, Version};

/// A random text: 256 bits that stand in a URL.
fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("a system with TLS has random bytes");
    base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, bytes)
}
