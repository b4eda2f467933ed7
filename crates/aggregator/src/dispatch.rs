//! One `match` over the methods, which is all we offer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind as ItemKind, NamePolicy, Scope, Separator};
use protocol::envelope::{Envelope, Fault, Kind, Reason, is_id};
use protocol::era::problem::{self, Problem};
use protocol::reply::{self, code};
use protocol::{Era, Line, Params, Span, text};
use upstream::{Connection, ServerLimits};

use crate::answering::Answering;
use crate::client::{Client, era_of};
use crate::client_limits::ClientLimits;
use crate::connected_clients::{ConnectedClient, ConnectedClients};
use crate::crossing::Crossings;
use crate::fleet::Fleet;
use crate::ledger::Ledger;
use crate::reach::Reach;
use crate::surface::{self, Guide, Surface};
use crate::{batch, call, listing, logs, resources, subscriptions, tasks};

/// Characters of an unknown method that are repeated.
const LONGEST_METHOD: usize = 200;

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
    pub reach: Reach,
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
    /// There will be one client, and servers that speak both eras over a pipe are met in the era it speaks.
    pub awaits_client: bool,
}

/// The servers and how we present them.
pub struct Aggregator {
    /// The servers behind us.
    pub fleet: Arc<Fleet>,
    /// How we present ourselves.
    pub options: Options,
    /// Calls between the eras.
    pub(crate) crossings: Arc<Crossings>,
    /// Where calls are entered, if anywhere.
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    /// Who is connected, where calls are accounted for.
    pub(crate) clients: Option<ConnectedClients>,
    guide: OnceLock<Arc<dyn Guide>>,
}

/// One message in hand: whose it is, where its answer goes, and the way to whoever it was sent to.
pub struct Incoming<'m> {
    /// Who sent it.
    pub client: &'m Arc<Client>,
    /// Where its answer goes.
    pub to: &'m Arc<Answering>,
    /// The message.
    pub line: &'m Bytes,
    /// Servers that were sent something and must be flushed when all that came in together is dispatched.
    pub touched: &'m mut Touched,
}

/// Connections with something to flush.
#[derive(Default)]
pub struct Touched(Vec<Arc<Connection>>);

