//! `run`: the tools that a document names, and their results under its blocks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use aggregator::NamePolicy;
use notebook::{
    ApplyOptions, Binding, Bindings, Document, Placement, Plan, Report, RunOptions, Selection, Server, Toolbox,
};
use serde_json::{Value, json};

use crate::arguments::documents::RunArguments;
use crate::commands::list;
use crate::documents::{self, ConfigTools, ServiceTools, Told, file_failed};
use crate::failure::Failure;
use crate::output::{self, say};
use crate::session::{self, Signals};
use crate::{config, words};

/// What became of a run.
struct Ran {
    report: Report,
    /// Whether the user stopped it.
    is_interrupted: bool,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    words::tell(arguments.servers.debug);
    let text = notebook::read(&arguments.document).map_err(file_failed)?;
    let document = Document::parse(&text);
    let Ran { report, is_interrupted } = match &arguments.servers.config {
        Some(config) => by_config(arguments, &document, config)?,
        None => by_service(arguments, &document)?,
    };
    let placements = if arguments.dry_run { Vec::new() } else { write(arguments, &report)? };
    if arguments.json {
        output::print_json(&described(&report, &placements))?;
    }
    conclude(&report, &placements, is_interrupted)
}

/// The running service makes the calls.
fn by_service(arguments: &RunArguments, document: &Document) -> Result<Ran, Failure> {
    session::block_on(async {
        let service = arguments.servers.target.service().await?;
        let servers = documents::servers_of_service(&list::servers_of(&service).await?);
        let registered = documents::registered_at(&service, &arguments.document).await?;
        let plan = plan(arguments, document, &servers, &registered)?;
        // Only now: until there is something to be kept, Ctrl-C may simply end us.
        let mut signals = Signals::new().map_err(|error| Failure::new(format!("could not start: {error}")))?;
        let toolbox = ServiceTools::new(service, servers, &documents::whole_path(&arguments.document));
        Ok(carry_out(arguments, &plan, &toolbox, signals.next()).await)
    })
}

/// The servers that the document needs are started for it.
fn by_config(arguments: &RunArguments, document: &Document, config: &Path) -> Result<Ran, Failure> {
    let mut loaded = config::load(config)?;
    let servers = documents::servers_of_config(&loaded.config);
    let plan = plan(arguments, document, &servers, &[])?;
    let is_needed = |name: &str| plan.steps.iter().any(|step| step.server() == Some(name));
    loaded.config.servers.retain(|spec| is_needed(spec.name.as_str()));
    let separator = crate::arguments::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NOTHING)?;
    session::with(loaded, options, async |session| {
        let toolbox = ConfigTools { aggregator: session.aggregator.clone(), servers };
        Ok(carry_out(arguments, &plan, &toolbox, session.interrupted()).await)
    })
}

fn plan<'a>(
    arguments: &RunArguments,
    document: &'a Document,
    servers: &[Server],
    registered: &[Binding],
) -> Result<Plan<'a>, Failure> {
    let selection =
        Selection { blocks: arguments.block.clone(), section: arguments.section.clone(), line: arguments.line };
    let bindings = Bindings::of(document, registered);
    Plan::new(document, servers, &bindings, &selection, arguments.force).map_err(|error| {
        let hint = format!("`mcp-aggregator doc map {}` shows its sections and blocks", arguments.document.display());
        Failure::usage(error.to_string()).with_hint(hint)
    })
}

/// Runs the plan, telling how far it is.
async fn carry_out(
    arguments: &RunArguments,
    plan: &Plan<'_>,
    toolbox: &impl Toolbox,
    stop: impl Future<Output = ()> + Send,
) -> Ran {
    for remark in &plan.remarks {
        say(format_args!("warning: {}: {remark}", arguments.document.display()));
    }
    let options = RunOptions { jobs: arguments.jobs.into(), is_dry: arguments.dry_run };
    let tell = |progress: notebook::Progress<'_>| {
        if let Some(line) = Told::of(&progress, arguments.dry_run) {
            say(line);
        }
    };
    let is_interrupted = AtomicBool::new(false);
    let stop = async {
        stop.await;
        is_interrupted.store(true, Ordering::Relaxed);
    };
    let report = notebook::run(plan, toolbox, options, stop, tell).await;
    Ran { report, is_interrupted: is_interrupted.into_inner() }
}

/// Puts the results where they belong: into the document, a copy of it, or stdout.
fn write(arguments: &RunArguments, report: &Report) -> Result<Vec<Placement>, Failure> {
    let (document, force) = (arguments.document.as_path(), arguments.force);
    let copy = arguments.output.as_deref();
    if copy != Some(Path::new("-")) {
        return Ok(notebook::save(document, copy, report, force).map_err(file_failed)?.applied.placements);
    }
    let text = notebook::read(document).map_err(file_failed)?;
    let folder = notebook::assets_folder(document);
    let applied = notebook::apply(&text, report, &ApplyOptions { force, folder: &folder });
    // What is printed speaks of files beside the document.
    notebook::write_attachments(document, document, &applied.attachments).map_err(file_failed)?;
    output::print(applied.text.as_bytes())?;
    Ok(applied.placements)
}

fn described(report: &Report, placements: &[Placement]) -> Value {
    let fate = |number: usize| placements.iter().find(|placement| placement.number == number).map(|it| it.fate);
    let block = |over: &notebook::Finished| {
        let mut block = json!(over);
        block["written"] = json!(fate(over.number));
        block
    };
    json!({
        "ok": report.is_success(),
        "blocks": report.finished.iter().map(block).collect::<Vec<_>>(),
        "remarks": report.remarks,
    })
}

/// The last words, and what the shell is told.
fn conclude(report: &Report, placements: &[Placement], is_interrupted: bool) -> Result<(), Failure> {
    if report.finished.is_empty() {
        say("there is no block to be run");
        say("hint: the language of a block must be a server's name, or `mcp`");
        return Ok(());
    }
    let lost: Vec<String> = placements.iter().filter_map(|it| Told::of_fate(it.number, it.fate)).collect();
    lost.iter().for_each(say);
    let summary = documents::in_words(report);
    if is_interrupted {
        return Err(Failure { message: format!("interrupted; {summary}"), ..Failure::interrupted() });
    }
    if !report.is_success() || !lost.is_empty() {
        return Err(Failure::new(format!("not all went well; {summary}")));
    }
    say(summary);
    Ok(())
}
