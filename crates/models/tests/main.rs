//! Models over real HTTP, as scripted servers play them.

mod anthropic;
mod openai;
mod structured;
mod trouble;
mod world;
