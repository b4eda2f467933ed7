//! Searching tools by words and by meaning, and managing skills.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use registry::{Actor, ServerId, ServerRecord, SuggestionRecord};
use tool_search::{
    Host, KnownServer, SearchCounters, SearchRequest, SearchResults, SkillChange, SkillView, VectorsState,
};

use crate::context::ServiceContext;
use crate::servers::to_the_end;
use crate::{Error, Event, Service};

impl Service {
    /// The callable tools that match best, best first.
    pub async fn search(&self, wanted: SearchRequest) -> Result<SearchResults, Error> {
        // A profile of the request narrows the search, unless the service shows only another one.
        let profile = self.profile.clone().or(wanted.profile);
        Ok(self.finder.search(SearchRequest { profile, ..wanted }).await?)
    }

    /// Search metrics since the start.
    pub fn search_counters(&self) -> SearchCounters {
        self.finder.counters()
    }

    /// Why the embedding model is unreachable, if so: tools are then found by words alone.
    pub fn embedding_error(&self) -> Option<String> {
        self.finder.embedding_error()
    }

    /// Where vectors are compared now.
    pub fn vectors(&self) -> VectorsState {
        self.finder.vectors()
    }

    /// All skills, built-in ones first.
    pub fn skills(&self) -> Vec<SkillView> {
        self.finder.all_skills()
    }

    /// One skill, by its id.
    pub fn skill(&self, id: &str) -> Result<SkillView, Error> {
        Ok(self.finder.skill(id)?)
    }

    /// Changes or creates a skill; returns whether it is new. Tools are classified again in the background.
    pub async fn put_skill(
        self: Arc<Self>,
        by: &Actor,
        id: &str,
        change: SkillChange,
    ) -> Result<(SkillView, bool), Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move { Ok(self.finder.put_skill(&by, &id, change).await?) }).await
    }

    /// Reverts the changes of a built-in skill; a custom one is deleted.
    pub async fn delete_skill(self: Arc<Self>, by: &Actor, id: &str) -> Result<(), Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move { Ok(self.finder.delete_skill(&by, &id).await?) }).await
    }

    /// Suggested skills without a decision, by id.
    pub async fn suggestions(&self) -> Result<Vec<SuggestionRecord>, Error> {
        Ok(self.finder.suggestions().await?)
    }

    /// Turns a suggestion into a skill. Tools are classified again in the background.
    pub async fn accept_suggestion(self: Arc<Self>, by: &Actor, id: &str) -> Result<SkillView, Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move { Ok(self.finder.accept_suggestion(&by, &id).await?) }).await
    }

    /// Rejects a suggestion. It is not made again.
    pub async fn reject_suggestion(self: Arc<Self>, by: &Actor, id: &str) -> Result<(), Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move { Ok(self.finder.reject_suggestion(&by, &id).await?) }).await
    }
}

impl Host for ServiceContext {
    fn servers(&self) -> Vec<KnownServer> {
        let known = |handle: &Arc<crate::supervisor::SupervisorHandle>| {
            let shown = handle.current();
            let (name, status) = (shown.record.name.clone(), shown.record.status);
            KnownServer { id: handle.id, slot_index: handle.slot_index, name, status }
        };
        self.all().iter().map(known).collect()
    }

    fn record(&self, id_or_name: &str) -> Option<ServerRecord> {
        Some(self.find(id_or_name).ok()?.current().record.clone())
    }

    fn wait_written(&self, server: ServerId, limit: Duration) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.status_writer.wait_written(server, limit))
    }

    fn pinned_tools(&self) -> Arc<[String]> {
        self.settings.now().pinned_tools.as_slice().into()
    }

    fn learns_from_use(&self) -> bool {
        self.settings.now().learn_from_use
    }

    fn on_skills_changed(&self, skill_count: usize) {
        self.events.emit(Event::SkillsChanged { skill_count });
    }
}
