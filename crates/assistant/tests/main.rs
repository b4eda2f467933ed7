//! Questions to scripted models over real HTTP, with hands that do as a test says.

mod bounds;
mod errors;
mod fixture;
mod many_tools;
mod turns;
