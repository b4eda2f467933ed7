//! Whole sign-ins and refreshes against a scripted provider.

mod provider;
mod refreshing;
mod signing_in;
mod waiting;
