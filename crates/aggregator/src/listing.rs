//! The merged list of tools.

use std::sync::Arc;

use bytes::Bytes;
use protocol::reply::{self, code};
use protocol::{Params, Span, text};

use crate::client::{Client, Respond};
use crate::dispatch::{Aggregator, Incoming};

/// Answers `tools/list`: at once if all servers are known, else when they are or have had their time.
pub fn answer(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Incoming { client, to, line, .. } = message;
    if params.span.is_some() && !params.is_object {
        let text = "Invalid params: they must be an object";
        return to.send(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
    }
    let cursor = match params.cursor.map(|cursor| cursor.of(line)) {
        None | Some(b"null") => None,
        Some(token) => match text::decode(token) {
            Some(cursor) => Some(cursor.into_owned()),
            None => return to.send(&bad_cursor(id.of(line))),
        },
    };
    let id = line.slice(id.start..id.end);
    if aggregator.fleet.is_settled() || client.has_many_waiting() {
        return send(aggregator, client, &***to, &id, cursor.as_deref());
    }
    let (aggregator, owner, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let parked_id = id.clone();
    let later = async move {
        tokio::select! {
            () = aggregator.fleet.all_settled() => {}
            () = owner.leaving() => {}
        }
        send(&aggregator, &owner, &*answer_to, &id, cursor.as_deref());
        answer_to.flush();
    };
    client.park(parked_id, Arc::clone(to), later);
}

fn send(aggregator: &Aggregator, client: &Client, to: &dyn Respond, id: &Bytes, cursor: Option<&str>) {
    let view = aggregator.fleet.view();
    let Some(page) = view.snapshot.page(client.style(), cursor) else {
        return to.send(&bad_cursor(id));
    };
    client.listed();
    to.send_parts(&[
        Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"),
        id.clone(),
        Bytes::from_static(b",\"result\":"),
        page.clone(),
        Bytes::from_static(b"}\n"),
    ]);
}

fn bad_cursor(id: &[u8]) -> Vec<u8> {
    reply::error(id, code::INVALID_PARAMS, "Invalid cursor; ask for the list from its beginning", None)
}
