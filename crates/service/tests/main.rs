//! The service with real servers, and with simulated faulty servers on a paused clock.
#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod fixture;

#[path = "service/back_off.rs"]
mod back_off;
#[path = "service/config_file.rs"]
mod config_file;
#[path = "service/connection_tests.rs"]
mod connection_tests;
#[path = "service/health.rs"]
mod health;
#[path = "service/instances.rs"]
mod instances;
#[path = "service/lazy.rs"]
mod lazy;
#[path = "service/lists.rs"]
mod lists;
#[path = "service/llm_classifier.rs"]
mod llm_classifier;
#[path = "service/profiles.rs"]
mod profiles;
#[path = "service/server_lifecycle.rs"]
mod server_lifecycle;
#[path = "service/sign_in.rs"]
mod sign_in;
#[path = "service/sign_in_flow.rs"]
mod sign_in_flow;
