//! A call on its way to the server that has what it names: a tool, or a prompt.

use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Missing, Route, Scope, ServerState};
use protocol::envelope::Kind as MessageKind;
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Envelope, Params, Span, text, trace};
use upstream::{CallError, Connection, Request, ResponseHandler};

use crate::bridge;
use crate::client::{Client, lifecycle_of};
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::fleet::View;
use crate::interceptor::{CallStart, CallTracker};
use crate::responder::Responder;
use crate::response_rewriter;
use crate::startup_queue::{Enqueued, QueuedCall};
use crate::tasks::Alias;
use crate::unavailable;

/// Sends the call to the server that has what it names, or answers why not.
pub fn route(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope, kind: Kind) {
    let Incoming { client, to, line, .. } = &message;
    let id_token = id_of(envelope).of(line);
    let Some(name_at) = envelope.params.name.filter(|name| line[name.start] == b'"') else {
        let text = "Invalid params: `name` must be a string";
        return to.respond(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let Some(name) = text::decode(name_at.of(line)) else {
        let text = "Invalid params: `name` is not valid Unicode";
        return to.respond(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let view = aggregator.fleet.view();
    let named =
        Named { view: &view, kind, name_at, name: &name, found: view.snapshot.resolve(client.scope(), kind, &name) };
    let Some(interceptor) = aggregator.interceptor.as_ref().filter(|_| kind == Kind::Tool && to.tracker().is_none())
    else {
        return go(aggregator, message, envelope, &named);
    };
    let Some((server, tool)) = named.owner(client) else {
        return go(aggregator, message, envelope, &named);
    };
    let (params, meta) = (envelope.params.span, envelope.params.meta);
    match interceptor.open(&CallStart { client, server, tool: &tool, id: id_token, line, params, meta }) {
        Ok(tracker) => enter(aggregator, message, envelope, (&named, &tracker)),
        Err(refusal) => to.respond(&refusal.answer(id_token)),
    }
}

/// What a call names.
struct Named<'n> {
    view: &'n View,
    kind: Kind,
    name_at: Span,
    name: &'n str,
    found: Option<Route>,
}

impl Named<'_> {
    /// Why there is no such thing, or nobody to ask for it.
    fn why_not(&self, client: &Client) -> Missing {
        match self.found {
            Some(found) => self.view.snapshot.why_not_from(found.server),
            None => self.view.snapshot.why_missing(client.scope(), self.kind, self.name, client.style()),
        }
    }

    /// The server that a call is about, whether or not that can be called now, and what it calls the thing.
    fn owner(&self, client: &Client) -> Option<(usize, Arc<str>)> {
        let snapshot = &self.view.snapshot;
        if let Some(found) = self.found {
            return Some((found.server, Arc::clone(&snapshot.item(self.kind, found).id)));
        }
        match (client.scope(), self.why_not(client)) {
            (Scope::One(server), Missing::Starting(_) | Missing::Down(_)) => Some((server, self.name.into())),
            (Scope::All, Missing::Starting(server) | Missing::Down(server)) => {
                Some((server, snapshot.without_prefix(server, self.name).into()))
            }
            (Scope::One(server), Missing::UnknownItem(_)) if self.view.connections[server].is_some() => {
                Some((server, self.name.into()))
            }
            _ => None,
        }
    }
}

/// Sends a call, which is entered by the interceptor if there is one, on its way.
fn go(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope, named: &Named<'_>) {
    let Incoming { client, to, line, .. } = &message;
    let Named { view, kind, name_at, name, found } = *named;
    let Some((found, connection)) = found.and_then(|found| Some((found, view.connections[found.server].as_ref()?)))
    else {
        let why = named.why_not(client);
        if let Missing::Starting(server) = why {
            return wait(aggregator, message, envelope, server);
        }
        // A server alone is asked for what it has not listed: it knows best what it has.
        if let (Scope::One(server), Missing::UnknownItem(_)) = (client.scope(), why)
            && view.connections[server].is_some()
        {
            return route_to(aggregator, message, envelope, server);
        }
        tracing::debug!(%name, ?why, "call of what is not there");
        return to.respond(&not_found(view, id_of(envelope).of(line), kind, name, why));
    };
    tracing::debug!(%name, server = %connection.server(), bytes = line.len(), "call");
    let server_name = view.snapshot.item(kind, found).id_token();
    let connection = Arc::clone(connection);
    let renamed = Some(Edit { span: name_at, with: &server_name });
    send(aggregator, message, envelope, Destination { connection: &connection, renamed, alias: None });
}

/// Makes a call that was entered by the interceptor, when its turn has come.
fn enter(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    envelope: &Envelope,
    (named, tracker): (&Named<'_>, &Arc<dyn CallTracker>),
) {
    let Incoming { client, to, line, flush_set } = message;
    let to = &to.tracked(Arc::clone(tracker));
    let Some(permit) = tracker.permit() else {
        return go(aggregator, Incoming { client, to, line, flush_set }, envelope, named);
    };
    let id = id_of(envelope);
    let (aggregator, owner, answer_to, line) =
        (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to), line.clone());
    client.defer(line.slice(id.start..id.end), to, async move {
        let permit = permit.await;
        let mut flush_set = FlushSet::default();
        match permit {
            Ok(()) => aggregator.take(&owner, &answer_to, &protocol::Line::Whole(line), &mut flush_set),
            Err(refusal) => answer_to.respond(&refusal.answer(id.of(&line))),
        }
        flush_set.flush();
        answer_to.flush();
    });
}

/// Sends a request to one server as it is, but for its id.
pub fn route_to(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope, server: usize) {
    let view = aggregator.fleet.view();
    if let Some(connection) = &view.connections[server] {
        return send(aggregator, message, envelope, Destination::as_it_is(connection));
    }
    let Incoming { to, line, .. } = &message;
    match &view.snapshot.servers()[server].state {
        state if state.is_on_its_way() => wait(aggregator, message, envelope, server),
        _ => to.respond(&unavailable::answer(id_of(envelope).of(line), &view.snapshot.servers()[server])),
    }
}

/// Where a request goes, and what the server calls what it is about.
pub(crate) struct Destination<'d> {
    /// The server.
    pub(crate) connection: &'d Arc<Connection>,
    /// The span that the server knows under another token.
    pub(crate) renamed: Option<Edit<'d>>,
    /// The task it is about has another name there, which is to be put back in the answer.
    pub(crate) alias: Option<Alias>,
}

impl<'d> Destination<'d> {
    /// This server, which knows everything by the same names.
    pub(crate) fn as_it_is(connection: &'d Arc<Connection>) -> Self {
        Self { connection, renamed: None, alias: None }
    }
}

/// Sends a request to its server; between the lifecycles it is translated.
pub(crate) fn send(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    envelope: &Envelope,
    destination: Destination<'_>,
) {
    let Incoming { client, to, line, flush_set } = message;
    // A server that was met in both ways is asked in the client's own.
    let connection = destination.connection.for_lifecycle(lifecycle_of(&envelope.params));
    let destination = Destination { connection, ..destination };
    client.request_opened();
    flush_set.add(connection);
    let Some(span) = to.tracker().and_then(|tracker| tracker.on_sent()) else {
        return forward(aggregator, to, line, envelope, destination);
    };
    let line = trace::caused_by(line, &envelope.params, &span, destination.renamed);
    let destination = Destination { renamed: None, ..destination };
    forward(aggregator, to, &line, &bridge::scanned(&line), destination);
}

fn forward(
    aggregator: &Arc<Aggregator>,
    to: &Arc<Responder>,
    line: &Bytes,
    envelope: &Envelope,
    destination: Destination<'_>,
) {
    let Destination { connection, renamed, alias } = destination;
    let id = id_of(envelope);
    if lifecycle_of(&envelope.params) != connection.lifecycle() {
        return bridge::send(aggregator, to, line, envelope, connection, renamed);
    }
    let handler = response_rewriter::response_handler(&aggregator.fleet, connection, to, line, envelope, alias);
    let request = Request { line, id, known_as: id.of(line), renamed, progress: envelope.params.wanted_progress };
    if let Err(error) = connection.forward(request, &handler) {
        to.on_failure(id.of(line), &error);
    }
}

/// Lets the call wait for its server to start. The server has a deadline, so the call has.
pub fn wait(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope, server: usize) {
    let Incoming { client, to, line, flush_set } = message;
    let call = QueuedCall {
        aggregator: Arc::clone(aggregator),
        client: Arc::clone(client),
        to: Arc::clone(to),
        line: line.clone(),
        id: id_of(envelope),
    };
    client.request_opened();
    match aggregator.fleet.slots.at(server).waiting.enter(call) {
        Enqueued::Waits => aggregator.fleet.need(server),
        Enqueued::Full(waiting) => {
            let server = aggregator.fleet.view().snapshot.servers()[server].name.clone();
            to.on_failure(id_of(envelope).of(line), &CallError::Congested { server, waiting });
        }
        Enqueued::Settled => {
            client.request_closed();
            aggregator.take(client, to, &protocol::Line::Whole(line.clone()), flush_set);
        }
    }
}

/// Sends calls that have waited, now that their server is up or down.
pub fn resume(calls: impl IntoIterator<Item = QueuedCall>) {
    let mut flush_set = FlushSet::default();
    for QueuedCall { aggregator, client, to, line, .. } in calls {
        client.request_closed();
        aggregator.take(&client, &to, &protocol::Line::Whole(line), &mut flush_set);
        to.flush();
    }
    flush_set.flush();
}

/// Gives up a call that somebody else than its client wants to end. What the client is told stands in its account.
pub(crate) fn cut_short(aggregator: &Aggregator, client: &Client, id: &[u8], why: &str) -> bool {
    let fleet = &aggregator.fleet;
    let number = client.number();
    client.cancel_deferred(id)
        || fleet.slots.any(|slot| slot.waiting.cancel(number, id))
        || aggregator.parked_calls.cut_short(number, id, why)
        || fleet.at_work().iter().any(|connection| connection.abandon_call(number, id, why))
}

/// Gives up a call the client no longer wants; the server is told under the id it knows.
pub fn cancel(aggregator: &Aggregator, message: &Incoming<'_>, params: &Params) {
    let Some(id_at) = params.request_id else { return };
    let (id, client) = (id_at.of(message.line), message.client.number());
    let fleet = &aggregator.fleet;
    if message.client.cancel_deferred(id)
        || fleet.slots.any(|slot| slot.waiting.cancel(client, id))
        || aggregator.parked_calls.cancel(client, id, message.line, id_at)
    {
        return;
    }
    if !fleet.at_work().iter().any(|connection| connection.cancel(client, id, message.line, id_at)) {
        // Usual: the answer and the cancellation crossed on the way.
        tracing::debug!("nothing to cancel under that id");
    }
}

/// Where the id of a request stands.
pub(crate) fn id_of(envelope: &Envelope) -> Span {
    match envelope.kind {
        MessageKind::Request { id, .. } | MessageKind::Response { id, .. } => id,
        MessageKind::Notification { method } => method,
    }
}

/// Why there is no such thing, for people (`message`) and for programs (`data`).
fn not_found(view: &View, id: &[u8], kind: Kind, name: &str, why: Missing) -> Vec<u8> {
    let server = |index: usize| reply::string(view.snapshot.servers()[index].name.as_ref());
    let reason = |reason: &str| ("reason", reply::string(reason));
    let noun = if kind == Kind::Prompt { "Prompt" } else { "Tool" };
    let data = match why {
        Missing::NoPrefix => {
            let text = format!("{noun} name must be prefixed with server key: {name}");
            return reply::error(id, code::INVALID_PARAMS, &text, None);
        }
        Missing::UnknownServer => reply::object([reason("unknown_server")]),
        Missing::Starting(index) => reply::object([reason("server_starting"), ("server", server(index))]),
        Missing::UnknownItem(index) => {
            let word = if kind == Kind::Prompt { "unknown_prompt" } else { "unknown_tool" };
            reply::object([reason(word), ("server", server(index))])
        }
        Missing::Down(index) => match &view.snapshot.servers()[index] {
            server if matches!(server.state, ServerState::Down(_)) => return unavailable::answer(id, server),
            server => reply::object(unavailable::describe(server)),
        },
    };
    // The specification of both programs wants this code for tools; for prompts, that of the protocol is the only one.
    let code = if kind == Kind::Tool { code::METHOD_NOT_FOUND } else { code::INVALID_PARAMS };
    reply::error(id, code, &format!("{noun} not found: {name}"), Some(&data))
}
