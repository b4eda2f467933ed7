//! `ask`: asks a model that can use tools.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aggregator::NamePolicy;
use aggregator::load::Loaded;
use assistant::{Dialogue, DialogueEnd, DialogueLimits, Outcome};
use clap::Args;
use models::Model;
use serde_json::{Value, json};

use super::environment;
use crate::assistant::{
    self as helper, CliToolExecutor, Consent, EventPrinter, ModelArguments, NarrowingArguments, OfferedTools,
    ServiceAskError, ToolBackend, ToolRequest, ask_service,
};
use crate::cli::shared::ServersArguments;
use crate::config::ConfigSource;
use crate::documents::ConfigTools;
use crate::failure::Failure;
use crate::output::print_message;
use crate::session;
use crate::table::printable;
use crate::{config, documents, exit, output, progress, stderr_log};

fn after_help() -> String {
    format!(
        "\
How the model is chosen, besides by options:
{}A model under `assistant` in the file of --config takes precedence over the environment. If neither is set, the running
service uses its own model (`serve --assistant-model`).

Examples:
  OPENAI_BASE_URL=http://localhost:11434/v1 mcp-aggregator ask --model qwen3 \"What time is it in Rome?\"
  mcp-aggregator ask --model anthropic:claude-sonnet-4-5 \"Which issues are urgent?\" --server github
  mcp-aggregator ask \"Summarise this section\" --doc notes.md --line 40
  git diff | mcp-aggregator ask - --config mcp.json --transcript review.json",
        environment::help_rows(&[
            "MCP_MODEL",
            "MCP_MODEL_PROVIDER",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            "MCP_MODEL_TOOLS",
            "MCP_MODEL_IMAGES",
        ])
    )
}

/// Ask a language model that can use your tools.
///
/// The answer is streamed to stdout, and every tool call is printed to stderr. The running service makes the calls,
/// applies its limits and records them; with --config, this command starts the servers of the config instead. With
/// --doc and --line in a section that is bound to a server, the model may use only tools of that server. It may call
/// a destructive tool (`destructiveHint`) only if you agree: on the terminal, or with --yes. Ctrl-C cancels everything.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = after_help()
)]
pub(crate) struct AskArguments {
    /// The question; `-` reads it from stdin
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
    #[command(flatten)]
    pub(crate) narrowing: NarrowingArguments,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Call destructive tools without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write the whole conversation to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) transcript: Option<PathBuf>,
    /// The maximum number of requests to the model
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) max_rounds: u16,
    /// Print the whole conversation as JSON, as --transcript writes it, instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

/// A question with its options.
struct Prepared<'a> {
    arguments: &'a AskArguments,
    question: String,
    wanted: ToolRequest,
    consent: Consent,
}

pub(crate) fn run(arguments: &AskArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.servers.debug);
    arguments.transcript.as_deref().map(check_writable).transpose()?;
    let config = arguments.servers.config.as_deref();
    let loaded = config.map(config::load).transpose()?;
    let source = config.zip(loaded.as_ref()).map(|(path, loaded)| ConfigSource { path, bytes: &loaded.source });
    // Or why there is no model here; then the service's model is used.
    let model = helper::model(&arguments.model, source);
    let prepared = Prepared {
        arguments,
        question: question(&arguments.question)?,
        wanted: ToolRequest::new(&arguments.narrowing, None)?,
        consent: Consent::new(arguments.yes),
    };
    match (loaded, model) {
        // Reports a missing model before anything is started.
        (Some(_), Err(failure)) => Err(failure),
        (Some(loaded), Ok(model)) => by_config(&prepared, &model, loaded),
        (None, Ok(model)) => by_service(&prepared, &model),
        (None, Err(failure)) => wholly_by_service(&prepared, failure),
    }
}

/// Checks early that the transcript can be written. Anything but a regular file, such as a pipe, is not checked,
/// because it is opened only once, to write.
fn check_writable(transcript: &Path) -> Result<(), Failure> {
    if fs::metadata(transcript).is_ok_and(|there| !there.is_file()) {
        return Ok(());
    }
    let opened = fs::OpenOptions::new().create(true).append(true).open(transcript);
    opened.map(drop).map_err(|error| not_kept(transcript, &error))
}

fn not_kept(transcript: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("could not write the transcript {}: {error}", transcript.display()))
}

fn question(typed: &str) -> Result<String, Failure> {
    let mut question = typed.to_owned();
    if typed == "-" {
        question.clear();
        let read = io::stdin().lock().read_to_string(&mut question);
        read.map_err(|error| Failure::new(format!("could not read the question from stdin: {error}")))?;
    }
    if question.trim().is_empty() {
        return Err(Failure::usage("the question is empty"));
    }
    Ok(question)
}

/// The running service makes the calls.
fn by_service(prepared: &Prepared<'_>, model: &Model) -> Result<(), Failure> {
    session::block_on(async {
        let service = prepared.arguments.servers.target.service().await?;
        let offered = OfferedTools::by_service(&service, &prepared.wanted).await?;
        let session = format!("ask {} {}", std::process::id(), jiff::Timestamp::now());
        let document = prepared.wanted.document.as_ref().map(|(_, path)| path.as_str());
        let mut signals = session::signals()?;
        let way = ToolBackend::Service { service: &service, document, session: &session };
        prepared.converse(model, &offered, way, signals.next()).await
    })
}

