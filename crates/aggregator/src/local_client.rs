//! A client in our own process, for the commands of `mcp-aggregator`.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use catalog::{Principal, Scope};
use protocol::bridge::meta::ClientMeta;
use protocol::{Line, Lines, Revision};
use tokio::task::JoinHandle;
use upstream::Outbox;
use upstream::stream::{Sink, Source};

use crate::client::{Client, ClientSetup};
use crate::client_sink::ClientSink;
use crate::dispatch::{Aggregator, FlushSet};
use crate::responder::Responder;

/// Its client name, for which tools are listed by their canonical names.
const NAME: &str = "mcp-aggregator";

/// A client within this process. Its requests take the same path as those of any client.
pub struct LocalClient {
    aggregator: Arc<Aggregator>,
    client: Arc<Client>,
    to: Arc<Responder>,
    answers: Source,
    lines: Lines,
    draining: JoinHandle<()>,
}

impl LocalClient {
    /// Connects to `aggregator`.
    pub fn connect(aggregator: &Arc<Aggregator>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (sink, _) = Sink::adopt(writer.into())?;
        let outbox = Arc::new(Outbox::new(sink));
        let client = Client::new(ClientSetup {
            sink: Arc::clone(&outbox) as Arc<dyn ClientSink>,
            names: aggregator.options.names,
            scope: Scope::All,
            profile: aggregator.local_profile(),
            principal: Principal::local(),
            is_alone: true,
            surface: crate::Surface::Full,
        });
        // It is part of this program, so there is nothing to negotiate.
        let client_meta = ClientMeta { capabilities: Bytes::from_static(b"{}"), info: None, log_level: None };
        client.set_initialized_as(NAME, Revision::NEWEST_WITH_SESSIONS, client_meta);
        let to = Responder::to(&client, Arc::clone(&outbox) as Arc<dyn ClientSink>);
        let draining = tokio::spawn(async move { outbox.drain().await });
        let answers = Source::adopt(reader.into())?;
        Ok(Self { aggregator: Arc::clone(aggregator), client, to, answers, lines: Lines::default(), draining })
    }

    /// Sends one message, a single line without its newline, that expects no response.
    pub fn send(&self, message: Bytes) {
        let mut flush_set = FlushSet::default();
        self.aggregator.take(&self.client, &self.to, &Line::Whole(message), &mut flush_set);
        flush_set.flush();
        self.to.sink().flush();
    }

    /// Sends one request and returns the first message that `is_answer` accepts.
    ///
    /// The future may be dropped while it waits; the request then still runs until it is cancelled.
    pub async fn request(&mut self, request: Bytes, is_answer: impl Fn(&[u8]) -> bool) -> io::Result<Bytes> {
        self.send(request);
        loop {
            while let Some(line) = self.lines.next_line() {
                match line {
                    Line::Whole(answer) if is_answer(&answer) => return Ok(answer),
                    Line::Whole(_) => {}
                    Line::TooLong { .. } => return Err(io::ErrorKind::FileTooLarge.into()),
                }
            }
            if self.answers.read_into(self.lines.space()).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        self.draining.abort();
    }
}
