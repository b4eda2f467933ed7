//! The store's promises, one story each.

mod executions;
mod judgements;
mod keeping;
mod servers;
mod skills;
mod tools;
mod transactions;
