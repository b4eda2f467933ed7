//! Makes the calls of a document through a running service, which applies its limits and records them.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use notebook::{Answer, Extent, Failure, Question, Request, Server, ToolSchema, ToolTable, Toolbox, WantedTools};
use protocol::reply;
use serde_json::{Value, json};

use super::AssistantBlocks;
use crate::api_error;
use crate::assistant::{OfferedTools, ToolBackend, ToolRequest};
use crate::client::{Client, RequestError, encoded};
use crate::failure::Failure as CommandFailure;

/// The source of the calls.
const SOURCE: &str = "user-codeblock";
/// The longest timeout that the service allows.
const MAX_CALL_DURATION: Duration = Duration::from_secs(86_500);

/// The servers of a service.
pub(crate) struct ServiceTools {
    service: Client,
    servers: Vec<Server>,
    /// The absolute path of the document.
    document: String,
    /// The session of the calls of this run.
    session: String,
    assistant_blocks: AssistantBlocks,
}

/// The origin that the records of the calls have.
pub(crate) struct Execution<'a> {
    pub(crate) source: &'a str,
    /// The absolute path of the document.
    pub(crate) document: Option<&'a str>,
    pub(crate) session: &'a str,
}

impl ServiceTools {
    /// For one run of a document.
    pub(crate) fn new(
        service: Client,
        servers: Vec<Server>,
        document: &Path,
        assistant_blocks: AssistantBlocks,
    ) -> Self {
        let document = document.to_string_lossy().into_owned();
        Self { service, servers, document, session: new_session(), assistant_blocks }
    }

    /// Starts a new session: further calls belong to another run.
    pub(crate) fn begin_session(&mut self) {
        self.session = new_session();
    }

    /// Whether the service's list of a server's tools is current.
    async fn is_connected(&self, server: &str) -> bool {
        let described = self.service.get(&format!("/servers/{}", encoded(server))).await;
        described.is_ok_and(|described| described["status"] == "connected")
    }
}

/// Unique for each run, even if runs follow each other quickly.
fn new_session() -> String {
    format!("run {} {}", std::process::id(), jiff::Timestamp::now())
}

impl Toolbox for ServiceTools {
    fn servers(&self) -> Vec<Server> {
        self.servers.clone()
    }

    async fn tools(&self, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        // If the service does not know, the call reports why.
        let Ok(Value::Array(tools)) = self.service.get(&format!("/servers/{}/tools", encoded(server))).await else {
            return None;
        };
        let mut table = ToolTable::new(wanted, self.is_connected(server).await);
        for mut tool in tools {
            let schema = tool["input_schema"].take();
            table.add(tool["original_name"].as_str()?, || match schema {
                Value::Null => None,
                // A schema that our parser cannot represent is passed as text.
                Value::String(text) => Some(ToolSchema::Text(text)),
                schema => Some(ToolSchema::Tree(schema)),
            });
        }
        Some(table)
    }

    async fn out_of_reach(&self, server: &str) -> Option<String> {
        match self.service.get(&format!("/servers/{}", encoded(server))).await {
            Ok(described) => why_down(&described),
            Err(denial) => Some(CommandFailure::from(denial).message),
        }
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let (document, session) = (Some(self.document.as_str()), self.session.as_str());
        Execution { source: SOURCE, document, session }.of(&self.service, request).await
    }

    async fn assistant_unavailable(&self) -> Option<String> {
        let missing = self.assistant_blocks.missing()?;
        match has_no_model(&self.service).await {
            Ok(true) => Some(missing.to_owned()),
            Ok(false) => None,
            Err(denial) => Some(CommandFailure::from(denial).message),
        }
    }

    async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        if self.assistant_blocks.missing().is_some() {
            return self.assistant_blocks.answer_by(&self.service, question, &self.session).await;
        }
        let wanted = ToolRequest::of_server(question.server.as_deref());
        let offered = OfferedTools::by_service(&self.service, &wanted).await;
        let offered = offered.map_err(|failure| Failure::new(failure.message))?;
        let way =
            ToolBackend::Service { service: &self.service, document: Some(&self.document), session: &self.session };
        self.assistant_blocks.answer(question, &offered, way).await
    }
}

/// Whether the service reports that it has no model: a dry run finds out without asking one.
async fn has_no_model(service: &Client) -> Result<bool, RequestError> {
    let question = json!({ "text": "```assistant\n?\n```\n", "dry_run": true, "output": "none" });
    let report = service.post("/documents/run", Some(&question)).await?;
    Ok(report["blocks"][0]["problem"]["trouble"] == "no_assistant")
}

/// Why a server cannot be called, as REST describes it. A call wakes a server that is asleep, and waits for one that is
/// starting.
fn why_down(server: &Value) -> Option<String> {
    let status = server["status"].as_str()?;
    let is_down = matches!(status, "error" | "sign_in_required") || status == "disconnected" && server["lazy"] != true;
    let why = || server["error_message"].as_str().map_or_else(|| format!("it is {status}"), str::to_owned);
    is_down.then(why)
}

impl Execution<'_> {
    /// Makes a call. Dropping this cancels it, because the service sees the connection close.
    pub(crate) async fn of(&self, service: &Client, request: &Request) -> Result<String, Failure> {
        let mut members = vec![
            ("name", reply::string(&request.tool)),
            ("server_id", reply::string(&request.server)),
            ("arguments", request.arguments.clone().into_bytes()),
            ("source", reply::string(self.source)),
            ("session", reply::string(self.session)),
        ];
        if let Some(document) = self.document {
            members.push(("document_path", reply::string(document)));
            members.push(("section_line", request.line.to_string().into_bytes()));
        }
        let body = Bytes::from(reply::object(members));
        let response = service.send(Method::POST, "/execute", body, MAX_CALL_DURATION).await;
        let response = response.map_err(|denial| match denial {
            RequestError::Absent(failure) => Failure::run_over(failure.message),
            RequestError::Lost(failure) | RequestError::Other(failure) => Failure::new(failure.message),
        })?;
        if response.status.is_success() {
            return Ok(String::from_utf8_lossy(&response.body).into_owned());
        }
        let message = api_error::describe(service.url(), response.status, &response.body).message;
        let said: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let extent = match said["error_code"].as_str() {
            Some("EXECUTION_CANCELLED" | "EXECUTION_STOPPED") => Extent::Stopped,
            Some("LIMIT_REACHED") if said["context"]["limit"] == "session_limit" => Extent::RunOver,
            Some("LIMIT_REACHED" | "SERVER_UNAVAILABLE" | "SERVER_NOT_FOUND") => Extent::NotTried,
            _ => Extent::Failed,
        };
        Err(Failure { extent, message })
    }
}
