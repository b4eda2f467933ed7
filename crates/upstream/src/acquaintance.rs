//! Getting to know a server: who it is and how it is talked to, then what it offers; and hearing when that changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{Hints, Kind, Offer};
use protocol::era::meta::Introduction;
use protocol::reply::code;
use protocol::scan::{Span, member};
use protocol::{Envelope, Era, Kind as MessageKind, Revision, reply, text};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::changes::News;
use crate::connection::{Answer, Connection};
use crate::failure::Cause;
use crate::list_reader::{ListReader, Listing, NoList};

/// A list in more pages than this is not a list.
const MOST_PAGES: usize = 10_000;

/// The least time between two looks at a server's changed lists, and the most if it changes them all the time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How we approach servers.
#[derive(Debug, Clone)]
pub struct Manners {
    /// What to be introduced as: the JSON of `clientInfo`.
    pub introduction: Bytes,
    /// What we offer to servers: the JSON of `capabilities`.
    pub capabilities: Bytes,
    /// How long a server may take to become ready, or to list anew what it offers.
    pub patience: Duration,
    /// Only tools are asked for.
    pub tools_only: bool,
}

impl Manners {
    /// Asks the server who it is and what it offers. `greeted` hears the revision before anything else is asked.
    ///
    /// Unless we are told how it is talked to, it is taken for a legacy one first: servers that know both ways lose
    /// features in the newer (they cannot ask), and lock to the first they hear.
    pub async fn meet(
        &self,
        connection: &Connection,
        era: Option<Era>,
        greeted: impl FnOnce(Option<&str>),
    ) -> Result<Offer, Cause> {
        let deadline = Instant::now() + self.patience;
        let too_slow = |method| Cause::TooSlow { method, waited: self.patience };
        let greeting = async {
            if era == Some(Era::Modern) {
                return self.discover(connection).await;
            }
            match self.initialize(connection).await {
                // What it said first explains best why it cannot be met in either way.
                Err(refused @ Cause::Refused { .. }) if era.is_none() => {
                    self.discover(connection).await.map_err(|_| refused)
                }
                met => met,
            }
        };
        let first = if era == Some(Era::Modern) { "server/discover" } else { "initialize" };
        let mut met = timeout_at(deadline, greeting).await.map_err(|_| too_slow(first))??;
        connection.settle_era(met.offer.era);
        greeted(met.revision.as_deref());
        if met.offer.era == Era::Legacy {
            connection.tell("notifications/initialized", None);
        }
        for kind in Kind::ALL {
            if self.asks_for(kind, &met.offer) {
                let listing = timeout_at(deadline, list(connection, kind)).await;
                listing.map_err(|_| too_slow(kind.list_method()))??.put_into(&mut met.offer, kind, connection);
            }
        }
        Ok(met.offer)
    }

    /// The parameters of `initialize`.
    pub fn introduction(&self) -> Vec<u8> {
        reply::object([
            ("protocolVersion", reply::string(Revision::NEWEST.as_str())),
            ("capabilities", self.capabilities.to_vec()),
            ("clientInfo", self.introduction.to_vec()),
        ])
    }

    /// What we say of ourselves with every request of our own to a modern server.
    pub fn modern_introduction(&self) -> Introduction {
        Introduction { capabilities: self.capabilities.clone(), info: Some(self.introduction.clone()), log_level: None }
    }

    /// Every server may have tools, whatever it says; the rest is asked for where it is announced.
    fn asks_for(&self, kind: Kind, offer: &Offer) -> bool {
        kind == Kind::Tool || !self.tools_only && offer.has(kind.capability())
    }

    async fn initialize(&self, connection: &Connection) -> Result<Met, Cause> {
        initialized(&answered(connection, "initialize", Some(&self.introduction())).await?)
    }

    async fn discover(&self, connection: &Connection) -> Result<Met, Cause> {
        connection.settle_era(Era::Modern);
        let mut answer = answered(connection, "server/discover", None).await?;
        // One that refuses our revision and names it among those it speaks may have been asked too early.
        if answer.outcome.is_err_and(|error| wants_the_same_again(&answer.line, error)) {
            answer = answered(connection, "server/discover", None).await?;
        }
        let result = object(&answer, "server/discover")?;
        Ok(Met {
            offer: offer(Era::Modern, &answer.line, result, "server/discover")?,
            revision: Some(protocol::revision::MODERN.to_owned()),
        })
    }

