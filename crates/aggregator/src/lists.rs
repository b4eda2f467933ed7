//! The merged lists of what all servers offer.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Kind;
use protocol::reply::{self, code};
use protocol::{Lifecycle, Params, Span, text};

use crate::client::{Client, lifecycle_of};
use crate::dispatch::{Aggregator, Incoming};
use crate::responder::Responder;

/// Longer lists, in bytes, are written on a separate thread. Writing this much takes about a millisecond.
const WRITTEN_IN_PLACE: usize = 512 << 10;

/// The list that a client requests.
struct ListRequest {
    kind: Kind,
    lifecycle: Lifecycle,
    cursor: Option<String>,
}

/// Responds to a list request: at once if all servers are known, else when they are or have used up their time.
pub(crate) fn answer(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params, kind: Kind) {
    let Incoming { client, to, line, .. } = message;
    if params.span.is_some() && !params.is_object {
        let text = "Invalid params: expected an object";
        return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
    }
    let cursor = match params.cursor.map(|cursor| cursor.of(line)) {
        None | Some(b"null") => None,
        Some(token) => match text::decode(token) {
            Some(cursor) => Some(cursor.into_owned()),
            None => return to.respond(&bad_cursor(id.of(line))),
        },
    };
    let request = ListRequest { kind, lifecycle: lifecycle_of(params), cursor };
    if request.lifecycle == Lifecycle::SelfContained {
        client.named(&client_name(line, params).unwrap_or_default());
    }
    let id = line.slice(id.start..id.end);
    let is_ready = aggregator.fleet.is_settled(client) || client.has_many_deferred();
    if is_ready && is_quickly_written(aggregator, client, &request) {
        return send(aggregator, client, to, &id, &request);
    }
    let (aggregator, owner, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let parked_id = id.clone();
    let later = async move {
        if !is_ready {
            tokio::select! {
                () = aggregator.fleet.all_settled(&owner) => {}
                () = owner.leaving() => {}
            }
        }
        if is_quickly_written(&aggregator, &owner, &request) {
            send(&aggregator, &owner, &answer_to, &id, &request);
        } else {
            send_beside_calls(aggregator, owner, Arc::clone(&answer_to), id, request).await;
        }
        answer_to.flush();
    };
    client.defer(parked_id, to, later);
}

/// Whether a list is already written, or of ordinary size.
fn is_quickly_written(aggregator: &Aggregator, client: &Client, request: &ListRequest) -> bool {
    let view = aggregator.fleet.view_of(client);
    let unwritten = view.snapshot.unwritten(client.scope(), request.kind, client.style(), request.lifecycle);
    unwritten <= WRITTEN_IN_PLACE
}

/// The same as [`send`] on a thread that serves no calls: for one client at a time, since others may want the same
/// list.
async fn send_beside_calls(
    aggregator: Arc<Aggregator>,
    client: Arc<Client>,
    to: Arc<Responder>,
    id: Bytes,
    request: ListRequest,
) {
    let writing = Arc::clone(&aggregator);
    let _turn = writing.fleet.writing.lock().await;
    let sent = tokio::task::spawn_blocking(move || send(&aggregator, &client, &to, &id, &request)).await;
    match sent {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Else it is sent, or the program is stopping.
        _ => {}
    }
}

fn send(aggregator: &Aggregator, client: &Client, to: &Responder, id: &Bytes, request: &ListRequest) {
    let view = aggregator.fleet.view_of(client);
    aggregator.fleet.report_incomplete(&view.snapshot, client.scope(), request.kind);
    let own = match request {
        ListRequest { kind: Kind::Tool, lifecycle, cursor: None } => {
            (aggregator.options.method_set.tools_page)(aggregator, client, *lifecycle)
        }
        ListRequest { .. } => None,
    };
    let page = own.as_ref().or_else(|| {
        view.snapshot.page(client.scope(), request.kind, client.style(), request.lifecycle, request.cursor.as_deref())
    });
    let Some(page) = page else { return to.respond(&bad_cursor(id)) };
    // A modern client receives changes on a listen stream it opens.
    if request.lifecycle == Lifecycle::Session {
        client.listed(request.kind);
    }
    to.respond_parts(&[
        Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"),
        id.clone(),
        Bytes::from_static(b",\"result\":"),
        page.clone(),
        Bytes::from_static(b"}\n"),
    ]);
}

/// The name a modern client sends with every request.
pub(crate) fn client_name(line: &[u8], params: &Params) -> Option<String> {
    let info = protocol::bridge::meta::read(line, params).info?;
    let name = protocol::scan::member(line, info, "name")?;
    text::decode(name.of(line)).map(|name| name.into_owned())
}

fn bad_cursor(id: &[u8]) -> Vec<u8> {
    reply::error(id, code::INVALID_PARAMS, "Invalid cursor; request the list from its start", None)
}
