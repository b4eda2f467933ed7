//! What the benchmark's runner and its own programs must agree on.
//!
//! # Layout
//! - [`payload`]: the tools, what each of them answers, and the arguments sent to it
//! - [`scan`]: finds id, method and tool name in a request without a JSON library
//! - [`answers`]: what the test server says, over stdio and over HTTP
//! - [`listener`]: how the programs that speak HTTP start and end
//! - [`protected`]: the token that a part of the server over HTTP wants
//!
//! The runner itself is the binary `bench` (`main.rs` and its modules); the test servers and the floors are
//! in `bin/`.

pub mod answers;
pub mod listener;
pub mod payload;
pub mod protected;
pub mod scan;
