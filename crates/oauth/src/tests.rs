//! Whole sign-ins and refreshes against a scripted provider.

mod isolation;
mod login_state;
mod provider;
mod providers;
mod refresh;
mod refusals;
mod sign_in;
mod sign_in_wait;
