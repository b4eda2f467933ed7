//! The handshake with a server, the listing of its items, and listing again when they change.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{Hints, Kind, Offer};
use protocol::bridge::meta::{self, ClientMeta};
use protocol::reply::code;
use protocol::scan::{Span, member};
use protocol::{Envelope, Kind as MessageKind, Lifecycle, Revision, reply, text};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::changes::ChangeSet;
use crate::connection::{Connection, NoResponse, Response};
use crate::failure::Cause;
use crate::limits::{Limit, ListBytes, ServerLimits};
use crate::list_reader::{ListReader, NoList};
use crate::listing::Listing;

/// Bytes of the cursor of a page.
const MAX_CURSOR_BYTES: usize = 64 << 10;
/// Characters of an error that are shown.
const MAX_SHOWN_ERROR_CHARS: usize = 400;

/// The minimum time between two listings of a server's changed lists, and the maximum if it changes them all the time.
const MIN_RELIST_INTERVAL: Duration = Duration::from_millis(50);
const MAX_RELIST_INTERVAL: Duration = Duration::from_secs(5);

/// How long a server may leave `server/discover` unanswered before it is sent `initialize` as well.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the handshake waits to learn the lifecycle of the only client. Clients start at once.
const CLIENT_LIFECYCLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of handshakes with servers.
#[derive(Debug, Clone)]
pub struct Handshake {
    /// Our client info: the JSON of `clientInfo`.
    pub client_info: Bytes,
    /// Our client capabilities: the JSON of `capabilities`.
    pub capabilities: Bytes,
    /// How long a server may take to become ready, or to list its items again.
    pub start_timeout: Duration,
    /// Only tools are listed.
    pub tools_only: bool,
    /// The lifecycle of the only client there will be, once it is known; `None` where there may be several.
    pub client_lifecycle: Option<watch::Receiver<Option<Lifecycle>>>,
}

impl Handshake {
    /// Performs the handshake and lists the items. `greeted` is called with the revision before anything else is
    /// requested.
    ///
    /// Unless the lifecycle is configured, one is tried first and the other if the server refuses. Over a pipe,
    /// servers that support both lock to the first they receive, so the order matters: see
    /// [`Handshake::first_lifecycle`].
    pub async fn perform(
        &self,
        connection: &Connection,
        lifecycle: Option<Lifecycle>,
        greeted: impl FnOnce(Option<&str>),
    ) -> Result<Offer, Cause> {
        let deadline = Instant::now() + self.start_timeout;
        let too_slow = |method| Cause::TooSlow { method, waited: self.start_timeout };
        let exchange = async {
            match lifecycle {
                Some(Lifecycle::SelfContained) => self.discover(connection).await,
                Some(Lifecycle::Session) => self.initialize(connection).await,
                None => match self.first_lifecycle().await {
                    Lifecycle::Session => self.initialize_or_discover(connection).await,
                    Lifecycle::SelfContained => self.discover_or_initialize(connection).await,
                },
            }
        };
        let first = if lifecycle == Some(Lifecycle::SelfContained) { "server/discover" } else { "initialize" };
        let mut established = timeout_at(deadline, exchange).await.map_err(|_| too_slow(first))??;
        let instructions = established.offer.instructions.as_ref().map_or(0, |text| text.len());
        let added = connection.limits().add_instructions(connection.index(), instructions);
        added.map_err(|over| Cause::TooMuch { method: first, over })?;
        connection.set_lifecycle(established.offer.lifecycle);
        greeted(established.revision.as_deref());
        if established.offer.lifecycle == Lifecycle::Session {
            connection.notify("notifications/initialized", None);
        }
        for kind in Kind::ALL {
            if self.asks_for(kind, &established.offer) {
                let listing = timeout_at(deadline, list(connection, kind)).await;
                let listing = listing.map_err(|_| too_slow(kind.list_method()))??;
                listing.put_into(&mut established.offer, kind, &connection.server()).await;
            }
        }
        Ok(established.offer)
    }

