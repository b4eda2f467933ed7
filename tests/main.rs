//! Black-box tests of the real programs, one module per behaviour.

mod bad_input;
mod calls;
mod command_line;
mod config_errors;
mod containers;
mod cycles;
mod eras;
mod examples;
mod failures;
mod handshake;
mod http_front;
mod hygiene;
mod large;
mod listing;
mod real;
mod relay;
mod remote_servers;
mod rest;
mod rooms;
mod setting;
mod sockets;
mod stopping;
mod transparency;
