//! Behaviour of the store, on both databases.

mod administration;
mod classifications;
mod executions;
mod limits;
mod oauth_grants;
mod profiles;
mod servers;
mod skills;
mod tool_uses;
mod tools;
mod transactions;
