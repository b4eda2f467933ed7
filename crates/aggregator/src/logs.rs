//! Log messages of servers: filtered by level for each client, and labelled by server.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::label;
use protocol::reply::{self, code};
use protocol::scan::member;
use protocol::{Envelope, Kind, Lifecycle, Params, Span, text};
use upstream::{Connection, UpstreamKey};

use crate::client::Client;
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::Fleet;
use crate::level::Level;

const METHOD: &str = "notifications/message";
/// How long a server keeps the level that a modern request set. The next request usually wants the same.
const LEVEL_RESET_DELAY: Duration = Duration::from_secs(3);

/// Whether this is a log message.
pub(crate) fn is_message(line: &[u8], envelope: &Envelope) -> bool {
    matches!(envelope.kind, Kind::Notification { method } if text::token_is(method.of(line), METHOD))
}

/// The message as `client` gets it: labelled by server, unless it sees only one; `None` if it does not want it.
pub(crate) fn for_client(client: &Client, server: &Connection, line: &Bytes, envelope: &Envelope) -> Option<Bytes> {
    is_wanted(client, line, envelope).then(|| labelled(client.scope(), server, line, envelope))
}

/// Whether `client` wants messages of this level.
pub(crate) fn is_wanted(client: &Client, line: &[u8], envelope: &Envelope) -> bool {
    client.level().is_none_or(|least| level_of(line, &envelope.params) >= Some(least))
}

/// The message with the name of its server, unless the client sees only one.
pub(crate) fn labelled(scope: Scope, server: &Connection, line: &Bytes, envelope: &Envelope) -> Bytes {
    match scope {
        Scope::All => label::log(line, &envelope.params, server.server().as_str()),
        Scope::One(_) => line.clone(),
    }
}

/// The level of a message. A message without a known level is forwarded to all clients.
pub(crate) fn level_of(line: &[u8], params: &Params) -> Option<Level> {
    let level = member(line, params.span?, "level")?;
    Some(Level::named(&text::decode(level.of(line))?).unwrap_or(Level::Emergency))
}

/// `logging/setLevel` of a client: applied to its own messages, and sent to servers whose level is less verbose.
pub(crate) fn set_level(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Incoming { client, to, line, .. } = message;
    let level =
        params.span.and_then(|params| member(line, params, "level")).and_then(|level| text::decode(level.of(line)));
    let Some(level) = level.as_deref().and_then(Level::named) else {
        let known = Level::ALL.map(Level::as_str).join(", ");
        let text = format!("Invalid params: `level` must be one of {known}");
        return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
    };
    client.set_level(level);
    to.respond(&reply::result(id.of(line), b"{}"));
    aggregator.fleet.settle_levels();
}

/// The levels set at servers, and those that open requests want.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// By run of a server: the levels that modern requests want while they are open.
    requested: HashMap<UpstreamKey, Vec<Level>>,
    /// By run of a server: the level that was last set.
    applied: HashMap<UpstreamKey, Level>,
}

impl Levels {
    /// Forgets a server that was removed.
    pub(crate) fn forget(&mut self, server: usize) {
        self.requested.retain(|by, _| by.server != server);
        self.applied.retain(|by, _| by.server != server);
    }

    /// Forgets an instance that has ended. Requests that want a level of it end with it.
    pub(crate) fn forget_run(&mut self, by: &UpstreamKey) {
        self.applied.remove(by);
    }

    /// The level to set at a server when clients want `of_clients`, if it differs from the current one.
    fn due(&self, by: &UpstreamKey, of_clients: Option<Level>) -> Option<Level> {
        let requested = self.requested.get(by).into_iter().flatten().copied();
        let applied = self.applied.get(by).copied();
        // When no level is wanted any more, a server cannot be reset to its own default. Clients that never set a
        // level get this one.
        let wanted = of_clients.into_iter().chain(requested).min().or(applied.map(|_| Level::Info))?;
        (applied != Some(wanted)).then_some(wanted)
    }
}

/// A modern request that wants log messages of a server while it is open.
pub(crate) struct LevelRequest {
    fleet: Arc<Fleet>,
    connection: Arc<Connection>,
    level: Level,
}

