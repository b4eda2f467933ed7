//! The stdio front end: lines from the client on stdin, messages to it on stdout; everything stops when it leaves.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use catalog::{Principal, Scope};
use protocol::Lines;
use tokio::time::timeout;
use upstream::stream::{Pump, Sink, Source};
use upstream::{Outbox, Stop};

use crate::client::{Client, ClientSetup};
use crate::client_sink::ClientSink;
use crate::dispatch::{Aggregator, FlushSet};
use crate::responder::Responder;
use crate::signals::Signals;

/// How long a client that closed its input still gets responses to pending requests.
const SHUTDOWN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the client on stdin and stdout until it leaves or a signal arrives; then stops every server.
pub async fn serve(aggregator: Arc<Aggregator>, mut signals: Signals) -> io::Result<()> {
    let source = Source::adopt(own(io::stdin())?)?;
    let (sink, pump) = Sink::adopt(own(io::stdout())?)?;
    let outbox = Arc::new(Outbox::new(sink));
    let client = Client::new(ClientSetup {
        sink: Arc::clone(&outbox) as Arc<dyn ClientSink>,
        names: aggregator.options.names,
        scope: Scope::All,
        profile: aggregator.local_profile(),
        principal: Principal::local(),
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
        // Our output has no reader any more, even if the client still writes.
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

/// Dispatches the client's messages until its input has ended and all is answered, or it has disconnected.
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
        // One write per server for everything that arrived in one read.
        flush_set.flush();
        outbox.flush();
        // Backpressure: a client that sends faster than it reads has to wait.
        outbox.caught_up().await;
    }
    // A client that closed its input cannot answer server requests; the calls that need it end now.
    client.refuse_server_requests();
    tokio::select! {
        _ = timeout(SHUTDOWN_RESPONSE_TIMEOUT, client.wait_until_answered()) => {}
        () = outbox.closed() => {}
    }
}

/// Stops every server; a further signal makes it more urgent. Returns whether there was one: then a client that does
/// not read is not waited for either.
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

/// Writes the last responses, as long as the client still reads.
async fn hang_up(outbox: &Outbox, pump: Option<Pump>) {
    drop(timeout(SHUTDOWN_RESPONSE_TIMEOUT, outbox.emptied()).await);
    outbox.abort();
    if let Some(pump) = pump {
        // Not in a blocking task, which the runtime would wait for without a limit.
        drop(timeout(SHUTDOWN_RESPONSE_TIMEOUT, pump.ended()).await);
    }
}

/// A descriptor of our own for a standard stream.
fn own(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}
