//! How much of the HTTP server each identity uses: connections, request bodies, and unread responses.
//!
//! An identity is a token, or the local user where there are no tokens. An identity that exceeds its share is refused
//! alone, as long as the total suffices.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use catalog::Principal;

use crate::limits::Limits;

/// Smaller responses are not counted while a connection writes them, and never refused because of unread ones: there
/// are no more of them than connections.
pub(crate) const SMALL_ANSWER: usize = 64 << 10;

/// All active identities.
#[derive(Debug)]
pub(crate) struct Identities {
    most: Arc<Shares>,
    by_id: Mutex<HashMap<Arc<str>, Weak<Identity>>>,
}

/// The limits of one identity, and of all together.
#[derive(Debug)]
struct Shares {
    /// Without tokens, one identity may use the total.
    has_tokens: bool,
    of_one: Counts<usize>,
    of_all: Counts<usize>,
    /// The current total usage.
    used: Counts<AtomicUsize>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts<N> {
    connections: N,
    received: N,
    unread: N,
}

/// A counted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Connections,
    Received,
    Unread,
}

impl<N> Counts<N> {
    fn of(&self, counted: Counted) -> &N {
        match counted {
            Counted::Connections => &self.connections,
            Counted::Received => &self.received,
            Counted::Unread => &self.unread,
        }
    }
}

/// One identity.
pub(crate) struct Identity {
    pub(crate) principal: Arc<Principal>,
    most: Arc<Shares>,
    used: Counts<AtomicUsize>,
    /// The warning that its clients do not read was logged; once is enough.
    warned: AtomicBool,
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Identity({:?})", self.principal.name())
    }
}

/// Why a resource is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Full {
    /// Only this identity exceeds its share; others are served.
    pub(crate) is_own: bool,
    pub(crate) why: String,
}

impl Identities {
    /// Without tokens there is one identity, which may use everything.
    pub(crate) fn new(limits: &Limits, has_tokens: bool) -> Self {
        let of_all = Counts { connections: limits.connections, received: limits.received, unread: limits.unread };
        let of_one = Counts {
            connections: limits.connections_of_identity,
            received: limits.received_of_identity,
            unread: limits.unread_of_identity,
        };
        let of_one = if has_tokens { of_one } else { of_all };
        Self { most: Arc::new(Shares { has_tokens, of_one, of_all, used: Counts::default() }), by_id: Mutex::default() }
    }

    /// The identity of a principal.
    pub(crate) fn of(&self, principal: &Arc<Principal>) -> Arc<Identity> {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_id.get(principal.id()).and_then(Weak::upgrade) {
            return known;
        }
        by_id.retain(|_, identity| identity.strong_count() > 0);
        let identity = Arc::new(Identity {
            principal: Arc::clone(principal),
            most: Arc::clone(&self.most),
            used: Counts::default(),
            warned: AtomicBool::new(false),
        });
        by_id.insert(Arc::clone(principal.id()), Arc::downgrade(&identity));
        identity
    }
}

impl Identity {
    /// A single identity, with the default limits.
    #[cfg(test)]
    pub(crate) fn alone(limits: &Limits) -> Arc<Self> {
        Identities::new(limits, false).of(&Principal::local())
    }

    /// Its name in a message.
    fn shown(&self) -> String {
        if self.principal.is_local() { "the local user".to_owned() } else { format!("token `{}`", self.principal) }
    }

    /// The limit that it exceeds if its own usage is too high.
    fn own_limit(&self, total: &'static str) -> String {
        if self.most.has_tokens { format!("`{total}-per-token`") } else { format!("`{total}`") }
    }

    /// Whether this is the first dropped response.
    pub(crate) fn is_first_dropped(&self) -> bool {
        !self.warned.load(Ordering::Relaxed)
    }

    /// Records a dropped response.
    pub(crate) fn note_dropped(&self) {
        self.warned.store(true, Ordering::Relaxed);
    }

    /// Counts one more connection.
    pub(crate) fn connect(self: &Arc<Self>) -> Result<Connected, Full> {
        let own = self.add(Counted::Connections, 1).0;
        let connected = Connected(Arc::clone(self));
        let most = self.most.of_one.connections;
        if own > most {
            let (name, limit) = (self.shown(), self.own_limit("connections"));
            let why = format!("Too many connections: {name} may have {most} (limit {limit})");
            return Err(Full { is_own: true, why });
        }
        Ok(connected)
    }

