//! Makes the calls of a document to the servers of a config, which run while the command does.

use std::sync::Arc;

use aggregator::Aggregator;
use catalog::{Kind, NameStyle, Scope};
use notebook::{Answer, Failure, Question, Request, Server, ToolSchema, ToolTable, Toolbox, WantedTools};
use protocol::reply;
use protocol::scan::{Span, member};

use super::AssistantBlocks;
use crate::assistant::{OfferedTools, ToolBackend, ToolRequest};
use crate::in_process_client::InProcessClient;
use crate::result_text;

/// The servers of a config.
pub(crate) struct ConfigTools {
    pub(crate) aggregator: Arc<Aggregator>,
    /// All of them; only those that the document needs were started.
    pub(crate) servers: Vec<Server>,
    /// Answers `assistant` blocks, if there are any.
    pub(crate) assistant_blocks: Option<AssistantBlocks>,
}

impl Toolbox for ConfigTools {
    fn servers(&self) -> Vec<Server> {
        self.servers.clone()
    }

    async fn tools(&self, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        let slot_index = self.settled(server).await?;
        let view = self.aggregator.fleet.view();
        let snapshot = &view.snapshot;
        if !snapshot.servers()[slot_index].state.offers() {
            return None;
        }
        let mut table = ToolTable::new(wanted, true);
        for item in snapshot.servers()[slot_index].offer.items(Kind::Tool).iter() {
            table.add(&item.id, || input_schema(&item.definition));
        }
        Some(table)
    }

    async fn out_of_reach(&self, server: &str) -> Option<String> {
        let slot_index = self.settled(server).await?;
        let view = self.aggregator.fleet.view();
        let state = &view.snapshot.servers()[slot_index].state;
        (!state.offers()).then(|| state.to_string())
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let name = self.full_name(request).await?;
        let params = reply::object([("name", reply::string(&name)), ("arguments", request.arguments.clone().into())]);
        let mut under_way = UnderWay::begin(&self.aggregator)?;
        let answer = under_way.conversation.ask("tools/call", Some(&params), |_| {}).await;
        under_way.is_over = true;
        let answer = answer.map_err(|failure| Failure::new(failure.message))?;
        match answer.bytes() {
            Ok(result) => Ok(String::from_utf8_lossy(result).into_owned()),
            Err(error) => Err(Failure::new(result_text::refusal(error))),
        }
    }

    async fn assistant_unavailable(&self) -> Option<String> {
        self.assistant_blocks.as_ref()?.missing().map(str::to_owned)
    }

    async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        let nobody = || Failure::new("there is no assistant here");
        let assistant_blocks = self.assistant_blocks.as_ref().ok_or_else(nobody)?;
        self.aggregator.fleet.all_decided().await;
        let wanted = ToolRequest::of_server(question.server.as_deref());
        let offered = OfferedTools::by_config(&self.aggregator.fleet, &self.servers, &wanted);
        let offered = offered.map_err(|failure| Failure::new(failure.message))?;
        assistant_blocks.answer(question, &offered, ToolBackend::Config(self)).await
    }
}

impl ConfigTools {
    /// The slot index of a server, after it connected or failed.
    async fn settled(&self, server: &str) -> Option<usize> {
        let slot_index = self.aggregator.fleet.view().snapshot.server_named(server)?;
        self.aggregator.fleet.settled(slot_index).await;
        Some(slot_index)
    }

    /// The full name of a tool.
    async fn full_name(&self, request: &Request) -> Result<String, Failure> {
        let Request { server, tool, .. } = request;
        let not_there = || Failure::not_tried(format!("there is no server `{server}`"));
        let slot_index = self.settled(server).await.ok_or_else(not_there)?;
        let view = self.aggregator.fleet.view();
        let snapshot = &view.snapshot;
        let state = &snapshot.servers()[slot_index].state;
        if !state.offers() {
            return Err(Failure::not_tried(format!("server `{server}` is down: {state}")));
        }
        let route = snapshot.resolve(Scope::One(slot_index), Kind::Tool, tool);
        let route = route.ok_or_else(|| Failure::new(format!("server `{server}` has no tool `{tool}`")))?;
        Ok(snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical))
    }
}

/// The input schema of a tool, as its server wrote it.
fn input_schema(definition: &[u8]) -> Option<ToolSchema> {
    let schema = member(definition, Span { start: 0, end: definition.len() }, "inputSchema")?;
    Some(ToolSchema::Text(String::from_utf8_lossy(schema.of(definition)).into_owned()))
}

/// A call, which is cancelled when it is dropped.
struct UnderWay {
    conversation: InProcessClient,
    is_over: bool,
}

impl UnderWay {
    fn begin(aggregator: &Arc<Aggregator>) -> Result<Self, Failure> {
        let conversation = InProcessClient::new(aggregator).map_err(|failure| Failure::new(failure.message))?;
        Ok(Self { conversation, is_over: false })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.conversation.cancel("the run of the document was stopped");
        }
    }
}
