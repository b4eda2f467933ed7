//! Counts what tools are used for: the words of a search, when a client calls what it found. Counts lift tools in later
//! searches, and are written to the registry in the background.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use registry::ToolUse;
use search::{MAX_USES, words_of_use};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::{Error, Finder};

/// How long uses are collected before they are written together.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait before retrying if the database fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// So many uses, and so many counts, wait for the database; further ones are dropped.
const MAX_NOTED: usize = 1_000;
const MAX_UNWRITTEN: usize = 10_000;

/// Uses that are not written yet.
#[derive(Default)]
pub(super) struct UnwrittenUses {
    noted: Mutex<Vec<NotedUse>>,
    /// Counted in the index, but not written.
    counted: Mutex<Vec<ToolUse>>,
    /// All counts have to be deleted first.
    is_forgetting: AtomicBool,
    changed: Notify,
    /// Serializes writes.
    writing: tokio::sync::Mutex<()>,
}

/// A use as it was reported.
struct NotedUse {
    user: Arc<str>,
    query: String,
    slot_index: usize,
    tool: String,
}

impl UnwrittenUses {
    fn noted(&self) -> MutexGuard<'_, Vec<NotedUse>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, Vec<ToolUse>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts and writes uses until shutdown.
pub(super) async fn run(finder: Arc<Finder>) {
    if !finder.host.learns_from_use() {
        finder.forget_uses();
    }
    let uses = &finder.unwritten_uses;
    loop {
        uses.changed.notified().await;
        while let Err(error) = finder.try_write_uses().await {
            tracing::warn!(%error, "failed to store uses of tools; will retry");
            sleep(RETRY_INTERVAL).await;
        }
        sleep(WRITE_INTERVAL).await;
    }
}

impl Finder {
    /// Notes that a user has called a tool after a search. Does not wait.
    pub(super) fn note_use(&self, user: &Arc<str>, query: &str, slot_index: usize, tool: &str) {
        if !self.host.learns_from_use() {
            return;
        }
        let mut noted = self.unwritten_uses.noted();
        if noted.len() >= MAX_NOTED {
            tracing::warn!(tool, "too many uses of tools wait to be counted; this one is not counted");
            return;
        }
        let (user, query, tool) = (Arc::clone(user), query.to_owned(), tool.to_owned());
        noted.push(NotedUse { user, query, slot_index, tool });
        drop(noted);
        self.unwritten_uses.changed.notify_one();
    }

    /// Deletes all counts in the background. They do not count from now on.
    pub fn forget_uses(&self) {
        self.unwritten_uses.noted().clear();
        self.unwritten_uses.is_forgetting.store(true, Ordering::Release);
        self.unwritten_uses.changed.notify_one();
    }

    /// Writes what is not written yet, before the program ends.
    pub async fn write_uses(&self) {
        if let Err(error) = self.try_write_uses().await {
            tracing::warn!(%error, "the last uses of tools were not stored");
        }
    }

    async fn try_write_uses(&self) -> Result<(), Error> {
        let uses = &self.unwritten_uses;
        let _turn = uses.writing.lock().await;
        if uses.is_forgetting.load(Ordering::Acquire) {
            uses.counted().clear();
            self.change(super::tool_index::ToolIndex::forget_uses).await?;
            self.store.forget_tool_uses().await?;
            uses.is_forgetting.store(false, Ordering::Release);
        }
        self.count_noted().await?;
        let batch = uses.counted().clone();
        if batch.is_empty() {
            return Ok(());
        }
        let count = batch.len();
        let deleted = self.store.add_tool_uses(batch, MAX_USES).await?;
        // Only now, so that nothing is lost if this is interrupted.
        uses.counted().drain(..count);
        if deleted > 0 {
            self.read_uses().await?;
        }
        Ok(())
    }

    /// Counts uses in the index.
    async fn count_noted(&self) -> Result<(), Error> {
        let noted = std::mem::take(&mut *self.unwritten_uses.noted());
        if noted.is_empty() {
            return Ok(());
        }
        let servers = self.host.servers();
        let mut counted = Vec::new();
        for NotedUse { user, query, slot_index, tool } in noted {
            let Some(server) = servers.iter().find(|server| server.slot_index == slot_index) else { continue };
            let Some(tool) = super::locked(&self.tool_index).tool_named(server.id, &tool) else { continue };
            let words = words_of_use(&query).into_iter();
            counted.extend(words.map(|word| ToolUse { user: user.to_string(), word, tool, uses: 1 }));
        }
        let added = counted.clone();
        self.change(move |tool_index| added.iter().for_each(|it| tool_index.add_uses(it))).await?;
        let mut unwritten = self.unwritten_uses.counted();
        let room = MAX_UNWRITTEN.saturating_sub(unwritten.len());
        if counted.len() > room {
            tracing::warn!(
                dropped = counted.len() - room,
                "the registry cannot be written, and too many uses of tools wait: they count until the next start only"
            );
        }
        unwritten.extend(counted.into_iter().take(room));
        Ok(())
    }

    /// Takes the counts of the registry into the index.
    pub(super) async fn load_uses(&self) -> Result<(), Error> {
        if !self.host.learns_from_use() {
            return Ok(());
        }
        let _turn = self.unwritten_uses.writing.lock().await;
        self.read_uses().await
    }

    /// Replaces the counts in the index by those of the registry, and those that are not written yet.
    async fn read_uses(&self) -> Result<(), Error> {
        let stored = self.store.tool_uses().await?;
        let unwritten = self.unwritten_uses.counted().clone();
        self.change(move |tool_index| {
            tool_index.forget_uses();
            stored.iter().chain(&unwritten).for_each(|it| tool_index.add_uses(it));
        })
        .await
    }
}
