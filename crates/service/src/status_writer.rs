//! Writes in the background: states of servers, their tools, and operations of administrators while the database was
//! unreachable.
//!
//! One task writes, so that the changes of a server are written in order. While the database is unreachable changes
//! are queued, a bounded number for each server, and nothing waits for them. Intermediate states of a server may then
//! be lost; its current state never is.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Kind, Offer};
use executions::OperatorLog;
use registry::{AuditNote, Error, ListedTool, ServerId, StatusChange, Store, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::supervisor::tool_records;

/// How many changes of one server may be queued.
const MAX_PENDING_CHANGES: usize = 64;
/// How many audit notes may be queued.
const MAX_PENDING_NOTES: usize = 4096;
/// Longer definitions, in bytes, are parsed on a separate thread.
const MAX_PARSED_IN_PLACE: usize = 64 << 10;
/// The delay before the database is tried again, at first and at most.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A change that is written later than this is written with its original time.
const DEFERRED_WRITE_AFTER: Duration = Duration::from_secs(1);

/// How long a reader waits for what is being written about one server: on a busy machine a write takes a while. If the
/// last write failed, the next one may fail for long.
const READER_TIMEOUT: Duration = Duration::from_secs(5);
const READER_TIMEOUT_AFTER_ERROR: Duration = Duration::from_secs(1);

/// The queue of writes.
#[derive(Debug, Default)]
pub(crate) struct StatusWriter {
    pending: Mutex<Pending>,
    /// There is something to write, or it is time to end.
    changed: Notify,
    /// Something was written.
    progress: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    servers: HashMap<ServerId, Backlog>,
    /// Servers with queued writes, in order.
    turns: VecDeque<ServerId>,
    notes: VecDeque<AuditedOperation>,
    /// The server whose changes are being written right now.
    writing: Option<ServerId>,
    is_writing_note: bool,
    is_closing: bool,
    /// Why the last write failed, if it did and is retried.
    last_error: Option<String>,
    /// What was refused and is lost, and why, until something newer is written in its place.
    lost: HashMap<Subject, String>,
}

/// What a write replaces in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Status(ServerId),
    Tools(ServerId),
    HealthCheck(ServerId),
    AuditLog,
}

#[derive(Debug, Default)]
struct Backlog {
    changes: VecDeque<Change>,
    /// The offer that lists its tools. They are extracted when they are written.
    tools: Option<Arc<Offer>>,
    health_checked: Option<Timestamp>,
}

#[derive(Debug)]
struct Change {
    change: StatusChange,
    at: Timestamp,
}

/// An operation that already happened: it is written when the database is reachable.
#[derive(Debug)]
struct AuditedOperation {
    note: AuditNote,
    /// Whether calls are refused from now on, if that changed.
    is_stopped: Option<bool>,
}

impl AuditedOperation {
    /// Writes it, all or nothing.
    async fn write(&self, store: &Store) -> Result<(), Error> {
        let mut transaction = store.transaction("write the audit log").await?;
        if let Some(is_stopped) = self.is_stopped {
            transaction.set_executions_stopped(is_stopped).await?;
        }
        transaction.append_audit(self.note.clone()).await?;
        transaction.commit().await
    }
}

/// Stores operators' changes of calls: at once, or when the database is reachable again.
pub(crate) struct AuditWriter {
    pub(crate) store: Store,
    pub(crate) status_writer: Arc<StatusWriter>,
}

impl OperatorLog for AuditWriter {
    fn write(&self, note: AuditNote, is_stopped: Option<bool>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let operation = AuditedOperation { note, is_stopped };
            if self.status_writer.should_queue() {
                return self.status_writer.operation(operation);
            }
            match operation.write(&self.store).await {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, action = operation.note.action, "the audit log is not written yet");
                    self.status_writer.operation(operation);
                }
                Err(error) => {
                    tracing::error!(%error, action = operation.note.action, "failed to write the audit log");
                    self.status_writer.ended(Subject::AuditLog, Some(&error));
                }
            }
        })
    }
}

/// One write.
enum Work {
    Change(ServerId, Change),
    Tools(ServerId, Arc<Offer>),
    HealthChecked(ServerId, Timestamp),
    Note(AuditedOperation),
}

impl StatusWriter {
    /// Queues a changed status of a server.
    pub(crate) fn change(&self, server: ServerId, change: StatusChange) {
        self.add(server, |backlog| {
            if backlog.changes.len() == MAX_PENDING_CHANGES {
                backlog.drop_oldest();
            }
            backlog.changes.push_back(Change { change, at: Timestamp::now() });
        });
    }

