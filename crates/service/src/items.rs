//! Prompts and resources of all servers: listed from what the servers told us, fetched and read by a client of our own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregator::Aggregator;
use aggregator::client::{Client, ClientSetup};
use aggregator::client_sink::{CatchUp, ClientSink, Message, NullSink, Outbound};
use aggregator::dispatch::FlushSet;
use aggregator::responder::Responder;
use bytes::Bytes;
use catalog::{Kind, Missing, NameStyle, Route, Scope, Snapshot};
use protocol::bridge::meta;
use protocol::bridge::result::{self, ResultType};
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::member;
use protocol::{Envelope, Kind as MessageKind, Lifecycle, Line, Span, reply, text};
use registry::RawJson;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Actor, Error, Service};

/// What servers answer who does not have a resource.
const RESOURCE_NOT_FOUND: &[u8] = b"-32002";

/// A prompt.
#[derive(Debug, Clone, Serialize)]
pub struct PromptView {
    /// `server.prompt`.
    pub name: String,
    /// What its server calls it.
    pub original_name: String,
    /// The name of its server.
    pub server_name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it takes, as its server describes it.
    pub arguments: Value,
}

/// A resource, or a family of them.
#[derive(Debug, Clone, Serialize)]
pub struct ResourceView {
    /// Its address, or the pattern of the addresses of a family.
    pub uri: String,
    /// What its server calls it.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// What kind of content it has.
    pub mime_type: Option<String>,
    /// How long it is, in bytes, if its server says so.
    pub size: Option<u64>,
    /// The name of its server.
    pub server_name: String,
}

impl Service {
    /// The prompts of connected servers, or of one of them.
    pub fn prompts(&self, server: Option<&str>) -> Result<Vec<PromptView>, Error> {
        self.items(Kind::Prompt, server, |snapshot, route, definition| PromptView {
            name: snapshot.listed_name(Kind::Prompt, route, NameStyle::Canonical),
            original_name: snapshot.item(Kind::Prompt, route).id.to_string(),
            server_name: server_name(snapshot, route),
            title: text_of(definition, "title"),
            description: text_of(definition, "description"),
            arguments: Some(definition["arguments"].clone()).filter(Value::is_array).unwrap_or_else(|| json!([])),
        })
    }

    /// The resources of connected servers, or of one of them.
    pub fn resources(&self, server: Option<&str>) -> Result<Vec<ResourceView>, Error> {
        self.items(Kind::Resource, server, |snapshot, route, definition| {
            resource(snapshot, Kind::Resource, route, definition)
        })
    }

    /// The families of resources of connected servers, or of one of them.
    pub fn resource_templates(&self, server: Option<&str>) -> Result<Vec<ResourceView>, Error> {
        self.items(Kind::Template, server, |snapshot, route, definition| {
            resource(snapshot, Kind::Template, route, definition)
        })
    }

    fn items<T>(
        &self,
        kind: Kind,
        server: Option<&str>,
        view: impl Fn(&Snapshot, Route, &Value) -> T,
    ) -> Result<Vec<T>, Error> {
        let place = server.map(|server| self.context.find(server).map(|handle| handle.place)).transpose()?;
        let current = self.fleet.view();
        let snapshot = &current.snapshot;
        let wanted = snapshot.listed(kind, NameStyle::Canonical);
        let wanted = wanted.filter(|route| place.is_none_or(|place| route.server == place));
        let shown = wanted.map(|route| {
            // What we list, clients can read, so it is JSON.
            let definition = serde_json::from_slice(&snapshot.item(kind, route).definition).unwrap_or_default();
            view(snapshot, route, &definition)
        });
        Ok(shown.collect())
    }

    /// A prompt, filled in: the server's result, byte for byte. `arguments` is a JSON object.
    pub async fn prompt(&self, by: &Actor, name: &str, arguments: &RawJson) -> Result<RawJson, Error> {
        let route = self.prompt_route(name)?;
        let (place, own_name, lifecycle) = {
            let view = self.fleet.view();
            let own_name = view.snapshot.item(Kind::Prompt, route).id.to_string();
            (route.server, own_name, view.snapshot.servers()[route.server].offer.lifecycle)
        };
        let arguments = on_one_line(arguments.get());
        let params = vec![("name", reply::string(&own_name)), ("arguments", arguments)];
        let scope = Scope::One(place);
        self.ask(by, Request { method: "prompts/get", scope, lifecycle, params }, || Error::PromptNotFound {
            name: name.to_owned(),
        })
        .await
    }

