//! Subscriptions: resources that legacy clients subscribed to, and listen streams of modern clients.

mod followers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Scope, ServerState, UriBudget};
use protocol::bridge::listen::{self, Filter};
use protocol::reply::{self, code};
use protocol::{Envelope, Lifecycle, Params, Span, text};
use tokio::task::JoinSet;
use tokio::time::timeout;
use upstream::{Connection, UpstreamKey};

use crate::client::Client;
use crate::client_sink::Message;
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::{Fleet, View};
use crate::resources::not_found;
use crate::responder::{Responder, failure};
use followers::{Concerned, Delivery, Follower, Followers};

/// The owners of more URIs than this are searched on a separate thread.
const SEARCH_IN_PLACE: usize = 4;

/// How long servers may take to acknowledge a subscription before the client gets its acknowledgement anyway.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// All subscriptions.
#[derive(Default)]
pub(crate) struct Subscriptions {
    followers: Followers,
    listeners: Vec<Arc<Listener>>,
}

/// A listen stream of a modern client.
struct Listener {
    client: Arc<Client>,
    to: Arc<Responder>,
    id: Bytes,
    filter: Filter,
    /// Nothing may be sent before the acknowledgement.
    is_acknowledged: Mutex<bool>,
}

/// `resources/subscribe` of a legacy client.
pub(crate) fn subscribe(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Some((uri, server)) = owner(aggregator, message, id, params) else { return };
    let Incoming { client, to, line, .. } = message;
    if let Some(why) = aggregator.fleet.refusal_of_subscriptions(client, &[&uri]) {
        let text = format!("Too many subscriptions: {why}");
        return to.respond(&reply::error(id.of(line), code::INVALID_REQUEST, &text, None));
    }
    let (aggregator, follower, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let id = line.slice(id.start..id.end);
    client.defer(id.clone(), to, async move {
        let fleet = &aggregator.fleet;
        let connection = match fleet.reach(&follower, server).await {
            Ok(connection) => connection,
            Err(error) => {
                answer_to.respond(&failure(&id, &error));
                return answer_to.flush();
            }
        };
        let server = connection.key();
        // One after the other: requests to the server must be in the order of the table's changes.
        let subscribing = fleet.subscribing(&server);
        let _alone = subscribing.lock().await;
        // Recorded first: a change may be notified together with the response.
        let is_first = fleet.follow(&server, &uri, &follower, Delivery::Subscribed(Arc::downgrade(&follower)));
        let answer = if is_first { start(&connection, &uri).await } else { Ok(()) };
        if answer.is_err() {
            fleet.subscriptions().followers.remove(&server, &uri, |known| known.client == follower.number());
        }
        respond(&answer_to, &id, answer);
    });
}

/// `resources/unsubscribe` of a legacy client.
pub(crate) fn unsubscribe(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Some((uri, server)) = owner(aggregator, message, id, params) else { return };
    let Incoming { client, to, line, .. } = message;
    let (aggregator, follower, answer_to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let id = line.slice(id.start..id.end);
    client.defer(id.clone(), to, async move {
        let fleet = &aggregator.fleet;
        let server = fleet.key_for(&follower, server);
        let subscribing = fleet.subscribing(&server);
        let _alone = subscribing.lock().await;
        fleet.subscriptions().followers.remove(&server, &uri, |known| known.client == follower.number());
        let answer = match fleet.connection_of(&server) {
            Some(connection) if !fleet.has_follower(&server, &uri) => stop(&connection, &uri).await,
            _ => Ok(()),
        };
        respond(&answer_to, &id, answer);
    });
}

fn respond(to: &Responder, id: &[u8], answer: Result<(), Option<Bytes>>) {
    match answer {
        Ok(()) => to.respond(&reply::result(id, b"{}")),
        Err(Some(error)) => {
            let mut line = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
            line.extend_from_slice(id);
            line.extend_from_slice(b",\"error\":");
            line.extend_from_slice(&error);
            line.extend_from_slice(b"}\n");
            to.respond(&line);
        }
        Err(None) => to.respond(&reply::error(id, code::INTERNAL_ERROR, "The server ended before it answered", None)),
    }
    to.flush();
}

/// The server that owns the resource; if there is none, responds with an error.
fn owner(aggregator: &Aggregator, message: &Incoming<'_>, id: Span, params: &Params) -> Option<(String, usize)> {
    let Incoming { client, to, line, .. } = message;
    let Some(uri) = params.uri.and_then(|uri| text::decode(uri.of(line))) else {
        let text = "Invalid params: `uri` must be a string";
        to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
        return None;
    };
    let view = aggregator.fleet.view_of(client);
    let server = owner_of(&view, client.scope(), &uri, &mut view.snapshot.uri_budget(1));
    match server.filter(|&server| aggregator.fleet.is_reachable(&view, server)) {
        Some(server) => Some((uri.into_owned(), server)),
        None => {
            to.respond(&not_found(id.of(line), &uri, Lifecycle::Session));
            None
        }
    }
}

/// Subscribes at the server and waits for its response; the error is the server's own.
async fn start(connection: &Connection, uri: &str) -> Result<(), Option<Bytes>> {
    if connection.lifecycle() == Lifecycle::SelfContained {
        connection.listen_for(uri).await;
        return Ok(());
    }
    ask(connection, "resources/subscribe", uri).await
}

async fn stop(connection: &Connection, uri: &str) -> Result<(), Option<Bytes>> {
    if connection.lifecycle() == Lifecycle::SelfContained {
        connection.stop_listening_for(uri);
        return Ok(());
    }
    ask(connection, "resources/unsubscribe", uri).await
}

async fn ask(connection: &Connection, method: &str, uri: &str) -> Result<(), Option<Bytes>> {
    let params = reply::object([("uri", reply::string(uri))]);
    let answer = connection.request(method, Some(&params)).await.ok_or(None)?;
    answer.outcome.map(drop).map_err(|error| Some(answer.line.slice(error.start..error.end)))
}

/// `subscriptions/listen` of a modern client: acknowledged when the servers have acknowledged, open until either side
/// ends it.
pub(crate) fn listen(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, id: Span, params: &Params) {
    let Incoming { client, to, line, .. } = message;
    let wanted = match listen::read(line, params) {
        Ok(wanted) => wanted,
        Err(problem) => {
            let text = format!("Invalid params: {problem}");
            return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
        }
    };
    let uris: Vec<&str> = wanted.uris.iter().map(String::as_str).collect();
    if let Some(why) = aggregator.fleet.refusal_of_subscriptions(client, &uris) {
        let text = format!("Too many subscriptions: {why}");
        return to.respond(&reply::error(id.of(line), code::INVALID_REQUEST, &text, None));
    }
    // A copy: the stream may stay open for long, and must not keep the whole request.
    let id = Bytes::copy_from_slice(id.of(line));
    let (aggregator, client, to) = (Arc::clone(aggregator), Arc::clone(client), Arc::clone(to));
    let owner = Arc::clone(&client);
    owner.defer(id.clone(), &to.clone(), async move {
        let fleet = &aggregator.fleet;
        let (filter, owned) = fleet.honoured(&client, wanted).await;
        let listener = Listener {
            client: Arc::clone(&client),
            to: Arc::clone(&to),
            id: id.clone(),
            filter,
            is_acknowledged: Mutex::new(false),
        };
        // Recorded before the acknowledgement: from then on no change may be missed.
        let (listening, subscriptions) = match Listening::begin(fleet, Arc::new(listener), owned) {
            Ok(begun) => begun,
            Err(why) => {
                let text = format!("Too many subscriptions: {why}");
                to.respond(&reply::error(&id, code::INVALID_REQUEST, &text, None));
                return to.flush();
            }
        };
        if timeout(SUBSCRIBE_TIMEOUT, listening.start(subscriptions)).await.is_err() {
            tracing::warn!("a server does not confirm a subscription");
        }
        if !listening.listener.acknowledge() {
            drop(listening);
            // Without this, the client would wait for an acknowledgement that never comes.
            let text =
                "The stream was not opened: too many messages to this client are unread; read them and try again";
            to.respond(&reply::error(&id, code::INTERNAL_ERROR, text, None));
            return to.flush();
        }
        client.leaving().await;
        drop(listening);
        let meta = reply::object([(protocol::bridge::meta::SUBSCRIPTION_ID, id.to_vec())]);
        let end = reply::object([("resultType", reply::string("complete")), ("_meta", meta)]);
        to.respond(&reply::result(&id, &end));
        to.flush();
    });
}

/// An open listen stream.
struct Listening {
    fleet: Arc<Fleet>,
    listener: Arc<Listener>,
}

/// A run of a server, a URI that it owns, and whether we must subscribe at the server first.
type Followed = (UpstreamKey, String, bool);

impl Listening {
    /// Records the subscriptions, and returns for each whether the server needs a request first; or the limit
    /// exceeded.
    fn begin(
        fleet: &Arc<Fleet>,
        listener: Arc<Listener>,
        owned: Vec<(usize, String)>,
    ) -> Result<(Self, Vec<Followed>), String> {
        let subscriptions = fleet.follow_all(&listener, owned)?;
        Ok((Self { fleet: Arc::clone(fleet), listener }, subscriptions))
    }

    async fn start(&self, subscriptions: Vec<Followed>) {
        for (server, uri, is_first) in subscriptions {
            // An instance that starts now subscribes to everything that is recorded.
            let is_running = self.fleet.connection_of(&server).is_some();
            let Ok(connection) = self.fleet.reach(&self.listener.client, server.server).await else { continue };
            // Waits for the lock until the first subscriber's request has been answered.
            let subscribing = self.fleet.subscribing(&server);
            let _alone = subscribing.lock().await;
            if !is_first || !is_running {
                continue;
            }
            if let Err(error) = start(&connection, &uri).await {
                tracing::debug!(server = %connection.server(), %uri, ?error, "failed to subscribe");
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let gone = |delivery: &Delivery| matches!(delivery, Delivery::Listening(listener) if Arc::ptr_eq(listener, &self.listener));
        let ended = {
            let mut subscriptions = self.fleet.subscriptions();
            subscriptions.listeners.retain(|listener| !Arc::ptr_eq(listener, &self.listener));
            subscriptions.followers.remove_all(|follower| gone(&follower.delivery))
        };
        self.fleet.stop_following(ended);
    }
}

/// Removes the subscriptions of a client that has disconnected.
pub(crate) fn leave(fleet: &Arc<Fleet>, client: &Client) {
    let ended = fleet.subscriptions().followers.remove_all(|known| known.client == client.number());
    fleet.stop_following(ended);
}

impl Fleet {
    /// Notifies the listen streams that want it of the lists that have changed for their clients.
    pub(crate) fn notify_listeners(&self, changed: impl Fn(&Client) -> Vec<Kind>) {
        let listeners = self.subscriptions().listeners.clone();
        for listener in listeners {
            let wants = |kind: &Kind| match kind {
                Kind::Tool => listener.filter.tools,
                Kind::Prompt => listener.filter.prompts,
                Kind::Resource | Kind::Template => listener.filter.resources,
            };
            for kind in changed(&listener.client).into_iter().filter(wants) {
                listener.notify(&listen::tagged(kind.changed(), None, &listener.id));
            }
        }
    }

    /// Notifies the subscribers of a changed resource, each in its lifecycle's form.
    pub(crate) fn resource_updated(&self, server: &UpstreamKey, line: &Bytes, envelope: &Envelope) {
        let Some(uri) = envelope.params.uri.and_then(|uri| text::decode(uri.of(line))) else { return };
        let Concerned { clients, listeners } = self.subscriptions().followers.concerned(server, &uri);
        let plain = listen::retag(line, &envelope.params, None);
        // A profile may have hidden the resource since.
        let is_visible = |client: &Client| {
            client.profile().is_none()
                || self.is_seen_by(client, server.server) && self.view_of(client).snapshot.has_uri(&uri)
        };
        for client in clients.into_iter().filter(|client| is_visible(client)) {
            client.pass(&plain);
        }
        for listener in listeners.into_iter().filter(|listener| is_visible(&listener.client)) {
            let mut tagged = listen::retag(line, &envelope.params, Some(&listener.id)).to_vec();
            tagged.push(b'\n');
            listener.notify(&tagged);
        }
    }

    /// Adds a subscription. Returns whether it is the first to that resource.
    fn follow(&self, server: &UpstreamKey, uri: &str, client: &Client, delivery: Delivery) -> bool {
        let (client, principal) = (client.number(), Arc::clone(client.principal().id()));
        let followers = &mut self.subscriptions().followers;
        let is_first = !followers.has(server, uri);
        // A repeated subscription counts once.
        let is_subscribed = matches!(delivery, Delivery::Subscribed(_));
        followers.remove(server, uri, |known| {
            known.client == client && is_subscribed && matches!(known.delivery, Delivery::Subscribed(_))
        });
        followers.add(server, uri, Follower { client, principal, delivery });
        is_first
    }

    /// Adds the subscriptions of a listen stream, with whether each is the first to its resource; or the limit
    /// exceeded.
    fn follow_all(&self, listener: &Arc<Listener>, owned: Vec<(usize, String)>) -> Result<Vec<Followed>, String> {
        let (client, principal) = (listener.client.number(), listener.client.principal().id());
        let key = |&(server, _): &(usize, String)| (server, self.key_for(&listener.client, server));
        let keys: HashMap<usize, UpstreamKey> = owned.iter().map(key).collect();
        let mut subscriptions = self.subscriptions();
        // Others may have subscribed since the request was read.
        let more: Vec<&str> = owned.iter().map(|(_, uri)| uri.as_str()).collect();
        if let Some(why) =
            self.client_limits().refusal_of_subscriptions(subscriptions.followers.counts(&listener.client), &more)
        {
            return Err(why);
        }
        let owned: Vec<_> = owned.into_iter().map(|(server, uri)| (keys[&server].clone(), uri)).collect();
        let followed = owned.into_iter().map(|(server, uri)| {
            let delivery = Delivery::Listening(Arc::clone(listener));
            let follower = Follower { client, principal: Arc::clone(principal), delivery };
            let is_first = subscriptions.followers.add(&server, &uri, follower);
            (server, uri, is_first)
        });
        let followed = followed.collect();
        subscriptions.listeners.push(Arc::clone(listener));
        Ok(followed)
    }

    /// Why `client` cannot subscribe to these as well, if a limit is exceeded.
    fn refusal_of_subscriptions(&self, client: &Client, more: &[&str]) -> Option<String> {
        let known = self.subscriptions().followers.counts(client);
        self.client_limits().refusal_of_subscriptions(known, more)
    }

    fn has_follower(&self, server: &UpstreamKey, uri: &str) -> bool {
        self.subscriptions().followers.has(server, uri)
    }

    /// Whether anybody follows a resource of that run of a server.
    pub(crate) fn has_followers(&self, server: &UpstreamKey) -> bool {
        self.subscriptions().followers.of_server(server).next().is_some()
    }

    fn stop_following(self: &Arc<Self>, ended: Vec<(UpstreamKey, String)>) {
        for (server, uri) in ended {
            let Some(connection) = self.connection_of(&server) else { continue };
            let fleet = Arc::clone(self);
            self.spawn(async move {
                let subscribing = fleet.subscribing(&server);
                let _alone = subscribing.lock().await;
                if !fleet.has_follower(&server, &uri)
                    && let Err(error) = stop(&connection, &uri).await
                {
                    tracing::debug!(server = %connection.server(), %uri, ?error, "failed to unsubscribe");
                }
            });
        }
    }

    /// Subscribes again at a server that has lost its subscriptions.
    pub(crate) fn resubscribe(self: &Arc<Self>, connection: &Arc<Connection>) {
        let server = connection.key();
        if !self.has_followers(&server) {
            return;
        }
        let (fleet, connection) = (Arc::clone(self), Arc::clone(connection));
        self.spawn(async move {
            let subscribing = fleet.subscribing(&server);
            let _alone = subscribing.lock().await;
            let uris: Vec<String> = fleet.subscriptions().followers.of_server(&server).map(str::to_owned).collect();
            let mut asked = JoinSet::new();
            for uri in uris {
                let connection = Arc::clone(&connection);
                asked.spawn(async move {
                    let answer = timeout(SUBSCRIBE_TIMEOUT, start(&connection, &uri)).await;
                    if !matches!(answer, Ok(Ok(()))) {
                        tracing::warn!(server = %connection.server(), %uri, ?answer, "failed to subscribe again");
                    }
                });
            }
            asked.join_all().await;
        });
    }

    /// The part of the filter that can be honoured, and the owners of the resources.
    async fn honoured(self: &Arc<Self>, client: &Client, wanted: Filter) -> (Filter, Vec<(usize, String)>) {
        let mut filter = wanted;
        let (view, scope) = (self.view_of(client), client.scope());
        let is_offered = |capability: &str| {
            let servers = view.snapshot.servers().iter().enumerate();
            let mut seen = servers.filter(|(index, _)| scope.sees(*index));
            seen.any(|(_, server)| server.state == ServerState::Initializing || server.offer.has(capability))
        };
        filter.prompts &= is_offered("prompts");
        filter.resources &= is_offered("resources");
        let owned = self.owners_of(view, scope, std::mem::take(&mut filter.uris)).await;
        filter.uris = owned.iter().map(|(_, uri)| uri.clone()).collect();
        (filter, owned)
    }

    /// The owners of these URIs, where there are any. Many are searched on another thread, for one request at a time.
    async fn owners_of(self: &Arc<Self>, view: Arc<View>, scope: Scope, uris: Vec<String>) -> Vec<(usize, String)> {
        let is_large = uris.len() > SEARCH_IN_PLACE;
        let fleet = Arc::clone(self);
        let search = move || {
            let mut budget = view.snapshot.uri_budget(uris.len());
            let mut owner = |uri: &str| {
                owner_of(&view, scope, uri, &mut budget).filter(|&server| fleet.is_reachable(&view, server))
            };
            uris.into_iter().filter_map(|uri| Some((owner(&uri)?, uri))).collect()
        };
        if !is_large {
            return search();
        }
        let _turn = self.searching.lock().await;
        match tokio::task::spawn_blocking(search).await {
            Ok(found) => found,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The program is stopping.
            Err(_) => Vec::new(),
        }
    }

    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server that has the resource and supports subscriptions.
fn owner_of(view: &View, scope: Scope, uri: &str, budget: &mut UriBudget) -> Option<usize> {
    let tells = |&server: &usize| view.snapshot.servers()[server].offer.has_within("resources", "subscribe");
    let owners = view.snapshot.owners_of_uri(scope, uri, budget);
    owners.into_iter().find(tells).or_else(|| view.snapshot.resource_servers(scope, uri).into_iter().find(tells))
}

impl Listener {
    /// Returns false if the acknowledgement is dropped, because too much is unread already.
    fn acknowledge(&self) -> bool {
        let mut is_acknowledged = self.is_acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = self.to.sink();
        *is_acknowledged = sink.try_send(Message::Own(&listen::acknowledged(&self.id, &self.filter)));
        sink.flush();
        *is_acknowledged
    }

    fn notify(&self, message: &[u8]) {
        // Locked, so that notifications sent meanwhile follow the acknowledgement.
        let is_acknowledged = self.is_acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = self.to.sink();
        if *is_acknowledged && !sink.is_full() {
            sink.send(crate::client_sink::Outbound::Notification, Message::Own(message));
            sink.flush();
        }
    }
}
