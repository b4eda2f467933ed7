//! The store on real databases: every test runs on SQLite and on PostgreSQL.
#![expect(clippy::unwrap_used, reason = "the stories are functions that two tests call, and not tests to the lint")]

mod adoption;
mod behaviour;
mod failures;
mod fixture;
mod open;
mod upgrade;
