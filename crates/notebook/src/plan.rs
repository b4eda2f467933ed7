//! The plan of a run: which blocks, on which servers, and what keeps them from running.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::binding::{Bindings, Bound};
use crate::block::{self, Addressee, Block, DisplayOptions, ServerTable, Written};
use crate::context::RunContext;
use crate::document::{Document, Fence};
use crate::problem::{Fault, Problem, ProblemKind};
use crate::region::Found;
use crate::schema::{self, Checked};
use crate::toolbox::{Lookup, Question, Request, Server, ToolTable, Toolbox};
use crate::yaml;

/// Selects blocks of a document. Empty members select all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// By number, from 1.
    pub blocks: Vec<usize>,
    /// By section: `Tools`, or `## Tools`.
    pub section: Option<String>,
    /// By a line in the block or its result.
    pub line: Option<usize>,
}

/// Why a selection is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// There is no such block.
    #[error("there is no block {number}; the document has {count} blocks that can be run")]
    NoBlock {
        /// The requested number.
        number: usize,
        /// The number of blocks.
        count: usize,
    },
    /// There is no such section.
    #[error("there is no section `{name}`")]
    NoSection {
        /// The requested section.
        name: String,
    },
    /// There is no block on this line.
    #[error("line {line} is not in a block that can be run")]
    NoBlockAt {
        /// The requested line.
        line: usize,
    },
    /// The document exceeds a limit, so not all of its blocks are known.
    #[error("{0}")]
    TooMuch(Fault),
}

/// The plan of a run. It does not borrow from the document, so it can be built on another thread.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The blocks to run, from top to bottom.
    pub steps: Vec<Step>,
    /// Remarks about the document that do not prevent the run.
    pub remarks: Vec<Fault>,
}

/// One block to run.
#[derive(Debug, Clone)]
pub struct Step {
    /// The block's number, from 1.
    pub number: usize,
    /// The block.
    pub fence: Fence,
    /// Its binding.
    pub bound: Option<Bound>,
    /// Its index among blocks of the same content, and their number.
    pub(crate) place: usize,
    pub(crate) count: usize,
    title: String,
    task: Result<Task, Problem>,
}

#[derive(Debug, Clone)]
enum Task {
    Call { server: String, written: Arc<Written> },
    Ask { question: Question, display_options: DisplayOptions },
}

/// A step that can run.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) action: Action,
    pub(crate) display_options: DisplayOptions,
    /// Why the parameters were not, or not completely, checked.
    pub(crate) not_checked: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Call(Request),
    Ask(Question),
}

impl Plan {
    /// Plans a run. Results that were edited by hand are replaced only with `force`.
    pub fn new(
        document: &Document,
        servers: &[Server],
        bindings: &Bindings<'_>,
        selection: &Selection,
        force: bool,
    ) -> Result<Self, SelectionError> {
        if let Some(excess) = &document.excess {
            return Err(SelectionError::TooMuch(excess.clone()));
        }
        let (blocks, mut remarks) = block::blocks(document, servers);
        remarks.extend(bindings.faults.iter().cloned());
        let selected = selected(document, &blocks, selection)?;
        let table = ServerTable::of(servers);
        let same = SameBlocks::of(document);
        let mut budget = yaml::Budget::of_document();
        let steps = selected.into_iter().map(|block| {
            let bound = bindings.at(block.fence.first_line);
            let unclear = bindings.unclear().filter(|_| bound.is_none() && block.addressee == Addressee::Assistant);
            let refusal = bindings.excess.as_ref().map(|excess| excess.what.clone()).or(unclear);
            let refusal = refusal.map(|why| Problem::new(ProblemKind::Refused, block.fence.first_line, why));
            let problem = untouchable(block.fence, force).or(refusal);
            let is_question = block.addressee == Addressee::Assistant;
            let written = (!is_question).then(|| block::read(block.fence, &mut budget).map(Arc::new));
            let title = title(block.fence, written.as_ref());
            let task = problem.map_or_else(|| task(block, &table, bound.as_ref(), written), Err);
            let title = task.as_ref().map_or(title, Task::title);
            let (place, count) = same.place_of(block.fence);
            Step { number: block.number, fence: block.fence.clone(), bound, place, count, title, task }
        });
        let steps = steps.collect();
        remarks.sort_by_key(|remark| remark.line);
        Ok(Self { steps, remarks })
    }
}

/// Counts blocks of the same content.
struct SameBlocks<'a> {
    counts: HashMap<(&'a str, &'a str), usize>,
    /// By line, how many blocks before it have the same content.
    places: HashMap<usize, usize>,
}