    /// Queues the current tools of a server.
    pub(crate) fn tools(&self, server: ServerId, offer: Arc<Offer>) {
        self.add(server, |backlog| backlog.tools = Some(offer));
    }

    /// Queues a health check without a change.
    pub(crate) fn health_checked(&self, server: ServerId, at: Timestamp) {
        self.add(server, |backlog| backlog.health_checked = Some(at));
    }

    /// Queues an audit note while the database is unreachable.
    pub(crate) fn note(&self, note: AuditNote) {
        self.operation(AuditedOperation { note, is_stopped: None });
    }

    /// Queues an operator's operation while the database is unreachable.
    fn operation(&self, note: AuditedOperation) {
        let mut pending = self.lock();
        if pending.notes.len() == MAX_PENDING_NOTES {
            pending.notes.pop_front();
            tracing::error!("the audit log cannot be written, and too many entries wait: dropped the oldest one");
        }
        pending.notes.push_back(note);
        drop(pending);
        self.changed.notify_one();
    }

    /// Whether a new note has to be queued: earlier notes must be written first; and callers should not wait for a
    /// database that is known to be unreachable.
    pub(crate) fn should_queue(&self) -> bool {
        let pending = self.lock();
        pending.is_writing_note || !pending.notes.is_empty() || pending.last_error.is_some()
    }

    /// Drops all writes of a removed server.
    pub(crate) fn forget(&self, server: ServerId) {
        let mut pending = self.lock();
        pending.servers.remove(&server);
        for subject in [Subject::Status(server), Subject::Tools(server), Subject::HealthCheck(server)] {
            pending.lost.remove(&subject);
        }
        drop(pending);
        self.progress.notify_waiters();
    }

    /// Waits until everything about a server is written, but not longer than `limit`.
    pub(crate) async fn wait_written(&self, server: ServerId, limit: Duration) -> bool {
        timeout(limit, self.until(|pending| pending.is_done_with(server))).await.is_ok()
    }

    /// The same for a reader, who would otherwise read what is outdated.
    pub(crate) async fn wait_for_reader(&self, server: ServerId) -> bool {
        let has_failed = self.lock().last_error.is_some();
        self.wait_written(server, if has_failed { READER_TIMEOUT_AFTER_ERROR } else { READER_TIMEOUT }).await
    }

    /// Waits until everything about all servers is written, but not longer than `limit`.
    pub(crate) async fn wait_all_written(&self, limit: Duration) -> bool {
        let is_done = |pending: &Pending| pending.writing.is_none() && pending.servers.values().all(Backlog::is_empty);
        timeout(limit, self.until(is_done)).await.is_ok()
    }

