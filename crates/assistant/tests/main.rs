//! Dialogues with scripted models over real HTTP.

mod bounds;
mod errors;
mod fixture;
mod many_tools;
mod turns;