    /// The prompt that a name means: a full name, or its own name if only one server has such a prompt.
    fn prompt_route(&self, name: &str) -> Result<Route, Error> {
        let view = self.fleet.view();
        let snapshot = &view.snapshot;
        if let Some(route) = snapshot.resolve(Scope::All, Kind::Prompt, name) {
            return Ok(route);
        }
        let is_it = |route: &Route| *snapshot.item(Kind::Prompt, *route).id == *name;
        let found: Vec<Route> = snapshot.listed(Kind::Prompt, NameStyle::Canonical).filter(is_it).collect();
        match (found.as_slice(), snapshot.why_missing(Scope::All, Kind::Prompt, name, NameStyle::Canonical)) {
            ([only], _) => Ok(*only),
            ([], Missing::Starting(place) | Missing::Down(place)) => Err(self.executions.unavailable(place)),
            ([], _) => Err(Error::PromptNotFound { name: name.to_owned() }),
            (several, _) => {
                let full = |route: &Route| snapshot.listed_name(Kind::Prompt, *route, NameStyle::Canonical);
                let candidates = several.iter().map(full).collect();
                Err(Error::PromptAmbiguous { name: name.to_owned(), candidates })
            }
        }
    }

    /// What is at an address: the server's result, byte for byte. Without a server, the one that lists the address is
    /// asked, or else all that may have it.
    pub async fn read_resource(&self, by: &Actor, uri: &str, server: Option<&str>) -> Result<RawJson, Error> {
        let place = server.map(|server| self.context.find(server).map(|handle| handle.place)).transpose()?;
        let scope = place.map_or(Scope::All, Scope::One);
        let lifecycle = {
            let view = self.fleet.view();
            let owner = view.snapshot.resolve(scope, Kind::Resource, uri).map(|route| route.server).or(place);
            owner.map_or(Lifecycle::Session, |place| view.snapshot.servers()[place].offer.lifecycle)
        };
        let params = vec![("uri", reply::string(uri))];
        self.ask(by, Request { method: "resources/read", scope, lifecycle, params }, || Error::ResourceNotFound {
            uri: uri.to_owned(),
        })
        .await
    }

    /// Makes a request the way every client does, and waits for its result, within the limit for calls.
    async fn ask(&self, by: &Actor, request: Request<'_>, not_found: impl Fn() -> Error) -> Result<RawJson, Error> {
        let (method, scope) = (request.method, request.scope);
        let line = request.line(&self.aggregator);
        let (sender, answer) = oneshot::channel();
        let sink = Arc::new(AnswerSink(Mutex::new(Some(sender))));
        let setup = ClientSetup {
            sink: Arc::new(NullSink),
            names: self.aggregator.options.names,
            scope,
            principal: Arc::clone(&by.name),
            is_alone: false,
            surface: aggregator::Surface::Full,
        };
        let client = Client::with_origin(setup, Arc::clone(&sink) as _);
        let mut pending = Pending { aggregator: &self.aggregator, client: &client, is_answered: false };
        let to = Responder::to(&client, sink as Arc<dyn ClientSink>);
        let mut flush_set = FlushSet::default();
        self.aggregator.take(&client, &to, &Line::Whole(line), &mut flush_set);
        flush_set.flush();
        to.flush();
        let limit = Duration::from_millis(self.settings.now().timeout_ms);
        let Ok(answered) = timeout(limit, answer).await else {
            let message = format!("`{method}` took longer than {} s, the time-out", limit.as_secs_f32());
            let context = object(json!({
                "timeout_ms": limit.as_millis(), "reason": "execution_timeout", "safeToRetry": true
            }));
            return Err(Error::ExecutionTimeout { message, context });
        };
        pending.is_answered = true;
        let lost = || failed(format!("there was no answer to `{method}`"), "answer_lost", Value::Null);
        let line = answered.map_err(|_| lost())?;
        match Envelope::scan(&line).map(|envelope| envelope.kind) {
            Ok(MessageKind::Response { outcome: Ok(found), .. }) => understood(&line, found),
            Ok(MessageKind::Response { outcome: Err(error), .. }) => {
                Err(self.explained(&line, error, scope, not_found))
            }
            _ => Err(lost()),
        }
    }

