//! Dispatch: one `match` over the supported methods.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind as ItemKind, NamePolicy, Scope, Separator};
use protocol::bridge::problem::{self, Problem};
use protocol::envelope::{Envelope, EnvelopeError, Kind, Reason, is_id};
use protocol::reply::{self, code};
use protocol::{Lifecycle, Line, Params, RequestEnvelope, Span, text};
use upstream::{Connection, ServerLimits};

use crate::bridge::ParkedCalls;
use crate::client::{CallOrigin, Client, lifecycle_of};
use crate::client_limits::ClientLimits;
use crate::connected_clients::{ConnectedClient, ConnectedClients};
use crate::fleet::Fleet;
use crate::interceptor::CallInterceptor;
use crate::method_set::MethodSet;
use crate::responder::Responder;
use crate::sign_in::{SignInHost, SignInPages};
use crate::surface::{self, Surface, ToolFinder};
use crate::suspended_request::Target;
use crate::{batch, call, lists, logs, resources, subscriptions, tasks};

/// Characters of an unknown method that an error repeats.
const MAX_SHOWN_METHOD_CHARS: usize = 200;

/// How the aggregator presents itself and treats its servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name it reports over MCP.
    pub name: String,
    /// The version it reports over MCP.
    pub version: String,
    /// The separator between server and tool in full names.
    pub separator: Separator,
    /// Which names clients see.
    pub names: NamePolicy,
    /// How long a server may take to become ready.
    pub start_timeout: Duration,
    /// Environment variables that hold our own credentials; servers do not inherit them.
    pub withheld: &'static [&'static str],
    /// Servers may join and leave while we run.
    pub servers_can_change: bool,
    /// The methods that clients can use and servers are sent: the whole protocol, or only tools.
    pub method_set: MethodSet,
    /// How long a modern client may take to retry with the input a legacy server requested.
    pub answer_timeout: Duration,
    /// The surface of clients, unless their route selects another.
    pub surface: Surface,
    /// The client capabilities reported to servers: the JSON of `capabilities`.
    pub capabilities: &'static str,
    /// Limits on what servers may make us store.
    pub server_limits: Arc<ServerLimits>,
    /// Limits on what clients may make us store.
    pub client_limits: ClientLimits,
    /// There will be one client; servers that speak both lifecycles over a pipe use the lifecycle of that client.
    pub awaits_client: bool,
}

/// The servers and how we present them.
pub struct Aggregator {
    /// The servers behind us.
    pub fleet: Arc<Fleet>,
    /// How we present ourselves.
    pub options: Options,
    /// Bridged calls.
    pub(crate) parked_calls: Arc<ParkedCalls>,
    /// Opens every tool call, if set.
    pub(crate) interceptor: Option<Arc<dyn CallInterceptor>>,
    /// The connected clients; tracked only with an interceptor.
    pub(crate) clients: Option<ConnectedClients>,
    tool_finder: OnceLock<Arc<dyn ToolFinder>>,
    /// Sends clients to sign-in pages, if a host is set.
    pub(crate) sign_in_pages: SignInPages,
    /// The profile of the client on our own stdin, or in our own process.
    local_profile: OnceLock<Arc<str>>,
}

/// One message being dispatched: its client, its responder, and the connections to flush afterwards.
pub struct Incoming<'m> {
    /// The client that sent it.
    pub client: &'m Arc<Client>,
    /// Where the response goes.
    pub to: &'m Arc<Responder>,
    /// The message.
    pub line: &'m Bytes,
    /// Connections with unsent bytes, flushed when all messages that arrived together are dispatched.
    pub flush_set: &'m mut FlushSet,
}

/// Connections to flush.
#[derive(Default)]
pub struct FlushSet(Vec<Arc<Connection>>);

impl FlushSet {
    /// Adds a connection to flush later.
    pub fn add(&mut self, connection: &Arc<Connection>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, connection)) {
            self.0.push(Arc::clone(connection));
        }
    }

    /// Flushes all of them now.
    pub fn flush(&mut self) {
        for connection in self.0.drain(..) {
            connection.flush();
        }
    }
}

impl Aggregator {
    /// An aggregator over the servers of `fleet`.
    pub fn new(fleet: Arc<Fleet>, options: Options) -> Arc<Self> {
        Self::with(fleet, options, None, None)
    }

    /// The same, with every tool call opened by `interceptor`.
    pub fn with_interceptor(fleet: Arc<Fleet>, options: Options, interceptor: Arc<dyn CallInterceptor>) -> Arc<Self> {
        let clients = ConnectedClients::new(&options.client_limits);
        Self::with(fleet, options, Some(interceptor), Some(clients))
    }

