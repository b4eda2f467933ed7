//! Getting to know a server: who it is, then what it offers; and hearing when that changes.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use catalog::tools::{Page, Tool};
use protocol::scan::member;
use protocol::{Revision, reply, text};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::connection::{Answer, Connection};
use crate::failure::Cause;

/// A list in more pages than this is not a list.
const MOST_PAGES: usize = 10_000;

/// The least time between two looks at a server's changed tools, and the most if it changes them all the time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How we approach servers.
#[derive(Debug, Clone)]
pub struct Manners {
    /// What to be introduced as: the JSON of `clientInfo`.
    pub introduction: Bytes,
    /// How long a server may take to become ready, or to list its tools anew.
    pub patience: Duration,
}

impl Manners {
    /// Asks the server who it is and what it offers. `greeted` hears the revision before anything else is asked.
    pub async fn meet(&self, connection: &Connection, greeted: impl FnOnce(Option<&str>)) -> Result<Vec<Tool>, Cause> {
        let deadline = Instant::now() + self.patience;
        let too_slow = |method| Cause::TooSlow { method, waited: self.patience };
        let initializing = timeout_at(deadline, self.initialize(connection));
        let revision = initializing.await.map_err(|_| too_slow("initialize"))??;
        greeted(revision.as_deref());
        connection.tell("notifications/initialized", None);
        let listing = timeout_at(deadline, list_tools(connection));
        listing.await.map_err(|_| too_slow("tools/list"))?
    }

    /// The parameters of `initialize`.
    pub fn introduction(&self) -> Vec<u8> {
        reply::object([
            ("protocolVersion", reply::string(Revision::NEWEST.as_str())),
            ("capabilities", b"{}".to_vec()),
            ("clientInfo", self.introduction.to_vec()),
        ])
    }

    async fn initialize(&self, connection: &Connection) -> Result<Option<String>, Cause> {
        let answer = answered(connection, "initialize", Some(&self.introduction())).await?;
        let result = answer.outcome.map_err(|error| refused("initialize", error.of(&answer.line)))?;
        if answer.line[result.start] != b'{' {
            let problem = "something that is no object".to_owned();
            return Err(Cause::Nonsense { method: "initialize", problem });
        }
        let revision = member(&answer.line, result, "protocolVersion");
        Ok(revision.and_then(|span| text::decode(span.of(&answer.line))).map(|revision| revision.into_owned()))
    }

    /// Lists the tools anew whenever the server says they have changed.
    pub async fn follow_changes(&self, connection: &Connection, changed: impl Fn(Vec<Tool>)) {
        let server = connection.server();
        let mut pause = SHORTEST_PAUSE;
        loop {
            let asked_again_after = Instant::now();
            connection.tools_changed().await;
            // A server that never stops saying so is heard less and less often.
            let is_restless = asked_again_after.elapsed() < pause;
            pause = if is_restless { (pause * 2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
            match timeout(self.patience, list_tools(connection)).await {
                Ok(Ok(tools)) => changed(tools),
                Ok(Err(cause)) => tracing::warn!(%server, %cause, "could not list its changed tools"),
                Err(_) => tracing::warn!(%server, "did not list its changed tools in time"),
            }
            sleep(pause).await;
        }
    }
}

/// Asks for every page of the server's tools.
async fn list_tools(connection: &Connection) -> Result<Vec<Tool>, Cause> {
    const METHOD: &str = "tools/list";
    let nonsense = |problem: &str| Cause::Nonsense { method: METHOD, problem: problem.to_owned() };
    let (mut tools, mut names, mut params) = (Vec::new(), HashSet::new(), None);
    for _ in 0..MOST_PAGES {
        let answer = answered(connection, METHOD, params.as_deref()).await?;
        let result = match answer.outcome {
            Ok(result) => result,
            // Servers that offer only resources or prompts need not know the method at all.
            Err(error) if tools.is_empty() && is_unknown_method(error.of(&answer.line)) => return Ok(tools),
            Err(error) => return Err(refused(METHOD, error.of(&answer.line))),
        };
        let page = Page::read(&answer.line, result).ok_or_else(|| nonsense("no array `tools`"))?;
        if page.unusable > 0 {
            tracing::warn!(server = %connection.server(), count = page.unusable, "left out tools that have no usable name");
        }
        for tool in page.tools {
            if names.insert(tool.name.clone()) {
                tools.push(tool);
            } else {
                tracing::warn!(server = %connection.server(), tool = %tool.name, "left out a second tool of the same name");
            }
        }
        let Some(cursor) = page.next_cursor else { return Ok(tools) };
        let next = reply::object([("cursor", cursor.to_vec())]);
        if params.as_ref() == Some(&next) {
            return Err(nonsense("the same cursor again and again"));
        }
        params = Some(next);
    }
    Err(nonsense("a list without end"))
}

async fn answered(connection: &Connection, method: &'static str, params: Option<&[u8]>) -> Result<Answer, Cause> {
    // No answer means that the connection was ended, and whoever ended it knows why.
    connection.ask(method, params).await.ok_or(Cause::ClosedOutput)
}

fn refused(method: &'static str, error: &[u8]) -> Cause {
    let error = String::from_utf8_lossy(error).chars().take(400).collect();
    Cause::Refused { method, error }
}

fn is_unknown_method(error: &[u8]) -> bool {
    let whole = protocol::Span { start: 0, end: error.len() };
    protocol::scan::member(error, whole, "code").is_some_and(|code| code.of(error) == b"-32601")
}