    /// The lifecycle that is tried first if none is configured.
    ///
    /// With one client, its own, so that nothing needs translation. With several, the modern one: of the four
    /// combinations of client and server, it loses nothing that the legacy one keeps, and keeps tasks and the names of
    /// server requests for modern clients (docs/conformance.md). A program that relays only tools loses nothing in
    /// either, and uses the lifecycle that all servers support.
    async fn first_lifecycle(&self) -> Lifecycle {
        if let Some(client_lifecycle) = self.client_lifecycle.clone().filter(|_| !self.tools_only) {
            let mut client_lifecycle = client_lifecycle;
            // The wait ends early if the sender was dropped.
            drop(timeout(CLIENT_LIFECYCLE_TIMEOUT, client_lifecycle.wait_for(Option::is_some)).await);
        }
        self.first_lifecycle_now()
    }

    /// The same as far as it is known now.
    pub fn first_lifecycle_now(&self) -> Lifecycle {
        let of_client = self.client_lifecycle.as_ref().and_then(|lifecycle| *lifecycle.borrow());
        if self.tools_only { Lifecycle::Session } else { of_client.unwrap_or(Lifecycle::SelfContained) }
    }

    async fn initialize_or_discover(&self, connection: &Connection) -> Result<HandshakeResult, Cause> {
        match self.initialize(connection).await {
            // The first error explains best why neither handshake succeeds.
            Err(refused @ Cause::Refused { .. }) => self.discover(connection).await.map_err(|_| refused),
            result => result,
        }
    }

    /// Any error, and silence, may be a legacy server's reaction to an unknown method. What is written to a server
    /// that has not started yet waits in its pipe: it reads both requests in order, and the first success counts.
    async fn discover_or_initialize(&self, connection: &Connection) -> Result<HandshakeResult, Cause> {
        let discovering = self.discover_with(connection, Some(self.modern_params()));
        let mut discovering = std::pin::pin!(discovering);
        match timeout(DISCOVER_TIMEOUT, &mut discovering).await {
            Ok(Ok(established)) => return Ok(established),
            Ok(Err(ended @ Cause::ClosedOutput)) => return Err(ended),
            Ok(Err(_)) => return self.initialize(connection).await,
            Err(_) => {}
        }
        let mut initializing = std::pin::pin!(self.initialize(connection));
        tokio::select! {
            biased;
            result = &mut discovering => match result {
                Ok(established) => Ok(established),
                Err(_) => initializing.await,
            },
            result = &mut initializing => match result {
                Err(refused @ Cause::Refused { .. }) => discovering.await.map_err(|_| refused),
                result => result,
            },
        }
    }

    /// The parameters of `initialize`.
    pub fn initialize_params(&self) -> Vec<u8> {
        reply::object([
            ("protocolVersion", reply::string(Revision::NEWEST_WITH_SESSIONS.as_str())),
            ("capabilities", self.capabilities.to_vec()),
            ("clientInfo", self.client_info.to_vec()),
        ])
    }

    /// The client meta in every request of our own to a modern server.
    pub(crate) fn modern_client_meta(&self) -> ClientMeta {
        ClientMeta { capabilities: self.capabilities.clone(), info: Some(self.client_info.clone()), log_level: None }
    }

    /// Every server may have tools, whatever it declares; the rest is listed only if declared.
    fn asks_for(&self, kind: Kind, offer: &Offer) -> bool {
        kind == Kind::Tool || !self.tools_only && offer.has(kind.capability())
    }

    async fn initialize(&self, connection: &Connection) -> Result<HandshakeResult, Cause> {
        let answer = send_request(connection, "initialize", Some(&self.initialize_params())).await?;
        initialized(&answer, connection.limits())
    }

    async fn discover(&self, connection: &Connection) -> Result<HandshakeResult, Cause> {
        connection.set_lifecycle(Lifecycle::SelfContained);
        self.discover_with(connection, None).await
    }

