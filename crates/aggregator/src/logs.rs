//! Log messages of servers: who wants them, from which level on, and labelled by server.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::era::label;
use protocol::reply::{self, code};
use protocol::scan::member;
use protocol::{Envelope, Kind, Params, Span, text};
use upstream::Connection;

use crate::client::Client;
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::Fleet;
use crate::level::Level;

const METHOD: &str = "notifications/message";

/// Whether this is a log message.
pub(crate) fn is_message(line: &[u8], envelope: &Envelope) -> bool {
    matches!(envelope.kind, Kind::Notification { method } if text::token_is(method.of(line), METHOD))
}

/// The message as `client` gets it: labelled by server, unless it sees only one; `None` if it does not want it.
pub(crate) fn for_client(client: &Client, server: &Connection, line: &Bytes, envelope: &Envelope) -> Option<Bytes> {
    if client.level().is_some_and(|least| level_of(line, &envelope.params) < Some(least)) {
        return None;
    }
    Some(labelled(client.scope(), server, line, envelope))
}

/// The message with the name of its server, unless only one can have written it.
pub(crate) fn labelled(scope: Scope, server: &Connection, line: &Bytes, envelope: &Envelope) -> Bytes {
    match scope {
        Scope::All => label::log(line, &envelope.params, server.server().as_str()),
        Scope::One(_) => line.clone(),
    }
}

/// The level of a message. One that has none we know is passed to everybody.
pub(crate) fn level_of(line: &[u8], params: &Params) -> Option<Level> {
    let level = member(line, params.span?, "level")?;
    Some(Level::named(&text::decode(level.of(line))?).unwrap_or(Level::Emergency))
}

/// `logging/setLevel` of a client: heeded for it alone, and asked of every server as far as nobody wants more.
pub(crate) fn set_level(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Incoming { client, to, line, .. } = message;
    let level =
        params.span.and_then(|params| member(line, params, "level")).and_then(|level| text::decode(level.of(line)));
    let Some(level) = level.as_deref().and_then(Level::named) else {
        let known = Level::ALL.map(Level::as_str).join(", ");
        let text = format!("Invalid params: `level` must be one of {known}");
        return to.say(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
    };
    client.set_level(level);
    to.say(&reply::result(id.of(line), b"{}"));
    aggregator.fleet.set_levels();
}

impl Fleet {
    /// Asks every server for the most that any client wants.
    pub(crate) fn set_levels(&self) {
        let Some(level) = self.clients().iter().filter_map(|client| client.level()).min() else { return };
        let view = self.view();
        for (server, connection) in view.snapshot.servers().iter().zip(&view.connections) {
            if let Some(connection) = connection
                && server.offer.has("logging")
                && connection.era() == protocol::Era::Legacy
            {
                self.set_level_of(connection, level);
            }
        }
    }

    /// A modern client wants log messages while one request runs: the server is asked for them, before that request. What
    /// others do not want of it is kept from them.
    pub(crate) fn want_level(&self, connection: &Arc<Connection>, level: Level) {
        let has_logs = self.view().snapshot.servers()[connection.index()].offer.has("logging");
        let lowest = {
            let mut lowered = self.lowered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let lowest = lowered.entry(connection.index()).or_insert(Level::Emergency);
            let is_lower = level < *lowest;
            *lowest = level.min(*lowest);
            is_lower.then_some(level)
        };
        if let (true, Some(level)) = (has_logs, lowest) {
            self.set_level_of(connection, level);
        }
    }

    /// Whether `server` says more than it would by itself, because somebody wants to hear it.
    pub(crate) fn is_lowered(&self, server: usize) -> bool {
        let lowered = self.lowered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        lowered.contains_key(&server) || self.clients().iter().any(|client| client.level().is_some())
    }

    /// A server that comes later, or has forgotten us, hears it as well.
    pub(crate) fn set_level_of_new(&self, connection: &Arc<Connection>) {
        let lowered = {
            let lowered = self.lowered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            lowered.get(&connection.index()).copied()
        };
        let wanted = self.clients().iter().filter_map(|client| client.level()).min();
        if let Some(level) = wanted.into_iter().chain(lowered).min() {
            self.set_level_of(connection, level);
        }
    }

    fn set_level_of(&self, connection: &Arc<Connection>, level: Level) {
        // Asked here and now, so that it comes before what follows; only the answer is waited for elsewhere.
        let params = reply::object([("level", reply::string(level.as_str()))]);
        let Some(answer) = connection.ask_now("logging/setLevel", Some(&params)) else { return };
        let connection = Arc::clone(connection);
        self.spawn(async move {
            if let Some(answer) = answer.await
                && let Err(error) = answer.outcome
            {
                let error = String::from_utf8_lossy(error.of(&answer.line)).into_owned();
                tracing::debug!(server = %connection.server(), error, "did not take the log level");
            }
        });
    }
}
