//! Routes a call to the server that has the named tool or prompt.

use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Missing, Route, Scope, ServerState};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Params, RequestEnvelope, Span, text, trace};
use upstream::{CallError, Connection, Request, ResponseHandler};

use crate::bridge;
use crate::client::{CallOrigin, Client, lifecycle_of};
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::fleet::View;
use crate::interceptor::{CallStart, CallTracker};
use crate::responder::Responder;
use crate::response_rewriter;
use crate::sign_in;
use crate::startup_queue::Enqueued;
use crate::surface::use_tracker;
use crate::suspended_request::{SuspendedRequest, Target};
use crate::tasks::Alias;
use crate::unavailable;

/// Sends the call to the server that has the named item, or responds with the reason it cannot.
pub(crate) fn route(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope, kind: Kind) {
    let Incoming { client, to, line, .. } = &message;
    let id_token = request.id.of(line);
    let Some(name_at) = request.params.name.filter(|name| line[name.start] == b'"') else {
        let text = "Invalid params: `name` must be a string";
        return to.respond(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let Some(name) = text::decode(name_at.of(line)) else {
        let text = "Invalid params: `name` is not valid Unicode";
        return to.respond(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let view = aggregator.fleet.view();
    let named = Named::find(&view, client, kind, name_at, &name);
    if let Some(retry) = sign_in::retry(aggregator, line, request) {
        let server = named.owner(client).map(|(server, _)| server);
        return sign_in::resume(aggregator, message, &retry, kind, server);
    }
    let Some(interceptor) = aggregator.interceptor.as_ref().filter(|_| kind == Kind::Tool && to.tracker().is_none())
    else {
        return go(aggregator, message, request, &named);
    };
    let Some((server, tool)) = named.owner(client) else {
        return go(aggregator, message, request, &named);
    };
    let (params, meta) = (request.params.span, request.params.meta);
    let start = CallStart { client, server, tool: &tool, id: id_token, line, params, meta };
    let opened = match client.call_origin() {
        CallOrigin::TrackedCall(tracker) => Ok(Arc::clone(tracker)),
        CallOrigin::Client | CallOrigin::Internal => interceptor.open(&start),
    };
    match opened {
        Ok(tracker) => {
            let tracker = use_tracker(aggregator, client, server, &tool, tracker);
            enter(aggregator, message, request, (&named, &tracker));
        }
        Err(refusal) => to.respond(&refusal.answer(id_token)),
    }
}

/// The tool or prompt that a call names.
struct Named<'n> {
    view: &'n View,
    kind: Kind,
    name_at: Span,
    name: &'n str,
    found: Option<Route>,
}

impl<'n> Named<'n> {
    /// Looks up the name at `name_at`.
    fn find(view: &'n View, client: &Client, kind: Kind, name_at: Span, name: &'n str) -> Self {
        Self { view, kind, name_at, name, found: view.snapshot.resolve(client.scope(), kind, name) }
    }

    /// The target to resume with, if the call has to wait.
    fn target(&self) -> Target {
        Target::Item { kind: self.kind, name_at: self.name_at }
    }

    /// Why the item does not exist, or why its server cannot be called.
    fn why_not(&self, client: &Client) -> Missing {
        match self.found {
            Some(found) => self.view.snapshot.why_not_from(found.server),
            None => self.view.snapshot.why_missing(client.scope(), self.kind, self.name, client.style()),
        }
    }

    /// The server of the item, whether or not it can be called now, and the name the server uses.
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

/// Sends a call. If there is an interceptor, it opens the call first.
fn go(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope, named: &Named<'_>) {
    let Incoming { client, to, line, .. } = &message;
    let Named { view, kind, name_at, name, found } = *named;
    let Some((found, connection)) = found.and_then(|found| Some((found, view.connections[found.server].as_ref()?)))
    else {
        let why = named.why_not(client);
        if let Missing::Starting(server) = why {
            return wait(aggregator, message, request, server, named.target());
        }
        if let Missing::Down(server) = why
            && sign_in::ask(aggregator, &message, request, server, named.target())
        {
            return;
        }
        // A server alone in its scope receives calls of unlisted items too: it knows best what it has.
        if let (Scope::One(server), Missing::UnknownItem(_)) = (client.scope(), why)
            && view.connections[server].is_some()
        {
            return route_to(aggregator, message, request, server, named.target());
        }
        tracing::debug!(%name, ?why, "call of an unknown name");
        return to.respond(&not_found(view, request.id.of(line), kind, name, why));
    };
    tracing::debug!(%name, server = %connection.server(), bytes = line.len(), "call");
    let server_name = view.snapshot.item(kind, found).id_token();
    let connection = Arc::clone(connection);
    let renamed = Some(Edit { span: name_at, with: &server_name });
    send(aggregator, message, request, Destination { connection: &connection, renamed, alias: None });
}

/// Makes a call that the interceptor opened, when it is permitted.
fn enter(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    request: &RequestEnvelope,
    (named, tracker): (&Named<'_>, &Arc<dyn CallTracker>),
) {
    let Incoming { client, to, line, flush_set } = message;
    let to = &to.tracked(Arc::clone(tracker));
    let Some(permit) = tracker.permit() else {
        return go(aggregator, Incoming { client, to, line, flush_set }, request, named);
    };
    let message = Incoming { client, to, line, flush_set };
    let suspended = SuspendedRequest::new(aggregator, &message, request, named.target());
    client.defer(line.slice(request.id.start..request.id.end), to, async move {
        let permit = permit.await;
        let mut flush_set = FlushSet::default();
        match permit {
            Ok(()) => suspended.resume(&mut flush_set),
            Err(refusal) => suspended.to().respond(&refusal.answer(suspended.id())),
        }
        flush_set.flush();
        suspended.to().flush();
    });
}

/// Continues a call that has waited. The interceptor, if any, has opened it already.
pub(crate) fn resume_item(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    request: &RequestEnvelope,
    kind: Kind,
    name_at: Span,
) {
    let name = text::decode(name_at.of(message.line)).expect("it could be decoded before the call waited");
    let view = aggregator.fleet.view();
    let named = Named::find(&view, message.client, kind, name_at, &name);
    go(aggregator, message, request, &named);
}

/// Forwards a request to one server unchanged except for its id. If it has to wait, it continues with its `target`.
pub(crate) fn route_to(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    request: &RequestEnvelope,
    server: usize,
    target: Target,
) {
    let view = aggregator.fleet.view();
    if let Some(connection) = &view.connections[server] {
        return send(aggregator, message, request, Destination::as_it_is(connection));
    }
    let Incoming { to, line, .. } = &message;
    match &view.snapshot.servers()[server].state {
        state if state.is_starting_or_asleep() => wait(aggregator, message, request, server, target),
        _ if sign_in::ask(aggregator, &message, request, server, target) => {}
        _ => to.respond(&unavailable::answer(request.id.of(line), &view.snapshot.servers()[server])),
    }
}

/// Where a request goes, and the server's name of the item.
pub(crate) struct Destination<'d> {
    /// The server.
    pub(crate) connection: &'d Arc<Connection>,
    /// The span to replace with the server's own name.
    pub(crate) renamed: Option<Edit<'d>>,
    /// The task has another name at the server; the response must carry the client's name again.
    pub(crate) alias: Option<Alias>,
}

impl<'d> Destination<'d> {
    /// This server, with all names unchanged.
    pub(crate) fn as_it_is(connection: &'d Arc<Connection>) -> Self {
        Self { connection, renamed: None, alias: None }
    }
}

/// Sends a request to its server, through the bridge if the lifecycles differ.
pub(crate) fn send(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    request: &RequestEnvelope,
    destination: Destination<'_>,
) {
    let Incoming { client, to, line, flush_set } = message;
    // A server with a handshake in both lifecycles receives the request in the client's own.
    let connection = destination.connection.for_lifecycle(lifecycle_of(&request.params));
    let destination = Destination { connection, ..destination };
    client.request_opened();
    flush_set.add(connection);
    let Some(span) = to.tracker().and_then(|tracker| tracker.on_sent()) else {
        return forward(aggregator, to, line, request, destination);
    };
    let line = trace::caused_by(line, &request.params, &span, destination.renamed);
    let destination = Destination { renamed: None, ..destination };
    forward(aggregator, to, &line, &bridge::scanned_request(&line), destination);
}

fn forward(
    aggregator: &Arc<Aggregator>,
    to: &Arc<Responder>,
    line: &Bytes,
    request: &RequestEnvelope,
    destination: Destination<'_>,
) {
    let Destination { connection, renamed, alias } = destination;
    if lifecycle_of(&request.params) != connection.lifecycle() {
        return bridge::send(aggregator, to, line, request, connection, renamed);
    }
    let handler = response_rewriter::response_handler(&aggregator.fleet, connection, to, line, request, alias);
    let &RequestEnvelope { id, ref params, .. } = request;
    let known_as = id.of(line);
    let request = Request { line, id, known_as, renamed, progress: params.wanted_progress };
    if let Err(error) = connection.forward(request, &handler) {
        to.on_failure(known_as, &error);
    }
}

/// Lets the call wait for its server to start. The server has a deadline, so the call has one.
fn wait(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope, server: usize, target: Target) {
    let suspended = SuspendedRequest::new(aggregator, &message, request, target);
    let Incoming { client, to, line, flush_set } = message;
    client.request_opened();
    match aggregator.fleet.slots.at(server).waiting.enter(suspended) {
        Enqueued::Waits => aggregator.fleet.need(server),
        Enqueued::Full(waiting) => {
            let server = aggregator.fleet.view().snapshot.servers()[server].name.clone();
            to.on_failure(request.id.of(line), &CallError::Congested { server, waiting });
        }
        Enqueued::Settled(suspended) => {
            client.request_closed();
            suspended.resume(flush_set);
        }
    }
}

/// Resumes calls that have waited, now that their server is up or down.
pub(crate) fn resume(calls: impl IntoIterator<Item = SuspendedRequest>) {
    let mut flush_set = FlushSet::default();
    for call in calls {
        call.client().request_closed();
        call.resume(&mut flush_set);
        call.to().flush();
    }
    flush_set.flush();
}

/// Ends a call that someone other than its client cancels. The client receives the tracker's `cancel_reason`.
pub(crate) fn cut_short(aggregator: &Aggregator, client: &Client, id: &[u8], why: &str) -> bool {
    let fleet = &aggregator.fleet;
    let number = client.number();
    client.cancel_deferred(id)
        || fleet.slots.any(|slot| slot.waiting.cancel(number, id))
        || aggregator.parked_calls.cut_short(number, id, why)
        || fleet.at_work().iter().any(|connection| connection.abandon_call(number, id, why))
}

/// Cancels a call for its client; the server is notified under the id it knows.
pub(crate) fn cancel(aggregator: &Aggregator, message: &Incoming<'_>, params: &Params) {
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
        // Usual: the response and the cancellation crossed in transit.
        tracing::debug!("no request to cancel with this id");
    }
}

/// The error for a missing item, for people (`message`) and for programs (`data`).
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
            server if matches!(server.state, ServerState::Unavailable(_)) => return unavailable::answer(id, server),
            server => reply::object(unavailable::describe(server)),
        },
    };
    // The specifications of both programs require this code for tools; for prompts, only the protocol specifies one.
    let code = if kind == Kind::Tool { code::METHOD_NOT_FOUND } else { code::INVALID_PARAMS };
    reply::error(id, code, &format!("{noun} not found: {name}"), Some(&data))
}