    fn with(
        fleet: Arc<Fleet>,
        options: Options,
        interceptor: Option<Arc<dyn CallInterceptor>>,
        clients: Option<ConnectedClients>,
    ) -> Arc<Self> {
        let (tool_finder, sign_in_pages, local_profile) = (OnceLock::new(), SignInPages::default(), OnceLock::new());
        Arc::new(Self {
            fleet,
            options,
            parked_calls: Arc::default(),
            interceptor,
            clients,
            tool_finder,
            sign_in_pages,
            local_profile,
        })
    }

    /// Sets what starts sign-ins, without which calls to servers that need one fail. Only the first one counts.
    pub fn set_sign_in_host(&self, host: Arc<dyn SignInHost>) {
        self.sign_in_pages.set_host(host);
    }

    /// Sets the index that finds tools for a query, without which clients cannot have the small surface. Only the
    /// first one counts.
    pub fn set_tool_finder(&self, tool_finder: Arc<dyn ToolFinder>) {
        self.tool_finder.get_or_init(|| tool_finder);
    }

    /// Sets the profile of the client on our own stdin, or in our own process. Only the first one counts.
    pub fn set_local_profile(&self, profile: &str) {
        self.local_profile.get_or_init(|| profile.into());
    }

    /// The profile of the client on our own stdin, or in our own process.
    pub(crate) fn local_profile(&self) -> Option<Arc<str>> {
        self.local_profile.get().cloned()
    }

    /// The connected clients, in the order in which they connected. Empty where they are not tracked.
    pub fn connected_clients(&self) -> Vec<Arc<ConnectedClient>> {
        self.clients.as_ref().map(ConnectedClients::all).unwrap_or_default()
    }

    /// Finds tools for a query.
    pub(crate) fn tool_finder(&self) -> Option<&Arc<dyn ToolFinder>> {
        self.tool_finder.get()
    }

    /// Ends the call that `client` made under `id`, for a reason of ours. Returns whether there was one. The client
    /// receives the tracker's `cancel_reason`.
    pub fn cut_short(&self, client: &Client, id: &[u8], why: &str) -> bool {
        call::cut_short(self, client, id, why)
    }

    /// Dispatches one line from a client. Responses go to their sinks; the caller flushes.
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

    /// Removes a disconnected client: its pending requests are cancelled and its subscriptions end.
    pub fn abandon(&self, client: &Arc<Client>) {
        const WHY: &str = "the client disconnected";
        client.set_connected(None);
        client.mark_abandoned();
        client.cancel_all_deferred();
        self.parked_calls.abandon(client.number());
        self.fleet.cancel_all_waiting(client.number());
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
        if client.has_initialize() {
            self.fleet.end_instances_of_session(client.number());
        }
    }

    fn take_message(self: &Arc<Self>, message: Incoming<'_>) {
        let scanned = Envelope::scan(message.line);
        self.take_scanned(message, scanned);
    }