    /// Writes until the writer is closed, and then what is left.
    pub(crate) async fn write_all(&self, store: &Store) {
        let mut pause = FIRST_RETRY_DELAY;
        loop {
            let (work, is_closing) = self.next();
            let Some(work) = work else {
                if is_closing {
                    return;
                }
                self.changed.notified().await;
                continue;
            };
            match work.write(store).await {
                Ok(()) => {
                    pause = FIRST_RETRY_DELAY;
                    self.lock().last_error = None;
                    self.ended(work.subject(), None);
                }
                Err(error) if error.is_retryable() => {
                    if is_closing {
                        tracing::error!(%error, "the database is unreachable; the latest changes are not written");
                        return;
                    }
                    tracing::warn!(%error, retry_in = ?pause, "failed to write; will retry");
                    self.put_back(work);
                    self.lock().last_error = Some(error.to_string());
                    self.wait_a_while(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                    continue;
                }
                // The server was removed meanwhile.
                Err(Error::NotFound { .. }) => self.ended(work.subject(), None),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "failed to write");
                    self.ended(work.subject(), Some(&error));
                }
            }
            self.finish();
        }
    }

    /// Why nothing can be written just now, or what could not be written and is missing, if so.
    pub(crate) fn last_error(&self) -> Option<String> {
        let pending = self.lock();
        pending.last_error.clone().or_else(|| pending.lost.values().min().cloned())
    }

    /// A write succeeded, or was refused for good.
    fn ended(&self, subject: Subject, error: Option<&Error>) {
        let mut pending = self.lock();
        match error {
            Some(error) => drop(pending.lost.insert(subject, with_causes(error))),
            None => drop(pending.lost.remove(&subject)),
        }
    }

    /// Lets the writer end when all is written; with one more attempt each if the database is unreachable.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.changed.notify_one();
    }

    async fn wait_a_while(&self, pause: Duration) {
        let closing = async {
            while !self.lock().is_closing {
                self.changed.notified().await;
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = closing => {}
        }
        // Wakes the writer for what was queued meanwhile.
        self.changed.notify_one();
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
        self.changed.notify_one();
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

    /// An intermediate state is lost; its lasting effects are merged into the next.
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

/// An error that is not retried, with what the database said.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Work {
    fn subject(&self) -> Subject {
        match self {
            Self::Change(server, _) => Subject::Status(*server),
            Self::Tools(server, _) => Subject::Tools(*server),
            Self::HealthChecked(server, _) => Subject::HealthCheck(*server),
            Self::Note(_) => Subject::AuditLog,
        }
    }

    async fn write(&self, store: &Store) -> Result<(), Error> {
        match self {
            Self::Change(server, change) => store.set_status(*server, change.with_time()).await.map(drop),
            Self::Tools(server, offer) => store.replace_tools(*server, tools_of(offer).await).await.map(drop),
            Self::HealthChecked(server, at) => store.note_health_check(*server, *at).await,
            Self::Note(operation) => operation.write(store).await,
        }
    }
}

/// The tools of an offer, read on a thread that serves no calls if there are many.
async fn tools_of(offer: &Arc<Offer>) -> Arc<[ListedTool]> {
    if offer.weight(Kind::Tool) <= MAX_PARSED_IN_PLACE {
        return tool_records::tools_of(offer);
    }
    let offer = Arc::clone(offer);
    match tokio::task::spawn_blocking(move || tool_records::tools_of(&offer)).await {
        Ok(tools) => tools,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Change {
    /// The change, with its original time if that is not now.
    fn with_time(&self) -> StatusChange {
        let mut change = self.change.clone();
        if Timestamp::now().since(self.at) > DEFERRED_WRITE_AFTER {
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
        let kind_of = |work: Work| match work {
            Work::Change(_, change) => change.change.status.to_string(),
            Work::Tools(_, offer) => format!("{} tools", offer.items(Kind::Tool).len()),
            Work::HealthChecked(..) => "looked at".to_owned(),
            Work::Note(operation) => operation.note.action,
        };
        std::iter::from_fn(|| status_writer.next().0).map(kind_of).collect()
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
    fn unwritten_records_come_first_in_the_next_batch() {
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
    fn what_was_refused_is_reported_until_something_newer_is_written() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        let (status, tools) = (Subject::Status(server), Subject::Tools(server));
        let refused = Error::Refused { operation: "store the tools of a server", source: "no such table".into() };
        status_writer.ended(tools, Some(&refused));
        let kind_of = status_writer.last_error();
        assert_eq!(kind_of.as_deref(), Some("could not store the tools of a server: no such table"));
        status_writer.ended(status, None);
        assert!(status_writer.last_error().is_some(), "another write does not bring the tools back");
        assert!(!status_writer.should_queue(), "the database can be written");
        status_writer.ended(tools, None);
        assert_eq!(status_writer.last_error(), None);
        status_writer.ended(tools, Some(&refused));
        status_writer.forget(server);
        assert_eq!(status_writer.last_error(), None, "the server was removed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_a_slow_write_but_not_long_for_a_database_that_failed() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        assert!(status_writer.wait_for_reader(server).await, "nothing is queued");
        status_writer.change(server, StatusChange::to(Status::Connecting));
        let Some(work) = status_writer.next().0 else { panic!("there is a change") };
        let written = async {
            sleep(READER_TIMEOUT - Duration::from_millis(1)).await;
            status_writer.finish();
        };
        let (is_written, ()) = tokio::join!(status_writer.wait_for_reader(server), written);
        assert!(is_written);
        status_writer.put_back(work);
        status_writer.lock().last_error = Some("unreachable".to_owned());
        let began = tokio::time::Instant::now();
        assert!(!status_writer.wait_for_reader(server).await);
        assert_eq!(began.elapsed().as_secs(), READER_TIMEOUT_AFTER_ERROR.as_secs());
    }

    #[test]
    fn nothing_is_written_about_a_removed_server() {
        let (status_writer, server) = (StatusWriter::default(), ServerId::fresh());
        status_writer.change(server, StatusChange::to(Status::Connecting));
        status_writer.forget(server);
        assert_eq!(work_of(&status_writer), [""; 0]);
    }
}
