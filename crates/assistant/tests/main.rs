//! Questions to scripted models over real HTTP, with hands that do as a test says.

mod bounds;
mod many_tools;
mod trouble;
mod turns;
mod world;
