//! Lists of stored tools, with bounds on what one of them loads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::Kind;
use registry::{Listed, Page, ServerId, ToolFilter, ToolRecord};
use tool_search::ToolView;

use crate::supervisor::SupervisorHandle;
use crate::{Error, ListPlace, ListSize, ServerView, Service};

/// Which tools a list has.
#[derive(Debug, Clone, Default)]
pub struct ToolSelection<'s> {
    /// Those of this server, by id or name, connected or not; otherwise those of all connected servers.
    pub server: Option<&'s str>,
    /// Of those, only tools of servers with these names, if there are any.
    pub servers: &'s [String],
    /// Only tools with one of these skills, if there are any.
    pub skills: &'s [String],
    /// Only enabled ones, or only disabled ones.
    pub enabled: Option<bool>,
    /// How to get a shorter list, for the error if it is too large.
    pub hint: &'static str,
}

/// Tools that were loaded, and where they are described.
#[derive(Debug)]
pub struct ToolList {
    /// Was taken before they were loaded.
    pub place: ListPlace,
    /// The tools, grouped by server, in the order of each server's list.
    pub tools: Vec<ToolRecord>,
}

impl Service {
    /// The tools of one server or of all; of connected servers only, unless one is named. For lists of any length, use
    /// [`Service::list_tools`].
    pub async fn tools(&self, server: Option<&str>) -> Result<Vec<ToolRecord>, Error> {
        let handles = self.handles_of(server)?;
        self.wait_written(&handles).await;
        self.load(&handles, None).await
    }

    /// The selected tools, at most [`MAX_LISTED_BYTES`](crate::MAX_LISTED_BYTES) of definitions. Waits for a slot
    /// before it loads a long list.
    pub async fn list_tools(&self, wanted: &ToolSelection<'_>) -> Result<ToolList, Error> {
        let ToolSelection { servers, skills, enabled, hint, .. } = *wanted;
        let mut handles = self.handles_of(wanted.server)?;
        handles.retain(|handle| servers.is_empty() || servers.contains(&handle.current().record.name));
        self.wait_written(&handles).await;
        let place = ListPlace::of(self.expected_size(&handles).await?).await?;
        if !place.is_beside() {
            let mut tools = self.load(&handles, enabled).await?;
            tools.retain(|tool| has_one_of(tool, skills));
            return Ok(ToolList { place, tools });
        }
        if skills.is_empty() {
            self.stored_size(&handles, enabled).await?.check(hint)?;
        }
        let (mut tools, mut size) = (Vec::new(), ListSize::default());
        // The tools of one server are limited, those of all are not.
        for handle in handles.chunks(1) {
            for tool in self.load(handle, enabled).await? {
                if has_one_of(&tool, skills) {
                    size.add(tool.definition.get().len());
                    tools.push(tool);
                }
            }
            size.check(hint)?;
        }
        Ok(ToolList { place, tools })
    }

    /// A page of the tools of one server or of all connected ones, and the total number. Only the page is loaded.
    pub async fn tools_page(&self, server: Option<&str>, page: Page) -> Result<(ListPlace, Listed<ToolRecord>), Error> {
        if self.is_bound() {
            return self.visible_tools_page(server, page).await;
        }
        let handles = self.handles_of(server)?;
        self.wait_written(&handles).await;
        let expected = self.expected_size(&handles).await?.of_some(page.limit.into());
        let place = ListPlace::of(expected).await?;
        let mut part = Listed { items: Vec::new(), total: 0 };
        if let [only] = handles.as_slice() {
            let filter = ToolFilter { server: Some(only.id), ..ToolFilter::default() };
            part = self.store.tools(&filter, page).await?;
            let size = size_of(&part.items);
            size.check(SMALLER)?;
            return Ok((place.or_of(size).await?, part));
        }
        let counts = self.store.tool_counts_of_servers().await?;
        let mut size = ListSize::default();
        let mut skip = page.offset;
        for handle in handles {
            // What is stored counts: a table of another program may have rows with the names of some tools.
            let count = counts.get(&handle.id).copied().unwrap_or_default();
            part.total += count;
            let room = page.limit.saturating_sub(u32::try_from(part.items.len()).unwrap_or(u32::MAX));
            if skip >= count || room == 0 {
                skip = skip.saturating_sub(count);
                continue;
            }
            let filter = ToolFilter { server: Some(handle.id), ..ToolFilter::default() };
            let found = self.store.tools(&filter, Page { limit: room, offset: skip }).await?.items;
            part.items.extend(found);
            skip = 0;
            size = size_of(&part.items);
            size.check(SMALLER)?;
        }
        Ok((place.or_of(size).await?, part))
    }

    /// The same for a bound principal: what can be seen is found out from the definitions, so all are loaded.
    async fn visible_tools_page(
        &self,
        server: Option<&str>,
        page: Page,
    ) -> Result<(ListPlace, Listed<ToolRecord>), Error> {
        let wanted = ToolSelection { server, hint: "list the tools of each server", ..ToolSelection::default() };
        let ToolList { place, tools } = self.list_tools(&wanted).await?;
        let total = tools.len() as u64;
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let items = tools.into_iter().skip(offset).take(page.limit as usize).collect();
        Ok((place, Listed { items, total }))
    }

    /// The tools of these servers, connected or not, by server.
    pub async fn tools_of_servers(
        &self,
        servers: &[ServerId],
    ) -> Result<(ListPlace, HashMap<ServerId, Vec<ToolRecord>>), Error> {
        let mut handles = self.visible_servers();
        handles.retain(|handle| servers.contains(&handle.id));
        self.wait_written(&handles).await;
        let place = ListPlace::of(self.expected_size(&handles).await?).await?;
        if place.is_beside() {
            self.stored_size(&handles, None)
                .await?
                .check("pass a smaller `limit`, or list the tools of each server")?;
        }
        let mut tools: HashMap<ServerId, Vec<ToolRecord>> = HashMap::new();
        for tool in self.load(&handles, None).await? {
            tools.entry(tool.source_server_id).or_default().push(tool);
        }
        Ok((place, tools))
    }

