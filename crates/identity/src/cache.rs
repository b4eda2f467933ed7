//! Tokens that were verified, by a hash: the signature of a token is checked once, and nothing else of it is kept.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use ring::digest::{SHA256, digest};

use crate::claims::Verified;
use crate::rejection::Rejection;

/// How many tokens are remembered, and how many that were rejected by their issuer.
const MAX_ACCEPTED: usize = 8192;
const MAX_REJECTED: usize = 1024;

/// The hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

/// What is known about tokens. Rejected ones have a table of their own: they are free to send, so they must not displace
/// accepted ones.
#[derive(Default)]
pub(crate) struct Cache {
    accepted: RwLock<HashMap<Digest, Accepted>>,
    rejected: RwLock<HashMap<Digest, Rejected>>,
}

struct Accepted {
    verified: Arc<Verified>,
    /// Which issuer it comes from.
    issuer: usize,
    /// When it must be verified again.
    until: u64,
}

struct Rejected {
    rejection: Rejection,
    until: u64,
}

impl Digest {
    pub(crate) fn of(token: &str) -> Self {
        let digest = digest(&SHA256, token.as_bytes());
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl Cache {
    pub(crate) fn find(&self, token: &Digest, now: u64) -> Option<Result<Arc<Verified>, Rejection>> {
        let accepted = self.accepted.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = accepted.get(token) {
            return (now < known.until).then(|| match known.verified.is_current(now) {
                true => Ok(Arc::clone(&known.verified)),
                false => Err(Rejection::Expired),
            });
        }
        drop(accepted);
        let rejected = self.rejected.read().unwrap_or_else(PoisonError::into_inner);
        rejected.get(token).filter(|known| now < known.until).map(|known| Err(known.rejection))
    }

    pub(crate) fn accept(&self, token: Digest, verified: Arc<Verified>, issuer: usize, until: u64, now: u64) {
        let mut accepted = self.accepted();
        make_room(&mut accepted, MAX_ACCEPTED, |known| now < known.until && known.verified.is_current(now));
        accepted.insert(token, Accepted { verified, issuer, until });
    }

    pub(crate) fn reject(&self, token: Digest, rejection: Rejection, until: u64, now: u64) {
        self.accepted().remove(&token);
        let mut rejected = self.rejected.write().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut rejected, MAX_REJECTED, |known| now < known.until);
        rejected.insert(token, Rejected { rejection, until });
    }

    /// Forgets the tokens of an issuer, whose keys have changed.
    pub(crate) fn forget(&self, issuer: usize) {
        self.accepted().retain(|_, known| known.issuer != issuer);
    }

    fn accepted(&self) -> RwLockWriteGuard<'_, HashMap<Digest, Accepted>> {
        self.accepted.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what is over, and if that is not enough, half of the rest: what is removed is only verified again.
fn make_room<T>(table: &mut HashMap<Digest, T>, most: usize, is_needed: impl Fn(&T) -> bool) {
    if table.len() < most {
        return;
    }
    table.retain(|_, known| is_needed(known));
    if table.len() >= most {
        let mut is_kept = false;
        table.retain(|_, _| {
            is_kept = !is_kept;
            is_kept
        });
    }
}
