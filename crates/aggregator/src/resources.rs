//! `resources/read` and `completion/complete`: routing to the owner, and the search for resources that no server
//! lists.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::Kind;
use protocol::bridge::result::{self, ResultType};
use protocol::bridge::{change, error, meta};
use protocol::reply::{self, code};
use protocol::scan::member;
use protocol::splice::Edit;
use protocol::{Envelope, Lifecycle, Params, RequestEnvelope, text};
use tokio::task::JoinSet;
use tokio::time::timeout;
use upstream::{Connection, Response};

use crate::call::{self, Destination};
use crate::client::{Client, lifecycle_of};
use crate::client_sink::Message;
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::responder::Responder;
use crate::suspended_request::{SuspendedRequest, Target};

/// How long one server may take to find a resource before the next is tried as well.
const RESOURCE_SEARCH_STAGGER: Duration = Duration::from_millis(500);
/// How long the whole search may take.
const RESOURCE_SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

/// `resources/read`: sent to the server that lists the resource; an unlisted one is searched for.
pub(crate) fn read(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope) {
    let Incoming { client, to, line, .. } = &message;
    let id = request.id;
    let Some(uri) = request.params.uri.and_then(|uri| text::decode(uri.of(line))) else {
        let text = "Invalid params: `uri` must be a string";
        return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
    };
    let view = aggregator.fleet.view_of(client);
    let owners = view.snapshot.owners_of_uri(client.scope(), &uri, &mut view.snapshot.uri_budget(1));
    let others = view.snapshot.resource_servers(client.scope(), &uri);
    if let Some(listed) = view.snapshot.resolve(client.scope(), Kind::Resource, &uri) {
        return call::route_to(aggregator, message, request, listed.server, Target::Method(read));
    }
    let mut candidates = owners;
    candidates.extend(others.into_iter().filter(|server| !candidates.contains(server)).collect::<Vec<_>>());
    // While servers start, it is unknown whether they have it. A client that leaves gets what is known.
    let can_wait = !client.has_left() && !client.has_many_deferred();
    if can_wait && !aggregator.fleet.is_settled(client) {
        return wait_and_read(aggregator, &message, request);
    }
    match candidates[..] {
        [] => to.respond(&not_found(id.of(line), &uri, lifecycle_of(&request.params))),
        [only] => call::route_to(aggregator, message, request, only, Target::Method(read)),
        _ => search(aggregator, &message, request, &uri, &candidates),
    }
}

fn wait_and_read(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, request: &RequestEnvelope) {
    let Incoming { client, to, line, .. } = message;
    let suspended = SuspendedRequest::new(aggregator, message, request, Target::Method(read));
    let (aggregator, owner) = (Arc::clone(aggregator), Arc::clone(client));
    client.defer(line.slice(request.id.start..request.id.end), to, async move {
        tokio::select! {
            () = aggregator.fleet.all_settled(&owner) => {}
            () = owner.leaving() => {}
        }
        let mut flush_set = FlushSet::default();
        suspended.resume(&mut flush_set);
        flush_set.flush();
        suspended.to().flush();
    });
}

/// Tries one server after the other, each with a head start, until one has the resource.
fn search(
    aggregator: &Arc<Aggregator>,
    message: &Incoming<'_>,
    request: &RequestEnvelope,
    uri: &str,
    candidates: &[usize],
) {
    let Incoming { client, to, line, .. } = message;
    let lifecycle = lifecycle_of(&request.params);
    let candidates = candidates.to_vec();
    let (id, request, uri) = (request.id, *request, uri.to_owned());
    let (aggregator, owner, answer_to, line) =
        (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to), (*line).clone());
    client.defer(line.slice(id.start..id.end), to, async move {
        let found = timeout(
            RESOURCE_SEARCH_TIMEOUT,
            first_to_have(&aggregator, &owner, candidates, lifecycle, bare_params(&line, &request.params)),
        )
        .await
        .ok()
        .flatten();
        let Some((connection, answer)) = found else {
            answer_to.respond(&not_found(id.of(&line), &uri, lifecycle));
            return answer_to.flush();
        };
        if needs_the_client(&answer) {
            // The server needs input: now that the owner is known, the request itself is sent there.
            let mut flush_set = FlushSet::default();
            let message = Incoming { client: &owner, to: &answer_to, line: &line, flush_set: &mut flush_set };
            call::send(&aggregator, message, &request, Destination::as_it_is(&connection));
            return flush_set.flush();
        }
        pass_on(&answer_to, id.of(&line), &answer, connection.lifecycle(), lifecycle);
    });
}