    /// Counts a body that begins to arrive.
    pub(crate) fn receive(self: &Arc<Self>) -> Receiving {
        Receiving { identity: Arc::clone(self), bytes: 0 }
    }

    /// Updates the number of unread bytes.
    pub(crate) fn change_unread(&self, before: usize, now: usize) {
        if now > before {
            self.add(Counted::Unread, now - before);
        } else if before > now {
            self.subtract(Counted::Unread, before - now);
        }
    }

    /// Why no further response can be queued for its clients, if so.
    pub(crate) fn refusal_of_answer(&self) -> Option<Full> {
        let (own, all) = self.used(Counted::Unread);
        let (most, most_of_all) = (self.most.of_one.unread, self.most.of_all.unread);
        if own > most {
            let (name, limit) = (self.shown(), self.own_limit("unread-mb"));
            let why = format!(
                "clients of {name} have {} MB of unread messages; the limit is {} MB (limit {limit})",
                own >> 20,
                most >> 20
            );
            return Some(Full { is_own: true, why });
        }
        let why = || format!("clients have {} MB of unread messages, which is the limit `unread-mb`", all >> 20);
        (all > most_of_all).then(|| Full { is_own: false, why: why() })
    }

    /// Counts unread bytes of one of its clients, until this is dropped.
    pub(crate) fn hold_unread(self: &Arc<Self>, bytes: usize) -> Unread {
        self.change_unread(0, bytes);
        Unread { identity: Arc::clone(self), bytes }
    }

    /// Whether so much is unread that optional messages are neither sent nor kept.
    pub(crate) fn is_crowded(&self) -> bool {
        let (own, all) = self.used(Counted::Unread);
        own > self.most.of_one.unread / 2 || all > self.most.of_all.unread / 2
    }

    fn used(&self, counted: Counted) -> (usize, usize) {
        let count = |used: &Counts<AtomicUsize>| used.of(counted).load(Ordering::Relaxed);
        (count(&self.used), count(&self.most.used))
    }

    fn add(&self, counted: Counted, more: usize) -> (usize, usize) {
        let add = |used: &Counts<AtomicUsize>| used.of(counted).fetch_add(more, Ordering::Relaxed) + more;
        (add(&self.used), add(&self.most.used))
    }

    fn subtract(&self, counted: Counted, less: usize) {
        for used in [&self.used, &self.most.used] {
            used.of(counted).fetch_sub(less, Ordering::Relaxed);
        }
    }
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Identity>);

impl Connected {
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.0
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.subtract(Counted::Connections, 1);
    }
}

/// A body that counts until its bytes are dropped.
#[derive(Debug)]
pub(crate) struct Receiving {
    identity: Arc<Identity>,
    bytes: usize,
}

impl Receiving {
    /// Updates its length.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let more = bytes.saturating_sub(self.bytes);
        let (own, all) = self.identity.add(Counted::Received, more);
        self.bytes += more;
        let (most, most_of_all) = (self.identity.most.of_one.received, self.identity.most.of_all.received);
        if own > most {
            let (name, limit) = (self.identity.shown(), self.identity.own_limit("received-mb"));
            let why = format!(
                "Too much data: unfinished requests of {name} have more than {} MB (limit {limit})",
                most >> 20
            );
            return Err(Full { is_own: true, why });
        }
        if all > most_of_all {
            let most = most_of_all >> 20;
            let why = format!("Too much data: unfinished requests have more than {most} MB (limit `received-mb`)");
            return Err(Full { is_own: false, why });
        }
        Ok(())
    }

    /// The body, which counts until all parts of it are dropped.
    pub(crate) fn hold(self, body: Bytes) -> Bytes {
        Bytes::from_owner(Held { body, _counts: self })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.identity.subtract(Counted::Received, self.bytes);
    }
}

/// Bytes that a client has not read yet, which count until this is dropped.
#[derive(Debug)]
pub(crate) struct Unread {
    identity: Arc<Identity>,
    bytes: usize,
}

