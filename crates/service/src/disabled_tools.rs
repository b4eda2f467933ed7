//! Tools that an administrator switches off: they are neither listed nor called nor found until they are on again.

use std::collections::BTreeSet;

use catalog::{Kind, NameStyle, Scope};
use registry::{Page, ServerId, ToolFilter, ToolId, ToolRecord};
use serde_json::json;

use crate::context::ServiceContext;
use crate::supervisor::SupervisorHandle;
use crate::{Actor, Error, Event, Service, audit};

impl Service {
    /// Switches tools on or off, by their full names; says how many are different now. If one is not there, none is
    /// touched.
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
        let mut change = self.store.transaction("switch tools").await?;
        change.set_tools_enabled(&ids, enabled).await?;
        let names: Vec<&str> = meant.iter().map(|tool| tool.name.as_str()).collect();
        let action = if enabled { "tool.enable" } else { "tool.disable" };
        let target = if let [only] = names.as_slice() { (*only).to_owned() } else { format!("{} tools", names.len()) };
        audit::commit(change, audit::note(by, action, Some(&target), Some(json!({ "tools": names })))).await?;
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

    /// A tool by its full name, whether it is on or off.
    pub async fn tool_by_name(&self, name: &str) -> Result<ToolRecord, Error> {
        let filter = ToolFilter { name: Some(name.to_owned()), ..ToolFilter::default() };
        let found = self.store.tools(&filter, Page::first(1)).await?.items.pop();
        found.ok_or_else(|| Error::ToolNotFound { name: name.to_owned() })
    }

    /// A tool by its full name, or by one that clients see instead.
    pub async fn tool_by_any_name(&self, name: &str) -> Result<ToolRecord, Error> {
        let error = match self.tool_by_name(name).await {
            Err(error @ Error::ToolNotFound { .. }) => error,
            found => return found,
        };
        let own = {
            let view = self.aggregator.fleet.view();
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

    /// What clients call a tool that can be called now: the name it is listed by, and the one for clients that refuse
    /// some signs, if that is another.
    pub fn names_for_clients(&self, server: &str, tool: &str) -> Vec<String> {
        let view = self.aggregator.fleet.view();
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

    /// The names of tools that can be called now and have every word of `part` in their name, so many of them at most.
    pub fn tool_names_with(&self, part: &str, most: usize) -> Vec<String> {
        let view = self.aggregator.fleet.view();
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
    /// Has a server offer what is switched on.
    pub(crate) async fn refresh_disabled_tools(&self, handle: &SupervisorHandle) -> Result<(), Error> {
        self.fleet.set_disabled_tools(handle.place, self.disabled_tools(handle.id).await?);
        Ok(())
    }

    /// The tools of a server that are switched off, by the names it gave them.
    pub(crate) async fn disabled_tools(&self, server: ServerId) -> Result<BTreeSet<String>, Error> {
        Ok(self.store.disabled_tools(server).await?.into_iter().collect())
    }
}