    fn explained(&self, line: &Bytes, error: Span, scope: Scope, not_found: impl Fn() -> Error) -> Error {
        let data = member(line, error, "data");
        let reason = data.and_then(|data| member(line, data, "reason")).and_then(|value| text::decode(value.of(line)));
        let is_absent = |reason: &str| matches!(reason, "server_unavailable" | "server_failed" | "server_starting");
        match (reason, scope) {
            (Some(reason), Scope::One(place)) if is_absent(&reason) => return self.executions.unavailable(place),
            _ if member(line, error, "code").is_some_and(|code| code.of(line) == RESOURCE_NOT_FOUND) => {
                return not_found();
            }
            _ => {}
        }
        let said = member(line, error, "message").and_then(|message| text::decode(message.of(line)));
        let message = format!("the server answered with an error: {}", said.unwrap_or_default());
        failed(message, "server_error", serde_json::from_slice(error.of(line)).unwrap_or_default())
    }
}

/// A request to be made.
struct Request<'r> {
    method: &'r str,
    scope: Scope,
    /// How the server is talked to, so that nothing need be translated on the way.
    lifecycle: Lifecycle,
    params: Vec<(&'static str, Vec<u8>)>,
}

impl Request<'_> {
    fn line(mut self, aggregator: &Aggregator) -> Bytes {
        if self.lifecycle == Lifecycle::SelfContained {
            let options = &aggregator.options;
            let info =
                reply::object([("name", reply::string(&options.name)), ("version", reply::string(&options.version))]);
            let about = reply::object([
                (meta::PROTOCOL_VERSION, reply::string(SELF_CONTAINED_REVISION)),
                (meta::CLIENT_CAPABILITIES, b"{}".to_vec()),
                (meta::CLIENT_INFO, info),
            ]);
            self.params.push(("_meta", about));
        }
        let mut line = reply::request(1, self.method, Some(&reply::object(self.params)));
        line.pop();
        line.into()
    }
}

/// Takes the request back if nobody waits for its answer any more.
struct Pending<'p> {
    aggregator: &'p Arc<Aggregator>,
    client: &'p Arc<Client>,
    is_answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.aggregator.abandon(self.client);
        }
    }
}

/// Where the one answer goes.
struct AnswerSink(Mutex<Option<oneshot::Sender<Bytes>>>);

impl AnswerSink {
    fn take(&self) -> Option<oneshot::Sender<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSink for AnswerSink {
    fn send(&self, what: Outbound, message: Message<'_>) {
        if what == Outbound::Response
            && let Some(sender) = self.take()
        {
            let mut line = Vec::new();
            message.write_to(&mut line);
            // Whoever waited may be gone.
            sender.send(line.into()).ok();
        }
    }

    fn give_up(&self) {
        drop(self.take());
    }

    fn flush(&self) {}

    fn catch_up(&self) -> Option<CatchUp<'_>> {
        None
    }

    fn is_full(&self) -> bool {
        false
    }

    fn carries_notifications(&self) -> bool {
        false
    }

    fn is_gone(&self) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

fn understood(line: &Bytes, found: Span) -> Result<RawJson, Error> {
    if result::kind(line, found) == ResultType::InputRequired {
        let message = "the server wants to ask a person something, and there is none here".to_owned();
        return Err(failed(message, "input_required", Value::Null));
    }
    RawJson::parse(String::from_utf8_lossy(found.of(line)).into_owned())
        .map_err(|error| failed(format!("the result cannot be shown: {error}"), "unreadable_answer", Value::Null))
}

/// Reading changes nothing, so it may be tried again.
fn failed(message: String, reason: &str, error: Value) -> Error {
    let mut context = object(json!({ "reason": reason, "safeToRetry": true }));
    if !error.is_null() {
        context.insert("error".to_owned(), error);
    }
    Error::ExecutionFailed { message, context }
}

fn resource(snapshot: &Snapshot, kind: Kind, route: Route, definition: &Value) -> ResourceView {
    ResourceView {
        uri: snapshot.item(kind, route).id.to_string(),
        name: text_of(definition, "name"),
        title: text_of(definition, "title"),
        description: text_of(definition, "description"),
        mime_type: text_of(definition, "mimeType"),
        size: definition["size"].as_u64(),
        server_name: server_name(snapshot, route),
    }
}

fn server_name(snapshot: &Snapshot, route: Route) -> String {
    snapshot.servers()[route.server].name.to_string()
}

fn text_of(definition: &Value, name: &str) -> Option<String> {
    definition[name].as_str().map(str::to_owned)
}

/// Servers read lines. In JSON a line end stands only between tokens, where a blank does as well.
fn on_one_line(json: &str) -> Vec<u8> {
    json.replace(['\n', '\r'], " ").into_bytes()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
