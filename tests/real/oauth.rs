//! Signing in to a server that a real identity provider protects (`oauth.mjs`: npm `oidc-provider`).
//!
//! - [`provider`]: the provider and the server; [`person`]: a scripted browser and who sits in front of it
//! - [`home`]: a config, a data directory, and the commands that use them
//! - [`sign_in`]: `login`, `logout`, scopes, machines; [`refresh`]: tokens that expire, many at once, `kill -9`
//! - [`protected_service`]: a service that accepts the identities of a provider (`identity.mjs`)
//! - [`services`]: services that sign in, over REST, and two on one database; [`at_a_service`]: commands and the console
//!   at a service

mod at_a_service;
mod home;
mod person;
mod protected_service;
mod provider;
mod refresh;
mod services;
mod sign_in;

pub(crate) use protected_service::Protected;
pub(crate) use provider::Provider;
