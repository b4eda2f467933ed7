//! Makes the calls of an assistant, through a running service or directly to the servers of a config.

use std::collections::{BTreeSet, HashMap};

use assistant::{OfferedTool, Permission, ToolCallError, ToolExecutor};
use notebook::{ArgumentCheck, Extent, Request, Toolbox, check_arguments};
use serde_json::{Map, Value};

use super::tool_finder::{ToolFinder, find_by_service};
use super::{Consent, OfferedTools, SOURCE};
use crate::client::Client;
use crate::documents::{ConfigTools, Execution};
use crate::output::print_message;
use crate::table::printable;

/// Where calls are sent.
pub(crate) enum ToolBackend<'a> {
    /// A running service, which applies its limits and records the calls.
    Service {
        service: &'a Client,
        /// The path of the document that contains the question.
        document: Option<&'a str>,
        /// The session of the calls.
        session: &'a str,
    },
    Config(&'a ConfigTools),
}

/// Calls tools by their names in the request to the model.
pub(crate) struct CliToolExecutor<'a> {
    way: ToolBackend<'a>,
    /// The line in the document.
    line: usize,
    consent: &'a Consent,
    /// For each tool its server and the name that the server uses.
    whose: HashMap<String, (String, String)>,
    /// Searches the tools of a config; a service has its own search.
    finder: Option<ToolFinder>,
}

impl<'a> CliToolExecutor<'a> {
    pub(crate) fn new(way: ToolBackend<'a>, line: usize, consent: &'a Consent, offered: &OfferedTools) -> Self {
        let text = |tool: &Value, member: &str| tool[member].as_str().unwrap_or_default().to_owned();
        let whose = offered
            .tools()
            .iter()
            .map(|tool| (text(tool, "name"), (text(tool, "server_name"), text(tool, "tool_name"))))
            .collect();
        let finder = matches!(way, ToolBackend::Config(_)).then(|| ToolFinder::of(offered.tools()));
        Self { way, line, consent, whose, finder }
    }
}

impl ToolExecutor for CliToolExecutor<'_> {
    async fn call(&self, tool: &str, arguments: &str) -> Result<String, ToolCallError> {
        let Some((server, own)) = self.whose.get(tool) else {
            return Err(ToolCallError::Failed(format!("there is no tool `{tool}`")));
        };
        // Servers over stdio receive lines; between two tokens, a space means the same as a line end.
        let arguments = arguments.replace(['\n', '\r'], " ");
        let request = Request { server: server.clone(), tool: own.clone(), arguments, line: self.line };
        let result = match &self.way {
            ToolBackend::Service { service, document, session } => {
                Execution { source: SOURCE, document: *document, session }.of(service, &request).await
            }
            ToolBackend::Config(tools) => tools.call(&request).await,
        };
        result.map_err(|failure| match failure.extent {
            Extent::Stopped => ToolCallError::Stopped(failure.message),
            Extent::Failed | Extent::NotTried | Extent::RunOver => ToolCallError::Failed(failure.message),
        })
    }

    async fn find(&self, wish: &str, limit: usize) -> Result<Vec<String>, String> {
        match (&self.way, &self.finder) {
            (ToolBackend::Service { service, .. }, _) => {
                let servers: BTreeSet<&str> = self.whose.values().map(|(server, _)| server.as_str()).collect();
                find_by_service(service, wish, servers, |name| self.whose.contains_key(name), limit).await
            }
            (ToolBackend::Config(_), Some(finder)) => finder.find(wish, limit).await,
            (ToolBackend::Config(_), None) => Ok(Vec::new()),
        }
    }

    async fn check(&self, offer: &OfferedTool, arguments: &Map<String, Value>) -> Result<(), String> {
        match check_arguments(offer.tool.schema.clone(), Value::Object(arguments.clone())).await {
            ArgumentCheck::Fit => Ok(()),
            ArgumentCheck::Misfit(faults) => Err(faults.join("; ")),
            ArgumentCheck::NotChecked(why) => {
                let tool = printable(&offer.tool.name);
                print_message(format_args!("warning: the arguments of {tool} were not checked: {}", printable(&why)));
                Ok(())
            }
        }
    }

    async fn permit(&self, offer: &OfferedTool, arguments: &str) -> Permission {
        self.consent.ask(&offer.tool.name, arguments).await
    }
}
