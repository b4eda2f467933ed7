//! The service as principals that are bound to a profile see it: what the profile hides does not exist.
//!
//! Every list and lookup of the service goes through the functions here. What has no such function (settings, the audit
//! log, metrics and so on) is about the whole service, and interfaces refuse it to bound principals.

use std::sync::Arc;

use aggregator::View;
use catalog::{Kind, Profile, Scope, ServerState};
use executions::Error as CallError;
use registry::{Actor, ExecutionFilter, ExecutionRecord, Listed, Page, ToolRecord};

use crate::supervisor::SupervisorHandle;
use crate::{Error, Service};

/// How many calls are looked at for one list of a bound principal, newest first.
const MAX_EXAMINED: u64 = 20_000;
/// How many of them at a time.
const EXAMINED_AT_ONCE: u32 = 500;

impl Service {
    /// The service as an actor sees it. Fails if the actor is bound to a profile that does not exist.
    pub fn as_seen_by(self: &Arc<Self>, by: &Actor) -> Result<Arc<Self>, Error> {
        let Some(profile) = by.principal.profile() else { return Ok(Arc::clone(self)) };
        if self.fleet.view().profile(profile).is_none() {
            return Err(Error::BoundToNothing { principal: by.name.to_string(), profile: profile.to_string() });
        }
        Ok(Arc::new(Self {
            profile: Some(Arc::clone(profile)),
            store: self.store.clone(),
            fleet: Arc::clone(&self.fleet),
            aggregator: Arc::clone(&self.aggregator),
            events: self.events.clone(),
            settings: self.settings.clone(),
            executions: Arc::clone(&self.executions),
            context: Arc::clone(&self.context),
            finder: Arc::clone(&self.finder),
            began: self.began,
        }))
    }

    /// Whether it shows only what a profile allows.
    pub fn is_bound(&self) -> bool {
        self.profile.is_some()
    }

    /// What can be seen of all servers.
    pub(crate) fn view(&self) -> Arc<View> {
        self.fleet.view_for(self.profile.as_deref())
    }

    /// The server with that id or name, if it can be seen.
    pub(crate) fn find(&self, id_or_name: &str) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.context.find(id_or_name)?;
        match self.is_visible(&self.view(), handle.slot_index) {
            true => Ok(handle),
            false => Err(Error::Call(CallError::ServerNotFound { key: id_or_name.to_owned() })),
        }
    }

    /// All servers that can be seen, in order of registration.
    pub(crate) fn visible_servers(&self) -> Vec<Arc<SupervisorHandle>> {
        let (view, mut handles) = (self.view(), self.context.all());
        handles.retain(|handle| self.is_visible(&view, handle.slot_index));
        handles
    }

    fn is_visible(&self, view: &View, slot_index: usize) -> bool {
        let entry = view.snapshot.servers().get(slot_index);
        self.profile.is_none() || entry.is_some_and(|entry| entry.state != ServerState::Removed)
    }

    /// Removes tools that cannot be seen. They may be disabled, or those of servers that are not connected.
    pub(crate) fn retain_visible(&self, tools: &mut Vec<ToolRecord>) {
        if let Some(profile) = self.view().snapshot.profile() {
            tools.retain(|tool| is_tool_of(profile, tool));
        }
    }

    /// How many tools of a server can be seen, if that is not all of them.
    pub(crate) fn visible_tool_count(&self, slot_index: usize) -> Option<u32> {
        self.profile.as_ref()?;
        let view = self.view();
        let tools = view.snapshot.servers().get(slot_index)?.offer.items(Kind::Tool).len();
        Some(u32::try_from(tools).unwrap_or(u32::MAX))
    }

    /// Whether the instructions of a server name nothing that cannot be seen.
    pub(crate) fn shows_instructions(&self, slot_index: usize) -> bool {
        let view = self.view();
        view.snapshot.servers().get(slot_index).is_some_and(|server| server.offer.instructions.is_some())
    }

    /// Whether a call is one of a tool that can be seen.
    pub(crate) fn is_visible_call(&self, view: &View, execution: &ExecutionRecord) -> bool {
        if self.profile.is_none() {
            return true;
        }
        let server = execution.server_id.and_then(|id| self.context.find(&id.to_string()).ok());
        server.is_some_and(|server| {
            view.snapshot.resolve(Scope::One(server.slot_index), Kind::Tool, &execution.tool_name).is_some()
        })
    }

    /// The calls of tools that can be seen, newest first, among the last ones.
    pub(crate) async fn visible_executions(
        &self,
        filter: &ExecutionFilter,
        page: Page,
    ) -> Result<Listed<ExecutionRecord>, Error> {
        let view = self.view();
        let (mut items, mut total, mut offset) = (Vec::new(), 0, 0);
        while offset < MAX_EXAMINED {
            let listed = self.executions.list(filter, Page { limit: EXAMINED_AT_ONCE, offset }).await?;
            if listed.items.is_empty() {
                break;
            }
            offset += listed.items.len() as u64;
            for execution in listed.items.into_iter().filter(|execution| self.is_visible_call(&view, execution)) {
                if total >= page.offset && (items.len() as u64) < u64::from(page.limit) {
                    items.push(execution);
                }
                total += 1;
            }
        }
        Ok(Listed { items, total })
    }
}

fn is_tool_of(profile: &Profile, tool: &ToolRecord) -> bool {
    let definition = tool.definition.get().as_bytes();
    profile.has_server(&tool.server_name) && profile.has_tool(&tool.server_name, &tool.original_name, definition)
}
