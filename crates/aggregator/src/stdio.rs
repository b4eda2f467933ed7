//! The front: lines in from the client on stdin, answers out on stdout, and the end of everything when it leaves.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use catalog::Scope;
use protocol::Lines;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use upstream::stream::{Pump, Sink, Source};
use upstream::{Outbox, Stop};

use crate::client::{Client, ClientSetup};
use crate::client_sink::ClientSink;
use crate::dispatch::{Aggregator, FlushSet};
use crate::responder::Responder;

/// How long a client that has said its last word still gets answers to what it asked.
const SHUTDOWN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the client on stdin and stdout until it leaves or one of the signals comes; then stops every server.
pub async fn serve(aggregator: Arc<Aggregator>, mut signals: Signals) -> io::Result<()> {
    let source = Source::adopt(own(io::stdin())?)?;
    let (sink, pump) = Sink::adopt(own(io::stdout())?)?;
    let outbox = Arc::new(Outbox::new(sink));
    let client = Client::new(ClientSetup {
        sink: Arc::clone(&outbox) as Arc<dyn ClientSink>,
        names: aggregator.options.names,
        scope: Scope::All,
        principal: "".into(),
        is_alone: true,
        surface: aggregator.options.surface,
    });
    if aggregator.options.method_set.is_tools_only {
        client.refuse_server_requests();
    }
    aggregator.fleet.add_client(&client);
    let draining = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.drain().await }
    });

    let how = tokio::select! {
        () = listen(&aggregator, &client, &outbox, source) => Stop::Gently,
        // Nobody hears us any more, even if somebody still speaks.
        () = outbox.closed() => Stop::Gently,
        () = signals.next() => Stop::Promptly,
    };
    drop(timeout(SHUTDOWN_RESPONSE_TIMEOUT, client.leave()).await);
    let is_urgent = stop(&aggregator, how, &mut signals).await;
    if !is_urgent {
        tokio::select! {
            () = hang_up(&outbox, pump) => {}
            () = signals.next() => {}
        }
    }
    draining.abort();
    Ok(())
}

/// Takes what the client says until it has said everything and been answered, or is gone.
async fn listen(aggregator: &Arc<Aggregator>, client: &Arc<Client>, outbox: &Arc<Outbox>, mut source: Source) {
    let to = Responder::to(client, Arc::clone(outbox) as Arc<dyn ClientSink>);
    let mut lines = Lines::default();
    let mut flush_set = FlushSet::default();
    let mut is_open = true;
    while is_open {
        is_open = matches!(source.read_into(lines.space()).await, Ok(1..));
        while let Some(line) = if is_open { lines.next_line() } else { lines.rest() } {
            aggregator.take(client, &to, &line, &mut flush_set);
        }
        // One write a server for all that came in one read.
        flush_set.flush();
        outbox.flush();
        // A client that asks faster than it reads answers is made to wait.
        outbox.caught_up().await;
    }
    // Who says no more answers no question either; the calls that need it end now.
    client.refuse_server_requests();
    tokio::select! {
        _ = timeout(SHUTDOWN_RESPONSE_TIMEOUT, client.wait_until_answered()) => {}
        () = outbox.closed() => {}
    }
}

/// Stops every server; being told again makes it more urgent. Whether we were: then nobody waits for a client that does
/// not read either.
async fn stop(aggregator: &Aggregator, how: Stop, signals: &mut Signals) -> bool {
    aggregator.fleet.stop(how);
    let mut ended = std::pin::pin!(aggregator.fleet.ended());
    let mut next = if how == Stop::Gently { Stop::Promptly } else { Stop::Now };
    let mut is_urgent = false;
    loop {
        tokio::select! {
            () = &mut ended => return is_urgent,
            () = signals.next() => {
                is_urgent = true;
                aggregator.fleet.stop(next);
                next = Stop::Now;
            }
        }
    }
}

/// Lets the last answers out, as far as the client still reads.
async fn hang_up(outbox: &Outbox, pump: Option<Pump>) {
    drop(timeout(SHUTDOWN_RESPONSE_TIMEOUT, outbox.emptied()).await);
    outbox.abort();
    if let Some(pump) = pump {
        // Not with a blocking task, which the runtime would wait for however long it takes.
        drop(timeout(SHUTDOWN_RESPONSE_TIMEOUT, pump.ended()).await);
    }
}

/// A descriptor of our own for a standard stream.
fn own(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// The signals that mean stop.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Listens from now on, in a runtime. Do it before any server is started, so that from then on a signal ends
    /// everything in order: until it is listened for, one that whoever started us ignores is lost.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
