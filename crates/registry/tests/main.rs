//! The store on real databases: every story is told to SQLite and to PostgreSQL.

mod failures;
mod opening;
mod setting;
mod story;
