//! One client's MCP session with a contestant: the greeting, the names it lists, and calls.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use crate::call::{Call, Check};
use crate::client_connection::ClientConnection;
use crate::connection::Connection;

/// The key of a server in a config. All have the same length, so that none is the start of another.
pub(crate) fn server_key(index: usize) -> String {
    format!("s{index:02}")
}

/// `initialize` and its answer, then `initialized`.
pub(crate) fn handshake(connection: &mut impl ClientConnection) -> Result<()> {
    let id = connection.next_id();
    connection.send(initialize_request(id).as_bytes())?;
    finish_handshake(connection)
}

pub(crate) fn initialize_request(id: u64) -> String {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"initialize","params":{{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{{}},"clientInfo":{{"name":"bench","version":"1.0.0"}}}}}}"#,
            "\n"
        ),
        id
    )
}

pub(crate) fn finish_handshake(connection: &mut impl ClientConnection) -> Result<()> {
    let answer = connection.answer().context("no answer to initialize")?;
    ensure!(
        memchr::memmem::find(answer, br#""protocolVersion""#).is_some(),
        "wrong answer to initialize: {}",
        String::from_utf8_lossy(answer)
    );
    connection.notify(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
}

/// A started contestant, ready for calls.
pub(crate) struct Session<W = Connection> {
    pub(crate) connection: W,
    /// Of all tools, as this contestant lists them.
    pub(crate) names: Vec<String>,
    /// From the start of the process to the complete list.
    pub(crate) ready_after: Duration,
    /// Its own processes, without the servers.
    pub(crate) relay: Vec<Pid>,
    pub(crate) check: Check,
}

impl<W: ClientConnection> Session<W> {
    /// A call of `tool` at the server with this index, under the name this contestant lists.
    pub(crate) fn call(&self, server: usize, tool: &str) -> Result<Call> {
        let key = server_key(server);
        let mut candidates = self.names.iter().filter(|name| name.ends_with(tool));
        let listed = candidates
            .clone()
            .find(|name| name.starts_with(&key))
            .or_else(|| candidates.next())
            .with_context(|| format!("no listed tool ends with `{tool}`"))?;
        Call::new(listed, tool, self.check)
    }

    /// One call, timed from before the write to the last byte of the answer; checked after that.
    pub(crate) fn timed_call(&mut self, call: &Call, request: &mut Vec<u8>) -> Result<Duration> {
        let id = self.connection.next_id();
        request.clear();
        call.write(id, request);
        let start = Instant::now();
        self.connection.send(request)?;
        let line = self.connection.answer()?;
        let elapsed = start.elapsed();
        call.verify(line, id)?;
        Ok(elapsed)
    }

    pub(crate) fn calls(&mut self, call: &Call, count: usize) -> Result<()> {
        let mut request = Vec::new();
        for _ in 0..count {
            self.timed_call(call, &mut request)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_key_is_the_start_of_another() {
        assert!(!server_key(10).starts_with(&server_key(1)));
    }
}
