//! Failed authentication: counted, logged, and limited for each address that sends wrong tokens.
//!
//! A wrong token is always refused; beyond the limit the refusal contains how long to wait. A valid token is accepted
//! nevertheless, so that clients that share an address are not locked out by another. The exception are tokens that
//! are short enough to be guessed: while their address is limited, they are refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The window in which the wrong tokens of one address are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// How often a reason is logged for one address.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Log lines that all addresses together write in that time.
const LOG_LINES: u32 = 30;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// It has no token.
    MissingToken,
    /// Its token is none of ours.
    WrongToken,
    /// Its token of an identity provider is not accepted. It was not guessed, so it does not count as wrong.
    RejectedToken,
    /// The certificate of its client is not accepted.
    RejectedCertificate,
    /// There are no tokens, and its connection belongs to another user.
    OtherUser,
    /// There are no tokens, and the user of its connection is unknown.
    UnknownUser,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::MissingToken,
        Self::WrongToken,
        Self::RejectedToken,
        Self::RejectedCertificate,
        Self::OtherUser,
        Self::UnknownUser,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::MissingToken => "missing_token",
            Self::WrongToken => "wrong_token",
            Self::RejectedToken => "rejected_token",
            Self::RejectedCertificate => "rejected_certificate",
            Self::OtherUser => "other_user",
            Self::UnknownUser => "unknown_user",
        }
    }
}

/// Failed authentication, by address.
#[derive(Debug)]
pub struct AuthFailures {
    /// Wrong tokens that one address may send in one window.
    limit: u32,
    /// How many addresses are remembered; a new one replaces the one that began to fail first.
    most_addresses: usize,
    counts: [AtomicU64; Reason::ALL.len()],
    limited: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    addresses: HashMap<IpAddr, Address>,
    log_began: Option<Instant>,
    log_lines: u32,
}

/// The failures of one address.
#[derive(Debug)]
struct Address {
    /// When the window began, and the number of wrong tokens in it.
    began: Instant,
    wrong: u32,
    /// When each reason was last logged, and what was suppressed since.
    logged: [Option<Instant>; Reason::ALL.len()],
    left_out: u64,
}

/// The counters, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthReading {
    /// Refused requests, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// Those of them that have to wait.
    pub limited: u64,
}

impl AuthFailures {
    /// Allows each address this many wrong tokens per minute, and remembers this many addresses.
    pub fn new(limit: usize, most_addresses: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        Self { limit, most_addresses, counts: Default::default(), limited: AtomicU64::new(0), table: Mutex::default() }
    }

    /// The counters so far.
    pub fn reading(&self) -> AuthReading {
        let count = |reason: Reason| (reason.as_str(), self.counts[reason as usize].load(Ordering::Relaxed));
        AuthReading { failures: Reason::ALL.map(count).into(), limited: self.limited.load(Ordering::Relaxed) }
    }

    /// Records a refused request. Returns how long its address has to wait, if it does.
    pub(crate) fn note(&self, address: IpAddr, reason: Reason, path: &str) -> Option<Duration> {
        self.note_at(Instant::now(), address, reason, path)
    }

    fn note_at(&self, now: Instant, peer: IpAddr, reason: Reason, path: &str) -> Option<Duration> {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut table = self.table();
        let is_below_log_limit = table.renew_log_window(now);
        let known = table.address(network_of(peer), now, self.most_addresses);
        known.wrong = known.wrong.saturating_add(u32::from(reason == Reason::WrongToken));
        let wait = known.wait(now, self.limit).filter(|_| reason == Reason::WrongToken);
        let is_due = known.logged[reason as usize].is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if !(is_due && is_below_log_limit) {
            known.left_out += 1;
        } else {
            known.logged[reason as usize] = Some(now);
            let left_out = std::mem::take(&mut known.left_out);
            table.log_lines += 1;
            drop(table);
            // The path without its query, which may contain a secret.
            tracing::warn!(%peer, reason = reason.as_str(), ?path, left_out, "refused a request: authentication failed");
        }
        if wait.is_some() {
            self.limited.fetch_add(1, Ordering::Relaxed);
        }
        wait
    }

    /// How long an address has to wait before a guessable token is accepted again.
    pub(crate) fn wait(&self, address: IpAddr) -> Option<Duration> {
        self.wait_at(Instant::now(), address)
    }