impl LevelRequest {
    /// Sets the server's level before the request is sent. Clients that want less do not receive the additional
    /// messages.
    pub(crate) fn new(fleet: &Arc<Fleet>, connection: &Arc<Connection>, level: Level) -> Self {
        fleet.levels().requested.entry(connection.key()).or_default().push(level);
        fleet.settle_level(connection);
        Self { fleet: Arc::clone(fleet), connection: Arc::clone(connection), level }
    }
}

impl Drop for LevelRequest {
    fn drop(&mut self) {
        let mut levels = self.fleet.levels();
        let by = self.connection.key();
        if let Some(requested) = levels.requested.get_mut(&by) {
            if let Some(at) = requested.iter().position(|&level| level == self.level) {
                requested.swap_remove(at);
            }
            if requested.is_empty() {
                levels.requested.remove(&by);
            }
        }
        drop(levels);
        // At shutdown there is no runtime for the task, and no server to send to.
        if tokio::runtime::Handle::try_current().is_ok() {
            let (fleet, connection) = (Arc::clone(&self.fleet), Arc::clone(&self.connection));
            self.fleet.spawn(async move {
                tokio::time::sleep(LEVEL_RESET_DELAY).await;
                fleet.settle_level(&connection);
            });
        }
    }
}

impl Fleet {
    /// Sets at every server the most verbose level that is wanted now, where that has changed.
    pub(crate) fn settle_levels(&self) {
        for connection in self.connected() {
            self.settle_level(&connection);
        }
    }

    fn settle_level(&self, connection: &Arc<Connection>) {
        let server = connection.index();
        let has_logs = self.view().snapshot.servers()[server].offer.has("logging");
        if !has_logs || connection.lifecycle() != Lifecycle::Session {
            return;
        }
        // Locked until it is sent: the last level sent must be the last one recorded.
        let mut levels = self.levels();
        let clients = self.clients();
        let by = connection.key();
        let seeing = clients.iter().filter(|client| self.is_seen_by(client, server) && client.is_in(&by.audience));
        let Some(level) = levels.due(&by, seeing.filter_map(|client| client.level()).min()) else { return };
        levels.applied.insert(by, level);
        self.set_level_of(connection, level);
    }

    /// Whether a run of a server logs more than by default, because a client or request wants it.
    pub(crate) fn is_lowered(&self, by: &UpstreamKey) -> bool {
        self.levels().applied.contains_key(by) || self.clients().iter().any(|client| client.level().is_some())
    }

    /// Sets the level at a server that connects later or has lost its session.
    pub(crate) fn set_level_of_new(&self, connection: &Arc<Connection>) {
        self.levels().applied.remove(&connection.key());
        self.settle_level(connection);
    }

    pub(crate) fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_level_of(&self, connection: &Arc<Connection>, level: Level) {
        // Sent synchronously, so that it precedes what follows; only the response is awaited in a task.
        let params = reply::object([("level", reply::string(level.as_str()))]);
        let Some(answer) = connection.start_request("logging/setLevel", Some(&params)) else { return };
        let connection = Arc::clone(connection);
        self.spawn(async move {
            if let Some(answer) = answer.await
                && let Err(error) = answer.outcome
            {
                let error = String::from_utf8_lossy(error.of(&answer.line)).into_owned();
                tracing::debug!(server = %connection.server(), error, "the server did not accept the log level");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_the_lowest_log_level_of_all_clients_until_they_leave() {
        let mut levels = Levels::default();
        let server = UpstreamKey::of_all(0);
        assert_eq!(levels.due(&server, None), None, "a server nobody wants anything of is left alone");
        let mut ask = |requested: &[Level], of_clients| {
            levels.requested.insert(server.clone(), requested.to_vec());
            let due = levels.due(&server, of_clients);
            levels.applied.extend(due.map(|level| (server.clone(), level)));
            due
        };
        assert_eq!(ask(&[], Some(Level::Error)), Some(Level::Error));
        assert_eq!(ask(&[Level::Debug, Level::Notice], Some(Level::Error)), Some(Level::Debug));
        assert_eq!(ask(&[Level::Debug], Some(Level::Error)), None, "it knows");
        assert_eq!(ask(&[], Some(Level::Error)), Some(Level::Error));
        assert_eq!(ask(&[], None), Some(Level::Info));
        assert_eq!(ask(&[], None), None);
    }
}
