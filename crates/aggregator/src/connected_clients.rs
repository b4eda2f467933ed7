//! Which clients are connected: their names, versions and revisions, since when, and how many calls each has made.
//!
//! A legacy client is connected while its session lasts. A modern client has no session: it identifies itself with
//! every request, so it counts as connected for a while after its last one.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use catalog::Principal;
use protocol::bridge::meta::CLIENT_INFO;
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::{Span, member};
use protocol::{Params, Revision, text};

use crate::client_limits::ClientLimits;
use crate::surface::RecentSearches;

/// How long a client without a session counts as connected after its last request.
pub(crate) const SESSIONLESS_CLIENT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Clients choose their names and versions; longer ones are truncated.
const MAX_NAME_BYTES: usize = 200;

/// A client that is connected, or was recently.
#[derive(Debug)]
pub struct ConnectedClient {
    name: Arc<str>,
    version: Option<Box<str>>,
    revision: &'static str,
    principal: Arc<Principal>,
    since: SystemTime,
    calls: AtomicU64,
    /// Milliseconds from the creation of the table to the last request, for clients without a session.
    last_request: AtomicU64,
    /// Its last searches for tools.
    pub(crate) searches: RecentSearches,
}

impl ConnectedClient {
    fn new(name: &str, version: Option<&str>, revision: &'static str, principal: &Arc<Principal>) -> Self {
        Self {
            name: cut(name).into(),
            version: version.map(|version| cut(version).into()),
            revision,
            principal: Arc::clone(principal),
            since: SystemTime::now(),
            calls: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
            searches: RecentSearches::default(),
        }
    }

    /// Its name, if it gave one.
    pub fn name(&self) -> Option<Arc<str>> {
        (!self.name.is_empty()).then(|| Arc::clone(&self.name))
    }

    /// Its version, if it gave one.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The revision of the protocol it speaks.
    pub fn revision(&self) -> &'static str {
        self.revision
    }

    /// The principal it acts for.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// When it connected, or sent its first request.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// How many tools it has called.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a tool call.
    pub fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Clients without a session: by principal, and by a hash of the declared client info, which may be long. Its key is
/// random, so nobody can find two that are equal.
type Sessionless = HashMap<Arc<str>, HashMap<u64, Arc<ConnectedClient>>>;

/// All connected clients.
#[derive(Debug)]
pub(crate) struct ConnectedClients {
    began: Instant,
    sessions: Mutex<Vec<Weak<ConnectedClient>>>,
    sessionless: Mutex<Sessionless>,
    hash: RandomState,
    /// How many clients without a session are tracked. One more replaces the one that was silent the longest, of the
    /// principal with the most.
    most: usize,
    /// The same of one principal, which replaces one of its own.
    most_of_principal: usize,
}

impl ConnectedClients {
    pub(crate) fn new(limits: &ClientLimits) -> Self {
        Self {
            began: Instant::now(),
            sessions: Mutex::default(),
            sessionless: Mutex::default(),
            hash: RandomState::new(),
            most: limits.sessionless_clients,
            most_of_principal: limits.identity_sessionless_clients,
        }
    }

    /// Adds a client with a session, which lasts as long as the returned value is held.
    pub(crate) fn begin_session(
        &self,
        name: &str,
        version: Option<&str>,
        revision: Revision,
        principal: &Arc<Principal>,
    ) -> Arc<ConnectedClient> {
        let client = Arc::new(ConnectedClient::new(name, version, revision.as_str(), principal));
        let mut sessions = lock(&self.sessions);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&client));
        client
    }

    /// Records a request of a client without a session.
    pub(crate) fn note_request(
        &self,
        line: &[u8],
        params: &Params,
        principal: &Arc<Principal>,
    ) -> Arc<ConnectedClient> {
        let info = params.meta.and_then(|meta| member(line, meta, CLIENT_INFO));
        let client_info = info.map_or(&b""[..], |info| info.of(line));
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let key = self.hash.hash_one(client_info);
        let mut sessionless = lock(&self.sessionless);
        if let Some(known) = sessionless.get(&**principal.id()).and_then(|clients| clients.get(&key)) {
            known.last_request.store(now, Ordering::Relaxed);
            return Arc::clone(known);
        }
        self.make_room(&mut sessionless, principal.id(), now);
        let whole = Span { start: 0, end: client_info.len() };
        let word = |name| member(client_info, whole, name).and_then(|value| text::decode(value.of(client_info)));
        let client = ConnectedClient::new(
            &word("name").unwrap_or_default(),
            word("version").as_deref(),
            SELF_CONTAINED_REVISION,
            principal,
        );
        client.last_request.store(now, Ordering::Relaxed);
        let client = Arc::new(client);
        let of_principal = sessionless.entry(Arc::clone(principal.id())).or_default();
        of_principal.insert(key, Arc::clone(&client));
        client
    }

    /// Removes silent clients, and others as far as there is no room for one more of this principal.
    fn make_room(&self, sessionless: &mut Sessionless, principal: &Arc<str>, now: u64) {
        let count = |all: &Sessionless| all.values().map(HashMap::len).sum::<usize>();
        let own = |all: &Sessionless| all.get(&**principal).map_or(0, HashMap::len);
        if count(sessionless) < self.most && own(sessionless) < self.most_of_principal {
            return;
        }
        sessionless.values_mut().for_each(|clients| clients.retain(|_, client| !is_silent(client, now)));
        if own(sessionless) >= self.most_of_principal {
            sessionless.get_mut(&**principal).into_iter().for_each(remove_oldest);
        } else if count(sessionless) >= self.most {
            sessionless.values_mut().max_by_key(|clients| clients.len()).into_iter().for_each(remove_oldest);
        }
        sessionless.retain(|_, clients| !clients.is_empty());
    }

    /// The connected clients, in the order in which they connected.
    pub(crate) fn all(&self) -> Vec<Arc<ConnectedClient>> {
        let mut all: Vec<_> = lock(&self.sessions).iter().filter_map(Weak::upgrade).collect();
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let sessionless = lock(&self.sessionless);
        let heard_of = sessionless.values().flat_map(HashMap::values).filter(|client| !is_silent(client, now));
        all.extend(heard_of.cloned());
        drop(sessionless);
        all.sort_by_key(|client| client.since);
        all
    }
}

