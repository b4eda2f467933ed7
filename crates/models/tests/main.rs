//! Models over real HTTP, as scripted servers play them.

mod anthropic;
mod errors;
mod fixture;
mod openai;
mod structured;