    /// Describes a server that was just connected, with its tools if they have been discovered; if there are many, on a
    /// thread that serves no calls. If its tools cannot be read, it is described without them: it is connected.
    pub async fn describe_with_tools<T: Send + 'static>(
        self: &Arc<Self>,
        mut view: ServerView,
        describe: impl FnOnce(&ServerView) -> T + Send + 'static,
    ) -> Result<T, Error> {
        if !view.record.status.is_up() {
            return Ok(describe(&view));
        }
        let id = view.record.id;
        let (place, mut tools) = match self.tools_of_servers(&[id]).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(server = %view.record.name, %error, "failed to read the tools of a server");
                return Ok(describe(&view));
            }
        };
        let service = Arc::clone(self);
        place
            .run(move |_| {
                view.tools = Some(service.with_states(tools.remove(&id).unwrap_or_default()));
                Ok(describe(&view))
            })
            .await
    }

    /// The full names of the tools of a server.
    pub async fn tool_names(&self, server: &str) -> Result<Vec<String>, Error> {
        let handles = self.handles_of(Some(server))?;
        self.wait_written(&handles).await;
        if self.is_bound() {
            return Ok(self.load(&handles, None).await?.into_iter().map(|tool| tool.name).collect());
        }
        Ok(self.store.tool_names(handles[0].id).await?)
    }

    /// The tool of a server with this name of its own.
    pub async fn tool_of(&self, server: &str, original_name: &str) -> Result<Option<ToolRecord>, Error> {
        let handle = self.find(server)?;
        self.context.status_writer.wait_for_reader(handle.id).await;
        let original_name = Some(original_name.to_owned());
        let filter = ToolFilter { server: Some(handle.id), original_name, ..ToolFilter::default() };
        let mut found = self.store.tools(&filter, Page::first(1)).await?.items;
        self.retain_visible(&mut found);
        Ok(found.pop())
    }

    /// Tools with their classification states.
    pub fn with_states(&self, tools: Vec<ToolRecord>) -> Vec<ToolView> {
        self.finder.with_states(tools)
    }

    /// One server, or all whose tools are listed, in the order of the registry's lists.
    fn handles_of(&self, server: Option<&str>) -> Result<Vec<Arc<SupervisorHandle>>, Error> {
        if let Some(server) = server {
            return Ok(vec![self.find(server)?]);
        }
        let offering = self.offering();
        let mut handles = self.visible_servers();
        handles.retain(|handle| offering.contains(&handle.id));
        handles.sort_by_cached_key(|handle| handle.current().record.name.clone());
        Ok(handles)
    }

    /// Servers whose tools are listed.
    fn offering(&self) -> HashSet<ServerId> {
        let view = self.view();
        let is_on_offer = |slot_index: usize| view.snapshot.servers()[slot_index].state.offers();
        self.context.all().iter().filter(|handle| is_on_offer(handle.slot_index)).map(|handle| handle.id).collect()
    }

    async fn wait_written(&self, handles: &[Arc<SupervisorHandle>]) {
        match handles {
            [only] => self.context.status_writer.wait_for_reader(only.id).await,
            _ => self.context.status_writer.wait_all_written(STATUS_WRITE_TIMEOUT).await,
        };
    }

    async fn load(&self, handles: &[Arc<SupervisorHandle>], enabled: Option<bool>) -> Result<Vec<ToolRecord>, Error> {
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let servers = handles.iter().map(|handle| handle.id).collect();
        let mut tools =
            self.store.tools(&ToolFilter { servers, enabled, ..ToolFilter::default() }, Page::ALL).await?.items;
        self.retain_visible(&mut tools);
        Ok(tools)
    }

    /// The size of the tools of these servers. Of connected ones it is known without reading the database.
    async fn expected_size(&self, handles: &[Arc<SupervisorHandle>]) -> Result<ListSize, Error> {
        let mut size = ListSize::default();
        let mut unknown = Vec::new();
        {
            let view = self.fleet.view();
            for handle in handles {
                let entry = &view.snapshot.servers()[handle.slot_index];
                if entry.state.offers() {
                    size.items += entry.offer.items(Kind::Tool).len() as u64;
                    size.bytes += entry.offer.weight(Kind::Tool) as u64;
                } else {
                    unknown.push(Arc::clone(handle));
                }
            }
        }
        let stored = self.stored_size(&unknown, None).await?;
        Ok(ListSize { items: size.items + stored.items, bytes: size.bytes + stored.bytes })
    }

    async fn stored_size(&self, handles: &[Arc<SupervisorHandle>], enabled: Option<bool>) -> Result<ListSize, Error> {
        let servers: Vec<ServerId> = handles.iter().map(|handle| handle.id).collect();
        let (items, bytes) = self.store.measure_tools(&servers, enabled).await?;
        Ok(ListSize { items, bytes })
    }
}

/// How long a list of all servers waits for newly discovered tools to be written. Some server may always be about to
/// change.
const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// How to get a smaller page.
const SMALLER: &str = "pass a smaller `limit`";

fn size_of(tools: &[ToolRecord]) -> ListSize {
    let mut size = ListSize::default();
    tools.iter().for_each(|tool| size.add(tool.definition.get().len()));
    size
}

fn has_one_of(tool: &ToolRecord, skills: &[String]) -> bool {
    skills.is_empty() || tool.skills.iter().any(|skill| skills.contains(skill))
}
