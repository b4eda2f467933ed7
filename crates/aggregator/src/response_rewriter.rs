//! Answers that are looked at before they are passed on: one may begin a task, or have something asked of a person.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::change::Change;
use protocol::bridge::label;
use protocol::bridge::meta;
use protocol::bridge::result::{self, ResultType};
use protocol::reply;
use protocol::scan::{member, members};
use protocol::{Envelope, Lifecycle, Span, text};
use upstream::{CallError, Connection, Notification, Requester, ResponseHandler, ServerRequest, ServerResponse};

use crate::call::id_of;
use crate::fleet::Fleet;
use crate::responder::Responder;
use crate::tasks::{self, Alias};

/// A client whose answers from one server are looked at.
pub(crate) struct ResponseRewriter {
    fleet: Arc<Fleet>,
    connection: Arc<Connection>,
    to: Arc<Responder>,
    /// The answer may begin a task.
    begins_task: bool,
    /// The answer may say what the server wants to know of a person, who must see who asks.
    asks: bool,
    /// The task the request is about has another name towards the client.
    alias: Option<Alias>,
}

/// Who gets the answers of `connection` to a request of `to`: usually just that.
pub(crate) fn response_handler(
    fleet: &Arc<Fleet>,
    connection: &Arc<Connection>,
    to: &Arc<Responder>,
    line: &[u8],
    envelope: &Envelope,
    alias: Option<Alias>,
) -> Arc<dyn ResponseHandler> {
    let begins_task = fleet.has_tasks(connection.index()) && tasks::may_begin(line, envelope);
    let asks = connection.lifecycle() == Lifecycle::SelfContained && to.client().scope() == Scope::All;
    if !begins_task && !asks && alias.is_none() {
        return Arc::clone(to) as Arc<dyn ResponseHandler>;
    }
    let (fleet, connection, to) = (Arc::clone(fleet), Arc::clone(connection), Arc::clone(to));
    Arc::new(ResponseRewriter { fleet, connection, to, begins_task, asks, alias })
}

impl ResponseRewriter {
    /// The answer as the client is to see it, if that is another.
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

/// Puts the name a client knows in the places where a result names its task.
pub(crate) fn rename_task(change: &mut Change, line: &[u8], result: Span, alias: &Alias) {
    let related = member(line, result, "_meta").and_then(|meta| member(line, meta, meta::RELATED_TASK));
    for object in [Some(result), member(line, result, "task"), related].into_iter().flatten() {
        let Some(id) = member(line, object, "taskId") else { continue };
        if text::token_is(id.of(line), &alias.original) {
            change.replace(id, reply::string(&alias.visible));
        }
    }
}

/// Puts the server's name in front of what it has asked of a person.
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

impl ResponseHandler for ResponseRewriter {
    fn requester(&self) -> Requester {
        self.to.requester()
    }

    fn on_held(&self) {
        self.to.on_held();
    }

    fn on_released(&self) {
        self.to.on_released();
    }

    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        let changed = response.outcome.ok().and_then(|result| self.changed(response.line, result));
        match changed {
            Some(line) => self.to.pass_response(id, &line, id_of(&crate::bridge::scanned(&line))),
            None => self.to.on_response(id, response),
        }
    }

    fn on_failure(&self, id: &[u8], error: &CallError) {
        self.to.on_failure(id, error);
    }

    fn on_cancelled(&self, id: &[u8]) {
        self.to.on_cancelled(id);
    }

    fn on_notification(&self, notification: Notification<'_>) {
        self.to.on_notification(notification);
    }

    fn on_server_request(&self, request: ServerRequest) {
        self.to.on_server_request(request);
    }

    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        self.to.on_server_request_cancelled(server, id, line, id_at);
    }

    fn flush(&self) {
        self.to.flush();
    }

    fn is_idle(&self) -> bool {
        self.to.is_idle()
    }

    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.to.catch_up()
    }
}