impl Touched {
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
        let (ledger, clients, guide) = (None, None, OnceLock::new());
        Arc::new(Self { fleet, options, crossings: Arc::default(), ledger, clients, guide })
    }

    /// The same, with every call of a tool entered in `ledger`.
    pub fn accounting(fleet: Arc<Fleet>, options: Options, ledger: Arc<dyn Ledger>) -> Arc<Self> {
        let (ledger, clients, guide) = (Some(ledger), Some(ConnectedClients::default()), OnceLock::new());
        Arc::new(Self { fleet, options, crossings: Arc::default(), ledger, clients, guide })
    }

    /// From now on, `guide` knows which tools fit a wish, and clients can have the small surface. Only the first one
    /// counts.
    pub fn ask(&self, guide: Arc<dyn Guide>) {
        self.guide.get_or_init(|| guide);
    }

    /// Who is connected, in the order in which they came. Nobody where that is not kept.
    pub fn connected_clients(&self) -> Vec<Arc<ConnectedClient>> {
        self.clients.as_ref().map(ConnectedClients::all).unwrap_or_default()
    }

    /// Who knows which tools fit a wish.
    pub(crate) fn guide(&self) -> Option<&Arc<dyn Guide>> {
        self.guide.get()
    }

    /// Ends the call that `client` made under `id`, for a reason of ours; whether there was one. Its account says what
    /// the client is told.
    pub fn cut_short(&self, client: &Client, id: &[u8], why: &str) -> bool {
        call::cut_short(self, client, id, why)
    }

    /// Takes one line from a client. Answers go their way; the caller flushes.
    pub fn take(self: &Arc<Self>, client: &Arc<Client>, to: &Arc<Answering>, line: &Line, touched: &mut Touched) {
        match line {
            Line::Whole(line) => self.take_message(Incoming { client, to, line, touched }),
            Line::TooLong { head, tail, length } => {
                let id = protocol::envelope::salvage_id(head, tail).unwrap_or(b"null");
                let message = format!("Request too large: {} MB", length >> 20);
                to.say(&reply::error(id, code::INVALID_REQUEST, &message, None));
            }
        }
    }

    /// The client is gone: everything it still waits for is given up, and so is what it follows.
    pub fn abandon(&self, client: &Arc<Client>) {
        const WHY: &str = "the client is gone";
        client.set_connected(None);
        client.cancel_all_parked();
        self.crossings.abandon(client.number());
        self.fleet.places.for_each(|place| place.waiting.cancel_all(client.number()));
        for connection in self.fleet.at_work() {
            connection.abandon_all(client.number(), WHY);
        }
        self.fleet.forget(client);
        if client.level().is_some() {
            self.fleet.settle_levels();
        }
        client.questions.give_up();
        subscriptions::leave(&self.fleet, client);
        tasks::leave(&self.fleet, client);
    }

    fn take_message(self: &Arc<Self>, message: Incoming<'_>) {
        let scanned = Envelope::scan(message.line);
        self.take_scanned(message, scanned);
    }

    /// Takes a line that was already looked at.
    pub fn take_scanned(self: &Arc<Self>, message: Incoming<'_>, scanned: Result<Envelope, Fault>) {
        match scanned {
            Ok(envelope @ Envelope { kind: Kind::Request { id, method }, .. }) => {
                self.request(message, &envelope, id, method);
            }
            Ok(Envelope { kind: Kind::Notification { method }, params }) => self.notice(&message, method, &params),
            Ok(Envelope { kind: Kind::Response { id, outcome }, .. }) => {
                message.client.questions.answered(message.line, id, outcome);
            }
            Err(Fault { reason: Reason::Batch, .. }) if message.client.revision().has_batches() => {
                batch::split(self, message);
            }
            Err(fault) => message.to.say(&complaint(fault, message.line)),
        }
    }

    fn request(self: &Arc<Self>, message: Incoming<'_>, envelope: &Envelope, id: Span, method: Span) {
        if let Some(refusal) = self.options.client_limits.refusal(message.line, envelope) {
            return message.to.say(&refusal);
        }
        let params = &envelope.params;
        let era = era_of(params);
        if era == Era::Modern
            && let Err(problem) = problem::check_modern(message.line, params)
        {
            return message.to.say(&problem.answer(id.of(message.line)));
        }
        if era == Era::Modern
            && let Some(clients) = self.clients.as_ref().filter(|_| message.client.baggage().is_none())
        {
            let connected = clients.note_request(message.line, params, message.client.principal());
            message.client.set_connected(Some(connected));
        }
        if era == Era::Modern && message.client.is_alone() {
            message.client.is_modern();
            self.fleet.note_client_era(era);
        }
        let method = text::decode(method.of(message.line)).unwrap_or_default();
        if era == Era::Legacy && needs_handshake(message.client, &method) {
            return message.to.say(&Problem::NoHandshake.answer(id.of(message.line)));
        }
        (self.options.reach.request)(self, message, envelope, id, &method);
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
        let era = era_of(params);
        match (method, era) {
            ("tools/call", _) => surface::take(self, message, envelope),
            ("prompts/get", _) => call::route(self, message, envelope, ItemKind::Prompt),
            ("resources/read", _) => resources::read(self, message, envelope),
            ("completion/complete", _) => resources::complete(self, message, envelope),
            ("tools/list", _) => listing::answer(self, &message, id, params, ItemKind::Tool),
            ("prompts/list", _) => listing::answer(self, &message, id, params, ItemKind::Prompt),
            ("resources/list", _) => listing::answer(self, &message, id, params, ItemKind::Resource),
            ("resources/templates/list", _) => listing::answer(self, &message, id, params, ItemKind::Template),
            ("tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update", _) => {
                tasks::route(self, message, envelope, method);
            }
            ("tasks/list", Era::Legacy) => tasks::list(self, &message, id),
            ("resources/subscribe", Era::Legacy) => subscriptions::subscribe(self, &message, id, params),
            ("resources/unsubscribe", Era::Legacy) => subscriptions::unsubscribe(self, &message, id, params),
            ("logging/setLevel", Era::Legacy) => logs::set_level(self, &message, id, params),
            ("ping", Era::Legacy) => message.to.say(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Era::Legacy) => self.initialize(&message, id, params),
            ("server/discover", Era::Modern) => self.discover(&message, id),
            ("subscriptions/listen", Era::Modern) => subscriptions::listen(self, &message, id, params),
            (method, _) => self.unknown(message, envelope, id, method, era),
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
        match (method, era_of(&envelope.params)) {
            ("tools/call", _) => call::route(self, message, envelope, ItemKind::Tool),
            ("tools/list", _) => listing::answer(self, &message, id, &envelope.params, ItemKind::Tool),
            ("ping", Era::Legacy) => message.to.say(&reply::result(id.of(message.line), b"{}")),
            ("initialize", Era::Legacy) => self.initialize(&message, id, &envelope.params),
            ("server/discover", Era::Modern) => self.discover(&message, id),
            ("subscriptions/listen", Era::Modern) => subscriptions::listen(self, &message, id, &envelope.params),
            (method, _) => not_found(&message, id, method),
        }
    }

    /// Where only one server can be meant, it is asked; nobody else can know the method.
    fn unknown(self: &Arc<Self>, message: Incoming<'_>, envelope: &Envelope, id: Span, method: &str, era: Era) {
        const GONE: [&str; 5] =
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        const NEW: [&str; 2] = ["server/discover", "subscriptions/listen"];
        let is_of_other_era = match era {
            Era::Modern => GONE.contains(&method) || method == "tasks/list",
            Era::Legacy => NEW.contains(&method),
        };
        match message.client.scope() {
            Scope::One(server) if !is_of_other_era => call::route_to(self, message, envelope, server),
            Scope::One(_) | Scope::All => not_found(&message, id, method),
        }
    }

    fn notice(&self, message: &Incoming<'_>, method: Span, params: &Params) {
        match text::decode(method.of(message.line)).as_deref() {
            Some("notifications/initialized") => message.client.initialized(),
            Some("notifications/cancelled") => call::cancel(self, message, params),
            Some("notifications/progress") => message.client.questions.progressed(message.line, params),
            Some("notifications/roots/list_changed") => self.pass_on_roots(message),
            method => match message.client.scope() {
                Scope::One(server) => {
                    if let Some(connection) = &self.fleet.view().connections[server] {
                        connection.towards(era_of(params)).pass(message.line);
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
            if connection.era() == Era::Legacy {
                connection.pass(message.line);
            }
        }
    }
}

/// Whether a request without a revision in its `_meta` must be preceded by `initialize`. Over HTTP, sessions see to that.
/// Legacy revisions allow `ping` at any time.
fn needs_handshake(client: &Client, method: &str) -> bool {
    client.is_alone() && !matches!(method, "initialize" | "ping") && !client.is_introduced()
}

fn not_found(message: &Incoming<'_>, id: Span, method: &str) {
    let shown: String = method.chars().take(LONGEST_METHOD).collect();
    let text = format!("Method not found: {shown}");
    message.to.say(&reply::error(id.of(message.line), code::METHOD_NOT_FOUND, &text, None));
}

/// The answer to a line that is no request.
fn complaint(fault: Fault, line: &[u8]) -> Vec<u8> {
    let (code, text) = match fault.reason {
        Reason::NotJson { .. } | Reason::NotUtf8 { .. } => (code::PARSE_ERROR, "Parse error"),
        Reason::NotAnObject | Reason::Batch | Reason::Invalid(_) => (code::INVALID_REQUEST, "Invalid Request"),
    };
    // A broken line has no id that can be trusted; a well-formed one keeps its own where it is a legal one.
    let id = fault.id.filter(|&id| code == code::INVALID_REQUEST && is_id(id, line));
    reply::error(id.map_or(b"null", |id| id.of(line)), code, &format!("{text}: {}", fault.reason), None)
}
