//! Calls of a document through the service that we are: its limits hold, and its account has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use notebook::{Failure, Lookup, Request, Server, Toolbox};
use registry::{RawJson, Source, Timestamp};
use service::calls::Call;
use service::{Actor, Error, Service};

/// The servers of the service.
pub(crate) struct ServiceTools {
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    pub(crate) servers: Vec<Server>,
    /// Where the document is, if that was said.
    pub(crate) path: Option<String>,
    /// What the calls count for.
    pub(crate) session: String,
}

/// A session of its own for a run: no two have the same, also after a restart.
pub(crate) fn own_session() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("run {} {}", RUNS.fetch_add(1, Ordering::Relaxed), Timestamp::now())
}

impl Toolbox for ServiceTools {
    fn servers(&self) -> Vec<Server> {
        self.servers.clone()
    }

    async fn find(&self, server: &str, tool: &str) -> Lookup {
        // If nobody can tell now, the call will say why.
        let Ok(tools) = self.service.tools(Some(server)).await else { return Lookup::Unknown };
        if let Some(found) = tools.iter().find(|known| known.original_name == tool) {
            let schema = found.input_schema.as_ref().and_then(|schema| serde_json::from_str(schema.get()).ok());
            return schema.map_or(Lookup::Unknown, Lookup::Found);
        }
        // What was known of a server that is away need not be all it has.
        let is_connected = self.service.server(server).await.is_ok_and(|view| view.record.status.is_up());
        if !is_connected {
            return Lookup::Unknown;
        }
        Lookup::Missing { known: tools.into_iter().map(|tool| tool.original_name).collect() }
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let arguments = RawJson::parse(request.arguments.clone());
        let call = Call {
            name: request.tool.clone(),
            server: Some(request.server.clone()),
            arguments: arguments.map_err(|error| Failure::new(format!("the parameters are no JSON: {error}")))?,
            source: Source::UserCodeblock,
            actor: self.actor.clone(),
            document: self.path.clone().map(|path| (path, u32::try_from(request.line).ok())),
            session: Some(self.session.clone()),
            timeout_ms: None,
            trace: None,
        };
        match self.service.call(call).await {
            Ok(outcome) => Ok(outcome.result.get().to_owned()),
            Err(error @ (Error::ExecutionCancelled { .. } | Error::ExecutionStopped)) => {
                Err(Failure::stopped(error.to_string()))
            }
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }
}
