//! What is written in the background: states of servers, their tools, and what operators did while the database was
//! unreachable.
//!
//! One task writes, so that what happened to a server is written in order. While the database is away things wait, a
//! bounded number for each server, and nobody waits for them. What a server was in between may then be lost; what it is
//! now never is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Kind, Offer};
use registry::{AuditNote, Error, ListedTool, ServerId, StatusChange, Store, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::supervisor::tool_records;

/// So many changes of one server may wait.
const MAX_PENDING_CHANGES: usize = 64;
/// So many notes of what administrators did may wait.
const MAX_PENDING_NOTES: usize = 4096;
/// Definitions of more bytes are taken apart on a thread of their own.
const READ_IN_PLACE: usize = 64 << 10;
/// How long to wait before the database is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// What is written later than this after it happened is written with when it happened.
const LATE: Duration = Duration::from_secs(1);

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct StatusWriter {
    pending: Mutex<Pending>,
    /// There is something to be written, or it is time to end.
    news: Notify,
    /// Something was written.
    progress: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    servers: HashMap<ServerId, Backlog>,
    /// Servers with something to be written, in the order in which it came.
    turns: VecDeque<ServerId>,
    notes: VecDeque<AuditedOperation>,
    /// Whose things are being written right now.
    writing: Option<ServerId>,
    is_writing_note: bool,
    is_closing: bool,
    /// Why the last thing could not be written, if it could not.
    last_error: Option<String>,
}

#[derive(Debug, Default)]
struct Backlog {
    changes: VecDeque<Change>,
    /// What lists its tools. They are taken out when they are written.
    tools: Option<Arc<Offer>>,
    health_checked: Option<Timestamp>,
}

#[derive(Debug)]
struct Change {
    change: StatusChange,
    at: Timestamp,
}

/// What somebody did that happened already: it is written when the database is there.
#[derive(Debug)]
pub(crate) struct AuditedOperation {
    pub(crate) note: AuditNote,
    /// Whether calls are refused from now on, if that changed.
    pub(crate) is_stopped: Option<bool>,
}

impl AuditedOperation {
    /// Writes it, all or nothing.
    pub(crate) async fn write(&self, store: &Store) -> Result<(), Error> {
        let mut transaction = store.transaction("write the audit log").await?;
        if let Some(is_stopped) = self.is_stopped {
            transaction.set_executions_stopped(is_stopped).await?;
        }
        transaction.append_audit(self.note.clone()).await?;
        transaction.commit().await
    }
}

/// One thing to be written.
enum Work {
    Change(ServerId, Change),
    Tools(ServerId, Arc<Offer>),
    HealthChecked(ServerId, Timestamp),
    Note(AuditedOperation),
}

impl StatusWriter {
    /// A server stands otherwise.
    pub(crate) fn change(&self, server: ServerId, change: StatusChange) {
        self.add(server, |backlog| {
            if backlog.changes.len() == MAX_PENDING_CHANGES {
                backlog.drop_oldest();
            }
            backlog.changes.push_back(Change { change, at: Timestamp::now() });
        });
    }

    /// A server has these tools now.
    pub(crate) fn tools(&self, server: ServerId, offer: Arc<Offer>) {
        self.add(server, |backlog| backlog.tools = Some(offer));
    }

    /// A server was looked at, and nothing changed.
    pub(crate) fn health_checked(&self, server: ServerId, at: Timestamp) {
        self.add(server, |backlog| backlog.health_checked = Some(at));
    }

    /// Somebody did something while the database was unreachable.
    pub(crate) fn note(&self, note: AuditNote) {
        self.operation(AuditedOperation { note, is_stopped: None });
    }

    /// An operator did something while the database was unreachable.
    pub(crate) fn operation(&self, note: AuditedOperation) {
        let mut pending = self.lock();
        if pending.notes.len() == MAX_PENDING_NOTES {
            pending.notes.pop_front();
            tracing::error!("the audit log cannot be written, and too much waits for it: the oldest note is lost");
        }
        pending.notes.push_back(note);
        drop(pending);
        self.news.notify_one();
    }

    /// Whether what somebody does now has to wait with the rest: what waits was done before, so it is written before;
    /// and nobody should wait for a database that is known to be unreachable.
    pub(crate) fn should_queue(&self) -> bool {
        let pending = self.lock();
        pending.is_writing_note || !pending.notes.is_empty() || pending.last_error.is_some()
    }

    /// A server is gone: nothing more is written about it.
    pub(crate) fn forget(&self, server: ServerId) {
        self.lock().servers.remove(&server);
        self.progress.notify_waiters();
    }

    /// Waits until everything about a server is written, but not longer than `limit`.
    pub(crate) async fn wait_written(&self, server: ServerId, limit: Duration) -> bool {
        timeout(limit, self.until(|pending| pending.is_done_with(server))).await.is_ok()
    }

    /// Waits until everything about all servers is written, but not longer than `limit`.
    pub(crate) async fn wait_all_written(&self, limit: Duration) -> bool {
        let is_done = |pending: &Pending| pending.writing.is_none() && pending.servers.values().all(Backlog::is_empty);
        timeout(limit, self.until(is_done)).await.is_ok()
    }

    /// Writes until told to end, and then what is left.
    pub(crate) async fn write_all(&self, store: &Store) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (work, is_closing) = self.next();
            let Some(work) = work else {
                if is_closing {
                    return;
                }
                self.news.notified().await;
                continue;
            };
            match work.write(store).await {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    self.lock().last_error = None;
                }
                Err(error) if error.is_retryable() => {
                    if is_closing {
                        tracing::error!(%error, "the database is away; what happened last is not written");
                        return;
                    }
                    tracing::warn!(%error, retry_in = ?pause, "could not write; will try again");
                    self.put_back(work);
                    self.lock().last_error = Some(error.to_string());
                    self.wait_a_while(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                    continue;
                }
                // It was removed meanwhile.
                Err(Error::NotFound { .. }) => {}
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "could not write"),
            }
            self.finish();
        }
    }

    /// Why nothing can be written just now, if that is so.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Lets the writer end when all is written; one more try each if the database is away.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.news.notify_one();
    }

    async fn wait_a_while(&self, pause: Duration) {
        let closing = async {
            while !self.lock().is_closing {
                self.news.notified().await;
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = closing => {}
        }
        // Whoever had news is served by the next round.
        self.news.notify_one();
    }

    async fn until(&self, holds: impl Fn(&Pending) -> bool) {
        loop {
            let progress = self.progress.notified();
            if holds(&self.lock()) {
                return;
            }
            progress.await;
        }
    }

    fn add(&self, server: ServerId, add: impl FnOnce(&mut Backlog)) {
        let mut pending = self.lock();
        add(pending.servers.entry(server).or_default());
        if !pending.turns.contains(&server) {
            pending.turns.push_back(server);
        }
        drop(pending);
        self.news.notify_one();
    }

    fn next(&self) -> (Option<Work>, bool) {
        let mut pending = self.lock();
        let work = pending.next();
        (work, pending.is_closing)
    }

    fn put_back(&self, work: Work) {
        let mut pending = self.lock();
        pending.finish();
        pending.put_back(work);
    }

    fn finish(&self) {
        self.lock().finish();
        self.progress.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn next(&mut self) -> Option<Work> {
        while let Some(&server) = self.turns.front() {
            let Some(work) = self.servers.get_mut(&server).and_then(|backlog| backlog.next(server)) else {
                self.turns.pop_front();
                self.servers.remove(&server);
                continue;
            };
            self.writing = Some(server);
            return Some(work);
        }
        let note = self.notes.pop_front()?;
        self.is_writing_note = true;
        Some(Work::Note(note))
    }

    fn put_back(&mut self, work: Work) {
        match work {
            Work::Change(server, change) => self.again(server).changes.push_front(change),
            Work::Tools(server, tools) => drop(self.again(server).tools.get_or_insert(tools)),
            Work::HealthChecked(server, at) => drop(self.again(server).health_checked.get_or_insert(at)),
            Work::Note(note) => self.notes.push_front(note),
        }
    }

    fn again(&mut self, server: ServerId) -> &mut Backlog {
        if !self.turns.contains(&server) {
            self.turns.push_front(server);
        }
        self.servers.entry(server).or_default()
    }

    fn finish(&mut self) {
        self.writing = None;
        self.is_writing_note = false;
    }

    fn is_done_with(&self, server: ServerId) -> bool {
        self.writing != Some(server) && self.servers.get(&server).is_none_or(Backlog::is_empty)
    }
}

impl Backlog {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.tools.is_none() && self.health_checked.is_none()
    }

    fn next(&mut self, server: ServerId) -> Option<Work> {
        if let Some(change) = self.changes.pop_front() {
            return Some(Work::Change(server, change));
        }
        if let Some(tools) = self.tools.take() {
            return Some(Work::Tools(server, tools));
        }
        self.health_checked.take().map(|at| Work::HealthChecked(server, at))
    }

    /// What is lost is a step in between; what it changed for good goes into the next.
    fn drop_oldest(&mut self) {
        let Some(Change { change: lost, .. }) = self.changes.pop_front() else { return };
        if let Some(Change { change: next, .. }) = self.changes.front_mut() {
            next.failure_count = next.failure_count.or(lost.failure_count);
            next.enabled = next.enabled.or(lost.enabled);
            next.auto_disabled = next.auto_disabled.or(lost.auto_disabled);
            next.server_info = next.server_info.take().or(lost.server_info);
            next.last_health_check = next.last_health_check.or(lost.last_health_check);
            next.worked_at = next.worked_at.or(lost.worked_at);
        }
    }
}

