//! A tool call on its way to the server that has the tool.

use std::sync::Arc;

use catalog::Missing;
use protocol::reply::{self, code};
use protocol::{Envelope, Params, Span, text};
use upstream::{CallError, Caller, Request};

use crate::dispatch::{Incoming, Touched};
use crate::fleet::{Fleet, View};
use crate::waiting_room::{Entry, WaitingCall};

/// Sends the call to its server, or answers why not.
pub fn route(fleet: &Fleet, message: Incoming<'_>, id: Span, params: &Params) {
    let Incoming { client, to, line, touched } = message;
    let id_token = id.of(line);
    let Some(name_at) = params.name.filter(|name| line[name.start] == b'"') else {
        let text = "Invalid params: `name` must be a string";
        return to.send(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let Some(name) = text::decode(name_at.of(line)) else {
        let text = "Invalid params: `name` is not valid Unicode";
        return to.send(&reply::error(id_token, code::INVALID_PARAMS, text, None));
    };
    let view = fleet.view();
    let Some((route, connection)) = view.resolve(&name) else {
        let why = view.snapshot.why_missing(&name, client.style());
        if let Missing::Starting(server) = why {
            return wait(fleet, Incoming { client, to, line, touched }, id, params, server);
        }
        tracing::debug!(%name, ?why, "call of a tool that is not there");
        return to.send(&not_found(&view, id_token, &name, why));
    };
    tracing::debug!(%name, server = %connection.server(), bytes = line.len(), "call");
    let server_name = view.snapshot.tool(route).name_token();
    let request = Request { line, id, name: name_at, server_name: &server_name, progress: params.wanted_progress };
    client.request_opened();
    match connection.forward(request, &Arc::clone(to).as_caller()) {
        Ok(()) => touched.add(connection),
        Err(error) => to.failed(id_token, &error),
    }
}

/// Lets the call wait for its server to start. The server has a deadline, so the call has.
fn wait(fleet: &Fleet, message: Incoming<'_>, id: Span, params: &Params, server: usize) {
    let Incoming { client, to, line, .. } = &message;
    let call = WaitingCall { client: Arc::clone(client), to: Arc::clone(to), line: (*line).clone(), id };
    client.request_opened();
    match fleet.waiting.enter(server, call) {
        Entry::Waits => {}
        Entry::Full(waiting) => {
            let server = fleet.view().snapshot.servers()[server].name.clone();
            to.failed(id.of(line), &CallError::Congested { server, waiting });
        }
        Entry::Settled => {
            client.request_closed();
            route(fleet, message, id, params);
        }
    }
}

/// Sends calls that have waited, now that their server is up or down.
pub fn resume(fleet: &Fleet, calls: impl IntoIterator<Item = WaitingCall>) {
    let mut touched = Touched::default();
    for WaitingCall { client, to, line, id } in calls {
        client.request_closed();
        let Ok(Envelope { params, .. }) = Envelope::scan(&line) else { continue };
        let message = Incoming { client: &client, to: &to, line: &line, touched: &mut touched };
        route(fleet, message, id, &params);
        to.flush();
    }
    touched.flush();
}

/// Gives up a call the client no longer wants; the server is told under the id it knows.
pub fn cancel(fleet: &Fleet, message: &Incoming<'_>, params: &Params) {
    let Some(id_at) = params.request_id else { return };
    let (id, client) = (id_at.of(message.line), message.client.client());
    if message.client.cancel_parked(id) || fleet.waiting.cancel(client, id) {
        return;
    }
    let view = fleet.view();
    let mut connections = view.connections.iter().flatten();
    if !connections.any(|connection| connection.cancel(client, id, message.line, id_at)) {
        // Usual: the answer and the cancellation crossed on the way.
        tracing::debug!("nothing to cancel under that id");
    }
}

/// Why there is no such tool, for people (`message`) and for programs (`data`).
fn not_found(view: &View, id: &[u8], name: &str, why: Missing) -> Vec<u8> {
    let server = |index: usize| reply::string(view.snapshot.servers()[index].name.as_ref());
    let reason = |reason: &str| ("reason", reply::string(reason));
    let data = match why {
        Missing::NoPrefix => {
            let text = format!("Tool name must be prefixed with server key: {name}");
            return reply::error(id, code::INVALID_PARAMS, &text, None);
        }
        Missing::UnknownServer => reply::object([reason("unknown_server")]),
        Missing::Starting(index) => reply::object([reason("server_starting"), ("server", server(index))]),
        Missing::UnknownTool(index) => reply::object([reason("unknown_tool"), ("server", server(index))]),
        Missing::Down(index) => reply::object([
            reason("server_failed"),
            ("server", server(index)),
            ("detail", reply::string(&view.snapshot.servers()[index].state.to_string())),
        ]),
    };
    reply::error(id, code::METHOD_NOT_FOUND, &format!("Tool not found: {name}"), Some(&data))
}
