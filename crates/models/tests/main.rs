//! Models over real HTTP, played by scripted servers.

mod anthropic;
mod errors;
mod fixture;
mod openai;
mod structured;