impl<'a> SameBlocks<'a> {
    fn of(document: &'a Document) -> Self {
        let (mut counts, mut places) = (HashMap::new(), HashMap::new());
        for fence in document.fences() {
            let count: &mut usize = counts.entry((fence.info.as_str(), fence.content.as_str())).or_default();
            places.insert(fence.first_line, *count);
            *count += 1;
        }
        Self { counts, places }
    }

    fn place_of(&self, fence: &Fence) -> (usize, usize) {
        let place = self.places.get(&fence.first_line).copied().unwrap_or_default();
        let count = self.counts.get(&(fence.info.as_str(), fence.content.as_str())).copied().unwrap_or_default();
        (place, count)
    }
}

/// What a block runs, for display.
fn title(fence: &Fence, written: Option<&Result<Arc<Written>, Problem>>) -> String {
    match written {
        Some(Ok(written)) => format!("{}.{}", fence.language(), written.tool),
        Some(Err(_)) | None => fence.language().to_owned(),
    }
}

impl Task {
    /// What it runs, for display.
    fn title(&self) -> String {
        match self {
            Self::Call { server, written } => format!("{server}.{}", written.tool),
            Self::Ask { .. } => "assistant".to_owned(),
        }
    }
}

impl Step {
    /// The server, if known.
    pub fn server(&self) -> Option<&str> {
        match self.task.as_ref().ok()? {
            Task::Call { server, .. } => Some(server),
            Task::Ask { .. } => None,
        }
    }

    /// What it runs, for display: `server.tool`, or `assistant`.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Why it cannot run, as far as that is known without contacting a server.
    pub fn problem(&self) -> Option<&Problem> {
        self.task.as_ref().err()
    }

    /// The tool and its server.
    pub(crate) fn tool(&self) -> Option<(&str, &str)> {
        match self.task.as_ref().ok()? {
            Task::Call { server, written } => Some((server, &written.tool)),
            Task::Ask { .. } => None,
        }
    }

    /// Finds the tool and checks the parameters, on a thread for that.
    pub(crate) async fn ready<T: Toolbox>(&self, context: &RunContext<'_, T>) -> Result<Ready, Problem> {
        let (server, written) = match self.task.as_ref().map_err(Clone::clone)? {
            Task::Ask { question, display_options } => match context.assistant_unavailable().await {
                None => {
                    let action = Action::Ask(question.clone());
                    return Ok(Ready { action, display_options: *display_options, not_checked: None });
                }
                Some(why) => return Err(Problem::new(ProblemKind::NoAssistant, question.line, why)),
            },
            Task::Call { server, written } => (server, written),
        };
        let tools = context.tools(server).await;
        let ready = self.checked(server, written, tools.table(), context).await;
        if ready.is_ok() {
            return ready;
        }
        // A call may have changed the tools of the server, or their schemas.
        match context.tools_since_calls(server, &tools).await {
            Some(newer) => self.checked(server, written, newer.table(), context).await,
            None => ready,
        }
    }

    async fn checked<T: Toolbox>(
        &self,
        server: &str,
        written: &Arc<Written>,
        tools: Option<&ToolTable>,
        context: &RunContext<'_, T>,
    ) -> Result<Ready, Problem> {
        let schema = match tools.map_or(Lookup::Unknown, |tools| tools.find(&written.tool)) {
            Lookup::Found(schema) => Some(schema),
            Lookup::Unknown => None,
            Lookup::Missing { some, count } => return Err(no_such_tool(server, written, some, count)),
        };
        let checked = schema::check(schema, Arc::clone(written), Arc::clone(&context.check_time)).await?;
        let Checked { arguments, display_options, faults, not_checked } = checked;
        if !faults.is_empty() {
            let faults = faults.into_iter().map(|fault| Fault { line: fault.line, what: fault.what }).collect();
            return Err(Problem { kind: ProblemKind::BadArguments, faults });
        }
        let (server, tool) = (server.to_owned(), written.tool.clone());
        let request = Request { server, tool, arguments, line: self.fence.first_line };
        Ok(Ready { action: Action::Call(request), display_options, not_checked })
    }
}