    /// Dispatches a line that was already scanned.
    pub fn take_scanned(self: &Arc<Self>, message: Incoming<'_>, scanned: Result<Envelope, EnvelopeError>) {
        match scanned {
            Ok(Envelope { kind: Kind::Request { id, method }, params }) => {
                self.request(message, &RequestEnvelope { id, method, params });
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

    fn request(self: &Arc<Self>, message: Incoming<'_>, request: &RequestEnvelope) {
        if let Some(refusal) = self.options.client_limits.refusal(message.line, request) {
            return message.to.respond(&refusal);
        }
        let &RequestEnvelope { id, method, ref params } = request;
        let lifecycle = lifecycle_of(params);
        if lifecycle == Lifecycle::SelfContained
            && let Err(problem) = problem::check_modern(message.line, params)
        {
            return message.to.respond(&problem.answer(id.of(message.line)));
        }
        if lifecycle == Lifecycle::SelfContained
            && let Some(clients) = &self.clients
            && matches!(message.client.call_origin(), CallOrigin::Client)
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
        (self.options.method_set.request)(self, message, request, &method);
    }

    /// The methods of `mcp-aggregator`: the whole protocol.
    pub(crate) fn request_of_anything(
        self: &Arc<Self>,
        message: Incoming<'_>,
        request: &RequestEnvelope,
        method: &str,
    ) {
        let &RequestEnvelope { id, ref params, .. } = request;
        let lifecycle = lifecycle_of(params);
        match (method, lifecycle) {
            ("tools/call", _) => surface::take(self, message, request),
            ("prompts/get", _) => call::route(self, message, request, ItemKind::Prompt),
            ("resources/read", _) => resources::read(self, message, request),
            ("completion/complete", _) => resources::complete(self, message, request),
            ("tools/list", _) => lists::answer(self, &message, id, params, ItemKind::Tool),
            ("prompts/list", _) => lists::answer(self, &message, id, params, ItemKind::Prompt),
            ("resources/list", _) => lists::answer(self, &message, id, params, ItemKind::Resource),
            ("resources/templates/list", _) => lists::answer(self, &message, id, params, ItemKind::Template),
            ("tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update", _) => {
                tasks::route(self, message, request);
            }
            ("tasks/list", Lifecycle::Session) => tasks::list(self, &message, id),
            ("resources/subscribe", Lifecycle::Session) => subscriptions::subscribe(self, &message, id, params),
            ("resources/unsubscribe", Lifecycle::Session) => subscriptions::unsubscribe(self, &message, id, params),
            ("logging/setLevel", Lifecycle::Session) => logs::set_level(self, &message, id, params),
            ("ping", Lifecycle::Session) => message.to.respond(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Lifecycle::Session) => self.initialize(&message, id, params),
            ("server/discover", Lifecycle::SelfContained) => self.discover(&message, id),
            ("subscriptions/listen", Lifecycle::SelfContained) => subscriptions::listen(self, &message, id, params),
            (method, _) => self.unknown(message, request, method, lifecycle),
        }
    }

    /// The methods of the tools-only program.
    pub(crate) fn request_of_tools(self: &Arc<Self>, message: Incoming<'_>, request: &RequestEnvelope, method: &str) {
        let &RequestEnvelope { id, ref params, .. } = request;
        match (method, lifecycle_of(params)) {
            ("tools/call", _) => call::route(self, message, request, ItemKind::Tool),
            ("tools/list", _) => lists::answer(self, &message, id, params, ItemKind::Tool),
            ("ping", Lifecycle::Session) => message.to.respond(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Lifecycle::Session) => self.initialize(&message, id, params),
            ("server/discover", Lifecycle::SelfContained) => self.discover(&message, id),
            ("subscriptions/listen", Lifecycle::SelfContained) => {
                subscriptions::listen(self, &message, id, params);
            }
            (method, _) => not_found(&message, id, method),
        }
    }

    /// Forwards an unknown method if the scope has only one server; otherwise it is an error.
    fn unknown(self: &Arc<Self>, message: Incoming<'_>, request: &RequestEnvelope, method: &str, lifecycle: Lifecycle) {
        const LEGACY_ONLY_METHODS: [&str; 5] =
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        const MODERN_ONLY_METHODS: [&str; 2] = ["server/discover", "subscriptions/listen"];
        let is_of_other_lifecycle = match lifecycle {
            Lifecycle::SelfContained => LEGACY_ONLY_METHODS.contains(&method) || method == "tasks/list",
            Lifecycle::Session => MODERN_ONLY_METHODS.contains(&method),
        };
        match message.client.scope() {
            // A profile does not say what an unknown method does.
            Scope::One(server) if !is_of_other_lifecycle && message.client.profile().is_none() => {
                call::route_to(self, message, request, server, Target::Server(server));
            }
            Scope::One(_) | Scope::All => not_found(&message, request.id, method),
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
                    let view = self.fleet.view_of(message.client);
                    let connection = self.fleet.connection_for(&view, message.client, server);
                    if let Some(connection) = connection.filter(|_| view.is_whole()) {
                        connection.for_lifecycle(lifecycle_of(params)).pass(message.line);
                    }
                }
                Scope::All => {
                    tracing::debug!(method = method.unwrap_or("?"), "dropped a notification of the client");
                }
            },
        }
    }

    /// Forwards a change of roots: servers requested the roots of the only client, so they need to know.
    fn pass_on_roots(&self, message: &Incoming<'_>) {
        if !message.client.is_alone() {
            return;
        }
        for connection in self.fleet.view_of(message.client).connections.iter().flatten() {
            if connection.lifecycle() == Lifecycle::Session {
                connection.pass(message.line);
            }
        }
    }
}

/// Whether a request without a revision in its `_meta` must be preceded by `initialize`. Over HTTP, sessions ensure
/// that. Legacy revisions allow `ping` at any time.
fn needs_handshake(client: &Client, method: &str) -> bool {
    client.is_alone() && !matches!(method, "initialize" | "ping") && !client.has_initialize()
}

fn not_found(message: &Incoming<'_>, id: Span, method: &str) {
    let shown: String = method.chars().take(MAX_SHOWN_METHOD_CHARS).collect();
    let text = format!("Method not found: {shown}");
    message.to.respond(&reply::error(id.of(message.line), code::METHOD_NOT_FOUND, &text, None));
}

/// The error response to a line that is no valid request.
fn error_response(fault: EnvelopeError, line: &[u8]) -> Vec<u8> {
    let (code, text) = match fault.reason {
        Reason::NotJson { .. } | Reason::NotUtf8 { .. } => (code::PARSE_ERROR, "Parse error"),
        Reason::NotAnObject | Reason::Batch | Reason::Invalid(_) => (code::INVALID_REQUEST, "Invalid Request"),
    };
    // The id of a malformed line cannot be trusted; a well-formed line keeps its own id if that is valid.
    let id = fault.id.filter(|&id| code == code::INVALID_REQUEST && is_id(id, line));
    reply::error(id.map_or(b"null", |id| id.of(line)), code, &format!("{text}: {}", fault.reason), None)
}