impl Unread {
    /// A part of it, which counts until its bytes are dropped. More than what remains counts as well.
    pub(crate) fn hand_out(&mut self, bytes: Bytes) -> Bytes {
        let more = bytes.len().saturating_sub(self.bytes);
        self.identity.change_unread(0, more);
        self.bytes = self.bytes.saturating_sub(bytes.len());
        let part = Self { identity: Arc::clone(&self.identity), bytes: bytes.len() };
        Bytes::from_owner(Held { body: bytes, _counts: part })
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.identity.change_unread(self.bytes, 0);
    }
}

/// Bytes, with a guard that is dropped with them.
struct Held<C> {
    body: Bytes,
    _counts: C,
}

impl<C> AsRef<[u8]> for Held<C> {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use catalog::Role;

    use super::*;

    fn token(name: &str) -> Arc<Principal> {
        Principal::of_token(name, Role::Admin, None)
    }

    fn limits() -> Limits {
        Limits {
            connections: 5,
            connections_of_identity: 2,
            received: 5 << 20,
            received_of_identity: 3 << 20,
            unread: 5 << 20,
            unread_of_identity: 3 << 20,
            ..Limits::default()
        }
    }

    #[test]
    fn what_one_uses_up_others_still_have() {
        let identities = Identities::new(&limits(), true);
        let (one, other) = (identities.of(&token("one")), identities.of(&token("other")));
        let connected = [one.connect().unwrap(), one.connect().unwrap()];
        let full = one.connect().unwrap_err();
        assert_eq!(full.why, "Too many connections: token `one` may have 2 (limit `connections-per-token`)");
        other.connect().unwrap();
        drop(connected);
        one.connect().unwrap();
    }

    #[test]
    fn bodies_of_all_identities_are_bounded_together() {
        let identities = Identities::new(&limits(), true);
        let receiving = |name: &str| identities.of(&token(name)).receive();
        let (mut one, mut other) = (receiving("one"), receiving("other"));
        one.grow(3 << 20).unwrap();
        other.grow(2 << 20).unwrap();
        let full = receiving("third").grow(1).unwrap_err();
        assert_eq!(full.why, "Too much data: unfinished requests have more than 5 MB (limit `received-mb`)");
        assert!(!full.is_own, "it is not the fault of the third");
        drop(one);
        receiving("third").grow(1).unwrap();
    }

    #[test]
    fn without_tokens_the_local_user_may_use_everything() {
        let user = Identity::alone(&limits());
        let connected: Vec<_> = (0..5).map(|_| user.connect().unwrap()).collect();
        assert!(user.connect().unwrap_err().why.contains("the local user may have 5"));
        drop(connected);
    }

    #[test]
    fn a_body_counts_until_its_last_part_is_dropped() {
        let identities = Identities::new(&limits(), true);
        let (one, other) = (identities.of(&token("one")), identities.of(&token("other")));
        let mut receiving = one.receive();
        receiving.grow(2 << 20).unwrap();
        let body = receiving.hold(Bytes::from_static(b"{}"));
        let part = body.slice(..1);
        drop(body);
        assert!(one.receive().grow(2 << 20).unwrap_err().is_own);
        let mut more = other.receive();
        more.grow(3 << 20).unwrap();
        let full = one.receive().grow(1 << 20).unwrap_err();
        assert!(!full.is_own && full.why.contains("`received-mb`"), "{full:?}");
        drop(part);
        one.receive().grow(1 << 20).unwrap();
    }

    #[test]
    fn what_is_not_read_is_counted_and_refused() {
        let one = Identities::new(&limits(), true).of(&token("one"));
        one.change_unread(0, 1 << 20);
        assert!(!one.is_crowded() && one.refusal_of_answer().is_none());
        one.change_unread(1 << 20, 4 << 20);
        assert!(one.is_crowded() && one.refusal_of_answer().unwrap().why.contains("token `one`"));
        one.change_unread(4 << 20, 0);
        assert!(!one.is_crowded());
    }

    #[test]
    fn an_answer_counts_until_its_last_part_is_written() {
        let one = Identities::new(&limits(), true).of(&token("one"));
        let mut unread = one.hold_unread(3 << 20);
        let parts = [unread.hand_out(vec![0; 1 << 20].into()), unread.hand_out(vec![0; 3 << 20].into())];
        assert_eq!(one.used(Counted::Unread), (4 << 20, 4 << 20), "more than was promised counts as well");
        drop(unread);
        assert_eq!(one.used(Counted::Unread).0, 4 << 20);
        drop(parts);
        assert_eq!(one.used(Counted::Unread), (0, 0));
    }
}
