//! Behaviour of documents through the public API.
#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod agreement;
mod bindings;
mod files;
mod fixture;
mod golden;
mod large;
mod random;
mod results;
mod run;
