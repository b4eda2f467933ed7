//! The protocol revisions and how one is agreed on.

use std::fmt;

/// The revision without `initialize`, in which every request tells what it needs.
pub const MODERN: &str = "2026-07-28";

/// The two kinds of conversation. Both may go on at once, in one catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Up to 2025-11-25: begins with `initialize`, and both sides may ask.
    Legacy,
    /// 2026-07-28: every request stands for itself, and only clients ask.
    Modern,
}

impl Era {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Modern,
            Self::Modern => Self::Legacy,
        }
    }
}

/// A published revision that begins with `initialize`.
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
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    /// What we ask servers for, and answer clients who ask for something we do not know.
    pub const NEWEST: Self = Self::V2025_11_25;

    /// As it is written in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision of that name, if we know it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// What to answer a client that asked for `wanted`: the same if we know it, else our newest.
    pub fn agreed(wanted: &str) -> Self {
        Self::named(wanted).unwrap_or(Self::NEWEST)
    }

    /// Every revision we speak, of both eras, newest first.
    pub fn supported() -> impl Iterator<Item = &'static str> {
        std::iter::once(MODERN).chain(Self::ALL.into_iter().rev().map(Self::as_str))
    }

    /// Whether several messages may come as one array.
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
    fn a_known_revision_is_echoed_and_any_other_gets_our_newest() {
        for revision in Revision::ALL {
            assert_eq!(Revision::agreed(revision.as_str()), revision);
        }
        for unknown in ["2026-07-28", "1999-01-01", "", "2025-11-25 "] {
            assert_eq!(Revision::agreed(unknown), Revision::NEWEST);
        }
    }
}
