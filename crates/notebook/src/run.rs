//! Runs a plan: one block after the other or several at a time, until the end or until it is stopped.
//!
//! The document is not changed here. The results are written afterwards, see [`apply`](crate::apply).

use std::future::Future;
use std::pin::{Pin, pin};

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use serde::Serialize;

use crate::block::DisplayOptions;
use crate::context::RunContext;
use crate::plan::{Action, Plan, Ready, Step};
use crate::problem::{Fault, Problem, ProblemKind};
use crate::region::Note;
use crate::render::{Content, Piece, parse_result};
use crate::toolbox::{Extent, Failure, Request, Toolbox};

/// The limit of bytes of all results of a run, which are kept in memory until they are written. The run ends beyond it.
const MAX_RESULT_BYTES: usize = 64 * 1024 * 1024;

/// How a plan is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// How many blocks may run at the same time. With 1, they run in order.
    pub jobs: usize,
    /// Only find tools and check parameters; call nothing.
    pub is_dry: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { jobs: 1, is_dry: false }
    }
}

/// An event of a run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A block will run. Reported for all before the first starts.
    Pending(&'a Step),
    /// A block is running.
    Executing(&'a Step),
    /// A block finished.
    Finished(&'a Finished),
}

/// The outcome of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has a result.
    Done,
    /// It was called, and failed.
    Failed,
    /// It was not called: see its problem.
    Refused,
    /// It was stopped, or never started. The document keeps its result.
    Stopped,
    /// It could be called; this is a dry run.
    Ready,
}

/// The outcome of a block, with details.
#[derive(Debug, Clone, Serialize)]
pub struct Finished {
    /// The block's number, from 1.
    pub number: usize,
    /// Its line in the planned text.
    pub line: usize,
    /// `server.tool`, or `assistant`.
    pub title: String,
    /// The outcome.
    pub status: Status,
    /// How long the call took.
    pub took_ms: Option<u64>,
    /// Why it failed or was stopped.
    pub message: Option<String>,
    /// Why it was refused.
    pub problem: Option<Problem>,
    /// The call that was made, or would be.
    pub request: Option<Request>,
    /// Why the parameters were not, or not completely, checked against the schema of the tool. The server checks them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<String>,
    #[serde(skip)]
    pub(crate) shown: Option<BlockResult>,
    #[serde(skip)]
    pub(crate) source: Source,
    /// Whether the run ends, because the remaining blocks could not be called either.
    pub ends_run: bool,
}

/// The result in the document.
#[derive(Debug, Clone)]
pub(crate) struct BlockResult {
    pub(crate) content: Content,
    pub(crate) note: Note,
    pub(crate) display_options: DisplayOptions,
    /// Whether an existing result is kept, because nothing was called.
    pub(crate) gives_way: bool,
}

/// Identifies a block in a changed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) info: String,
    pub(crate) content: String,
    /// Its index among blocks of the same content, and their number.
    pub(crate) place: usize,
    pub(crate) count: usize,
}

impl Source {
    fn of(step: &Step) -> Self {
        let Step { fence, place, count, .. } = step;
        Self { info: fence.info.clone(), content: fence.content.clone(), place: *place, count: *count }
    }
}

impl Finished {
    /// The outcome of a step that is refused.
    pub(crate) fn of_refused(step: &Step) -> Self {
        let line = step.fence.first_line;
        let refusal = || Problem::new(ProblemKind::NoTool, line, "the tool does not exist");
        let problem = step.problem().cloned().unwrap_or_else(refusal);
        Self { source: Source::of(step), ..refused(step, problem, Timestamp::UNIX_EPOCH) }
    }
}

/// The outcomes of all blocks of a plan, in order.
#[derive(Debug, Clone)]
pub struct Report {
    /// One for every step.
    pub finished: Vec<Finished>,
    /// Remarks about the document that did not prevent the run.
    pub remarks: Vec<Fault>,
}

impl Report {
    /// The number of blocks with an outcome.
    pub fn count(&self, status: Status) -> usize {
        self.finished.iter().filter(|finished| finished.status == status).count()
    }

