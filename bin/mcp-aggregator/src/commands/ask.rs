//! `ask`: a question to a model that may use tools.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use aggregator::NamePolicy;
use assistant::{Bounds, Dialogue, Ended, Outcome};
use models::Model;

use crate::arguments::assistant::AskArguments;
use crate::assistant::{self as helper, CallingHands, Consent, Offered, Telling, Wanted, Way};
use crate::documents::ConfigTools;
use crate::failure::Failure;
use crate::session::{self, Signals};
use crate::{config, documents, exit, output, words};

/// A question, ready to be asked.
struct Prepared<'a> {
    arguments: &'a AskArguments,
    question: String,
    model: Model,
    wanted: Wanted,
    consent: Consent,
}

pub(crate) fn run(arguments: &AskArguments) -> Result<(), Failure> {
    words::tell(arguments.servers.debug);
    let prepared = Prepared {
        arguments,
        // What is missing is told before anything is started.
        model: helper::model(&arguments.model)?,
        question: question(&arguments.question)?,
        wanted: Wanted::new(&arguments.narrowing, None)?,
        consent: Consent::new(arguments.yes),
    };
    match &arguments.servers.config {
        Some(config) => by_config(&prepared, config),
        None => by_service(&prepared),
    }
}

fn question(typed: &str) -> Result<String, Failure> {
    let mut question = typed.to_owned();
    if typed == "-" {
        question.clear();
        let read = io::stdin().lock().read_to_string(&mut question);
        read.map_err(|error| Failure::new(format!("could not read the question from stdin: {error}")))?;
    }
    if question.trim().is_empty() {
        return Err(Failure::usage("nothing is asked"));
    }
    Ok(question)
}

/// The running service makes the calls.
fn by_service(prepared: &Prepared<'_>) -> Result<(), Failure> {
    session::block_on(async {
        let service = prepared.arguments.servers.target.service().await?;
        let offered = Offered::by_service(&service, &prepared.wanted).await?;
        let session = format!("ask {} {}", std::process::id(), jiff::Timestamp::now());
        let document = prepared.wanted.document.as_ref().map(|(_, path)| path.as_str());
        let mut signals = Signals::new().map_err(|error| Failure::new(format!("could not start: {error}")))?;
        let way = Way::Service { service: &service, document, session: &session };
        prepared.converse(&offered, way, signals.next()).await
    })
}

/// The servers that may be used are started for it.
fn by_config(prepared: &Prepared<'_>, config: &Path) -> Result<(), Failure> {
    let mut loaded = config::load(config)?;
    let servers = documents::servers_of_config(&loaded.config);
    let needed = prepared.wanted.needed(&servers)?;
    loaded.config.servers.retain(|spec| needed.iter().any(|name| name == spec.name.as_str()));
    let separator = crate::arguments::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NOTHING)?;
    session::with(loaded, options, async |session| {
        session.all_decided().await?;
        let offered = Offered::by_config(session.fleet(), &servers, &prepared.wanted)?;
        let tools = ConfigTools { aggregator: session.aggregator.clone(), servers: servers.clone(), answering: None };
        prepared.converse(&offered, Way::Config(&tools), session.interrupted()).await
    })
}

impl Prepared<'_> {
    async fn converse(&self, offered: &Offered, way: Way<'_>, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let line = self.wanted.line;
        let document = self.wanted.document.as_ref().map(|(text, _)| (text.as_str(), line));
        let bounds = Bounds { rounds: self.arguments.max_rounds.into(), calls: None };
        let hands = CallingHands::new(way, usize::try_from(line).unwrap_or(usize::MAX), &self.consent, offered);
        let mut dialogue = Dialogue::new(helper::task(document), self.question.as_str(), offered.offers(), bounds);
        let mut telling = if self.arguments.json { Telling::calls_only() } else { Telling::all() };
        let outcome = {
            let mut tell = |told: assistant::Told<'_>| telling.tell(told);
            tokio::select! {
                outcome = dialogue.run(&self.model, &hands, &mut tell) => Some(outcome),
                () = stop => None,
            }
        };
        telling.end_line();
        let ended = outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
        self.keep(&dialogue, ended)?;
        match outcome {
            None => Err(Failure::interrupted()),
            Some(Err(failure)) => Err(helper::unanswered(&failure)),
            Some(Ok(outcome)) => conclude(&outcome),
        }
    }

    /// Writes down all that was said, if that is wanted.
    fn keep(&self, dialogue: &Dialogue, outcome: Option<&Outcome>) -> Result<(), Failure> {
        let AskArguments { transcript: file, json, .. } = self.arguments;
        if file.is_none() && !json {
            return Ok(());
        }
        let transcript = dialogue.transcript(&self.model.provider().model, outcome);
        if *json {
            output::print_json(&transcript)?;
        }
        let Some(file) = file else { return Ok(()) };
        fs::write(file, format!("{transcript:#}\n"))
            .map_err(|error| Failure::new(format!("could not write the transcript {}: {error}", file.display())))
    }
}

fn conclude(outcome: &Outcome) -> Result<(), Failure> {
    let failure = Failure::new(outcome.ended.to_string());
    match outcome.ended {
        Ended::Answered => Ok(()),
        Ended::RoundsSpent(_) => Err(failure.with_hint("--max-rounds allows more")),
        Ended::Stopped(_) => Err(Failure { code: exit::INTERRUPTED, ..failure }),
        Ended::CutShort | Ended::Refused(_) | Ended::GoesInCircles => Err(failure),
    }
}