/// The parameters that any server may receive: without the members that belong to this one request.
fn bare_params(line: &Bytes, params: &Params) -> Bytes {
    let plain = meta::to_legacy(line, params);
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

async fn first_to_have(
    aggregator: &Arc<Aggregator>,
    client: &Arc<Client>,
    candidates: Vec<usize>,
    lifecycle: Lifecycle,
    params: Bytes,
) -> Option<(Arc<Connection>, Response)> {
    let view = aggregator.fleet.view_of(client);
    let mut asked = JoinSet::new();
    let reachable = candidates.into_iter().filter(|&server| aggregator.fleet.is_reachable(&view, server));
    let mut waiting = reachable.collect::<Vec<_>>().into_iter();
    loop {
        match waiting.next() {
            Some(server) => {
                let (fleet, client, params) = (Arc::clone(&aggregator.fleet), Arc::clone(client), params.clone());
                asked.spawn(async move {
                    // Its instance may have to start.
                    let connection = fleet.reach(&client, server).await.ok()?;
                    let connection = Arc::clone(connection.for_lifecycle(lifecycle));
                    let answer = connection.request("resources/read", Some(&params)).await;
                    answer.map(|answer| (connection, answer))
                });
            }
            None if asked.is_empty() => return None,
            None => {}
        }
        let joined = if waiting.len() == 0 {
            asked.join_next().await
        } else {
            // A slow or stuck server does not delay the next.
            timeout(RESOURCE_SEARCH_STAGGER, asked.join_next()).await.unwrap_or(None)
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

/// `completion/complete`: sent to the owner of the prompt or resource.
pub(crate) fn complete(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope) {
    let Incoming { client, to, line, .. } = &message;
    let (id, scope) = (request.id, client.scope());
    let reference = request.params.span.and_then(|params| member(line, params, "ref"));
    let text_of =
        |name: &str| Some((member(line, reference?, name)?, text::decode(member(line, reference?, name)?.of(line))?));
    let view = aggregator.fleet.view_of(client);
    // A server alone in its scope knows best what it has, but not what a profile hides of it.
    let alone = scope.only().filter(|_| view.is_whole());
    match text_of("type").as_ref().map(|(_, kind)| &**kind) {
        Some("ref/prompt") if let Some((name_at, name)) = text_of("name") => {
            let found = view.snapshot.resolve(scope, Kind::Prompt, &name);
            if let Some(found) = found
                && let Some(connection) = &aggregator.fleet.connection_for(&view, client, found.server)
            {
                let server_name = view.snapshot.item(Kind::Prompt, found).id_token();
                let renamed = Some(Edit { span: name_at, with: &server_name });
                return call::send(aggregator, message, request, Destination { connection, renamed, alias: None });
            }
            if let Some(instances) = found.and_then(|found| aggregator.fleet.instances_of(found.server)) {
                return call::wait_for_instance(aggregator, message, request, &instances, Target::Method(complete));
            }
            if let Some(server) = alone {
                return call::route_to(aggregator, message, request, server, Target::Method(complete));
            }
            let text = format!("Prompt not found: {name}");
            to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
        }
        Some("ref/resource") if let Some((_, uri)) = text_of("uri") => {
            let owner = view.snapshot.template_owner(scope, &uri);
            let fitting = || view.snapshot.owners_of_uri(scope, &uri, &mut view.snapshot.uri_budget(1));
            let owner = owner.or_else(|| fitting().first().copied());
            match owner.or(alone) {
                Some(server) => call::route_to(aggregator, message, request, server, Target::Method(complete)),
                None => to.respond(&not_found(id.of(line), &uri, lifecycle_of(&request.params))),
            }
        }
        _ => {
            if let Some(server) = alone {
                return call::route_to(aggregator, message, request, server, Target::Method(complete));
            }
            let text = "Invalid params: `ref` must name a prompt (`ref/prompt`) or a resource (`ref/resource`)";
            to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
        }
    }
}

/// The not-found error in the form of each lifecycle.
pub(crate) fn not_found(id: &[u8], uri: &str, lifecycle: Lifecycle) -> Vec<u8> {
    let code = match lifecycle {
        Lifecycle::Session => code::RESOURCE_NOT_FOUND,
        Lifecycle::SelfContained => code::INVALID_PARAMS,
    };
    reply::error(id, code, "Resource not found", Some(&reply::object([("uri", reply::string(uri))])))
}
