//! The service with real servers behind it, and with servers that misbehave on purpose on a clock that stands still.
#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod fixture;

#[path = "service/back_off.rs"]
mod back_off;
#[path = "service/config_file.rs"]
mod config_file;
#[path = "service/health.rs"]
mod health;
#[path = "service/lazy.rs"]
mod lazy;
#[path = "service/llm_classifier.rs"]
mod llm_classifier;
#[path = "service/server_lifecycle.rs"]
mod server_lifecycle;
