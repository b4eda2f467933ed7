//! What documents do, seen from outside.

mod agreement;
mod bindings;
mod files;
mod golden;
mod random;
mod results;
mod running;
mod world;
