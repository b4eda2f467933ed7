//! Getting in touch with a server: in the way it is said to speak, else in one way after the other.
//!
//! Each attempt is a conversation of its own, so nothing of one that failed is left in the next. Over HTTP a server that knows
//! both eras does not lock to one: after the legacy handshake the modern one is tried as well (see `dual`).

use std::sync::Arc;
use std::time::Duration;

use catalog::{Dialect, Offer, Remote, Secrets};
use protocol::Era;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use upstream::connection::Surroundings;
use upstream::failure::Cause;
use upstream::wire::{Postbox, Wire};
use upstream::{Connection, Manners, Upstream, Watcher};

use crate::courier::{Courier, Route};
use crate::dual::ModernSide;
use crate::http::Http;
use crate::session::Session;
use crate::sse::{Endpoint, Stream};
use crate::trouble::Trouble;

/// How often we look for what is no longer needed.
const TIDYING: Duration = Duration::from_secs(15);

/// The least time between two looks at what a server that has forgotten us offers, and the most if it does so all the
/// time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A server we are talking to.
pub(crate) struct Contact {
    pub(crate) connection: Arc<Connection>,
    courier: Arc<Courier>,
    /// The modern handshake of a server that was met in the legacy way and speaks both.
    pub(crate) modern: Option<Box<ModernSide>>,
}

impl Contact {
    /// What the server offers, as far as it can be used.
    pub(crate) fn screened(&self, mut offer: Offer) -> Offer {
        if let Some(session) = self.courier.session() {
            session.screen(&self.connection, &mut offer);
        }
        offer
    }

    /// Gives up what is under way.
    pub(crate) async fn stop(&self) {
        self.courier.stop().await;
    }

    /// Gives up what is under way, and says goodbye.
    pub(crate) async fn leave(&self) {
        if let Some(modern) = &self.modern {
            modern.leave().await;
        }
        self.stop().await;
        if let Some(session) = self.courier.session() {
            session.leave().await;
        }
    }
}

/// The ways to talk to a server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Legacy,
    Modern,
    /// HTTP+SSE, which is older than eras.
    Older,
}

/// Why a server could not be met in one way.
enum Failure {
    /// It looks as if it does not speak like this.
    Foreign(Cause),
    /// It speaks over Streamable HTTP, but not so.
    Refused(Cause),
    /// Another way would not help.
    Final(Cause),
}

/// What a contact consists of: the contact, what ends only when the server is lost, and what the server offers.
pub(crate) type Met = (Contact, JoinHandle<Cause>, Offer);

/// Gets in touch.
pub(crate) async fn meet(upstream: &Upstream, remote: &Remote, watcher: &Arc<dyn Watcher>) -> Result<Met, Cause> {
    let http = Http::new(remote).map_err(|trouble| Cause::Remote(trouble.to_string()))?;
    let http = http.of(Arc::clone(&upstream.ancestry));
    let (mut contact, attending, offer) = meet_somehow(upstream, remote, &http, watcher).await?;
    let is_legacy = contact.connection.era() == Era::Legacy && contact.courier.session().is_some();
    if is_legacy && upstream.spec.era.is_none() {
        contact.modern = ModernSide::meet(upstream, http, watcher, &contact.connection).await.map(Box::new);
    }
    Ok((contact, attending, offer))
}

/// Gets in touch in the first way that works.
async fn meet_somehow(
    upstream: &Upstream,
    remote: &Remote,
    http: &Http,
    watcher: &Arc<dyn Watcher>,
) -> Result<Met, Cause> {
    // What it said first explains best why it cannot be met in any way.
    let mut first: Option<Failure> = None;
    for &manner in manners(remote.dialect, upstream.spec.era) {
        if let Some(Failure::Refused(_)) = first
            && manner == Manner::Older
        {
            break;
        }
        let surroundings = upstream.surroundings(watcher);
        let failure = match meet_in(upstream, &upstream.manners, http.clone(), manner, surroundings).await {
            Ok(met) => return Ok(met),
            Err(failure) => failure,
        };
        first = Some(match (first, failure) {
            (None, Failure::Final(cause)) => return Err(cause),
            (None, failure) => failure,
            (Some(Failure::Foreign(newer)), Failure::Foreign(older) | Failure::Final(older))
                if manner == Manner::Older =>
            {
                let text = format!("it speaks neither Streamable HTTP ({newer}) nor HTTP+SSE ({older})");
                return Err(Cause::Remote(text));
            }
            (Some(first), _) => first,
        });
        tracing::debug!(server = %upstream.spec.name, ?manner, "could not be met like this");
    }
    match first {
        Some(Failure::Foreign(cause) | Failure::Refused(cause) | Failure::Final(cause)) => Err(cause),
        None => Err(Cause::ClosedOutput),
    }
}

