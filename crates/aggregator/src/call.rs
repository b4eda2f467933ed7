//! A tool call on its way to the server that has the tool.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Missing;
use protocol::reply::{self, code};
use protocol::{Envelope, Params, Span, text};
use upstream::{Caller, Request};

use crate::client::{Client, Respond};
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::View;

/// Sends the call to its server, or answers why not.
pub fn route(aggregator: &Arc<Aggregator>, message: Incoming<'_>, id: Span, params: &Params) {
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
    let view = aggregator.fleet.view();
    let Some((route, connection)) = view.resolve(&name) else {
        let why = view.snapshot.why_missing(&name, client.style());
        if let Missing::Starting(server) = why {
            return call_later(aggregator, client, to, line.clone(), id, server);
        }
        return to.send(&not_found(&view, id_token, &name, why));
    };
    let server_name = view.snapshot.tool(route).name_token();
    let request = Request { line, id, name: name_at, server_name: &server_name, progress: params.wanted_progress };
    client.request_opened();
    match connection.forward(request, &Arc::clone(to).as_caller()) {
        Ok(()) => touched.add(connection),
        Err(error) => to.failed(id_token, &error),
    }
}

/// Waits for the server of the call to start, then routes it again. The server has a deadline, so the call has.
fn call_later(
    aggregator: &Arc<Aggregator>,
    client: &Arc<Client>,
    to: &Arc<dyn Respond>,
    line: Bytes,
    id: Span,
    server: usize,
) {
    let parked_id = line.slice(id.start..id.end);
    let (aggregator, owner, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let later = async move {
        aggregator.fleet.settled(server).await;
        let Ok(Envelope { params, .. }) = Envelope::scan(&line) else { return };
        let mut touched = Default::default();
        let message = Incoming { client: &owner, to: &answer_to, line: &line, touched: &mut touched };
        route(&aggregator, message, id, &params);
        touched.flush();
        answer_to.flush();
    };
    client.park(parked_id, Arc::clone(to), later);
}

/// Gives up a call the client no longer wants; the server is told under the id it knows.
pub fn cancel(aggregator: &Aggregator, message: &Incoming<'_>, params: &Params) {
    let Some(id_at) = params.request_id else { return };
    let id = id_at.of(message.line);
    if message.client.cancel_parked(id) {
        return;
    }
    let view = aggregator.fleet.view();
    let connections = view.connections.iter().flatten();
    let found =
        connections.into_iter().any(|connection| connection.cancel(message.client.client(), id, message.line, id_at));
    if !found {
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
