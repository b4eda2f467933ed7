//! Bindings of document sections to servers, as the registry stores them. The document runner applies them.

use std::collections::{HashMap, HashSet};

use registry::{Actor, AuditNote, BindingId, BindingRecord, Listed, NewBinding, Page, Section, ServerId};
use serde::Serialize;
use serde_json::json;

use crate::{Error, Service};

/// A binding to be added.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The document's path, or a pattern for several.
    pub document: String,
    /// The section of the document.
    pub section: Section,
    /// The server, by id or name.
    pub server: String,
    /// Whether it applies to nested sections.
    pub inherit_to_children: bool,
}

/// A binding with the name of its server.
#[derive(Debug, Clone, Serialize)]
pub struct BindingView {
    /// The stored binding.
    #[serde(flatten)]
    pub record: BindingRecord,
    /// The current name of the server.
    pub server_name: String,
}

impl Service {
    /// Bindings by document, the oldest first: all, or those that name this document, or those of this server.
    pub async fn bindings(
        &self,
        document: Option<&str>,
        server: Option<&str>,
        page: Page,
    ) -> Result<Listed<BindingView>, Error> {
        let server = match server {
            Some(key) => Some(self.store.find_server(key).await?.id),
            None => None,
        };
        let visible: Option<HashSet<ServerId>> =
            self.is_bound().then(|| self.visible_servers().iter().map(|handle| handle.id).collect());
        let Listed { items, total } = self.store.bindings(document, server, page).await?;
        let mut names: HashMap<ServerId, String> = HashMap::new();
        let mut shown = Vec::with_capacity(items.len());
        for record in items {
            let id = record.binding.server_id;
            // A section that is bound to a hidden server has the name of a server that does not exist.
            if visible.as_ref().is_some_and(|visible| !visible.contains(&id)) {
                shown.push(BindingView { record, server_name: String::new() });
                continue;
            }
            let server_name = match names.get(&id) {
                Some(name) => name.clone(),
                None => names.entry(id).or_insert(self.store.find_server(&id.to_string()).await?.name).clone(),
            };
            shown.push(BindingView { record, server_name });
        }
        Ok(Listed { items: shown, total })
    }

    /// Adds a binding.
    pub async fn add_binding(&self, by: &Actor, new: Binding) -> Result<BindingView, Error> {
        let Binding { document, section, server, inherit_to_children } = new;
        let server = self.store.find_server(&server).await?;
        let binding = NewBinding { document, section, server_id: server.id, inherit_to_children };
        let mut change = self.store.transaction("create a binding").await?;
        let shown = BindingView { record: change.insert_binding(binding).await?, server_name: server.name };
        let id = shown.record.id.to_string();
        change.commit_audited(AuditNote::new(by, "binding.add", Some(&id), Some(json!(shown)))).await?;
        Ok(shown)
    }

    /// Removes a binding.
    pub async fn remove_binding(&self, by: &Actor, id: BindingId) -> Result<(), Error> {
        let mut change = self.store.transaction("remove a binding").await?;
        change.delete_binding(id).await?;
        Ok(change.commit_audited(AuditNote::new(by, "binding.remove", Some(&id.to_string()), None)).await?)
    }
}
