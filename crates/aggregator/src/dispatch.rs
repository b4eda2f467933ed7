//! One `match` over the methods, which is all we offer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind as ItemKind, NamePolicy, Scope, Separator};
use protocol::bridge::problem::{self, Problem};
use protocol::envelope::{Envelope, EnvelopeError, Kind, Reason, is_id};
use protocol::reply::{self, code};
use protocol::{Lifecycle, Line, Params, Span, text};
use upstream::{Connection, ServerLimits};

use crate::bridge::ParkedCalls;
use crate::client::{Client, lifecycle_of};
use crate::client_limits::ClientLimits;
use crate::connected_clients::{ConnectedClient, ConnectedClients};
use crate::fleet::Fleet;
use crate::interceptor::CallInterceptor;
use crate::method_set::MethodSet;
use crate::responder::Responder;
use crate::surface::{self, Surface, ToolFinder};
use crate::{batch, call, lists, logs, resources, subscriptions, tasks};

/// Characters of an unknown method that are repeated.
const MAX_SHOWN_METHOD_CHARS: usize = 200;

/// How the aggregator presents itself and treats its servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name it reports over MCP.
    pub name: String,
    /// The version it reports over MCP.
    pub version: String,
    /// What stands between server and tool.
    pub separator: Separator,
    /// Which names clients are offered.
    pub names: NamePolicy,
    /// How long a server may take to become ready.
    pub start_timeout: Duration,
    /// The variables with which our own doors are opened: nothing for the servers behind them.
    pub withheld: &'static [&'static str],
    /// Servers may join and leave while we run.
    pub is_growing: bool,
    /// What is offered and asked for: the whole protocol, or nothing but tools.
    pub method_set: MethodSet,
    /// How long a modern client may take to come back with what a legacy server wants to know.
    pub answer_timeout: Duration,
    /// How much of the tools clients see, unless they come another way.
    pub surface: Surface,
    /// What clients can be asked, as servers are told: the JSON of `capabilities`.
    pub capabilities: &'static str,
    /// What servers may make us hold.
    pub server_limits: Arc<ServerLimits>,
    /// What clients may make us keep.
    pub client_limits: ClientLimits,
    /// There will be one client, and servers that speak both lifecycles over a pipe are met in the lifecycle it speaks.
    pub awaits_client: bool,
}

/// The servers and how we present them.
pub struct Aggregator {
    /// The servers behind us.
    pub fleet: Arc<Fleet>,
    /// How we present ourselves.
    pub options: Options,
    /// Calls between the lifecycles.
    pub(crate) parked_calls: Arc<ParkedCalls>,
    /// Where calls are entered, if anywhere.
    pub(crate) interceptor: Option<Arc<dyn CallInterceptor>>,
    /// Who is connected, where calls are accounted for.
    pub(crate) clients: Option<ConnectedClients>,
    tool_finder: OnceLock<Arc<dyn ToolFinder>>,
}

/// One message in hand: whose it is, where its answer goes, and the way to whoever it was sent to.
pub struct Incoming<'m> {
    /// Who sent it.
    pub client: &'m Arc<Client>,
    /// Where its answer goes.
    pub to: &'m Arc<Responder>,
    /// The message.
    pub line: &'m Bytes,
    /// Servers that were sent something and must be flushed when all that came in together is dispatched.
    pub flush_set: &'m mut FlushSet,
}

/// Connections with something to flush.
#[derive(Default)]
pub struct FlushSet(Vec<Arc<Connection>>);

impl FlushSet {
    /// Flush this one later.
    pub fn add(&mut self, connection: &Arc<Connection>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, connection)) {
            self.0.push(Arc::clone(connection));
        }
    }

    /// Flush them all now.
    pub fn flush(&mut self) {
        for connection in self.0.drain(..) {
            connection.flush();
        }
    }
}