    /// The parameters of a modern request while the server's lifecycle is unknown.
    fn modern_params(&self) -> Vec<u8> {
        let meta = reply::object([
            (meta::PROTOCOL_VERSION, reply::string(protocol::revision::SELF_CONTAINED_REVISION)),
            (meta::CLIENT_CAPABILITIES, self.capabilities.to_vec()),
            (meta::CLIENT_INFO, self.client_info.to_vec()),
        ]);
        reply::object([("_meta", meta)])
    }

    async fn discover_with(&self, connection: &Connection, params: Option<Vec<u8>>) -> Result<HandshakeResult, Cause> {
        let mut answer = send_request(connection, "server/discover", params.as_deref()).await?;
        // A server that refuses our revision but lists it as supported may have been asked too early.
        if answer.outcome.is_err_and(|error| asks_for_retry_with_modern(&answer.line, error)) {
            answer = send_request(connection, "server/discover", params.as_deref()).await?;
        }
        let result = object(&answer, "server/discover", connection.limits())?;
        // Some legacy servers respond to unknown methods with an empty object.
        if params.is_some() && !names_modern(&answer.line, result, "supportedVersions") {
            let problem = format!("no `supportedVersions` with `{}`", protocol::revision::SELF_CONTAINED_REVISION);
            return Err(Cause::Nonsense { method: "server/discover", problem });
        }
        Ok(HandshakeResult {
            offer: offer(Lifecycle::SelfContained, &answer.line, result, "server/discover", connection.limits())?,
            revision: Some(protocol::revision::SELF_CONTAINED_REVISION.to_owned()),
        })
    }

