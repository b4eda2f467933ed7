//! The protocol revisions, what differs between them, and how one is negotiated.

use std::fmt;

/// The modern revision, as it is written in messages.
pub const SELF_CONTAINED_REVISION: &str = Revision::V2026_07_28.as_str();

/// Whether a client and a server use a session. Both kinds of clients can be served at once, from one catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// Legacy: `initialize` starts a session, in which both sides may send requests.
    Session,
    /// Modern: there is no session. Every request states its client and that client's capabilities, and only clients
    /// send requests.
    SelfContained,
}

impl Lifecycle {
    /// The other lifecycle.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Session => Self::SelfContained,
            Self::SelfContained => Self::Session,
        }
    }
}

/// A published revision of the protocol, in order of publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26, the only one with batches
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
    /// 2026-07-28, the first without sessions
    V2026_07_28,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// The revision in our `initialize` requests, and in our answers to clients that ask for an unknown one.
    pub const NEWEST_WITH_SESSIONS: Self = Self::V2025_11_25;

    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether it has sessions.
    pub fn lifecycle(self) -> Lifecycle {
        if self <= Self::NEWEST_WITH_SESSIONS { Lifecycle::Session } else { Lifecycle::SelfContained }
    }

    /// The revision with that name, if it is known.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// The revision with that name, if it is known and has sessions.
    pub fn named_with_sessions(name: &str) -> Option<Self> {
        Self::named(name).filter(|revision| revision.lifecycle() == Lifecycle::Session)
    }

    /// The answer to a client that asks for `wanted` in `initialize`: the same if it is known and has sessions,
    /// otherwise the newest one with sessions.
    pub fn agreed(wanted: &str) -> Self {
        Self::named_with_sessions(wanted).unwrap_or(Self::NEWEST_WITH_SESSIONS)
    }

    /// Every supported revision, newest first.
    pub fn supported() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().rev().map(Self::as_str)
    }

    /// Whether a message may be an array of several messages (a batch).
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_revision_with_sessions_is_echoed_and_any_other_gets_the_newest_of_them() {
        for revision in Revision::ALL.into_iter().filter(|revision| revision.lifecycle() == Lifecycle::Session) {
            assert_eq!(Revision::agreed(revision.as_str()), revision);
        }
        for unknown in ["2026-07-28", "1999-01-01", "", "2025-11-25 "] {
            assert_eq!(Revision::agreed(unknown), Revision::NEWEST_WITH_SESSIONS);
        }
    }

    #[test]
    fn revisions_are_ordered_like_their_names_and_found_by_name() {
        assert!(Revision::ALL.is_sorted());
        assert!(Revision::ALL.map(Revision::as_str).is_sorted());
        for revision in Revision::ALL {
            assert_eq!(Revision::named(revision.as_str()), Some(revision));
        }
        assert_eq!(Revision::supported().next(), Some("2026-07-28"));
        assert_eq!(Revision::named_with_sessions(SELF_CONTAINED_REVISION), None);
    }
}