impl Aggregator {
    /// The servers of `fleet`, presented as `options` say.
    pub fn new(fleet: Arc<Fleet>, options: Options) -> Arc<Self> {
        let (interceptor, clients, tool_finder) = (None, None, OnceLock::new());
        Arc::new(Self { fleet, options, parked_calls: Arc::default(), interceptor, clients, tool_finder })
    }

    /// The same, with every call of a tool entered in `interceptor`.
    pub fn with_interceptor(fleet: Arc<Fleet>, options: Options, interceptor: Arc<dyn CallInterceptor>) -> Arc<Self> {
        let (interceptor, clients, tool_finder) =
            (Some(interceptor), Some(ConnectedClients::default()), OnceLock::new());
        Arc::new(Self { fleet, options, parked_calls: Arc::default(), interceptor, clients, tool_finder })
    }

    /// From now on, `tool_finder` knows which tools fit a wish, and clients can have the small surface. Only the first one
    /// counts.
    pub fn set_tool_finder(&self, tool_finder: Arc<dyn ToolFinder>) {
        self.tool_finder.get_or_init(|| tool_finder);
    }

    /// Who is connected, in the order in which they came. Nobody where that is not kept.
    pub fn connected_clients(&self) -> Vec<Arc<ConnectedClient>> {
        self.clients.as_ref().map(ConnectedClients::all).unwrap_or_default()
    }

    /// Who knows which tools fit a wish.
    pub(crate) fn tool_finder(&self) -> Option<&Arc<dyn ToolFinder>> {
        self.tool_finder.get()
    }

    /// Ends the call that `client` made under `id`, for a reason of ours; whether there was one. Its account says what
    /// the client is told.
    pub fn cut_short(&self, client: &Client, id: &[u8], why: &str) -> bool {
        call::cut_short(self, client, id, why)
    }

    /// Takes one line from a client. Answers go their way; the caller flushes.
    pub fn take(self: &Arc<Self>, client: &Arc<Client>, to: &Arc<Responder>, line: &Line, flush_set: &mut FlushSet) {
        match line {
            Line::Whole(line) => self.take_message(Incoming { client, to, line, flush_set }),
            Line::TooLong { head, tail, length } => {
                let id = protocol::envelope::salvage_id(head, tail).unwrap_or(b"null");
                let message = format!("Request too large: {} MB", length >> 20);
                to.respond(&reply::error(id, code::INVALID_REQUEST, &message, None));
            }
        }
    }

    /// The client is gone: everything it still waits for is given up, and so is what it follows.
    pub fn abandon(&self, client: &Arc<Client>) {
        const WHY: &str = "the client is gone";
        client.set_connected(None);
        client.cancel_all_deferred();
        self.parked_calls.abandon(client.number());
        self.fleet.slots.for_each(|slot| slot.waiting.cancel_all(client.number()));
        for connection in self.fleet.at_work() {
            connection.abandon_all(client.number(), WHY);
        }
        self.fleet.remove_client(client);
        if client.level().is_some() {
            self.fleet.settle_levels();
        }
        client.server_requests.give_up();
        subscriptions::leave(&self.fleet, client);
        tasks::leave(&self.fleet, client);
    }

    fn take_message(self: &Arc<Self>, message: Incoming<'_>) {
        let scanned = Envelope::scan(message.line);
        self.take_scanned(message, scanned);
    }

    /// Takes a line that was already looked at.
    pub fn take_scanned(self: &Arc<Self>, message: Incoming<'_>, scanned: Result<Envelope, EnvelopeError>) {
        match scanned {
            Ok(envelope @ Envelope { kind: Kind::Request { id, method }, .. }) => {
                self.request(message, &envelope, id, method);
            }
            Ok(Envelope { kind: Kind::Notification { method }, params }) => self.notice(&message, method, &params),
            Ok(Envelope { kind: Kind::Response { id, outcome }, .. }) => {
                message.client.server_requests.answered(message.line, id, outcome);
            }
            Err(EnvelopeError { reason: Reason::Batch, .. }) if message.client.revision().has_batches() => {
                batch::split(self, message);
            }
            Err(fault) => message.to.respond(&error_response(fault, message.line)),
        }
    }