/// Starts the servers that may be used.
fn by_config(prepared: &Prepared<'_>, model: &Model, mut loaded: Loaded) -> Result<(), Failure> {
    let servers = documents::servers_of_config(&loaded.config);
    let needed = prepared.wanted.needed(&servers)?;
    loaded.config.servers.retain(|spec| needed.iter().any(|name| name == spec.name.as_str()));
    let separator = crate::cli::shared::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    session::with(loaded, options, async |session| {
        session.all_decided().await?;
        let offered = OfferedTools::by_config(session.fleet(), &servers, &prepared.wanted)?;
        let tools =
            ConfigTools { aggregator: session.aggregator.clone(), servers: servers.clone(), assistant_blocks: None };
        prepared.converse(model, &offered, ToolBackend::Config(&tools), session.interrupted()).await
    })
}

impl Prepared<'_> {
    async fn converse(
        &self,
        model: &Model,
        offered: &OfferedTools,
        way: ToolBackend<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        offered.print_remarks();
        let line = usize::try_from(self.wanted.line).unwrap_or(usize::MAX);
        let document = self.wanted.document.as_ref().map(|(text, _)| (text.as_str(), line));
        let bounds = DialogueLimits { rounds: self.arguments.max_rounds.into(), calls: None };
        let executor = CliToolExecutor::new(way, line, &self.consent, offered);
        let mut dialogue = Dialogue::new(assistant::task(document), self.question.as_str(), offered.offers(), bounds);
        let mut printer = self.printer();
        let outcome = {
            let mut print_event = |event: assistant::DialogueEvent<'_>| printer.print_event(event);
            let what = format!("asking {}", model.provider().model);
            let running = Box::pin(dialogue.run(model, &executor, &mut print_event));
            tokio::select! {
                outcome = progress::with_spinner(&what, running) => Some(outcome),
                () = stop => None,
            }
        };
        printer.end_line();
        let ended = outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
        let mut transcript = dialogue.transcript(&model.provider().model, ended);
        let concluded = match outcome {
            None => Err(Failure::interrupted()),
            Some(Err(failure)) => Err(helper::unanswered(&failure)),
            Some(Ok(outcome)) => conclude(&outcome),
        };
        if let Err(failure) = &concluded {
            transcript["error"] = failure.to_json()["error"].clone();
        }
        self.keep(&transcript)?;
        concluded
    }

    /// With JSON, the text is part of it.
    fn printer(&self) -> EventPrinter {
        if self.arguments.json { EventPrinter::calls_only() } else { EventPrinter::all() }
    }

    /// Writes the transcript, if requested.
    fn keep(&self, transcript: &Value) -> Result<(), Failure> {
        if self.arguments.json {
            output::print_json(transcript)?;
        }
        let Some(file) = &self.arguments.transcript else { return Ok(()) };
        fs::write(file, format!("{transcript:#}\n")).map_err(|error| not_kept(file, &error))
    }

    /// The request to a service with an assistant of its own.
    fn for_service(&self) -> Value {
        let mut body = json!({
            "question": self.question,
            "line": self.wanted.line,
            "servers": self.wanted.servers,
            "skills": self.wanted.skills,
            "confirm_destructive": self.arguments.yes,
            "max_rounds": self.arguments.max_rounds,
            "transcript": self.arguments.transcript.is_some() || self.arguments.json,
        });
        if let Some((text, path)) = &self.wanted.document {
            body["text"] = json!(text);
            body["path"] = json!(path);
        }
        body
    }
}

/// The running service asks its own model, because there is none here.
fn wholly_by_service(prepared: &Prepared<'_>, no_model: Failure) -> Result<(), Failure> {
    session::block_on(async {
        let Some(service) = prepared.arguments.servers.target.running().await? else { return Err(no_model) };
        let mut signals = session::signals()?;
        let mut printer = prepared.printer();
        let body = prepared.for_service();
        let answer = {
            let mut print_event = |event: assistant::DialogueEvent<'_>| printer.print_event(event);
            tokio::select! {
                answer = progress::with_spinner("waiting for the answer", Box::pin(ask_service(&service, &body, &mut print_event))) => answer,
                () = signals.next() => Err(ServiceAskError::Failed(Failure::interrupted())),
            }
        };
        printer.end_line();
        let answer = match answer {
            Ok(answer) => answer,
            Err(ServiceAskError::NoAssistant) => return Err(no_model),
            Err(ServiceAskError::Failed(failure)) => return Err(failure),
        };
        for remark in answer["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            print_message(format_args!("warning: {}", printable(remark)));
        }
        prepared.keep(&answer["transcript"])?;
        let failure = Failure::new(answer["message"].as_str().unwrap_or("there was no answer"));
        match answer["ended"].as_str() {
            Some("answered") => Ok(()),
            Some("rounds_spent") => Err(failure.with_hint("allow more with --max-rounds")),
            Some("stopped") => Err(Failure { code: exit::INTERRUPTED, ..failure }),
            _ => Err(failure),
        }
    })
}

fn conclude(outcome: &Outcome) -> Result<(), Failure> {
    let failure = Failure::new(outcome.ended.to_string());
    match outcome.ended {
        DialogueEnd::Answered => Ok(()),
        DialogueEnd::RoundsSpent(_) => Err(failure.with_hint("allow more with --max-rounds")),
        DialogueEnd::Stopped(_) => Err(Failure { code: exit::INTERRUPTED, ..failure }),
        DialogueEnd::CutShort
        | DialogueEnd::Refused(_)
        | DialogueEnd::Repeating
        | DialogueEnd::CallsSpent(_)
        | DialogueEnd::Silent => Err(failure),
    }
}
