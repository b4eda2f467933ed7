//! Real clients of every revision use the whole protocol through us, with real servers of every revision.
//!
//! - [`tour`]: the steps that use the whole protocol with each server
//! - [`world`]: one service in front of all servers, for all of these tests; [`comparison`]: compares what was seen
//!   through it and directly
//! - the tests: [`tours`], [`interaction`], [`inspector`]

mod comparison;
mod fixture;
mod inspector;
mod interaction;
mod tour;
mod tours;
