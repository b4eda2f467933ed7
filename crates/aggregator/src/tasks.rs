//! Tasks: work that continues at a server after its call was answered. A table holds the owner and the server of each.
//! Task ids stay as the servers assigned them, unless two servers assigned the same: then the later one gets an id of
//! ours.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::change::Change;
use protocol::bridge::meta;
use protocol::reply::{self, code};
use protocol::scan::{each_element, member};
use protocol::splice::Edit;
use protocol::{Envelope, Lifecycle, Params, RequestEnvelope, Span, text};
use tokio::time::timeout;
use upstream::{Connection, Response, UpstreamKey};

use crate::call::{self, Destination};
use crate::client::{Client, lifecycle_of};
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::Fleet;
use crate::suspended_request::Target;

/// How many tasks are remembered, in total and per token. Beyond that, the oldest task of the token with the most is
/// forgotten: no token loses a task because another one creates many.
pub const MAX_TASKS: usize = 10_000;
/// The same per token.
pub const MAX_TASKS_PER_TOKEN: usize = 5_000;
/// Bytes of a task's id. A task with a longer id cannot be requested again.
const MAX_TASK_ID_BYTES: usize = 1 << 10;
/// How long a server may take to respond to the cancellation of an abandoned task.
const TASK_CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The owner and server of each task.
#[derive(Default)]
pub(crate) struct Tasks {
    /// By the id that clients use.
    known: HashMap<String, Task>,
    /// The client's id, by the run of the server and the server's id.
    visible: HashMap<(UpstreamKey, String), String>,
    /// Their ids by token, oldest first.
    order: HashMap<Arc<str>, VecDeque<String>>,
}

struct Task {
    by: UpstreamKey,
    original: String,
    client: Weak<Client>,
    number: u64,
    principal: Arc<str>,
    lifecycle: Lifecycle,
}

/// The two ids of a task, where they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alias {
    /// The server's id.
    pub(crate) original: String,
    /// The clients' id.
    pub(crate) visible: String,
}

impl Task {
    /// Whether `client` owns the task. A legacy task belongs to the session that created it; a modern one to its
    /// principal.
    fn is(&self, client: &Client) -> bool {
        match self.lifecycle {
            Lifecycle::Session => self.number == client.number(),
            Lifecycle::SelfContained => self.principal == *client.principal().id(),
        }
    }
}

/// Whether the response to this request may create a task.
pub(crate) fn may_begin(line: &[u8], params: &Params) -> bool {
    let asks = |params| member(line, params, "task").is_some();
    params.version.is_some() || params.span.is_some_and(asks)
}

/// `tasks/get`, `tasks/result`, `tasks/cancel`, `tasks/update`: sent to the server of the task.
pub(crate) fn route(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope) {
    let Incoming { client, to, line, .. } = &message;
    let id = request.id;
    let (scope, lifecycle) = (client.scope(), lifecycle_of(&request.params));
    if !aggregator.fleet.offers_tasks(client, lifecycle) {
        let method = text::decode(request.method.of(line)).unwrap_or_default();
        let text = format!("Method not found: {method}");
        return to.respond(&reply::error(id.of(line), code::METHOD_NOT_FOUND, &text, None));
    }
    let Some((task_at, task)) = request.params.task_id.and_then(|at| Some((at, text::decode(at.of(line))?))) else {
        let text = "Invalid params: `taskId` must be a string";
        return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
    };
    let slot = aggregator.fleet.tasks().slot(client, scope, &task);
    let slot = slot.filter(|(server, _)| aggregator.fleet.is_seen_by(client, *server));
    if let Some((server, original)) = slot {
        let view = aggregator.fleet.view_of(client);
        let Some(connection) = &aggregator.fleet.connection_for(&view, client, server) else {
            if let Some(instances) = aggregator.fleet.instances_of(server) {
                return call::wait_for_instance(aggregator, message, request, &instances, Target::Method(route));
            }
            return call::route_to(aggregator, message, request, server, Target::Method(route));
        };
        if original == task {
            return call::send(aggregator, message, request, Destination::as_it_is(connection));
        }
        let token = reply::string(&original);
        let alias = Alias { original, visible: task.into_owned() };
        let renamed = Some(Edit { span: task_at, with: &token });
        return call::send(aggregator, message, request, Destination { connection, renamed, alias: Some(alias) });
    }
    match scope {
        // A server alone in its scope knows best what it has, unless the task belongs to another client.
        Scope::One(server) if client.profile().is_none() && !aggregator.fleet.tasks().is_known(server, &task) => {
            call::route_to(aggregator, message, request, server, Target::Method(route));
        }
        Scope::One(_) | Scope::All => {
            let text = format!("Task not found: {task}");
            to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
        }
    }
}

