//! Tools that an administrator disables: they are neither listed nor called nor found until they are enabled again.

use std::collections::BTreeSet;

use catalog::{Kind, NameStyle, Scope};
use executions::Error as CallError;
use registry::{Actor, AuditNote, Page, ServerId, ToolFilter, ToolId, ToolRecord};
use serde_json::json;

use crate::context::ServiceContext;
use crate::supervisor::SupervisorHandle;
use crate::{Error, Event, Service};

impl Service {
    /// Enables or disables tools, by their full names; returns how many have changed. If one does not exist, none is
    /// changed.
    pub async fn set_tools_enabled(&self, by: &Actor, names: &[String], enabled: bool) -> Result<u64, Error> {
        let mut meant = Vec::with_capacity(names.len());
        for name in names.iter().collect::<BTreeSet<_>>() {
            meant.push(self.tool_by_name(name).await?);
        }
        meant.retain(|tool| tool.enabled != enabled);
        if meant.is_empty() {
            return Ok(0);
        }
        let ids: Vec<ToolId> = meant.iter().map(|tool| tool.id).collect();
        let mut change = self.store.transaction("enable or disable tools").await?;
        change.set_tools_enabled(&ids, enabled).await?;
        let names: Vec<&str> = meant.iter().map(|tool| tool.name.as_str()).collect();
        let action = if enabled { "tool.enable" } else { "tool.disable" };
        let target = if let [only] = names.as_slice() { (*only).to_owned() } else { format!("{} tools", names.len()) };
        change.commit_audited(AuditNote::new(by, action, Some(&target), Some(json!({ "tools": names })))).await?;
        let servers: BTreeSet<String> = meant.iter().map(|tool| tool.source_server_id.to_string()).collect();
        for server in servers {
            let handle = self.context.find(&server)?;
            self.context.refresh_disabled_tools(&handle).await?;
            let record = &handle.current().record;
            let tool_count = record.tool_count as usize;
            self.events.emit(Event::ToolsChanged { server_id: server, name: record.name.clone(), tool_count });
        }
        Ok(meant.len() as u64)
    }

    /// A tool by its full name, whether it is enabled or disabled.
    pub async fn tool_by_name(&self, name: &str) -> Result<ToolRecord, Error> {
        let filter = ToolFilter { name: Some(name.to_owned()), ..ToolFilter::default() };
        let mut found = self.store.tools(&filter, Page::first(1)).await?.items;
        self.retain_visible(&mut found);
        found.pop().ok_or_else(|| Error::Call(CallError::ToolNotFound { name: name.to_owned() }))
    }

    /// A tool by its full name, or by the name that clients see instead.
    pub async fn tool_by_any_name(&self, name: &str) -> Result<ToolRecord, Error> {
        let error = match self.tool_by_name(name).await {
            Err(error @ Error::Call(CallError::ToolNotFound { .. })) => error,
            found => return found,
        };
        let own = {
            let view = self.view();
            let route = view.snapshot.resolve(Scope::All, Kind::Tool, name);
            route.map(|route| {
                let server = &view.snapshot.servers()[route.server].name;
                format!("{}.{}", server.as_str(), view.snapshot.item(Kind::Tool, route).id)
            })
        };
        match own {
            Some(own) => self.tool_by_name(&own).await,
            None => Err(error),
        }
    }

    /// The names by which clients call a tool: the listed one, and the one for clients that refuse some characters, if
    /// it differs.
    pub fn names_for_clients(&self, server: &str, tool: &str) -> Vec<String> {
        let view = self.view();
        let snapshot = &view.snapshot;
        let mut names: Vec<String> = Vec::new();
        for style in [NameStyle::Canonical, NameStyle::Safe] {
            let mut routes = snapshot.listed(Kind::Tool, style);
            let route = routes.find(|route| {
                snapshot.servers()[route.server].name.as_str() == server
                    && *snapshot.item(Kind::Tool, *route).id == *tool
            });
            let name = route.map(|route| snapshot.listed_name(Kind::Tool, route, style));
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    /// The names of callable tools that contain every word of `part`, up to `most`.
    pub fn tool_names_with(&self, part: &str, most: usize) -> Vec<String> {
        let view = self.view();
        let part = part.to_lowercase();
        let words: Vec<&str> = part.split_whitespace().collect();
        let has_all = |name: &String| {
            let name = name.to_lowercase();
            words.iter().all(|word| name.contains(word))
        };
        let names = view.snapshot.listed(Kind::Tool, NameStyle::Canonical);
        names
            .map(|route| view.snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical))
            .filter(has_all)
            .take(most)
            .collect()
    }
}

impl ServiceContext {
    /// Applies the disabled tools of a server to the fleet.
    pub(crate) async fn refresh_disabled_tools(&self, handle: &SupervisorHandle) -> Result<(), Error> {
        self.fleet.set_disabled_tools(handle.slot_index, self.disabled_tools(handle.id).await?).await;
        Ok(())
    }

    /// The disabled tools of a server, by the server's own names.
    pub(crate) async fn disabled_tools(&self, server: ServerId) -> Result<BTreeSet<String>, Error> {
        Ok(self.store.disabled_tools(server).await?.into_iter().collect())
    }
}