    /// Lists again whatever the server reports as changed; a modern server needs a listen stream for that.
    pub async fn follow_changes<T: Future<Output = ()>>(
        &self,
        connection: &Arc<Connection>,
        offer: Offer,
        changed: impl Fn(Arc<Offer>) -> T,
    ) {
        let listening = async {
            if connection.lifecycle() == Lifecycle::SelfContained && !self.tools_only {
                connection.keep_listening(&offer).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = listening => {}
            () = self.relist(connection, offer.clone(), changed) => {}
            () = connection.enforce_call_timeout() => {}
        }
    }

    async fn relist<T: Future<Output = ()>>(
        &self,
        connection: &Connection,
        mut offer: Offer,
        changed: impl Fn(Arc<Offer>) -> T,
    ) {
        let server = connection.server();
        let mut pause = MIN_RELIST_INTERVAL;
        loop {
            let asked_again_after = Instant::now();
            let ChangeSet { kinds, server_offer } = connection.changed().await;
            // A server that reports changes without end is listed less and less often.
            let is_restless = asked_again_after.elapsed() < pause;
            pause = if is_restless { (pause * 2).min(MAX_RELIST_INTERVAL) } else { MIN_RELIST_INTERVAL };
            if let Some(Offer { capabilities, info, instructions, .. }) = server_offer {
                (offer.capabilities, offer.info, offer.instructions) = (capabilities, info, instructions);
            }
            for kind in kinds {
                if !self.asks_for(kind, &offer) {
                    offer.set_items(kind, Vec::new(), Hints::NONE);
                    continue;
                }
                match timeout(self.start_timeout, list(connection, kind)).await {
                    Ok(Ok(listing)) => listing.put_into(&mut offer, kind, &server).await,
                    Ok(Err(cause)) => {
                        tracing::warn!(%server, %cause, "failed to list what has changed");
                        if matches!(cause, Cause::TooMuch { .. }) {
                            offer.set_notices(kind, vec![format!("the previous list stays in use: {cause}")]);
                        }
                    }
                    Err(_) => {
                        tracing::warn!(%server, method = kind.list_method(), "listing what has changed timed out");
                    }
                }
            }
            changed(Arc::new(offer.clone())).await;
            sleep(pause).await;
        }
    }
}

/// The result of a handshake.
#[derive(Debug)]
pub struct HandshakeResult {
    /// What it offers, without its lists.
    pub offer: Offer,
    /// The revision it speaks.
    pub revision: Option<String>,
}

/// Reads the whole message with which a server answers `initialize`.
pub fn read_initialize_result(line: Bytes, limits: &ServerLimits) -> Result<HandshakeResult, Cause> {
    match Envelope::scan(&line) {
        Ok(Envelope { kind: MessageKind::Response { outcome, .. }, .. }) => {
            initialized(&Response { line, outcome }, limits)
        }
        _ => Err(Cause::Nonsense { method: "initialize", problem: "something that is not a response".to_owned() }),
    }
}

fn initialized(answer: &Response, limits: &ServerLimits) -> Result<HandshakeResult, Cause> {
    let result = object(answer, "initialize", limits)?;
    let revision = member(&answer.line, result, "protocolVersion");
    let revision = revision.and_then(|span| text::decode(span.of(&answer.line))).map(|text| text.into_owned());
    Ok(HandshakeResult { offer: offer(Lifecycle::Session, &answer.line, result, "initialize", limits)?, revision })
}

/// The `result` of a handshake.
fn object(answer: &Response, method: &'static str, limits: &ServerLimits) -> Result<Span, Cause> {
    let checked = limits.check(Limit::Handshake, "the answer is", answer.line.len());
    checked.map_err(|over| Cause::TooMuch { method, over })?;
    let result = answer.outcome.map_err(|error| refused(method, error.of(&answer.line)))?;
    if answer.line[result.start] != b'{' {
        return Err(Cause::Nonsense { method, problem: "something that is not an object".to_owned() });
    }
    Ok(result)
}

/// The server's description of itself. It is sent to clients and read often, so its size is limited.
fn offer(
    lifecycle: Lifecycle,
    line: &Bytes,
    result: Span,
    method: &'static str,
    limits: &ServerLimits,
) -> Result<Offer, Cause> {
    let checked = |what: &str, value: Span| match catalog::limits::excess_of_server_info(value.of(line)) {
        None => Ok(Bytes::copy_from_slice(value.of(line))),
        Some(excess) => Err(Cause::Nonsense { method, problem: format!("a `{what}` that {excess}") }),
    };
    let is_object = |value: &Span| line[value.start] == b'{';
    let taken = |name: &str| member(line, result, name).filter(is_object).map(|value| checked(name, value)).transpose();
    let mut offer = Offer::new(lifecycle);
    if let Some(capabilities) = taken("capabilities")? {
        offer.capabilities = capabilities;
    }
    // A modern server sends its info in `_meta`.
    let in_meta = || member(line, member(line, result, "_meta")?, meta::SERVER_INFO).filter(is_object);
    let info = match taken("serverInfo")? {
        Some(info) => Some(info),
        None => in_meta().map(|info| checked("serverInfo", info)).transpose()?,
    };
    if let Some(info) = info {
        offer.info = info;
    }
    let instructions = member(line, result, "instructions").and_then(|text| text::decode(text.of(line)));
    let instructions = instructions.filter(|text| !text.trim().is_empty());
    let bytes = instructions.as_ref().map_or(0, |text| text.len());
    let checked = limits.check(Limit::Instructions, "its instructions are", bytes);
    checked.map_err(|over| Cause::TooMuch { method, over })?;
    offer.instructions = instructions.map(|text| Arc::from(&*text));
    Ok(offer)
}

/// Requests every page of one of the server's lists.
async fn list(connection: &Connection, kind: Kind) -> Result<Listing, Cause> {
    let method = kind.list_method();
    let nonsense = |problem: String| Cause::Nonsense { method, problem };
    let too_much = |over| Cause::TooMuch { method, over };
    let limits = connection.limits();
    let mut bytes = ListBytes::new(limits, connection.index(), kind);
    let mut cursors = HashSet::new();
    let (mut reader, mut params) = (ListReader::new(kind), None);
    for _ in 0..limits.most(Limit::Pages) {
        let answer = send_request(connection, method, params.as_deref()).await?;
        let result = match answer.outcome {
            Ok(result) => result,
            // Servers without such items need not know the method at all.
            Err(error) if reader.is_empty() && is_unknown_method(error.of(&answer.line)) => {
                return Ok(Listing { items: Vec::new(), hints: Hints::NONE, notices: Vec::new() });
            }
            Err(error) => return Err(refused(method, error.of(&answer.line))),
        };
        // The whole page counts, because its items keep it in memory.
        bytes.add(answer.line.len()).map_err(too_much)?;
        let read = reader.read_page(answer.line, result, bytes.room()).await.ok_or(Cause::ClosedOutput)?;
        reader = read.0;
        let page = read.1.map_err(|NoList| nonsense(format!("no array `{}`", kind.array_key())))?;
        bytes.add(page.kept).map_err(too_much)?;
        if page.is_cut {
            return Err(too_much(limits.over(Limit::Catalog, "it lists")));
        }
        let Some(cursor) = page.next_cursor else {
            bytes.complete();
            return Ok(reader.finish());
        };
        if cursor.len() > MAX_CURSOR_BYTES {
            return Err(nonsense(format!(
                "a cursor of {} kB; at most {} are read",
                cursor.len() >> 10,
                MAX_CURSOR_BYTES >> 10
            )));
        }
        if !cursors.insert(hash(&cursor)) {
            return Err(nonsense("the same cursor repeatedly".to_owned()));
        }
        params = Some(reply::object([("cursor", cursor.to_vec())]));
    }
    Err(too_much(limits.over(Limit::Pages, "the list has")))
}

/// A short fingerprint of a cursor, to detect repetition.
fn hash(cursor: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}

async fn send_request(connection: &Connection, method: &'static str, params: Option<&[u8]>) -> Result<Response, Cause> {
    connection.request_within_limits(method, params).await.map_err(|none| match none {
        // The code that ended the connection knows the cause.
        NoResponse::Ended => Cause::ClosedOutput,
        NoResponse::TooLong(over) => Cause::TooMuch { method, over },
    })
}

fn refused(method: &'static str, error: &[u8]) -> Cause {
    let error = String::from_utf8_lossy(&error[..error.len().min(4 * MAX_SHOWN_ERROR_CHARS)])
        .chars()
        .take(MAX_SHOWN_ERROR_CHARS)
        .collect();
    Cause::Refused { method, error }
}

/// Whether an error reports our revision as unsupported, but lists it as supported.
fn asks_for_retry_with_modern(line: &[u8], error: Span) -> bool {
    let expected = code::UNSUPPORTED_VERSION.to_string();
    let is_refusal = member(line, error, "code").is_some_and(|code| code.of(line) == expected.as_bytes());
    is_refusal && member(line, error, "data").is_some_and(|data| names_modern(line, data, "supported"))
}

/// Whether the modern revision is in the list `name` of an object.
fn names_modern(line: &[u8], object: Span, name: &str) -> bool {
    let versions = member(line, object, name).and_then(|versions| protocol::scan::elements(line, versions));
    let is_modern = |version: &Span| text::token_is(version.of(line), protocol::revision::SELF_CONTAINED_REVISION);
    versions.is_some_and(|versions| versions.iter().any(is_modern))
}

fn is_unknown_method(error: &[u8]) -> bool {
    let whole = Span { start: 0, end: error.len() };
    let expected = code::METHOD_NOT_FOUND.to_string();
    member(error, whole, "code").is_some_and(|code| code.of(error) == expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_server_info_are_limited() {
        let initialize_result = |capabilities: &str, info: &str| {
            let result =
                format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":{info}}}"#);
            let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
            read_initialize_result(line, &ServerLimits::from_settings())
        };
        assert_eq!(initialize_result(r#"{"tools":{}}"#, r#"{"name":"s"}"#).unwrap().offer.info, r#"{"name":"s"}"#);
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(1 << 16));
        let refused = initialize_result("{}", &long).unwrap_err().to_string();
        assert!(refused.contains("`serverInfo` that is larger than 65536 bytes"), "{refused}");
        let deep = r#"{"a":"#.repeat(100) + "{}" + &"}".repeat(100);
        let refused = initialize_result(&deep, "{}").unwrap_err().to_string();
        assert!(refused.contains("`capabilities` that is nested deeper than 56 levels"), "{refused}");
    }
}
