//! Whole sign-ins and refreshes against a scripted provider.

mod isolation;
mod login_state;
mod provider;
mod providers;
mod refreshing;
mod refusals;
mod signing_in;
mod waiting;
