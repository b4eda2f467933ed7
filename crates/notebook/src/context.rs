//! What one run knows of servers and their tools: everything is requested once, however many blocks need it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::lock::Mutex;

use crate::plan::Plan;
use crate::schema::CheckTime;
use crate::toolbox::{ToolTable, Toolbox, WantedTools};

/// A toolbox and its cached responses.
pub(crate) struct RunContext<'a, T> {
    pub(crate) toolbox: &'a T,
    servers: HashMap<String, ServerContext>,
    assistant_unavailable: Mutex<Option<Option<String>>>,
    /// The remaining time for checking parameters.
    pub(crate) check_time: Arc<CheckTime>,
}

/// What is known of one server. It has its own locks: a slow server delays no other.
struct ServerContext {
    wanted: WantedTools,
    /// How many calls were made to it.
    calls: AtomicUsize,
    tools: Mutex<Option<LoadedTools>>,
    out_of_reach: Mutex<Option<Option<String>>>,
}

/// Tools at one point in time.
#[derive(Clone)]
pub(crate) struct LoadedTools {
    table: Arc<Option<ToolTable>>,
    /// The number of calls until then.
    calls: usize,
}

impl LoadedTools {
    /// None if the server was unreachable.
    pub(crate) fn table(&self) -> Option<&ToolTable> {
        Option::as_ref(&self.table)
    }
}

impl<'a, T: Toolbox> RunContext<'a, T> {
    pub(crate) fn new(plan: &Plan, toolbox: &'a T) -> Self {
        let mut wanted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (server, tool) in plan.steps.iter().filter_map(|step| step.tool()) {
            wanted.entry(server).or_default().push(tool.to_owned());
        }
        let context = |names: Vec<String>| ServerContext {
            wanted: names.into_iter().collect(),
            calls: AtomicUsize::new(0),
            tools: Mutex::new(None),
            out_of_reach: Mutex::new(None),
        };
        let servers = wanted.into_iter().map(|(server, names)| (server.to_owned(), context(names))).collect();
        Self { toolbox, servers, assistant_unavailable: Mutex::new(None), check_time: Arc::default() }
    }

    /// The tools of a server of the plan.
    pub(crate) async fn tools(&self, server: &str) -> LoadedTools {
        let known = self.server(server);
        let mut tools = known.tools.lock().await;
        if let Some(tools) = &*tools {
            return tools.clone();
        }
        tools.insert(self.load(server, known).await).clone()
    }

    /// Reloads the tools of a server if calls were made to it since the others were loaded.
    pub(crate) async fn tools_since_calls(&self, server: &str, older: &LoadedTools) -> Option<LoadedTools> {
        let known = self.server(server);
        let mut tools = known.tools.lock().await;
        let calls = known.calls.load(Ordering::Relaxed);
        if older.calls == calls {
            return None;
        }
        if let Some(newer) = tools.as_ref().filter(|newer| newer.calls == calls) {
            return Some(newer.clone());
        }
        Some(tools.insert(self.load(server, known).await).clone())
    }

    async fn load(&self, server: &str, known: &ServerContext) -> LoadedTools {
        // Counted before: a concurrent call may or may not be reflected in the response.
        let calls = known.calls.load(Ordering::Relaxed);
        LoadedTools { table: Arc::new(self.toolbox.tools(server, &known.wanted).await), calls }
    }

    /// Records that a call to a server ended: it may have changed the tools.
    pub(crate) fn note_call(&self, server: &str) {
        self.server(server).calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) async fn out_of_reach(&self, server: &str) -> Option<String> {
        let mut known = self.server(server).out_of_reach.lock().await;
        match &*known {
            Some(known) => known.clone(),
            None => known.insert(self.toolbox.out_of_reach(server).await).clone(),
        }
    }

    pub(crate) async fn assistant_unavailable(&self) -> Option<String> {
        let mut known = self.assistant_unavailable.lock().await;
        match &*known {
            Some(known) => known.clone(),
            None => known.insert(self.toolbox.assistant_unavailable().await).clone(),
        }
    }

    fn server(&self, name: &str) -> &ServerContext {
        self.servers.get(name).expect("every server of a step is in the plan")
    }
}
