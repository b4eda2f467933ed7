//! A page of a list.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Selects a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The maximum number of items.
    pub limit: u32,
    /// The number of items to skip.
    pub offset: u64,
}

impl Page {
    /// The whole list.
    pub const ALL: Self = Self { limit: u32::MAX, offset: 0 };

    /// The first items.
    pub const fn first(limit: u32) -> Self {
        Self { limit, offset: 0 }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::first(100)
    }
}

/// A page of a list, and the length of the whole list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// The number of all items.
    pub total: u64,
}

/// What to keep when old entries are deleted: both limits apply if both are given, and nothing is deleted without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Delete entries that are older.
    pub since: Option<Timestamp>,
    /// Keep at most this many of the newest.
    pub newest: Option<u32>,
}

impl RetentionPolicy {
    /// Neither older than so many days, nor more than so many.
    pub fn of(days: u32, newest: u32) -> Self {
        let age = Duration::from_secs(u64::from(days) * 24 * 3600);
        Self { since: Some(Timestamp::now().earlier_by(age)), newest: Some(newest) }
    }
}
