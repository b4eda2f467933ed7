//! Black-box tests of the real programs, one module per behaviour.

mod bad_input;
mod calls;
mod command_line;
mod config_errors;
mod cycles;
mod examples;
mod failures;
mod handshake;
mod hygiene;
mod large;
mod listing;
mod real;
mod remote_servers;
mod rooms;
mod setting;
mod sockets;
mod stopping;
mod transparency;
