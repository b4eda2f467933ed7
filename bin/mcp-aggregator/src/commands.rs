//! One file per verb.

pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod serve;
pub(crate) mod stdio;
pub(crate) mod tools;