    /// Whether every block ran without an error.
    pub fn is_success(&self) -> bool {
        self.finished.iter().all(|finished| matches!(finished.status, Status::Done | Status::Ready))
    }
}

/// Runs a plan until its end, or until `stop` is ready: then running calls are dropped, and finished ones count.
pub async fn run(
    plan: &Plan,
    toolbox: &impl Toolbox,
    options: RunOptions,
    stop: impl Future<Output = ()> + Send,
    mut progress: impl FnMut(Progress<'_>) + Send,
) -> Report {
    for step in &plan.steps {
        progress(Progress::Pending(step));
    }
    let context = RunContext::new(plan, toolbox);
    let context = &context;
    let mut waiting = plan.steps.iter().enumerate();
    let mut finished: Vec<Option<Finished>> = plan.steps.iter().map(|_| None).collect();
    let mut under_way = FuturesUnordered::new();
    let mut stop = pin!(stop);
    let mut result_bytes = 0;
    let mut over: Option<&str> = None;
    loop {
        while over.is_none()
            && under_way.len() < options.jobs.max(1)
            && let Some((place, step)) = waiting.next()
        {
            let preparing = async move { (place, prepare(step, Source::of(step), context, options.is_dry).await) };
            under_way.push(Box::pin(preparing) as Pin<Box<dyn Future<Output = (usize, Stage<'_>)> + Send>>);
        }
        if under_way.is_empty() {
            break;
        }
        // Check for a stop first, even if calls return immediately.
        match select(stop.as_mut(), under_way.next()).await {
            Either::Left(((), _)) => break,
            Either::Right((Some((place, Stage::Ready(prepared))), _)) => {
                progress(Progress::Executing(prepared.step));
                under_way.push(Box::pin(async move { (place, Stage::Over(carry_out(prepared, context).await)) }));
            }
            Either::Right((Some((place, Stage::Over(finished_step))), _)) => {
                progress(Progress::Finished(&finished_step));
                result_bytes += finished_step.shown.as_ref().map_or(0, |shown| shown.content.bytes());
                if finished_step.ends_run {
                    over.get_or_insert("not run: the run ended before this block");
                } else if result_bytes > MAX_RESULT_BYTES {
                    over.get_or_insert(RESULTS_TOO_LARGE);
                }
                finished[place] = Some(finished_step);
            }
            Either::Right((None, _)) => {}
        }
    }
    drop(under_way);
    let why = over.unwrap_or("stopped before it finished");
    let stopped = |step: &Step| ended(step, Status::Stopped, Some(why.to_owned()));
    let mut all = Vec::with_capacity(finished.len());
    for (over, step) in finished.into_iter().zip(&plan.steps) {
        let over = over.unwrap_or_else(|| {
            let over = stopped(step);
            progress(Progress::Finished(&over));
            over
        });
        all.push(over);
    }
    Report { finished: all, remarks: plan.remarks.clone() }
}

/// Why blocks are not run after the limit of results is reached.
const RESULTS_TOO_LARGE: &str = "not run: the results of the previous blocks have more than 64 MiB";

/// The stage of a block.
enum Stage<'a> {
    /// It can run.
    Ready(Prepared<'a>),
    Over(Finished),
}

/// A block that can run.
struct Prepared<'a> {
    step: &'a Step,
    source: Source,
    ready: Ready,
    request: Option<Request>,
}

/// Checks whether a block can run; a refused one never runs.
async fn prepare<'a, T: Toolbox>(
    step: &'a Step,
    source: Source,
    context: &RunContext<'_, T>,
    is_dry: bool,
) -> Stage<'a> {
    let toolbox = context.toolbox;
    let ready = match step.ready(context).await {
        Ok(ready) => ready,
        Err(problem) => return Stage::Over(Finished { source, ..refused(step, problem, toolbox.now()) }),
    };
    let request = match &ready.action {
        Action::Call(request) => Some(request.clone()),
        Action::Ask(_) => None,
    };
    if is_dry {
        if let Some(request) = &request
            && let Some(why) = context.out_of_reach(&request.server).await
        {
            let what = format!("server `{}` is not available: {why}", request.server);
            let problem = Problem::new(ProblemKind::NoServer, request.line, what);
            return Stage::Over(Finished { source, ..refused(step, problem, toolbox.now()) });
        }
        let not_checked = ready.not_checked;
        return Stage::Over(Finished { source, request, not_checked, ..ended(step, Status::Ready, None) });
    }
    Stage::Ready(Prepared { step, source, ready, request })
}

