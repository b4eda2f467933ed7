//! `run`: runs the tool calls in a document, and writes the results below its blocks; `watch`: runs it again when it is
//! saved.

mod watch;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use aggregator::NamePolicy;
use clap::Args;
use notebook::{
    Applied, ApplyOptions, Binding, Bindings, Document, Placement, Plan, Report, RunOptions, Selection, Server, Step,
    Toolbox,
};
use serde_json::{Value, json};
use watch::{Known, Watched};

use crate::assistant::ModelArguments;
use crate::cli::shared::ServersArguments;
use crate::commands::list;
use crate::config::ConfigSource;
use crate::documents::{self, AssistantBlocks, ConfigTools, RunPrinter, ServiceTools, file_failed};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::session;
use crate::{config, stderr_log};

/// Run the tool calls in a Markdown document, and write each result under its block.
///
/// A fenced block with the name of a server as its language is a call: first `tool: NAME`, then parameters in YAML.
/// The running service makes the calls; with --config, this command starts the servers of the config instead. A second
/// run replaces the results of the first, and nothing else in the document. If somebody edited a result, its block
/// does not run, unless you pass --force. On Ctrl-C, the results so far are written.
/// The exit status is 1 if a block failed or was refused.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
A document that can be run:
  ```time
  tool: get_current_time
  timezone: Europe/Rome
  ```

Examples:
  mcp-aggregator run notes.md
  mcp-aggregator run notes.md --dry-run               checks every block, and calls nothing
  mcp-aggregator run notes.md --block 2 --block 3
  mcp-aggregator run notes.md --section \"## Weather\" --jobs 4
  mcp-aggregator run notes.md --watch                 runs changed blocks whenever it is saved
  mcp-aggregator run notes.md --config mcp.json --output - | less"
)]
pub(crate) struct RunArguments {
    /// The document
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: PathBuf,
    /// Run only this block, by its number in the document, from 1; may be repeated
    #[arg(long, value_name = "N")]
    pub(crate) block: Vec<usize>,
    /// Run only the blocks under this heading: `Tools`, or `## Tools` for one of that level
    #[arg(long, value_name = "HEADING")]
    pub(crate) section: Option<String>,
    /// Run only the block that contains this line
    #[arg(long, value_name = "N")]
    pub(crate) line: Option<usize>,
    /// Look up tools and check parameters, but call nothing and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the document with its results to this file instead, or to stdout with `-`
    #[arg(long, value_name = "FILE | -", conflicts_with = "dry_run")]
    pub(crate) output: Option<PathBuf>,
    /// How many blocks run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Run changed blocks whenever the document is saved, until Ctrl-C
    #[arg(long, conflicts_with_all = ["block", "section", "line", "dry_run", "output", "json"])]
    pub(crate) watch: bool,
    /// Replace results even if somebody edited them
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the result of every block as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Let `assistant` blocks call destructive tools without asking
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

impl RunArguments {
    /// Which blocks to run.
    pub(crate) fn selection(&self) -> Selection {
        Selection { blocks: self.block.clone(), section: self.section.clone(), line: self.line }
    }
}

/// The result of a run.
struct RunResult {
    report: Report,
    /// Whether the user stopped it.
    is_interrupted: bool,
}

/// The options of a run.
struct DocumentContext {
    servers: Vec<Server>,
    registered: Vec<Binding>,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.servers.debug);
    let text = notebook::read(&arguments.document).map_err(file_failed)?;
    // Before any call: results that cannot be written would be lost.
    if !arguments.dry_run && !is_for_stdout(arguments) {
        notebook::check_writable(&arguments.document, arguments.output.as_deref()).map_err(file_failed)?;
    }
    match &arguments.servers.config {
        Some(config) => by_config(arguments, &text, config),
        None => by_service(arguments, &text),
    }
}

/// The running service makes the calls.
fn by_service(arguments: &RunArguments, text: &str) -> Result<(), Failure> {
    session::block_on(async {
        let service = arguments.servers.target.service().await?;
        let servers = documents::servers_of_service(&list::servers_of(&service).await?)?;
        let registered = documents::registered_at(&service, &arguments.document).await?;
        let around = DocumentContext { servers, registered };
        // Invalid options are reported first.
        drop(plan(arguments, &arguments.selection(), &Document::parse(text), &around)?);
        // Only now: before there are results to keep, Ctrl-C may simply end the program.
        let mut signals = session::signals()?;
        let mut toolbox = ServiceTools::new(
            service,
            around.servers.clone(),
            &documents::whole_path(&arguments.document),
            assistant_blocks(arguments, None),
        );
        let mut first = true;
        run_and_watch(arguments, text, &around, async |selection, document| {
            if !std::mem::take(&mut first) {
                toolbox.begin_session();
            }
            let plan = plan(arguments, selection, document, &around)?;
            Ok(carry_out(arguments, &plan, &toolbox, signals.next()).await)
        })
        .await
    })
}

