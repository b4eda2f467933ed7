//! `top`: displays servers and calls live.

use std::io::{self, IsTerminal};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::Client;
use crate::failure::Failure;
use crate::session;
use crate::table::line_width;
use crate::target::TargetArguments;
use crate::top::event_feed::EventFeed;
use crate::top::keys::{self, Key};
use crate::top::screen::Screen;
use crate::top::snapshot::{self, Snapshot};
use crate::top::view::{self, Choice};
use crate::{output, progress};

/// Watch servers and calls live. Needs a running service.
///
/// The view shows calls, failures and durations of each server in the last minute, and the latest calls. It refreshes
/// every second. Keys: j, k or arrows select a server and show its calls; s sorts; q, Esc or Ctrl-C quits.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator top
  mcp-aggregator top --once
  mcp-aggregator top --json | jq '.servers[] | select(.errors > 0)'"
)]
pub(crate) struct TopArguments {
    /// Print the view once and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the data of the view once, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let is_live = !arguments.once && !arguments.json;
    if is_live && (!io::stdout().is_terminal() || progress::is_dumb()) {
        return Err(Failure::usage("stdout is not a terminal that can display the view")
            .with_hint("`mcp-aggregator top --once` prints the view once"));
    }
    session::block_on(async {
        let service = arguments.target.service().await?;
        let first = snapshot::take(&service).await?;
        match arguments {
            TopArguments { json: true, .. } => output::print_json(&first.to_json()),
            TopArguments { once: true, .. } => output::print_lines(&view::once(&first, line_width())),
            _ => watch(&service, first).await,
        }
    })
}

/// Displays the service until the user, a signal or the terminal ends it.
async fn watch(service: &Client, first: Snapshot) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("could not use the terminal: {error}"));
    let mut signals = session::signals()?;
    let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
    let screen = Screen::open().map_err(failed)?;
    let mut view = View { snapshot: first, choice: Choice::default(), error: None };
    let mut listening = EventFeed::to(service);
    loop {
        let lines = view::frame(&view.snapshot, &view.choice, view.error.as_deref(), screen.size());
        screen.draw(&lines).map_err(failed)?;
        tokio::select! {
            () = signals.next() => return Ok(()),
            _ = resized.recv() => {}
            typed = screen.typed() => {
                let typed = typed.map_err(failed)?;
                if keys::read(&typed).into_iter().any(|key| view.take(key)) {
                    return Ok(());
                }
            }
            // Keys are handled in the meantime: the pending request is dropped, and repeated at the next refresh.
            taken = async { listening.reason().await; snapshot::take(service).await } => {
                listening.looked();
                view.update(taken);
            }
        }
    }
}

/// The displayed state.
struct View {
    snapshot: Snapshot,
    choice: Choice,
    error: Option<String>,
}

impl View {
    /// Handles a key. Returns whether to quit.
    fn take(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return true,
            Key::Up => self.choice.marked = self.choice.marked.saturating_sub(1),
            Key::Down => self.choice.marked = (self.choice.marked + 1).min(self.snapshot.servers.len()),
            Key::Sort => self.choice.sort = self.choice.sort.next(),
        }
        false
    }

    fn update(&mut self, taken: Result<Snapshot, Failure>) {
        match taken {
            Ok(snapshot) => {
                self.choice.marked = self.choice.marked.min(snapshot.servers.len());
                self.snapshot = snapshot;
                self.error = None;
            }
            Err(failure) => self.error = Some(failure.message.lines().next().unwrap_or_default().to_owned()),
        }
    }
}
