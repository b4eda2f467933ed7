//! The store's promises, one story each.

mod administration;
mod classifications;
mod executions;
mod servers;
mod skills;
mod tools;
mod transactions;
