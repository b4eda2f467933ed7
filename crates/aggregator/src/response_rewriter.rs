//! Inspects responses before they are forwarded: one may create a task, or contain requests for a person.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::change::Change;
use protocol::bridge::label;
use protocol::bridge::meta;
use protocol::bridge::result::{self, ResultType};
use protocol::reply;
use protocol::scan::{member, members};
use protocol::{Lifecycle, RequestEnvelope, Span, text};
use upstream::{Connection, ResponseFilter, ResponseHandler, ServerResponse};

use crate::bridge::scanned_response_id;
use crate::fleet::Fleet;
use crate::responder::Responder;
use crate::tasks::{self, Alias};

/// A responder whose responses from one server are inspected.
pub(crate) struct ResponseRewriter {
    fleet: Arc<Fleet>,
    connection: Arc<Connection>,
    to: Arc<Responder>,
    /// The response may create a task.
    begins_task: bool,
    /// The response may request input from a person, who must see which server asks.
    asks: bool,
    /// The client knows the task of this request by another name.
    alias: Option<Alias>,
}

/// The handler for responses of `connection` to a request of `to`: usually `to` itself.
pub(crate) fn response_handler(
    fleet: &Arc<Fleet>,
    connection: &Arc<Connection>,
    to: &Arc<Responder>,
    line: &[u8],
    request: &RequestEnvelope,
    alias: Option<Alias>,
) -> Arc<dyn ResponseHandler> {
    let begins_task = fleet.has_tasks(connection.index()) && tasks::may_begin(line, &request.params);
    let asks = connection.lifecycle() == Lifecycle::SelfContained && to.client().scope() == Scope::All;
    if !begins_task && !asks && alias.is_none() {
        return Arc::clone(to) as Arc<dyn ResponseHandler>;
    }
    let (fleet, connection, to) = (Arc::clone(fleet), Arc::clone(connection), Arc::clone(to));
    Arc::new(ResponseRewriter { fleet, connection, to, begins_task, asks, alias })
}

impl ResponseRewriter {
    /// The rewritten response, if it differs.
    fn changed(&self, line: &Bytes, result: Span) -> Option<Bytes> {
        let mut change = Change::new(line);
        if self.begins_task
            && let Some(alias) = self.fleet.note_task(&self.connection, self.to.client(), line, result)
        {
            rename_task(&mut change, line, result, &alias);
        }
        if let Some(alias) = &self.alias {
            rename_task(&mut change, line, result, alias);
        }
        if self.asks && result::kind(line, result) == ResultType::InputRequired {
            label_server_requests(&mut change, line, result, self.connection.server().as_str());
        }
        (!change.is_empty()).then(|| change.apply())
    }
}

/// Replaces the task's name in a result by the one the client knows.
pub(crate) fn rename_task(change: &mut Change, line: &[u8], result: Span, alias: &Alias) {
    let related = member(line, result, "_meta").and_then(|meta| member(line, meta, meta::RELATED_TASK));
    for object in [Some(result), member(line, result, "task"), related].into_iter().flatten() {
        let Some(id) = member(line, object, "taskId") else { continue };
        if text::token_is(id.of(line), &alias.original) {
            change.replace(id, reply::string(&alias.visible));
        }
    }
}

/// Adds the server's name to the input it requests from a person.
fn label_server_requests(change: &mut Change, line: &Bytes, result: Span, server: &str) {
    let Some(requests) = member(line, result, "inputRequests") else { return };
    let mut asked = Vec::new();
    members(line, requests, |_, request| {
        let method = member(line, request, "method");
        if method.is_some_and(|method| text::token_is(method.of(line), "elicitation/create")) {
            asked.extend(member(line, request, "params"));
        }
    });
    for params in asked {
        let labelled = label::elicitation_params(&line.slice(params.start..params.end), server);
        change.replace(params, labelled);
    }
}

impl ResponseFilter for ResponseRewriter {
    type Inner = Responder;

    fn inner(&self) -> &Responder {
        &self.to
    }

    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        let changed = response.outcome.ok().and_then(|result| self.changed(response.line, result));
        match changed {
            Some(line) => self.to.pass_response(id, &line, scanned_response_id(&line)),
            None => self.to.on_response(id, response),
        }
    }
}