/// Starts the servers that the document needs; all of them, if that is not known in advance.
fn by_config(arguments: &RunArguments, text: &str, config: &Path) -> Result<(), Failure> {
    let mut loaded = config::load(config)?;
    let around = DocumentContext { servers: documents::servers_of_config(&loaded.config), registered: Vec::new() };
    let document = Document::parse(text);
    let first = plan(arguments, &arguments.selection(), &document, &around)?;
    let is_needed = |name: &str| arguments.watch || first.steps.iter().any(|step| may_use(step, name));
    loaded.config.servers.retain(|spec| is_needed(spec.name.as_str()));
    let separator = crate::cli::shared::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    let source = ConfigSource { path: config, bytes: &loaded.source };
    let assistant_blocks = assistant_blocks(arguments, Some(source));
    session::with(loaded, options, async |session| {
        let assistant_blocks = Some(assistant_blocks);
        let toolbox =
            ConfigTools { aggregator: session.aggregator.clone(), servers: around.servers.clone(), assistant_blocks };
        run_and_watch(arguments, text, &around, async |selection, document| {
            let plan = plan(arguments, selection, document, &around)?;
            Ok(carry_out(arguments, &plan, &toolbox, session.interrupted()).await)
        })
        .await
    })
}

/// Whether a block may use any server. The tools that an assistant will use are not known in advance.
fn may_use(step: &Step, server: &str) -> bool {
    step.server().map_or_else(|| step.title() == "assistant", |named| named == server)
}

/// What answers `assistant` blocks.
fn assistant_blocks(arguments: &RunArguments, config: Option<ConfigSource<'_>>) -> AssistantBlocks {
    AssistantBlocks::new(&arguments.model, config, arguments.yes, documents::whole_path(&arguments.document))
}

/// Runs the document, and with `--watch` its changed blocks, until the user stops it.
async fn run_and_watch(
    arguments: &RunArguments,
    text: &str,
    around: &DocumentContext,
    mut run: impl AsyncFnMut(&Selection, &Document) -> Result<RunResult, Failure>,
) -> Result<(), Failure> {
    let mut document = Document::parse(text);
    let mut ran = run(&arguments.selection(), &document).await?;
    if !arguments.watch {
        let written = if arguments.dry_run { Written::default() } else { write(arguments, &ran.report)? };
        if arguments.json {
            output::print_json(&described(&ran.report, &written.placements))?;
        }
        return conclude(&ran.report, &written.placements, ran.is_interrupted);
    }
    let mut watched = Watched::new(&arguments.document, text);
    let mut ends = session::signals()?;
    loop {
        let known = Known::of(&document, &around.servers);
        let written = write(arguments, &ran.report)?;
        let concluded = conclude(&ran.report, &written.placements, ran.is_interrupted);
        if ran.is_interrupted {
            return concluded;
        }
        // A failed block runs again when it is changed.
        concluded.unwrap_or_else(print_message);
        watched.set_text(&written.text);
        // The file may have been edited during the run.
        document = Document::parse(&written.text);
        let mut changed = known.changed_in(&document, &around.servers);
        if changed.is_empty() {
            print_message(format_args!("watching {}; Ctrl-C ends this", arguments.document.display()));
        }
        while changed.is_empty() {
            let text = tokio::select! {
                text = watched.changed() => text,
                () = ends.next() => return Ok(()),
            };
            document = Document::parse(text);
            changed = known.changed_in(&document, &around.servers);
        }
        ran = run(&Selection { blocks: changed, ..Selection::default() }, &document).await?;
    }
}

fn plan(
    arguments: &RunArguments,
    selection: &Selection,
    document: &Document,
    around: &DocumentContext,
) -> Result<Plan, Failure> {
    let bindings = Bindings::of(document, &around.registered);
    Plan::new(document, &around.servers, &bindings, selection, arguments.force).map_err(|error| {
        let hint = format!("`mcp-aggregator doc map {}` shows its sections and blocks", arguments.document.display());
        Failure::usage(error.to_string()).with_hint(hint)
    })
}

