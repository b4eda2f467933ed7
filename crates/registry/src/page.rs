//! A part of a long list.

use serde::{Deserialize, Serialize};

/// Which part is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// At most so many.
    pub limit: u32,
    /// After so many others.
    pub offset: u64,
}

impl Page {
    /// Everything there is, as far as it can be counted.
    pub const ALL: Self = Self { limit: u32::MAX, offset: 0 };

    /// The first so many.
    pub const fn first(limit: u32) -> Self {
        Self { limit, offset: 0 }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::first(100)
    }
}

/// A part of a list, and how long the whole is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// The part that was asked for.
    pub items: Vec<T>,
    /// How many there are in all.
    pub total: u64,
}

/// What is left when a history is cut: both limits hold where both are given, and nothing is cut where none is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Nothing that is older.
    pub since: Option<crate::Timestamp>,
    /// Not more than so many of the newest.
    pub newest: Option<u32>,
}
