//! One file per verb, or per pair of verbs.

pub(crate) mod add;
pub(crate) mod bind;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod connection;
pub(crate) mod doc;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod skills;
pub(crate) mod status;
pub(crate) mod stdio;
pub(crate) mod switch;
pub(crate) mod tools;
pub(crate) mod trial;
