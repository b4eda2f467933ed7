//! A tool called from here: by REST, the command line, a document or an assistant.

use registry::{ExecutionId, RawJson, Source};
use serde::Serialize;

use crate::{Actor, Error, Service};

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// `server.tool`, or the tool's own name.
    pub name: String,
    /// The server, by id or name, if the name alone does not say it.
    pub server: Option<String>,
    /// A JSON object, passed on byte for byte.
    pub arguments: RawJson,
    /// Which way it came.
    pub source: Source,
    /// On whose behalf.
    pub actor: Actor,
    /// The document it was made from, and the line there.
    pub document: Option<(String, Option<u32>)>,
    /// The session of a document or an assistant that it counts for. If absent: its document, or else its actor.
    pub session: Option<String>,
    /// Another limit than the settings' for this call.
    pub timeout_ms: Option<u64>,
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The server's `result`, byte for byte.
    pub result: RawJson,
    /// How it got there.
    pub metadata: Metadata,
}

/// How a call got there.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// Under which it is in the account of calls.
    pub execution_id: ExecutionId,
    /// The name of the server.
    pub routed_to: String,
    /// Its id.
    pub server_id: String,
    /// `namespace_resolved`, `server_specified` or `original_name`.
    pub routing_strategy: &'static str,
    /// From the request to the server.
    pub routing_time_ms: f64,
    /// At the server.
    pub execution_time_ms: f64,
    /// In all.
    pub total_time_ms: f64,
}

#[expect(unused_variables, clippy::todo, clippy::unused_async, reason = "filled in by the next commits")]
impl Service {
    /// Makes a call and waits for its result, within its limits.
    pub async fn call(&self, call: Call) -> Result<Outcome, Error> {
        todo!()
    }
}
