//! Reading resources, and completing what names prompts and resources: who has them, and the search for those nobody
//! has listed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::Kind;
use protocol::bridge::result::{self, ResultType};
use protocol::bridge::{change, error, meta};
use protocol::reply::{self, code};
use protocol::scan::{Span, member};
use protocol::splice::Edit;
use protocol::{Envelope, Lifecycle, text};
use tokio::task::JoinSet;
use tokio::time::timeout;
use upstream::Connection;
use upstream::connection::Response;

use crate::call::{self, Destination, id_of};
use crate::client::lifecycle_of;
use crate::client_sink::Message;
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::responder::Responder;

/// How long one server may think about a resource before the next is asked as well.
const HEAD_START: Duration = Duration::from_millis(500);
/// How long the search may take in all.
const RESOURCE_SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

/// `resources/read`: sent to the server that lists the resource; what nobody lists is searched for.
pub fn read(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let Incoming { client, to, line, .. } = &message;
    let id = id_of(envelope);
    let Some(uri) = envelope.params.uri.and_then(|uri| text::decode(uri.of(line))) else {
        let text = "Invalid params: `uri` must be a string";
        return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
    };
    let view = aggregator.fleet.view();
    let owners = view.snapshot.owners_of_uri(client.scope(), &uri, &mut view.snapshot.uri_budget(1));
    let others = view.snapshot.resource_servers(client.scope());
    if let Some(listed) = view.snapshot.resolve(client.scope(), Kind::Resource, &uri) {
        return call::route_to(aggregator, message, envelope, listed.server);
    }
    let mut candidates = owners;
    candidates.extend(others.into_iter().filter(|server| !candidates.contains(server)).collect::<Vec<_>>());
    // While servers start, nobody can say that they do not have it.
    if !aggregator.fleet.is_settled(client.scope()) && !client.has_many_deferred() {
        return wait_and_read(aggregator, &message, id);
    }
    match candidates[..] {
        [] => to.respond(&not_found(id.of(line), &uri, lifecycle_of(&envelope.params))),
        [only] => call::route_to(aggregator, message, envelope, only),
        _ => search(aggregator, &message, envelope, &uri, &candidates),
    }
}

fn wait_and_read(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span) {
    let Incoming { client, to, line, .. } = message;
    let (aggregator, owner, answer_to, line) =
        (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to), (*line).clone());
    client.defer(line.slice(id.start..id.end), to, async move {
        tokio::select! {
            () = aggregator.fleet.all_settled(owner.scope()) => {}
            () = owner.leaving() => {}
        }
        let mut flush_set = FlushSet::default();
        aggregator.take(&owner, &answer_to, &protocol::Line::Whole(line), &mut flush_set);
        flush_set.flush();
        answer_to.flush();
    });
}

/// Asks one server after the other, each with a head start, until one has it.
fn search(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, envelope: &Envelope, uri: &str, candidates: &[usize]) {
    let Incoming { client, to, line, .. } = message;
    let view = aggregator.fleet.view();
    let lifecycle = lifecycle_of(&envelope.params);
    let connections = candidates.iter().filter_map(|&server| view.connections[server].as_ref());
    let connections: Vec<_> = connections.map(|connection| Arc::clone(connection.for_lifecycle(lifecycle))).collect();
    let (id, envelope, uri) = (id_of(envelope), *envelope, uri.to_owned());
    let (aggregator, owner, answer_to, line) =
        (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to), (*line).clone());
    client.defer(line.slice(id.start..id.end), to, async move {
        let found = timeout(RESOURCE_SEARCH_TIMEOUT, first_to_have(connections, bare_params(&line, &envelope)))
            .await
            .ok()
            .flatten();
        let Some((connection, answer)) = found else {
            answer_to.respond(&not_found(id.of(&line), &uri, lifecycle));
            return answer_to.flush();
        };
        if needs_the_client(&answer) {
            // It has something to ask: now that we know who has it, the request itself goes there.
            let mut flush_set = FlushSet::default();
            let message = Incoming { client: &owner, to: &answer_to, line: &line, flush_set: &mut flush_set };
            call::send(&aggregator, message, &envelope, Destination::as_it_is(&connection));
            return flush_set.flush();
        }
        pass_on(&answer_to, id.of(&line), &answer, connection.lifecycle(), lifecycle);
    });
}

/// The parameters of a request as anybody may be asked: without what belongs to this one request.
fn bare_params(line: &Bytes, envelope: &Envelope) -> Bytes {
    let plain = meta::to_legacy(line, envelope);
    let Some(params) = Envelope::scan(&plain).ok().and_then(|plain| plain.params.span) else { return Bytes::new() };
    let params = plain.slice(params.start..params.end);
    let whole = change::whole(&params);
    let mut change = change::Change::new(&params);
    let Some(meta) = change.member(whole, "_meta") else { return params };
    if !change.remove_member(meta, "progressToken") {
        return params;
    }
    change.apply()
}