/// What to try, in this order.
fn manners(dialect: Dialect, era: Option<Era>) -> &'static [Manner] {
    match (dialect, era) {
        (Dialect::Sse, _) => &[Manner::Older],
        (_, Some(Era::Modern)) => &[Manner::Modern],
        (Dialect::Streamable, Some(Era::Legacy)) => &[Manner::Legacy],
        (Dialect::Streamable, None) => &[Manner::Legacy, Manner::Modern],
        (Dialect::Unknown, Some(Era::Legacy)) => &[Manner::Legacy, Manner::Older],
        (Dialect::Unknown, None) => &[Manner::Legacy, Manner::Modern, Manner::Older],
    }
}

/// Gets in touch in the modern way, beside a handshake that there is already.
pub(crate) async fn meet_modern(
    upstream: &Upstream,
    manners: &Manners,
    http: Http,
    surroundings: Surroundings,
) -> Result<Met, Cause> {
    let met = meet_in(upstream, manners, http, Manner::Modern, surroundings).await;
    met.map_err(|(Failure::Foreign(cause) | Failure::Refused(cause) | Failure::Final(cause))| cause)
}

/// Gets in touch in one way.
async fn meet_in(
    upstream: &Upstream,
    manners: &Manners,
    http: Http,
    manner: Manner,
    surroundings: Surroundings,
) -> Result<Met, Failure> {
    let circle = http.circle();
    let era = if manner == Manner::Modern { Era::Modern } else { Era::Legacy };
    let (route, stream) = if manner == Manner::Older {
        let opening = timeout(upstream.manners.patience, Endpoint::open(http, upstream.manners.introduction()));
        let too_slow = |_| Failure::Final(Cause::Remote("it did not open its event stream in time".to_owned()));
        let opened = opening.await.map_err(too_slow)?.map_err(Failure::from);
        let opened = opened.map_err(|failure| failure.hiding(&upstream.spec.secrets));
        let (stream, endpoint) = opened?;
        (Route::Older(Box::new(endpoint)), Some(stream))
    } else {
        (Route::Streamable(Box::new(Session::new(http, era, upstream.manners.introduction()))), None)
    };
    let courier = Courier::new(route);
    let postbox = Postbox::new(Arc::clone(&courier) as _);
    let connection = Arc::new(Connection::new(surroundings, Wire::Post(postbox)));
    courier.serve(&connection);
    let attending = tokio::spawn(attend(Arc::clone(&courier), Arc::clone(&connection), stream, circle));
    let contact = Attempt { courier, attending: Some(attending) };

    let greeted = |revision: Option<&str>| {
        if let Some(session) = contact.courier.session() {
            session.greeted(revision);
        }
    };
    match manners.meet(&connection, Some(era), greeted).await {
        Ok(offer) => {
            let (courier, attending) = contact.keep();
            if let Some(session) = courier.session() {
                session.start_listening();
            }
            Ok((Contact { connection, courier, modern: None }, attending, offer))
        }
        Err(cause) => Err(contact.explain(cause).await.hiding(&upstream.spec.secrets)),
    }
}

/// An attempt to get in touch. Nothing of it stays unless it is kept.
struct Attempt {
    courier: Arc<Courier>,
    attending: Option<JoinHandle<Cause>>,
}

impl Attempt {
    fn keep(mut self) -> (Arc<Courier>, JoinHandle<Cause>) {
        (Arc::clone(&self.courier), self.attending.take().expect("kept once"))
    }