/// `tasks/list` of a legacy client: its own tasks at all servers.
pub(crate) fn list(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span) {
    let Incoming { client, to, line, .. } = message;
    if !aggregator.fleet.offers_tasks(client, Lifecycle::Session) {
        let text = "Method not found: tasks/list";
        return to.respond(&reply::error(id.of(line), code::METHOD_NOT_FOUND, text, None));
    }
    let view = aggregator.fleet.view_of(client);
    let servers = view.snapshot.servers().iter().enumerate();
    let asked: Vec<_> = servers
        .filter(|(index, server)| client.scope().sees(*index) && server.offer.has_within("tasks", "list"))
        .filter_map(|(index, _)| aggregator.fleet.connection_for(&view, client, index))
        .filter(|connection| connection.lifecycle() == Lifecycle::Session)
        .collect();
    let id = line.slice(id.start..id.end);
    let (aggregator, owner, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    client.defer(id.clone(), to, async move {
        let mut tasks = Vec::new();
        for connection in asked {
            // A server that fails to respond does not affect the tasks of the others.
            let Some(answer) = connection.request("tasks/list", None).await else { continue };
            tasks.extend(aggregator.fleet.tasks().own(&owner, &connection, &answer.line, answer.outcome.ok()));
        }
        let mut list = b"{\"tasks\":[".to_vec();
        list.extend(tasks.join(&b','));
        list.extend_from_slice(b"]}");
        answer_to.respond(&reply::result(&id, &list));
        answer_to.flush();
    });
}

/// Removes a client that has disconnected. Its legacy tasks can no longer be requested: they are forgotten, and
/// cancelled where the server supports it.
pub(crate) fn leave(fleet: &Fleet, client: &Client) {
    let orphaned = fleet.tasks().take_legacy_of(client.number());
    let view = fleet.view();
    for Task { by, original, .. } in orphaned {
        if let Some(connection) = fleet.connection_of(&by)
            && view.snapshot.servers()[by.server].offer.has_within("tasks", "cancel")
        {
            fleet.spawn(cancel(connection, original));
        }
    }
}

async fn cancel(connection: Arc<Connection>, task: String) {
    let params = reply::object([("taskId", reply::string(&task))]);
    let answer = timeout(TASK_CANCEL_TIMEOUT, connection.request("tasks/cancel", Some(&params))).await;
    // Most tasks have ended before their client disconnects, and there is nothing to cancel.
    let is_cancelled = matches!(answer, Ok(Some(Response { outcome: Ok(_), .. })));
    tracing::debug!(server = %connection.server(), is_cancelled, "a task of a client that disconnected");
}

impl Tasks {
    /// Removes and returns the legacy tasks of a client.
    fn take_legacy_of(&mut self, client: u64) -> Vec<Task> {
        let Self { known, visible, .. } = self;
        let own = known.extract_if(|_, task| task.lifecycle == Lifecycle::Session && task.number == client);
        let own: Vec<Task> = own.map(|(_, task)| task).collect();
        for task in &own {
            visible.remove(&(task.by.clone(), task.original.clone()));
        }
        own
    }

    /// Records a task and returns the id for clients.
    fn remember(&mut self, connection: &Connection, original: &str, client: &Arc<Client>) -> String {
        let by = connection.key();
        let is_taken = |id: &str| self.known.get(id).is_some_and(|task| task.by != by || task.original != original);
        let mut visible = original.to_owned();
        let mut round = 1;
        while is_taken(&visible) {
            visible = format!("{}.{original}", connection.server());
            if round > 1 {
                visible = format!("{visible}-{round}");
            }
            round += 1;
        }
        let task = Task {
            by: by.clone(),
            original: original.to_owned(),
            client: Arc::downgrade(client),
            number: client.number(),
            principal: Arc::clone(client.principal().id()),
            lifecycle: connection.lifecycle(),
        };
        self.visible.insert((by, original.to_owned()), visible.clone());
        let principal = Arc::clone(&task.principal);
        if self.known.insert(visible.clone(), task).is_none() {
            self.order.entry(Arc::clone(&principal)).or_default().push_back(visible.clone());
        }
        self.forget_surplus(&principal);
        visible
    }

    /// Forgets the oldest task if there are too many now that `principal` has one more.
    fn forget_surplus(&mut self, principal: &Arc<str>) {
        let own = self.order.get(principal).map_or(0, VecDeque::len);
        let of_token = if principal.is_empty() { MAX_TASKS } else { MAX_TASKS_PER_TOKEN };
        let whose = if own > of_token {
            Some(Arc::clone(principal))
        } else if self.known.len() > MAX_TASKS {
            self.order.iter().max_by_key(|(_, ids)| ids.len()).map(|(principal, _)| Arc::clone(principal))
        } else {
            None
        };
        let oldest = whose.and_then(|whose| self.order.get_mut(&whose)?.pop_front());
        if let Some(task) = oldest.and_then(|oldest| self.known.remove(&oldest)) {
            self.visible.remove(&(task.by, task.original));
        }
    }

    fn is_known(&self, server: usize, visible: &str) -> bool {
        self.known.get(visible).is_some_and(|task| task.by.server == server)
    }

    /// The server of a client's task, and the server's id of it.
    fn slot(&self, client: &Client, scope: Scope, visible: &str) -> Option<(usize, String)> {
        let task = self.known.get(visible).filter(|task| scope.sees(task.by.server) && task.is(client))?;
        Some((task.by.server, task.original.clone()))
    }

    /// The owner of a server's task, and the id the owner uses.
    fn owner(&self, by: &UpstreamKey, original: &str) -> Option<(Arc<Client>, String)> {
        let visible = self.visible.get(&(by.clone(), original.to_owned()))?;
        Some((self.known.get(visible)?.client.upgrade()?, visible.clone()))
    }

    /// The tasks in a server's list that belong to `client`.
    fn own(&self, client: &Client, connection: &Connection, line: &Bytes, result: Option<Span>) -> Vec<Vec<u8>> {
        let array = result.and_then(|result| member(line, result, "tasks"));
        let own = |task: Span| {
            let original = text::decode(member(line, task, "taskId")?.of(line))?;
            let visible = self.visible.get(&(connection.key(), original.clone().into_owned()))?;
            self.known.get(visible).filter(|task| task.is(client))?;
            let definition = line.slice(task.start..task.end);
            if *visible == original {
                return Some(definition.to_vec());
            }
            let mut change = Change::new(&definition);
            change.set_member(protocol::bridge::change::whole(&definition), "taskId", &reply::string(visible));
            Some(change.apply().to_vec())
        };
        let mut found = Vec::new();
        // One by one: a server may list any number of tasks, and those of other clients are none of ours.
        if let Some(array) = array {
            each_element(line, array, |task| found.extend(own(task)));
        }
        found
    }
}

impl Fleet {
    /// Records the task that a result creates, if it does; returns both ids if they differ.
    pub(crate) fn note_task(
        &self,
        connection: &Connection,
        client: &Arc<Client>,
        line: &[u8],
        result: Span,
    ) -> Option<Alias> {
        let task = match connection.lifecycle() {
            Lifecycle::Session => member(line, result, "task")?,
            Lifecycle::SelfContained => result,
        };
        let id = member(line, task, "taskId")?;
        if id.end - id.start > MAX_TASK_ID_BYTES {
            tracing::warn!(server = %connection.server(), most = MAX_TASK_ID_BYTES, "a task id is too long and was not stored");
            return None;
        }
        let original = text::decode(id.of(line))?;
        let visible = self.tasks().remember(connection, &original, client);
        (visible != original).then(|| Alias { original: original.into_owned(), visible })
    }

    /// Forwards a task's status notification to its owner.
    pub(crate) fn task_status(&self, by: &UpstreamKey, line: &Bytes, envelope: &Envelope) {
        let Some(task_at) = envelope.params.task_id else { return };
        let Some(original) = text::decode(task_at.of(line)) else { return };
        let Some((client, visible)) = self.tasks().owner(by, &original) else { return };
        let mut message = Vec::with_capacity(line.len() + 16);
        let token = reply::string(&visible);
        let with = if visible == original { task_at.of(line) } else { &token };
        crate::client_sink::Message::Spliced { line, edits: &[Edit { span: task_at, with }] }.write_to(&mut message);
        message.push(b'\n');
        client.notify(&message);
    }

    /// The owner of the task that a server request is related to, if it names one.
    pub(crate) fn client_of_task(&self, by: &UpstreamKey, line: &[u8], params: &Params) -> Option<Arc<Client>> {
        let related = member(line, params.meta?, meta::RELATED_TASK)?;
        let task = text::decode(member(line, related, "taskId")?.of(line))?;
        self.tasks().owner(by, &task).map(|(client, _)| client)
    }

    pub(crate) fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(tasks: &mut Tasks, principal: &str, number: usize) {
        let (id, principal) = (format!("{principal}-{number}"), Arc::<str>::from(principal));
        let task = Task {
            by: UpstreamKey::of_all(0),
            original: id.clone(),
            client: Weak::new(),
            number: 1,
            principal: Arc::clone(&principal),
            lifecycle: Lifecycle::SelfContained,
        };
        tasks.visible.insert((UpstreamKey::of_all(0), id.clone()), id.clone());
        tasks.known.insert(id.clone(), task);
        tasks.order.entry(Arc::clone(&principal)).or_default().push_back(id);
        tasks.forget_surplus(&principal);
    }

    #[test]
    fn a_token_with_many_tasks_evicts_no_tasks_of_others() {
        let mut tasks = Tasks::default();
        begin(&mut tasks, "ben", 0);
        (0..MAX_TASKS_PER_TOKEN + 10).for_each(|number| begin(&mut tasks, "ann", number));
        assert_eq!(tasks.known.len(), MAX_TASKS_PER_TOKEN + 1);
        assert!(tasks.known.contains_key("ben-0") && !tasks.known.contains_key("ann-9"));
        // Three tokens together exceed the total: the one with the most loses its oldest task.
        (0..MAX_TASKS_PER_TOKEN).for_each(|number| begin(&mut tasks, "cid", number));
        assert_eq!((tasks.known.len(), tasks.visible.len()), (MAX_TASKS, MAX_TASKS));
        assert!(tasks.known.contains_key("ben-0"));
    }
}
