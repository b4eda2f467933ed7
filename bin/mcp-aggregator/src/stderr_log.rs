//! Log messages on stderr in the style of a command line: without time stamps and targets.

use std::fmt::{self, Write};

use aggregator::{FAILURES_TARGET, logging};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

use crate::output::print_message;

/// Prints warnings and errors, or everything, as they occur.
pub(crate) fn init(debug: bool) {
    StderrLog { debug, with_failures: true }.install();
}

/// The same without the messages about failed servers, which the command reports itself.
pub(crate) fn init_without_failures(debug: bool) {
    StderrLog { debug, with_failures: false }.install();
}

struct StderrLog {
    debug: bool,
    with_failures: bool,
}

impl StderrLog {
    fn install(self) {
        let installed = tracing::subscriber::set_global_default(registry().with(self));
        installed.expect("a command sets up its words once");
    }
}

impl<S: Subscriber> Layer<S> for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let is_wanted = self.with_failures || metadata.target() != FAILURES_TARGET;
        is_wanted && *metadata.level() <= if self.debug { Level::DEBUG } else { Level::WARN }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut sentence = EventText::default();
        event.record(&mut sentence);
        let text = logging::contained(&sentence.0);
        match *event.metadata().level() {
            Level::ERROR => print_message(format_args!("error: {text}")),
            Level::WARN => print_message(format_args!("warning: {text}")),
            _ => print_message(format_args!("debug: {text}")),
        }
    }
}

/// The message of an event, followed by its fields: `left out a tool [server: a] [tool: b]`.
#[derive(Default)]
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            let rest = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{rest}")
        } else {
            write!(self.0, " [{}: {value:?}]", field.name())
        };
        written.expect("writing to a string cannot fail");
    }
}