impl Work {
    async fn write(&self, store: &Store) -> Result<(), Error> {
        match self {
            Self::Change(server, change) => store.set_status(*server, change.with_time()).await.map(drop),
            Self::Tools(server, offer) => store.replace_tools(*server, &tools_of(offer).await).await.map(drop),
            Self::HealthChecked(server, at) => store.note_health_check(*server, *at).await,
            Self::Note(operation) => operation.write(store).await,
        }
    }
}

/// The tools of an offer, read on a thread that serves no calls if there are many.
async fn tools_of(offer: &Arc<Offer>) -> Arc<[ListedTool]> {
    if offer.weight(Kind::Tool) <= READ_IN_PLACE {
        return tool_records::tools_of(offer);
    }
    let offer = Arc::clone(offer);
    match tokio::task::spawn_blocking(move || tool_records::tools_of(&offer)).await {
        Ok(tools) => tools,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Change {
    /// The change, with when it happened if that is not now.
    fn with_time(&self) -> StatusChange {
        let mut change = self.change.clone();
        if Timestamp::now().since(self.at) > LATE {
            let mut details = match change.details.take() {
                Some(Value::Object(details)) => details,
                _ => serde_json::Map::new(),
            };
            details.insert("happened_at".to_owned(), json!(self.at));
            change.details = Some(Value::Object(details));
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use registry::Status;

    use super::*;

    fn work_of(status_writer: &StatusWriter) -> Vec<String> {
        let told = |work: Work| match work {
            Work::Change(_, change) => change.change.status.to_string(),
            Work::Tools(_, offer) => format!("{} tools", offer.items(Kind::Tool).len()),
            Work::HealthChecked(..) => "looked at".to_owned(),
            Work::Note(operation) => operation.note.action,
        };
        std::iter::from_fn(|| status_writer.next().0).map(told).collect()
    }

    fn note(action: &str) -> AuditNote {
        AuditNote { who: None, action: action.to_owned(), target: None, details: None }
    }

    #[test]
    fn what_happens_to_a_server_is_written_in_order_and_its_tools_once() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        status_writer.change(server, StatusChange::to(Status::Connecting));
        let offer = Arc::new(Offer::new(protocol::Lifecycle::Session));
        status_writer.tools(server, Arc::clone(&offer));
        status_writer.change(server, StatusChange::to(Status::Connected));
        status_writer.tools(server, offer);
        status_writer.health_checked(server, Timestamp::now());
        status_writer.note(note("server.register"));
        assert_eq!(work_of(&status_writer), ["connecting", "connected", "0 tools", "looked at", "server.register"]);
    }

    #[test]
    fn what_could_not_be_written_comes_first_the_next_time() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        status_writer.change(server, StatusChange::to(Status::Connecting));
        status_writer.change(server, StatusChange::to(Status::Error));
        let work = status_writer.next().0.unwrap();
        status_writer.put_back(work);
        assert_eq!(work_of(&status_writer), ["connecting", "error"]);
    }

    #[test]
    fn a_server_that_is_restless_while_the_database_is_unreachable_loses_steps_but_not_what_they_changed() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        status_writer.change(server, StatusChange { enabled: Some(false), ..StatusChange::to(Status::Disabled) });
        for _ in 0..MAX_PENDING_CHANGES {
            status_writer.change(server, StatusChange::to(Status::Connecting));
        }
        let Some(Work::Change(_, first)) = status_writer.next().0 else { panic!("there is a change") };
        assert_eq!((first.change.status, first.change.enabled), (Status::Connecting, Some(false)));
        assert_eq!(work_of(&status_writer).len(), MAX_PENDING_CHANGES - 1);
    }

    #[test]
    fn nothing_is_written_about_a_server_that_is_gone() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        status_writer.change(server, StatusChange::to(Status::Connecting));
        status_writer.forget(server);
        assert_eq!(work_of(&status_writer), [""; 0]);
    }
}