/// Runs the plan, and prints its progress.
async fn carry_out(
    arguments: &RunArguments,
    plan: &Plan,
    toolbox: &impl Toolbox,
    stop: impl Future<Output = ()> + Send,
) -> RunResult {
    for remark in &plan.remarks {
        print_message(format_args!("warning: {}: {remark}", arguments.document.display()));
    }
    let options = RunOptions { jobs: arguments.jobs.into(), is_dry: arguments.dry_run };
    let on_progress = |progress: notebook::Progress<'_>| {
        if let Some(line) = RunPrinter::of(&progress, arguments.dry_run) {
            print_message(line);
        }
    };
    let is_interrupted = AtomicBool::new(false);
    let stop = async {
        stop.await;
        is_interrupted.store(true, Ordering::Relaxed);
    };
    let report = notebook::run(plan, toolbox, options, stop, on_progress).await;
    RunResult { report, is_interrupted: is_interrupted.into_inner() }
}

/// The written result.
#[derive(Default)]
struct Written {
    text: String,
    placements: Vec<Placement>,
}

impl From<Applied> for Written {
    fn from(Applied { text, placements, .. }: Applied) -> Self {
        Self { text, placements }
    }
}

fn is_for_stdout(arguments: &RunArguments) -> bool {
    arguments.output.as_deref() == Some(Path::new("-"))
}

/// Saves results that could not be written to the document, so that the calls need not be repeated.
fn rescued(failure: Failure, arguments: &RunArguments, report: &Report) -> Failure {
    let folder = notebook::assets_folder(&arguments.document);
    let options = ApplyOptions { force: arguments.force, folder: &folder };
    let kept = notebook::read(&arguments.document).ok().and_then(|text| {
        let text = notebook::apply(&text, report, &options).text;
        let mut file = tempfile::Builder::new().prefix("mcp-results-").suffix(".md").tempfile().ok()?;
        file.write_all(text.as_bytes()).ok()?;
        file.keep().ok().map(|(_, path)| path)
    });
    match kept {
        Some(path) => failure.with_hint(format!("the document with its results is in {}", path.display())),
        None => failure,
    }
}

/// Writes the results to the document, a copy of it, or stdout.
fn write(arguments: &RunArguments, report: &Report) -> Result<Written, Failure> {
    let (document, force) = (arguments.document.as_path(), arguments.force);
    if !is_for_stdout(arguments) {
        let saved = notebook::save(document, arguments.output.as_deref(), report, force);
        return Ok(saved.map_err(|error| rescued(file_failed(error), arguments, report))?.applied.into());
    }
    let text = notebook::read(document).map_err(file_failed)?;
    // The real path, because the output refers to files next to the document.
    let place = documents::whole_path(document);
    let folder = notebook::assets_folder(&place);
    let applied = notebook::apply(&text, report, &ApplyOptions { force, folder: &folder });
    notebook::write_attachments(&place, document, &applied.attachments).map_err(file_failed)?;
    output::print(applied.text.as_bytes())?;
    Ok(applied.into())
}

fn described(report: &Report, placements: &[Placement]) -> Value {
    let fates: HashMap<usize, _> = placements.iter().map(|placement| (placement.number, placement.fate)).collect();
    let block = |over: &notebook::Finished| {
        let mut block = json!(over);
        block["written"] = json!(fates.get(&over.number));
        block
    };
    json!({
        "ok": report.is_success(),
        "blocks": report.finished.iter().map(block).collect::<Vec<_>>(),
        "remarks": report.remarks,
    })
}

/// Prints the summary, and returns the exit status.
fn conclude(report: &Report, placements: &[Placement], is_interrupted: bool) -> Result<(), Failure> {
    if report.finished.is_empty() {
        print_message("there is no block to run");
        print_message("hint: the language of a block must be the name of a server, or `mcp`");
        return Ok(());
    }
    let lost: Vec<String> = placements.iter().filter_map(|it| RunPrinter::of_fate(it.number, it.fate)).collect();
    lost.iter().for_each(print_message);
    let summary = documents::in_words(report);
    if is_interrupted {
        return Err(Failure { message: format!("interrupted; {summary}"), ..Failure::interrupted() });
    }
    if !report.is_success() || !lost.is_empty() {
        return Err(Failure::new(format!("some blocks failed or were refused; {summary}")));
    }
    print_message(summary);
    Ok(())
}