    fn request(self: &Arc<Self>, message: Incoming<'_>, envelope: &Envelope, id: Span, method: Span) {
        if let Some(refusal) = self.options.client_limits.refusal(message.line, envelope) {
            return message.to.respond(&refusal);
        }
        let params = &envelope.params;
        let lifecycle = lifecycle_of(params);
        if lifecycle == Lifecycle::SelfContained
            && let Err(problem) = problem::check_modern(message.line, params)
        {
            return message.to.respond(&problem.answer(id.of(message.line)));
        }
        if lifecycle == Lifecycle::SelfContained
            && let Some(clients) = self.clients.as_ref().filter(|_| message.client.call_origin().is_none())
        {
            let connected = clients.note_request(message.line, params, message.client.principal());
            message.client.set_connected(Some(connected));
        }
        if lifecycle == Lifecycle::SelfContained && message.client.is_alone() {
            message.client.mark_modern();
            self.fleet.note_client_lifecycle(lifecycle);
        }
        let method = text::decode(method.of(message.line)).unwrap_or_default();
        if lifecycle == Lifecycle::Session && needs_handshake(message.client, &method) {
            return message.to.respond(&Problem::NoHandshake.answer(id.of(message.line)));
        }
        (self.options.method_set.request)(self, message, envelope, id, &method);
    }

    /// What the larger program offers.
    pub(crate) fn request_of_anything(
        self: &Arc<Self>,
        message: Incoming<'_>,
        envelope: &Envelope,
        id: Span,
        method: &str,
    ) {
        let params = &envelope.params;
        let lifecycle = lifecycle_of(params);
        match (method, lifecycle) {
            ("tools/call", _) => surface::take(self, message, envelope),
            ("prompts/get", _) => call::route(self, message, envelope, ItemKind::Prompt),
            ("resources/read", _) => resources::read(self, message, envelope),
            ("completion/complete", _) => resources::complete(self, message, envelope),
            ("tools/list", _) => lists::answer(self, &message, id, params, ItemKind::Tool),
            ("prompts/list", _) => lists::answer(self, &message, id, params, ItemKind::Prompt),
            ("resources/list", _) => lists::answer(self, &message, id, params, ItemKind::Resource),
            ("resources/templates/list", _) => lists::answer(self, &message, id, params, ItemKind::Template),
            ("tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update", _) => {
                tasks::route(self, message, envelope, method);
            }
            ("tasks/list", Lifecycle::Session) => tasks::list(self, &message, id),
            ("resources/subscribe", Lifecycle::Session) => subscriptions::subscribe(self, &message, id, params),
            ("resources/unsubscribe", Lifecycle::Session) => subscriptions::unsubscribe(self, &message, id, params),
            ("logging/setLevel", Lifecycle::Session) => logs::set_level(self, &message, id, params),
            ("ping", Lifecycle::Session) => message.to.respond(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Lifecycle::Session) => self.initialize(&message, id, params),
            ("server/discover", Lifecycle::SelfContained) => self.discover(&message, id),
            ("subscriptions/listen", Lifecycle::SelfContained) => subscriptions::listen(self, &message, id, params),
            (method, _) => self.unknown(message, envelope, id, method, lifecycle),
        }
    }