async fn carry_out<T: Toolbox>(prepared: Prepared<'_>, context: &RunContext<'_, T>) -> Finished {
    let toolbox = context.toolbox;
    let Prepared { step, source, ready, request } = prepared;
    let began = toolbox.now();
    let answer = match &ready.action {
        Action::Call(request) => {
            let result = toolbox.call(request).await;
            context.note_call(&request.server);
            result.map(|result| parse_result(&result))
        }
        Action::Ask(question) => toolbox.ask(question).await.map(|answer| Content {
            pieces: vec![Piece::Markdown(answer.markdown)],
            is_error: false,
            tokens: answer.tokens,
        }),
    };
    let now = toolbox.now();
    let took_ms = u64::try_from(now.duration_since(began).as_millis()).unwrap_or_default();
    let over = match answer {
        Err(Failure { extent: Extent::Stopped, message }) => ended(step, Status::Stopped, Some(message)),
        Err(Failure { extent, message }) => {
            let content = Content { pieces: vec![Piece::Text(message.clone())], is_error: true, tokens: None };
            let gives_way = extent != Extent::Failed;
            let shown = BlockResult {
                note: note(&content, now, took_ms),
                content,
                display_options: ready.display_options,
                gives_way,
            };
            let ends_run = extent == Extent::RunOver;
            Finished { shown: Some(shown), ends_run, ..ended(step, Status::Failed, Some(message)) }
        }
        Ok(content) => {
            let status = if content.is_error { Status::Failed } else { Status::Done };
            let message = content.is_error.then(|| first_words(&content));
            let shown = BlockResult {
                note: note(&content, now, took_ms),
                content,
                display_options: ready.display_options,
                gives_way: false,
            };
            Finished { shown: Some(shown), ..ended(step, status, message) }
        }
    };
    Finished { source, request, took_ms: Some(took_ms), not_checked: ready.not_checked, ..over }
}

fn refused(step: &Step, problem: Problem, now: Timestamp) -> Finished {
    let shown = problem.is_shown().then(|| {
        // Lines of the document move when results are written; lines of the block do not.
        let line = |fault: &Fault| match fault.line.checked_sub(step.fence.first_line) {
            Some(0) | None => fault.what.clone(),
            Some(line) => format!("line {line} of the block: {}", fault.what),
        };
        let words = problem.faults.iter().map(line).collect::<Vec<_>>().join("\n");
        let content = Content { pieces: vec![Piece::Text(words)], is_error: true, tokens: None };
        let gives_way = problem.kind == ProblemKind::NoServer;
        BlockResult { note: note(&content, now, 0), content, display_options: DisplayOptions::default(), gives_way }
    });
    Finished { shown, problem: Some(problem), ..ended(step, Status::Refused, None) }
}

fn ended(step: &Step, status: Status, message: Option<String>) -> Finished {
    let source = Source { info: String::new(), content: String::new(), place: 0, count: 0 };
    Finished {
        number: step.number,
        line: step.fence.first_line,
        title: step.title().to_owned(),
        status,
        took_ms: None,
        message,
        problem: None,
        request: None,
        not_checked: None,
        shown: None,
        source,
        ends_run: false,
    }
}

fn note(content: &Content, now: Timestamp, took_ms: u64) -> Note {
    // Seconds are precise enough for people.
    let at = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    Note { is_error: content.is_error, at, took_ms, tokens: content.tokens }
}

fn first_words(content: &Content) -> String {
    let text = content.pieces.iter().find_map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        _ => None,
    });
    text.unwrap_or("the tool reports a failure").to_owned()
}
