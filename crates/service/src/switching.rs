//! Tools that an administrator switches off: they are neither listed nor called nor found until they are on again.

use std::collections::BTreeSet;

use registry::{Page, ServerId, ToolFilter, ToolId, ToolRecord};
use serde_json::json;

use crate::household::Household;
use crate::keeper::Handle;
use crate::{Actor, Error, Event, Service};

impl Service {
    /// Switches tools on or off, by their full names; says how many are different now. If one is not there, none is
    /// touched.
    pub async fn switch_tools(&self, by: &Actor, names: &[String], enabled: bool) -> Result<u64, Error> {
        let mut meant = Vec::with_capacity(names.len());
        for name in names.iter().collect::<BTreeSet<_>>() {
            meant.push(self.tool_called(name).await?);
        }
        meant.retain(|tool| tool.enabled != enabled);
        let ids: Vec<ToolId> = meant.iter().map(|tool| tool.id).collect();
        self.store.set_tools_enabled(&ids, enabled).await?;
        let servers: BTreeSet<String> = meant.iter().map(|tool| tool.source_server_id.to_string()).collect();
        for server in servers {
            let handle = self.house.find(&server)?;
            self.house.sift(&handle).await?;
            let record = &handle.shown().record;
            let tool_count = record.tool_count as usize;
            self.events.tell(Event::ToolsChanged { server_id: server, name: record.name.clone(), tool_count });
        }
        if !meant.is_empty() {
            let names: Vec<&str> = meant.iter().map(|tool| tool.name.as_str()).collect();
            let action = if enabled { "tool.enable" } else { "tool.disable" };
            let target =
                if let [only] = names.as_slice() { (*only).to_owned() } else { format!("{} tools", names.len()) };
            self.house.audit(by, action, &target, Some(json!({ "tools": names })));
        }
        Ok(meant.len() as u64)
    }

    /// A tool by its full name, whether it is on or off.
    pub async fn tool_called(&self, name: &str) -> Result<ToolRecord, Error> {
        let filter = ToolFilter { name: Some(name.to_owned()), ..ToolFilter::default() };
        let found = self.store.tools(&filter, Page::first(1)).await?.items.pop();
        found.ok_or_else(|| Error::ToolNotFound { name: name.to_owned() })
    }
}

impl Household {
    /// Has a server offer what is switched on.
    pub(crate) async fn sift(&self, handle: &Handle) -> Result<(), Error> {
        self.fleet.switch_off(handle.place, self.switched_off(handle.id).await?);
        Ok(())
    }

    /// The tools of a server that are switched off, by the names it gave them.
    pub(crate) async fn switched_off(&self, server: ServerId) -> Result<BTreeSet<String>, Error> {
        Ok(self.store.switched_off(server).await?.into_iter().collect())
    }
}
