//! What the benchmark's runner and its test server must agree on.
//!
//! # Layout
//! - [`payload`]: the tools, what each of them answers, and the arguments sent to it
//! - [`scan`]: finds id, method and tool name in a request line without a JSON library
//!
//! The runner itself is the binary `bench` (`main.rs` and the modules beside it); the binaries `bench-server` and
//! `floor` are in `bin/`.

pub mod payload;
pub mod scan;
