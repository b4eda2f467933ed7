//! Who sends a request: verifies the access tokens of identity providers, and signs people in to the console.
//!
//! It makes no request itself: [`oauth::Fetch`] does, which `crates/remote` implements.
//!
//! # Layout
//! - [`Verifier`]: from a token to a [`catalog::Principal`], or to a [`Rejection`]
//! - `jwt`: a token's parts; `keys`: the keys of an issuer, and signatures; `claims`: what a token says, and what that
//!   means here. These are pure
//! - `provider`: what one issuer has published, fetched and renewed; `issuer`: its settings and its metadata
//! - `cache`: tokens that were verified
//! - [`SignIns`]: sign-ins to the console

mod cache;
mod claims;
mod issuer;
mod jwt;
mod keys;
mod provider;
mod rejection;
mod sign_in;
#[cfg(test)]
mod tests;
mod verifier;

pub use claims::{ClaimRules, Verified, scope_of};
pub use issuer::{ClientSettings, IssuerError, IssuerSettings, check_issuer};
pub use rejection::Rejection;
pub use sign_in::{Begun, Person, SignInError, SignIns};
pub use verifier::Verifier;
