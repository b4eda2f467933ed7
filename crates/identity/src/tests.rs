//! An issuer in memory, and tokens of every kind against it.

mod issuer;
mod opaque;
mod roles;
mod sign_in;
mod tokens;