async fn first_to_have(connections: Vec<Arc<Connection>>, params: Bytes) -> Option<(Arc<Connection>, Response)> {
    let mut asked = JoinSet::new();
    let mut waiting = connections.into_iter();
    loop {
        match waiting.next() {
            Some(connection) => {
                let params = params.clone();
                asked.spawn(async move {
                    let answer = connection.ask("resources/read", Some(&params)).await;
                    answer.map(|answer| (connection, answer))
                });
            }
            None if asked.is_empty() => return None,
            None => {}
        }
        let joined = if waiting.len() == 0 {
            asked.join_next().await
        } else {
            // One that takes its time, or for ever, does not hold up the next.
            timeout(HEAD_START, asked.join_next()).await.unwrap_or(None)
        };
        if let Some(Ok(Some((connection, answer)))) = joined
            && answer.outcome.is_ok()
        {
            return Some((connection, answer));
        }
    }
}

fn needs_the_client(answer: &Response) -> bool {
    answer.outcome.is_ok_and(|found| result::kind(&answer.line, found) == ResultType::InputRequired)
}

fn pass_on(to: &Responder, id: &[u8], answer: &Response, from: Lifecycle, lifecycle: Lifecycle) {
    const METHOD: &str = "resources/read";
    let translated = match (from, lifecycle, answer.outcome) {
        (Lifecycle::SelfContained, Lifecycle::Session, Ok(found)) => result::to_legacy(&answer.line, found, METHOD),
        (Lifecycle::Session, Lifecycle::SelfContained, Ok(found)) => result::to_modern(&answer.line, found, METHOD),
        (Lifecycle::SelfContained, Lifecycle::Session, Err(found)) => error::to_legacy(&answer.line, found, METHOD),
        (Lifecycle::Session, Lifecycle::SelfContained, Err(found)) => error::to_modern(&answer.line, found, METHOD),
        _ => None,
    };
    let line = translated.unwrap_or_else(|| answer.line.clone());
    let Ok(Envelope { kind: protocol::Kind::Response { id: id_at, .. }, .. }) = Envelope::scan(&line) else { return };
    let mut message = Vec::with_capacity(line.len() + 16);
    Message::Spliced { line: &line, edits: &[Edit { span: id_at, with: id }] }.write_to(&mut message);
    message.push(b'\n');
    to.respond_parts(&[Bytes::from(message)]);
    to.flush();
}

/// `completion/complete`: sent to whoever has what is completed.
pub fn complete(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let Incoming { client, to, line, .. } = &message;
    let (id, scope) = (id_of(envelope), client.scope());
    let reference = envelope.params.span.and_then(|params| member(line, params, "ref"));
    let text_of =
        |name: &str| Some((member(line, reference?, name)?, text::decode(member(line, reference?, name)?.of(line))?));
    let view = aggregator.fleet.view();
    match text_of("type").as_ref().map(|(_, kind)| &**kind) {
        Some("ref/prompt") if let Some((name_at, name)) = text_of("name") => {
            let found = view.snapshot.resolve(scope, Kind::Prompt, &name);
            if let Some(found) = found
                && let Some(connection) = &view.connections[found.server]
            {
                let server_name = view.snapshot.item(Kind::Prompt, found).id_token();
                let renamed = Some(Edit { span: name_at, with: &server_name });
                return call::send(aggregator, message, envelope, Destination { connection, renamed, alias: None });
            }
            if let catalog::Scope::One(server) = scope {
                return call::route_to(aggregator, message, envelope, server);
            }
            let text = format!("Prompt not found: {name}");
            to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
        }
        Some("ref/resource") if let Some((_, uri)) = text_of("uri") => {
            let owner = view.snapshot.template_owner(scope, &uri);
            let fitting = || view.snapshot.owners_of_uri(scope, &uri, &mut view.snapshot.uri_budget(1));
            let owner = owner.or_else(|| fitting().first().copied());
            let alone = if let catalog::Scope::One(server) = scope { Some(server) } else { None };
            match owner.or(alone) {
                Some(server) => call::route_to(aggregator, message, envelope, server),
                None => to.respond(&not_found(id.of(line), &uri, lifecycle_of(&envelope.params))),
            }
        }
        _ => {
            if let catalog::Scope::One(server) = scope {
                return call::route_to(aggregator, message, envelope, server);
            }
            let text = "Invalid params: `ref` must name a prompt (`ref/prompt`) or a resource (`ref/resource`)";
            to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
        }
    }
}

/// Nobody has it, as each lifecycle says so.
pub(crate) fn not_found(id: &[u8], uri: &str, lifecycle: Lifecycle) -> Vec<u8> {
    let code = match lifecycle {
        Lifecycle::Session => code::RESOURCE_NOT_FOUND,
        Lifecycle::SelfContained => code::INVALID_PARAMS,
    };
    reply::error(id, code, "Resource not found", Some(&reply::object([("uri", reply::string(uri))])))
}
