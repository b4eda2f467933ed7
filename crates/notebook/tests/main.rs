//! What documents do, seen from outside.

mod agreement;
mod golden;
mod random;
mod world;
