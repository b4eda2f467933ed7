//! Real clients of every era use all of the protocol through us, with real servers of every era.
//!
//! - [`tour`]: what a client does with each server to have used all of the protocol
//! - [`world`]: one service in front of all servers, for all of these tests; [`comparison`]: what was seen through it and
//!   without it
//! - the tests: [`tours`], [`interaction`], [`inspector`]

mod comparison;
mod fixture;
mod inspector;
mod interaction;
mod tour;
mod tours;
