//! `top`: servers and calls, live.

use std::io::{self, IsTerminal};

use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::diagnostics::TopArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::output;
use crate::progress;
use crate::session::{self, Signals};
use crate::table::line_width;
use crate::top::event_feed::EventFeed;
use crate::top::keys::{self, Key};
use crate::top::screen::Screen;
use crate::top::snapshot::{self, Snapshot};
use crate::top::view::{self, Choice};

pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let is_live = !arguments.once && !arguments.json;
    if is_live && (!io::stdout().is_terminal() || progress::is_dumb()) {
        return Err(
            Failure::usage("there is no terminal to draw on").with_hint("`mcp-aggregator top --once` prints one frame")
        );
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

/// Shows the service until the user, a signal or the terminal ends it.
async fn watch(service: &Client, first: Snapshot) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("could not use the terminal: {error}"));
    let mut signals = Signals::new().map_err(failed)?;
    let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
    let screen = Screen::open().map_err(failed)?;
    let mut view = View { snapshot: first, choice: Choice::default(), trouble: None };
    let mut listening = EventFeed::to(service);
    loop {
        let lines = view::frame(&view.snapshot, &view.choice, view.trouble.as_deref(), screen.size());
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
            // Keys are heard meanwhile: what is asked is dropped, and asked again when there is another reason.
            taken = async { listening.reason().await; snapshot::take(service).await } => {
                listening.looked();
                view.update(taken);
            }
        }
    }
}

/// What is shown.
struct View {
    snapshot: Snapshot,
    choice: Choice,
    trouble: Option<String>,
}

impl View {
    /// Does what a key says; whether that is to end.
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
                self.trouble = None;
            }
            Err(failure) => self.trouble = Some(failure.message.lines().next().unwrap_or_default().to_owned()),
        }
    }
}