    /// Lists anew whatever the server says has changed; a modern server is asked to say so.
    pub async fn follow_changes(&self, connection: &Arc<Connection>, offer: Offer, changed: impl Fn(Arc<Offer>)) {
        let hearing = async {
            if connection.era() == Era::Modern && !self.tools_only {
                connection.keep_listening(&offer).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = hearing => {}
            () = self.relist(connection, offer.clone(), changed) => {}
            () = connection.keep_to_limit() => {}
        }
    }

    async fn relist(&self, connection: &Connection, mut offer: Offer, changed: impl Fn(Arc<Offer>)) {
        let server = connection.server();
        let mut pause = SHORTEST_PAUSE;
        loop {
            let asked_again_after = Instant::now();
            let News { kinds, introduction } = connection.changed().await;
            // A server that never stops saying so is heard less and less often.
            let is_restless = asked_again_after.elapsed() < pause;
            pause = if is_restless { (pause * 2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
            if let Some(Offer { capabilities, info, instructions, .. }) = introduction {
                (offer.capabilities, offer.info, offer.instructions) = (capabilities, info, instructions);
            }
            for kind in kinds {
                if !self.asks_for(kind, &offer) {
                    offer.set_items(kind, Vec::new(), Hints::NONE);
                    continue;
                }
                match timeout(self.patience, list(connection, kind)).await {
                    Ok(Ok(listing)) => listing.put_into(&mut offer, kind, connection),
                    Ok(Err(cause)) => tracing::warn!(%server, %cause, "could not list what has changed"),
                    Err(_) => {
                        tracing::warn!(%server, method = kind.list_method(), "did not list what has changed in time");
                    }
                }
            }
            changed(Arc::new(offer.clone()));
            sleep(pause).await;
        }
    }
}

/// What a server says of itself.
#[derive(Debug)]
pub struct Met {
    /// What it offers, without its lists.
    pub offer: Offer,
    /// The revision it speaks.
    pub revision: Option<String>,
}

/// Reads the whole message with which a server answers `initialize`.
pub fn read_introduction(line: Bytes) -> Result<Met, Cause> {
    match Envelope::scan(&line) {
        Ok(Envelope { kind: MessageKind::Response { outcome, .. }, .. }) => initialized(&Answer { line, outcome }),
        _ => Err(Cause::Nonsense { method: "initialize", problem: "something that is no answer".to_owned() }),
    }
}

fn initialized(answer: &Answer) -> Result<Met, Cause> {
    let result = object(answer, "initialize")?;
    let revision = member(&answer.line, result, "protocolVersion");
    let revision = revision.and_then(|span| text::decode(span.of(&answer.line))).map(|text| text.into_owned());
    Ok(Met { offer: offer(Era::Legacy, &answer.line, result, "initialize")?, revision })
}

fn object(answer: &Answer, method: &'static str) -> Result<Span, Cause> {
    let result = answer.outcome.map_err(|error| refused(method, error.of(&answer.line)))?;
    if answer.line[result.start] != b'{' {
        return Err(Cause::Nonsense { method, problem: "something that is no object".to_owned() });
    }
    Ok(result)
}

/// What a server says of itself. Clients are shown it, and we look at it often, so it must not be of any size.
fn offer(era: Era, line: &Bytes, result: Span, method: &'static str) -> Result<Offer, Cause> {
    let checked = |what: &str, value: Span| match catalog::limits::excess_of_introduction(value.of(line)) {
        None => Ok(Bytes::copy_from_slice(value.of(line))),
        Some(excess) => Err(Cause::Nonsense { method, problem: format!("a `{what}` that {excess}") }),
    };
    let is_object = |value: &Span| line[value.start] == b'{';
    let taken = |name: &str| member(line, result, name).filter(is_object).map(|value| checked(name, value)).transpose();
    let mut offer = Offer::new(era);
    if let Some(capabilities) = taken("capabilities")? {
        offer.capabilities = capabilities;
    }
    // A modern server tells who it is in `_meta`.
    let in_meta = || {
        let meta = member(line, result, "_meta")?;
        member(line, meta, protocol::era::meta::SERVER_INFO).filter(is_object)
    };
    let info = match taken("serverInfo")? {
        Some(info) => Some(info),
        None => in_meta().map(|info| checked("serverInfo", info)).transpose()?,
    };
    if let Some(info) = info {
        offer.info = info;
    }
    let instructions = member(line, result, "instructions").and_then(|text| text::decode(text.of(line)));
    offer.instructions = instructions.filter(|text| !text.trim().is_empty()).map(|text| Arc::from(&*text));
    Ok(offer)
}

impl Listing {
    /// Tells what was wrong with the list unless that is known already, and makes it part of what the server offers.
    fn put_into(self, offer: &mut Offer, kind: Kind, connection: &Connection) {
        for notice in self.notices.iter().filter(|notice| !offer.notices(kind).contains(notice)) {
            tracing::warn!(server = %connection.server(), "clients would refuse a whole list for what this server lists; {notice}");
        }
        offer.set_items(kind, self.items, self.hints);
        offer.set_notices(kind, self.notices);
    }
}

/// Asks for every page of one of the server's lists.
async fn list(connection: &Connection, kind: Kind) -> Result<Listing, Cause> {
    let method = kind.list_method();
    let nonsense = |problem: String| Cause::Nonsense { method, problem };
    let (mut reader, mut params) = (ListReader::new(kind), None);
    for _ in 0..MOST_PAGES {
        let answer = answered(connection, method, params.as_deref()).await?;
        let result = match answer.outcome {
            Ok(result) => result,
            // Servers that offer only other things need not know the method at all.
            Err(error) if reader.is_empty() && is_unknown_method(error.of(&answer.line)) => {
                return Ok(Listing { items: Vec::new(), hints: Hints::NONE, notices: Vec::new() });
            }
            Err(error) => return Err(refused(method, error.of(&answer.line))),
        };
        let read = reader.read_page(answer.line, result).await.ok_or(Cause::ClosedOutput)?;
        reader = read.reader;
        let cursor = read.next_cursor.map_err(|NoList| nonsense(format!("no array `{}`", kind.array_key())))?;
        let Some(cursor) = cursor else { return Ok(reader.finish()) };
        let next = reply::object([("cursor", cursor.to_vec())]);
        if params.as_ref() == Some(&next) {
            return Err(nonsense("the same cursor again and again".to_owned()));
        }
        params = Some(next);
    }
    Err(nonsense("a list without end".to_owned()))
}

async fn answered(connection: &Connection, method: &'static str, params: Option<&[u8]>) -> Result<Answer, Cause> {
    // No answer means that the connection was ended, and whoever ended it knows why.
    connection.ask(method, params).await.ok_or(Cause::ClosedOutput)
}

fn refused(method: &'static str, error: &[u8]) -> Cause {
    let error = String::from_utf8_lossy(error).chars().take(400).collect();
    Cause::Refused { method, error }
}

/// Whether an error says that our revision is not spoken, and names it among those that are.
fn wants_the_same_again(line: &[u8], error: Span) -> bool {
    let expected = code::UNSUPPORTED_VERSION.to_string();
    let is_refusal = member(line, error, "code").is_some_and(|code| code.of(line) == expected.as_bytes());
    let supported = member(line, error, "data").and_then(|data| member(line, data, "supported"));
    let supported = supported.and_then(|supported| protocol::scan::elements(line, supported)).unwrap_or_default();
    is_refusal && supported.iter().any(|version| text::token_is(version.of(line), protocol::revision::MODERN))
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
    fn what_a_server_says_of_itself_has_a_limit() {
        let introduced = |capabilities: &str, info: &str| {
            let result =
                format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":{info}}}"#);
            read_introduction(Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)))
        };
        assert_eq!(introduced(r#"{"tools":{}}"#, r#"{"name":"s"}"#).unwrap().offer.info, r#"{"name":"s"}"#);
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(1 << 16));
        let refused = introduced("{}", &long).unwrap_err().to_string();
        assert!(refused.contains("`serverInfo` that is larger than 65536 bytes"), "{refused}");
        let deep = r#"{"a":"#.repeat(100) + "{}" + &"}".repeat(100);
        let refused = introduced(&deep, "{}").unwrap_err().to_string();
        assert!(refused.contains("`capabilities` that is nested deeper than 56 levels"), "{refused}");
    }
}