fn selected<'b, 'a>(
    document: &Document,
    blocks: &'b [Block<'a>],
    selection: &Selection,
) -> Result<Vec<&'b Block<'a>>, SelectionError> {
    let numbers: HashSet<usize> = selection.blocks.iter().copied().collect();
    if let Some(number) = selection.blocks.iter().copied().find(|number| *number == 0 || *number > blocks.len()) {
        return Err(SelectionError::NoBlock { number, count: blocks.len() });
    }
    let sections = match &selection.section {
        None => None,
        Some(name) => {
            let places = (0..document.headings.len()).filter(|place| document.headings[*place].is_called(name));
            let sections: Vec<_> = places.map(|place| document.section_lines(place)).collect();
            if sections.is_empty() {
                return Err(SelectionError::NoSection { name: name.clone() });
            }
            Some(outermost(sections))
        }
    };
    let in_line = |block: &Block<'_>, line: usize| {
        let last_line = match &block.fence.result {
            Some(Found::Whole(region)) => document.lines.number_at(region.span.end),
            _ => block.fence.last_line,
        };
        (block.fence.first_line..=last_line).contains(&line)
    };
    if let Some(line) = selection.line.filter(|line| !blocks.iter().any(|block| in_line(block, *line))) {
        return Err(SelectionError::NoBlockAt { line });
    }
    let chosen = blocks
        .iter()
        .filter(|block| numbers.is_empty() || numbers.contains(&block.number))
        .filter(|block| {
            let line = block.fence.first_line;
            sections.as_ref().is_none_or(|sections| {
                let before = sections.partition_point(|section| section.start <= line);
                before.checked_sub(1).is_some_and(|last| sections[last].contains(&line))
            })
        })
        .filter(|block| selection.line.is_none_or(|line| in_line(block, line)));
    Ok(chosen.collect())
}

/// Sections without nested ones. They are ordered, and overlap only by nesting.
fn outermost(sections: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    for section in sections {
        if kept.last().is_none_or(|last| section.start >= last.end) {
            kept.push(section);
        }
    }
    kept
}

/// Why nothing may be written below a block.
fn untouchable(fence: &Fence, force: bool) -> Option<Problem> {
    if !fence.is_closed {
        let what = "the block has no closing fence, so no result can be written below it";
        return Some(Problem::new(ProblemKind::Unclosed, fence.first_line, what));
    }
    match fence.result.as_ref()? {
        Found::Torn { line } => {
            let what =
                "this result has no closing mark `<!-- /mcp-result ... -->`; restore the mark or delete the result";
            Some(Problem::new(ProblemKind::TornResult, *line, what))
        }
        Found::Whole(region) if region.is_edited && !force => {
            let what = "the result below this block was edited by hand, so it is kept; `--force` replaces it";
            Some(Problem::new(ProblemKind::EditedResult, fence.first_line, what))
        }
        Found::Whole(_) => None,
    }
}

/// The task of a block. Without a tool, it is for the assistant.
fn task(
    block: &Block<'_>,
    servers: &ServerTable<'_>,
    bound: Option<&Bound>,
    written: Option<Result<Arc<Written>, Problem>>,
) -> Result<Task, Problem> {
    let line = block.fence.first_line;
    let bound_server = bound.map(|bound| known_server(bound, servers, line)).transpose()?;
    let Some(written) = written else {
        let (words, display_options) = block::read_question(block.fence)?;
        let question = Question { words, server: bound_server.map(str::to_owned), line };
        return Ok(Task::Ask { question, display_options });
    };
    let server = match &block.addressee {
        Addressee::Server(name) => match (bound, bound_server) {
            (Some(bound), Some(other)) if other != name => return Err(refused(name, bound, line)),
            _ => name.as_str(),
        },
        Addressee::AnyServer | Addressee::Assistant => match bound_server.or_else(|| servers.first_enabled()) {
            Some(server) => server,
            None => return Err(Problem::new(ProblemKind::NoServer, line, "there is no enabled server")),
        },
    };
    if servers.named(server).is_some_and(|known| !known.is_enabled) {
        return Err(Problem::new(ProblemKind::NoServer, line, format!("server `{server}` is disabled")));
    }
    Ok(Task::Call { server: server.to_owned(), written: written? })
}

fn known_server<'a>(bound: &'a Bound, servers: &ServerTable<'_>, line: usize) -> Result<&'a str, Problem> {
    let name = bound.binding.server.as_str();
    if servers.named(name).is_some() {
        return Ok(name);
    }
    let what = format!("{} is bound to `{name}`, but there is no such server", bound.binding.section);
    Err(Problem::new(ProblemKind::NoServer, line, what))
}

fn refused(name: &str, bound: &Bound, line: usize) -> Problem {
    let only = &bound.binding.server;
    let what = format!("only tools of `{only}` may run here ({bound}); this block names `{name}`");
    Problem::new(ProblemKind::Refused, line, what)
}

fn no_such_tool(server: &str, written: &Written, some: &[String], count: usize) -> Problem {
    let named = some.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>().join(", ");
    let more = if count > some.len() { format!(" and {} more", count - some.len()) } else { String::new() };
    let has = if count == 0 { "no tools".to_owned() } else { format!("{named}{more}") };
    let what = format!("server `{server}` has no tool `{}`; it has {has}", written.tool);
    Problem::new(ProblemKind::NoTool, written.tool_line, what)
}
