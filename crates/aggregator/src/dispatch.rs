//! One `match` over the methods, which is all we offer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{NamePolicy, Separator};
use protocol::envelope::{Envelope, Fault, Kind, Reason, is_id};
use protocol::reply::{self, code};
use protocol::scan::{Span, member};
use protocol::{Line, Params, Revision, text};
use upstream::Connection;

use crate::client::{Client, Respond};
use crate::fleet::Fleet;
use crate::{batch, call, listing};

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
}

/// The servers and how we present them.
pub struct Aggregator {
    /// The servers behind us.
    pub fleet: Arc<Fleet>,
    /// How we present ourselves.
    pub options: Options,
}

/// One message in hand: whose it is, where its answer goes, and the way to whoever it was sent to.
pub struct Incoming<'m> {
    /// Who sent it.
    pub client: &'m Arc<Client>,
    /// Where its answer goes.
    pub to: &'m Arc<dyn Respond>,
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
    /// Takes one line from a client. Answers go into its outbox; the caller flushes.
    pub fn take(self: &Arc<Self>, client: &Arc<Client>, to: &Arc<dyn Respond>, line: &Line, touched: &mut Touched) {
        match line {
            Line::Whole(line) => self.take_message(Incoming { client, to, line, touched }),
            Line::TooLong { head, tail, length } => {
                let id = protocol::envelope::salvage_id(head, tail).unwrap_or(b"null");
                let message = format!("Request too large: {} MB", length >> 20);
                to.send(&reply::error(id, code::INVALID_REQUEST, &message, None));
            }
        }
    }

    fn take_message(self: &Arc<Self>, message: Incoming<'_>) {
        match Envelope::scan(message.line) {
            Ok(Envelope { kind: Kind::Request { id, method }, params }) => self.request(message, id, method, &params),
            Ok(Envelope { kind: Kind::Notification { method }, params }) => self.notice(&message, method, &params),
            // We ask clients nothing, so there is nothing to answer.
            Ok(Envelope { kind: Kind::Response { .. }, .. }) => {}
            Err(Fault { reason: Reason::Batch, .. }) if message.client.revision().has_batches() => {
                batch::split(self, message);
            }
            Err(fault) => message.to.send(&complaint(fault, message.line)),
        }
    }

    fn request(self: &Arc<Self>, message: Incoming<'_>, id: Span, method: Span, params: &Params) {
        let id_token = id.of(message.line);
        match text::decode(method.of(message.line)).as_deref() {
            Some("tools/call") => call::route(&self.fleet, message, id, params),
            Some("tools/list") => listing::answer(self, &message, id, params),
            Some("ping") => message.to.send(&reply::result(id_token, b"{}")),
            Some("initialize") => message.to.send(&self.initialize(&message, id_token, params)),
            method => {
                let text = format!("Method not found: {}", method.unwrap_or("?"));
                message.to.send(&reply::error(id_token, code::METHOD_NOT_FOUND, &text, None));
            }
        }
    }

    fn notice(&self, message: &Incoming<'_>, method: Span, params: &Params) {
        match text::decode(method.of(message.line)).as_deref() {
            Some("notifications/initialized") => message.client.initialized(),
            Some("notifications/cancelled") => call::cancel(&self.fleet, message, params),
            method => tracing::debug!(method = method.unwrap_or("?"), "notification of the client not passed on"),
        }
    }

    /// Answered at once: a client must not wait for servers to learn that we are here.
    fn initialize(&self, message: &Incoming<'_>, id: &[u8], params: &Params) -> Vec<u8> {
        let (line, whole) = (message.line, params.span.unwrap_or(Span { start: 0, end: 0 }));
        let text_at = |span: Option<Span>| span.and_then(|span| text::decode(span.of(line)));
        let Some(wanted) = text_at(member(line, whole, "protocolVersion")) else {
            let text = "Invalid params: `protocolVersion` must be a string";
            return reply::error(id, code::INVALID_PARAMS, text, None);
        };
        let info = member(line, whole, "clientInfo");
        let name = text_at(info.and_then(|info| member(line, info, "name"))).unwrap_or_default();
        let revision = Revision::agreed(&wanted);
        tracing::debug!(client = %name, wanted = %wanted, agreed = %revision, "client connected");
        message.client.introduced(&name, revision);

        let server_info = reply::object([
            ("name", reply::string(&self.options.name)),
            ("version", reply::string(&self.options.version)),
        ]);
        let result = reply::object([
            ("protocolVersion", reply::string(revision.as_str())),
            ("capabilities", br#"{"tools":{"listChanged":true}}"#.to_vec()),
            ("serverInfo", server_info),
        ]);
        reply::result(id, &result)
    }
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