/// Removes the client that was silent the longest.
fn remove_oldest(clients: &mut HashMap<u64, Arc<ConnectedClient>>) {
    let last = |client: &Arc<ConnectedClient>| client.last_request.load(Ordering::Relaxed);
    if let Some(oldest) = clients.iter().min_by_key(|(_, client)| last(client)).map(|(key, _)| *key) {
        clients.remove(&oldest);
    }
}

fn is_silent(client: &ConnectedClient, now: u64) -> bool {
    let silent = now.saturating_sub(client.last_request.load(Ordering::Relaxed));
    u128::from(silent) > SESSIONLESS_CLIENT_TIMEOUT.as_millis()
}

fn cut(word: &str) -> &str {
    word.char_indices().nth(MAX_NAME_BYTES).map_or(word, |(at, _)| &word[..at])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::Role;
    use protocol::Envelope;

    fn request(clients: &ConnectedClients, info: &str, principal: &str) -> Arc<ConnectedClient> {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"{CLIENT_INFO}":{info}}}}}}}"#
        );
        let envelope = Envelope::scan(line.as_bytes()).unwrap();
        clients.note_request(line.as_bytes(), &envelope.params, &Principal::of_token(principal, Role::Admin, None))
    }

    fn names(clients: &ConnectedClients) -> Vec<String> {
        clients.all().iter().map(|client| client.name().unwrap_or_default().to_string()).collect()
    }

    #[test]
    fn a_session_counts_as_connected_while_it_exists() {
        let clients = ConnectedClients::new(&ClientLimits::default());
        let session = clients.begin_session(
            "editor",
            Some("1.2"),
            Revision::V2025_11_25,
            &Principal::of_token("me", Role::Admin, None),
        );
        session.count_call();
        let seen = clients.all();
        let [only] = &seen[..] else { panic!("{clients:?}") };
        assert_eq!((only.version(), only.revision(), only.calls()), (Some("1.2"), "2025-11-25", 1));
        drop((session, seen));
        assert_eq!(names(&clients), Vec::<String>::new());
    }

    #[test]
    fn requests_without_a_session_belong_to_one_client_by_client_info_and_token() {
        let clients = ConnectedClients::new(&ClientLimits::default());
        let first = request(&clients, r#"{"name":"a","version":"1"}"#, "me");
        let again = request(&clients, r#"{"name":"a","version":"1"}"#, "me");
        assert!(Arc::ptr_eq(&first, &again));
        request(&clients, r#"{"name":"a","version":"2"}"#, "me");
        request(&clients, r#"{"name":"a","version":"1"}"#, "you");
        assert_eq!((names(&clients), first.revision()), (vec!["a".to_owned(); 3], SELF_CONTAINED_REVISION));
    }

    #[test]
    fn the_number_of_remembered_clients_is_bounded_and_names_are_truncated() {
        let limits =
            ClientLimits { sessionless_clients: 20, identity_sessionless_clients: 12, ..ClientLimits::default() };
        let clients = ConnectedClients::new(&limits);
        let of =
            |principal: &str| clients.all().iter().filter(|client| &**client.principal().id() == principal).count();
        for number in 0..5 {
            request(&clients, &format!(r#"{{"name":"{number}"}}"#), "ann");
        }
        for number in 0..50 {
            request(&clients, &format!(r#"{{"name":"{number}"}}"#), "bob");
        }
        assert_eq!((of("ann"), of("bob")), (5, 12), "a token replaces its own");
        for number in 0..50 {
            request(&clients, &format!(r#"{{"name":"{number}"}}"#), "eve");
        }
        assert_eq!((of("ann"), clients.all().len()), (5, 20), "the token with the most makes room");
        let long = request(&clients, &format!(r#"{{"name":"{}"}}"#, "x".repeat(5000)), "");
        assert_eq!(long.name().map(|name| name.len()), Some(MAX_NAME_BYTES));
    }

    #[test]
    fn of_a_long_client_info_nothing_but_a_hash_and_the_cut_name_is_kept() {
        let clients = ConnectedClients::new(&ClientLimits::default());
        let info = format!(r#"{{"name":"a","icons":"{}"}}"#, "x".repeat(60_000));
        let first = request(&clients, &info, "me");
        assert!(Arc::ptr_eq(&first, &request(&clients, &info, "me")));
        assert!(format!("{clients:?}").len() < 2_000);
    }
}
