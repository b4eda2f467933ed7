//! One file per section of the report. Each measures, prints its table, and hands in the promises it can judge.

pub(crate) mod features;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod isolation;
pub(crate) mod latency;
pub(crate) mod listing;
pub(crate) mod memory;
pub(crate) mod registry;
pub(crate) mod startup;
pub(crate) mod throughput;
