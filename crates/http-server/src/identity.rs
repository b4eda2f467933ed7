//! How much of the HTTP server each identity uses: connections, bodies of requests, and what it has not read yet.
//!
//! An identity is a token, or the local user where there are no tokens. What one uses up is refused to that one alone,
//! as long as there is enough in total.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

use crate::limits::Limits;

/// What is no longer than this is not counted while a connection writes it, and never refused because others wait: there is
/// no more of it than connections.
pub(crate) const SMALL_ANSWER: usize = 64 << 10;

/// Everybody who uses the HTTP server now.
#[derive(Debug)]
pub(crate) struct Identities {
    most: Arc<Shares>,
    by_name: Mutex<HashMap<Arc<str>, Weak<Identity>>>,
}

/// What one may use, and all together.
#[derive(Debug)]
struct Shares {
    /// Without tokens, what one may use is what all may use.
    has_tokens: bool,
    of_one: Counts<usize>,
    of_all: Counts<usize>,
    /// What all use now.
    used: Counts<AtomicUsize>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts<N> {
    connections: N,
    received: N,
    unread: N,
}

/// Something that is counted.
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
    pub(crate) name: Arc<str>,
    most: Arc<Shares>,
    used: Counts<AtomicUsize>,
    /// That its clients do not read was said; once is enough.
    warned: AtomicBool,
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Identity({:?})", self.name)
    }
}

/// Why something is refused to somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Full {
    /// Only this identity uses too much; others are served.
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
        Self {
            most: Arc::new(Shares { has_tokens, of_one, of_all, used: Counts::default() }),
            by_name: Mutex::default(),
        }
    }

    /// The identity of that name.
    pub(crate) fn of(&self, name: &Arc<str>) -> Arc<Identity> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_name.get(name).and_then(Weak::upgrade) {
            return known;
        }
        by_name.retain(|_, identity| identity.strong_count() > 0);
        let identity = Arc::new(Identity {
            name: Arc::clone(name),
            most: Arc::clone(&self.most),
            used: Counts::default(),
            warned: AtomicBool::new(false),
        });
        by_name.insert(Arc::clone(name), Arc::downgrade(&identity));
        identity
    }
}

impl Identity {
    /// One that is alone, with the default limits.
    #[cfg(test)]
    pub(crate) fn alone(limits: &Limits) -> Arc<Self> {
        Identities::new(limits, false).of(&Arc::from(""))
    }

    /// How it is called in a message.
    fn shown(&self) -> String {
        if self.name.is_empty() { "the local user".to_owned() } else { format!("token `{}`", self.name) }
    }

    /// The limit that it exceeds if it uses too much itself.
    fn own_limit(&self, total: &'static str) -> String {
        if self.most.has_tokens { format!("`{total}-per-token`") } else { format!("`{total}`") }
    }

    /// Whether this is the first time that an answer to it was dropped.
    pub(crate) fn is_first_dropped(&self) -> bool {
        !self.warned.load(Ordering::Relaxed)
    }

    /// An answer to it was dropped.
    pub(crate) fn note_dropped(&self) {
        self.warned.store(true, Ordering::Relaxed);
    }

    /// One more connection.
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

    /// A body that begins to come in.
    pub(crate) fn receive(self: &Arc<Self>) -> Receiving {
        Receiving { identity: Arc::clone(self), bytes: 0 }
    }

    /// So much more waits for its clients, or less.
    pub(crate) fn change_unread(&self, before: usize, now: usize) {
        if now > before {
            self.add(Counted::Unread, now - before);
        } else if before > now {
            self.subtract(Counted::Unread, before - now);
        }
    }

    /// Why no further answer can wait for its clients, if that is so.
    pub(crate) fn refusal_of_answer(&self) -> Option<Full> {
        let (own, all) = self.used(Counted::Unread);
        let (most, most_of_all) = (self.most.of_one.unread, self.most.of_all.unread);
        if own > most {
            let (name, limit) = (self.shown(), self.own_limit("unread-mb"));
            let why = format!(
                "the clients of {name} have not read {} MB; at most {} MB wait for them (limit {limit})",
                own >> 20,
                most >> 20
            );
            return Some(Full { is_own: true, why });
        }
        let why = || format!("clients have not read {} MB, which is the limit `unread-mb`", all >> 20);
        (all > most_of_all).then(|| Full { is_own: false, why: why() })
    }

    /// So many bytes that wait for one of its clients, until this is dropped.
    pub(crate) fn hold_unread(self: &Arc<Self>, bytes: usize) -> Unread {
        self.change_unread(0, bytes);
        Unread { identity: Arc::clone(self), bytes }
    }

    /// Whether so much waits for its clients that nothing is added or kept that can be left out.
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

/// A body that counts until nobody holds it any more.
#[derive(Debug)]
pub(crate) struct Receiving {
    identity: Arc<Identity>,
    bytes: usize,
}

impl Receiving {
    /// It is so long by now.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let more = bytes.saturating_sub(self.bytes);
        let (own, all) = self.identity.add(Counted::Received, more);
        self.bytes += more;
        let (most, most_of_all) = (self.identity.most.of_one.received, self.identity.most.of_all.received);
        if own > most {
            let (name, limit) = (self.identity.shown(), self.identity.own_limit("received-mb"));
            let why = format!(
                "Too much at once: requests of {name} that are not done with have more than {} MB (limit {limit})",
                most >> 20
            );
            return Err(Full { is_own: true, why });
        }
        if all > most_of_all {
            let most = most_of_all >> 20;
            let why = format!(
                "Too much at once: requests that are not done with have more than {most} MB (limit `received-mb`)"
            );
            return Err(Full { is_own: false, why });
        }
        Ok(())
    }

    /// The body, which counts as long as anybody holds a part of it.
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
    /// Some of it, which counts until nobody holds it any more. More than there is left counts as well.
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

/// Bytes, and what counts as long as they are there.
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
    use super::*;

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
        let (one, other) = (identities.of(&Arc::from("one")), identities.of(&Arc::from("other")));
        let connected = [one.connect().unwrap(), one.connect().unwrap()];
        let full = one.connect().unwrap_err();
        assert_eq!(full.why, "Too many connections: token `one` may have 2 (limit `connections-per-token`)");
        other.connect().unwrap();
        drop(connected);
        one.connect().unwrap();
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
        let (one, other) = (identities.of(&Arc::from("one")), identities.of(&Arc::from("other")));
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
        let one = Identities::new(&limits(), true).of(&Arc::from("one"));
        one.change_unread(0, 1 << 20);
        assert!(!one.is_crowded() && one.refusal_of_answer().is_none());
        one.change_unread(1 << 20, 4 << 20);
        assert!(one.is_crowded() && one.refusal_of_answer().unwrap().why.contains("token `one`"));
        one.change_unread(4 << 20, 0);
        assert!(!one.is_crowded());
    }

    #[test]
    fn an_answer_counts_until_its_last_part_is_written() {
        let one = Identities::new(&limits(), true).of(&Arc::from("one"));
        let mut unread = one.hold_unread(3 << 20);
        let parts = [unread.hand_out(vec![0; 1 << 20].into()), unread.hand_out(vec![0; 3 << 20].into())];
        assert_eq!(one.used(Counted::Unread), (4 << 20, 4 << 20), "more than was promised counts as well");
        drop(unread);
        assert_eq!(one.used(Counted::Unread).0, 4 << 20);
        drop(parts);
        assert_eq!(one.used(Counted::Unread), (0, 0));
    }
}