    async fn explain(&self, cause: Cause) -> Failure {
        self.courier.stop().await;
        match (cause, &self.courier.route) {
            // A question without an answer has a better explanation in what happened to its request.
            (Cause::ClosedOutput, Route::Streamable(session)) => session.last_trouble().into(),
            (Cause::ClosedOutput, Route::Older(endpoint)) => {
                let trouble = endpoint.trouble().unwrap_or(Trouble::NoAnswer);
                Failure::Final(Cause::Remote(format!("its event stream ended: {trouble}")))
            }
            (cause @ Cause::Refused { method: "initialize" | "server/discover", .. }, Route::Streamable(_)) => {
                Failure::Refused(cause)
            }
            (cause, _) => Failure::Final(cause),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(attending) = &self.attending {
            attending.abort();
            self.courier.give_up_all();
        }
    }
}

impl Failure {
    /// The same without the secrets of its server. At once: put into other words, one that was cut off is not found.
    fn hiding(self, secrets: &Secrets) -> Self {
        match self {
            Self::Foreign(cause) => Self::Foreign(cause.hiding(secrets)),
            Self::Refused(cause) => Self::Refused(cause.hiding(secrets)),
            Self::Final(cause) => Self::Final(cause.hiding(secrets)),
        }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let cause = match &trouble {
            Trouble::Unauthorized { .. } => Cause::Unauthorized(trouble.to_string()),
            Trouble::Circle(why) => Cause::Circle(why),
            _ => Cause::Remote(trouble.to_string()),
        };
        if trouble.is_foreign() { Self::Foreign(cause) } else { Self::Final(cause) }
    }
}

/// Hears what the server says unasked, and clears away what is no longer needed. Ends only if the task breaks, for a server
/// that is lost may be back for the next call, or if the server turns out to be one of those who use us.
async fn attend(
    courier: Arc<Courier>,
    connection: Arc<Connection>,
    stream: Option<Stream>,
    mut circle: watch::Receiver<Option<&'static str>>,
) -> Cause {
    let tidying = async {
        let mut ticks = interval(TIDYING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            courier.tidy();
        }
    };
    let hearing = async {
        match (&courier.route, stream) {
            (Route::Streamable(session), _) => hear(session, &connection).await,
            (Route::Older(endpoint), Some(stream)) => endpoint.hear(stream, &connection).await,
            (Route::Older(_), None) => {}
        }
    };
    let renewing = async {
        match courier.session() {
            Some(session) => tell_renewals(session, &connection).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = hearing => {}
        () = tidying => {}
        () = renewing => {}
        Ok(why) = circle.wait_for(Option::is_some) => return Cause::Circle(why.expect("it was waited for")),
    }
    Cause::ClosedOutput
}

/// Tells when the server had forgotten us and knows us anew, for it must then be asked and told everything again. That is
/// when one that forgets us with every request would forget us again, so it is told less and less often.
async fn tell_renewals(session: &Session, connection: &Arc<Connection>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let looked_at = Instant::now();
        let introduction = session.renewed().await;
        let is_restless = looked_at.elapsed() < pause;
        pause = if is_restless { (pause * 2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
        connection.introduced_anew(introduction);
        sleep(pause).await;
    }
}

/// Keeps the stream open for what the server says unasked; a new session gets a new one.
async fn hear(session: &Session, connection: &Arc<Connection>) {
    loop {
        session.may_listen().await;
        loop {
            tokio::select! {
                () = session.may_listen() => {}
                () = session.hear(connection) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_server_is_not_tried_out() {
        use Manner::{Legacy, Modern, Older};
        assert_eq!(manners(Dialect::Unknown, None), [Legacy, Modern, Older]);
        assert_eq!(manners(Dialect::Unknown, Some(Era::Legacy)), [Legacy, Older]);
        assert_eq!(manners(Dialect::Streamable, None), [Legacy, Modern]);
        assert_eq!(manners(Dialect::Streamable, Some(Era::Legacy)), [Legacy]);
        assert_eq!(manners(Dialect::Unknown, Some(Era::Modern)), [Modern]);
        assert_eq!(manners(Dialect::Sse, None), [Older]);
    }
}