    /// What the tiny program offers.
    pub(crate) fn request_of_tools(
        self: &Arc<Self>,
        message: Incoming<'_>,
        envelope: &Envelope,
        id: Span,
        method: &str,
    ) {
        match (method, lifecycle_of(&envelope.params)) {
            ("tools/call", _) => call::route(self, message, envelope, ItemKind::Tool),
            ("tools/list", _) => lists::answer(self, &message, id, &envelope.params, ItemKind::Tool),
            ("ping", Lifecycle::Session) => message.to.respond(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Lifecycle::Session) => self.initialize(&message, id, &envelope.params),
            ("server/discover", Lifecycle::SelfContained) => self.discover(&message, id),
            ("subscriptions/listen", Lifecycle::SelfContained) => {
                subscriptions::listen(self, &message, id, &envelope.params);
            }
            (method, _) => not_found(&message, id, method),
        }
    }

    /// Where only one server can be meant, it is asked; nobody else can know the method.
    fn unknown(
        self: &Arc<Self>,
        message: Incoming<'_>,
        envelope: &Envelope,
        id: Span,
        method: &str,
        lifecycle: Lifecycle,
    ) {
        const GONE: [&str; 5] =
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        const NEW: [&str; 2] = ["server/discover", "subscriptions/listen"];
        let is_of_other_lifecycle = match lifecycle {
            Lifecycle::SelfContained => GONE.contains(&method) || method == "tasks/list",
            Lifecycle::Session => NEW.contains(&method),
        };
        match message.client.scope() {
            Scope::One(server) if !is_of_other_lifecycle => call::route_to(self, message, envelope, server),
            Scope::One(_) | Scope::All => not_found(&message, id, method),
        }
    }

    fn notice(&self, message: &Incoming<'_>, method: Span, params: &Params) {
        match text::decode(method.of(message.line)).as_deref() {
            Some("notifications/initialized") => message.client.initialized(),
            Some("notifications/cancelled") => call::cancel(self, message, params),
            Some("notifications/progress") => message.client.server_requests.progressed(message.line, params),
            Some("notifications/roots/list_changed") => self.pass_on_roots(message),
            method => match message.client.scope() {
                Scope::One(server) => {
                    if let Some(connection) = &self.fleet.view().connections[server] {
                        connection.for_lifecycle(lifecycle_of(params)).pass(message.line);
                    }
                }
                Scope::All => {
                    tracing::debug!(method = method.unwrap_or("?"), "notification of the client not passed on");
                }
            },
        }
    }

    /// Servers asked the only client there is for its roots, so they want to know.
    fn pass_on_roots(&self, message: &Incoming<'_>) {
        if !message.client.is_alone() {
            return;
        }
        for connection in self.fleet.view().connections.iter().flatten() {
            if connection.lifecycle() == Lifecycle::Session {
                connection.pass(message.line);
            }
        }
    }
}

/// Whether a request without a revision in its `_meta` must be preceded by `initialize`. Over HTTP, sessions see to that.
/// Legacy revisions allow `ping` at any time.
fn needs_handshake(client: &Client, method: &str) -> bool {
    client.is_alone() && !matches!(method, "initialize" | "ping") && !client.has_initialize()
}

fn not_found(message: &Incoming<'_>, id: Span, method: &str) {
    let shown: String = method.chars().take(MAX_SHOWN_METHOD_CHARS).collect();
    let text = format!("Method not found: {shown}");
    message.to.respond(&reply::error(id.of(message.line), code::METHOD_NOT_FOUND, &text, None));
}

/// The answer to a line that is no request.
fn error_response(fault: EnvelopeError, line: &[u8]) -> Vec<u8> {
    let (code, text) = match fault.reason {
        Reason::NotJson { .. } | Reason::NotUtf8 { .. } => (code::PARSE_ERROR, "Parse error"),
        Reason::NotAnObject | Reason::Batch | Reason::Invalid(_) => (code::INVALID_REQUEST, "Invalid Request"),
    };
    // A broken line has no id that can be trusted; a well-formed one keeps its own where it is a legal one.
    let id = fault.id.filter(|&id| code == code::INVALID_REQUEST && is_id(id, line));
    reply::error(id.map_or(b"null", |id| id.of(line)), code, &format!("{text}: {}", fault.reason), None)
}