    fn wait_at(&self, now: Instant, address: IpAddr) -> Option<Duration> {
        // Nothing has failed yet, as nearly always.
        if self.counts[Reason::WrongToken as usize].load(Ordering::Relaxed) < u64::from(self.limit) {
            return None;
        }
        self.table().addresses.get(&network_of(address))?.wait(now, self.limit)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Starts a new interval if the last one is over. Returns whether one more line may be logged.
    fn renew_log_window(&mut self, now: Instant) -> bool {
        if self.log_began.is_none_or(|began| now.duration_since(began) >= LOG_INTERVAL) {
            (self.log_began, self.log_lines) = (Some(now), 0);
        }
        self.log_lines < LOG_LINES
    }

    fn address(&mut self, address: IpAddr, now: Instant, most: usize) -> &mut Address {
        if self.addresses.len() >= most && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, known| now.duration_since(known.began) < WINDOW);
            let oldest = self.addresses.iter().min_by_key(|(_, known)| known.began).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| self.addresses.len() >= most) {
                self.addresses.remove(&oldest);
            }
        }
        let known = self.addresses.entry(address).or_insert_with(|| Address {
            began: now,
            wrong: 0,
            logged: [None; Reason::ALL.len()],
            left_out: 0,
        });
        if now.duration_since(known.began) >= WINDOW {
            (known.began, known.wrong) = (now, 0);
        }
        known
    }
}

impl Address {
    fn wait(&self, now: Instant, limit: u32) -> Option<Duration> {
        let left = WINDOW.saturating_sub(now.duration_since(self.began));
        (self.wrong > limit && !left.is_zero()).then_some(left)
    }
}

/// An attacker with one address of an IPv6 network usually has all of it.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn wrong_tokens_beyond_the_limit_have_to_wait_until_the_window_ends() {
        let failures = AuthFailures::new(3, 4096);
        let (now, peer) = (Instant::now(), at("10.0.0.1"));
        let wrong = |after| failures.note_at(now + Duration::from_secs(after), peer, Reason::WrongToken, "/mcp");
        assert_eq!([wrong(0), wrong(1), wrong(2)], [None; 3]);
        assert_eq!(wrong(10), Some(Duration::from_secs(50)));
        assert_eq!(failures.wait_at(now + Duration::from_secs(10), peer), Some(Duration::from_secs(50)));
        assert_eq!(failures.wait_at(now, at("10.0.0.2")), None, "others do not");
        assert_eq!(failures.note_at(now, at("10.0.0.2"), Reason::WrongToken, "/mcp"), None);
        assert_eq!(failures.wait_at(now + WINDOW, peer), None);
        assert_eq!(wrong(61), None, "a new window");
        let reading = failures.reading();
        assert_eq!(reading.failures[1], ("wrong_token", 6));
        assert_eq!(reading.limited, 1);
    }

    #[test]
    fn only_wrong_tokens_count() {
        let failures = AuthFailures::new(1, 4096);
        let now = Instant::now();
        for reason in [Reason::MissingToken, Reason::OtherUser, Reason::UnknownUser] {
            for _ in 0..10 {
                assert_eq!(failures.note_at(now, at("::1"), reason, "/mcp"), None);
            }
        }
        assert_eq!(failures.wait_at(now, at("::1")), None);
        let counted: u64 = failures.reading().failures.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 30);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_so_is_a_mapped_one() {
        assert_eq!(network_of(at("2001:db8::1")), network_of(at("2001:db8::ffff:1")));
        assert_ne!(network_of(at("2001:db8::1")), network_of(at("2001:db8:0:1::1")));
        assert_eq!(network_of(at("::ffff:10.0.0.1")), at("10.0.0.1"));
    }

    #[test]
    fn the_number_of_remembered_addresses_is_bounded() {
        let failures = AuthFailures::new(1, 50);
        let now = Instant::now();
        for number in 0..150 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(number));
            failures.note_at(now + Duration::from_millis(number.into()), address, Reason::WrongToken, "/");
        }
        let table = failures.table();
        assert_eq!(table.addresses.len(), 50);
        assert!(table.addresses.contains_key(&at("0.0.0.149")), "the latest are remembered");
    }

    #[test]
    fn a_flood_writes_few_lines() {
        let failures = AuthFailures::new(1, 4096);
        let now = Instant::now();
        for number in 0..1000 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(number % 100));
            failures.note_at(now, address, Reason::WrongToken, "/");
        }
        assert_eq!(failures.table().log_lines, LOG_LINES);
        let left_out: u64 = failures.table().addresses.values().map(|known| known.left_out).sum();
        assert_eq!(left_out, 1000 - u64::from(LOG_LINES));
    }
}
