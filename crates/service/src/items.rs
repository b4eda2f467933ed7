//! Prompts and resources of all servers: listed from the catalog, fetched by a client of our own.

use std::sync::Arc;
use std::time::Duration;

use aggregator::client_sink::{ClientSink, NullSink, ResponseSink};
use aggregator::{Aggregator, Client, ClientSetup, FlushSet, Responder, View};
use bytes::Bytes;
use catalog::{Kind, Missing, NameStyle, Route, SIGN_IN_REQUIRED, Scope, Snapshot};
use executions::Error as CallError;
use protocol::bridge::meta;
use protocol::bridge::result::{self, ResultType};
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::member;
use protocol::{Envelope, Kind as MessageKind, Lifecycle, Line, Span, reply, text};
use registry::{Actor, Listed, Page, RawJson};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::lists::took_too_long;
use crate::{Error, ListSize, Service};

/// The error code of servers that do not have a resource.
const RESOURCE_NOT_FOUND: &[u8] = b"-32002";

/// A prompt.
#[derive(Debug, Clone, Serialize)]
pub struct PromptView {
    /// `server.prompt`.
    pub name: String,
    /// The server's name of it.
    pub original_name: String,
    /// The name of its server.
    pub server_name: String,
    /// A name for people.
    pub title: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its arguments, as its server describes them: a JSON array.
    pub arguments: RawJson,
}

/// A resource, or a resource template.
#[derive(Debug, Clone, Serialize)]
pub struct ResourceView {
    /// Its URI, or the URI template.
    pub uri: String,
    /// The server's name of it.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its MIME type.
    pub mime_type: Option<String>,
    /// Its size in bytes, if its server reports it.
    pub size: Option<u64>,
    /// The name of its server.
    pub server_name: String,
}

impl Service {
    /// A page of the prompts, resources or resource templates of connected servers, or of one of them.
    pub fn items(&self, kind: Kind, server: Option<&str>, page: Page) -> Result<ItemPage, Error> {
        let slot_index = server.map(|server| self.context.find(server).map(|handle| handle.slot_index)).transpose()?;
        let view = self.fleet.view();
        let wanted = view.snapshot.listed(kind, NameStyle::Canonical);
        let wanted = wanted.filter(|route| slot_index.is_none_or(|slot_index| route.server == slot_index));
        let (mut routes, mut size, mut total) = (Vec::new(), ListSize::default(), 0);
        for route in wanted {
            if total >= page.offset && size.items < u64::from(page.limit) {
                size.add(view.snapshot.item(kind, route).definition.len());
                routes.push(route);
            }
            total += 1;
        }
        Ok(ItemPage { view, kind, routes, size, total })
    }

    /// The prompt with this full name.
    pub fn prompt_view(&self, name: &str) -> Result<PromptView, Error> {
        let view = self.fleet.view();
        let route = view.snapshot.resolve(Scope::All, Kind::Prompt, name);
        let route = route.ok_or_else(|| Error::PromptNotFound { name: name.to_owned() })?;
        Ok(prompt(&view.snapshot, route))
    }

    /// A prompt, filled in: the server's result, byte for byte. `arguments` is a JSON object.
    pub async fn prompt(&self, by: &Actor, name: &str, arguments: &RawJson) -> Result<RawJson, Error> {
        let route = self.prompt_route(name)?;
        let (slot_index, own_name, lifecycle) = {
            let view = self.fleet.view();
            let own_name = view.snapshot.item(Kind::Prompt, route).id.to_string();
            (route.server, own_name, view.snapshot.servers()[route.server].offer.lifecycle)
        };
        let arguments = on_one_line(arguments.get());
        let params = vec![("name", reply::string(&own_name)), ("arguments", arguments)];
        let scope = Scope::One(slot_index);
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
            ([], Missing::Starting(slot_index) | Missing::Down(slot_index)) => {
                Err(self.executions.unavailable(slot_index).into())
            }
            ([], _) => Err(Error::PromptNotFound { name: name.to_owned() }),
            (several, _) => {
                let full = |route: &Route| snapshot.listed_name(Kind::Prompt, *route, NameStyle::Canonical);
                let candidates = several.iter().map(full).collect();
                Err(Error::PromptAmbiguous { name: name.to_owned(), candidates })
            }
        }
    }

    /// The resource at a URI: the server's result, byte for byte. Without a server, the request goes to the one that
    /// lists the URI, or else to all that may have it.
    pub async fn read_resource(&self, by: &Actor, uri: &str, server: Option<&str>) -> Result<RawJson, Error> {
        let slot_index = server.map(|server| self.context.find(server).map(|handle| handle.slot_index)).transpose()?;
        let scope = slot_index.map_or(Scope::All, Scope::One);
        let lifecycle = {
            let view = self.fleet.view();
            let owner = view.snapshot.resolve(scope, Kind::Resource, uri).map(|route| route.server).or(slot_index);
            owner.map_or(Lifecycle::Session, |slot_index| view.snapshot.servers()[slot_index].offer.lifecycle)
        };
        let params = vec![("uri", reply::string(uri))];
        self.ask(by, Request { method: "resources/read", scope, lifecycle, params }, || Error::ResourceNotFound {
            uri: uri.to_owned(),
        })
        .await
    }

    /// Makes a request like any client, and waits for its result, within the limit for calls.
    async fn ask(&self, by: &Actor, request: Request<'_>, not_found: impl Fn() -> Error) -> Result<RawJson, Error> {
        let (method, scope) = (request.method, request.scope);
        let line = request.line(&self.aggregator);
        let (sink, answer) = ResponseSink::new();
        let setup = ClientSetup {
            sink: Arc::new(NullSink),
            names: self.aggregator.options.names,
            scope,
            principal: Arc::clone(&by.principal),
            is_alone: false,
            surface: aggregator::Surface::Full,
        };
        let client = Client::internal(setup);
        let mut pending = Pending { aggregator: &self.aggregator, client: &client, is_answered: false };
        let to = Responder::to(&client, sink as Arc<dyn ClientSink>);
        let mut flush_set = FlushSet::default();
        self.aggregator.take(&client, &to, &Line::Whole(line), &mut flush_set);
        flush_set.flush();
        to.flush();
        let limit = Duration::from_millis(self.settings.now().timeout_ms);
        let Ok(answered) = timeout(limit, answer).await else {
            let message = format!("`{method}` timed out after {} s", limit.as_secs_f32());
            let context = object(json!({
                "timeout_ms": limit.as_millis(), "reason": "execution_timeout", "safeToRetry": true
            }));
            return Err(Error::Call(CallError::ExecutionTimeout { message, context }));
        };
        pending.is_answered = true;
        let lost = || failed(format!("no response to `{method}`"), "answer_lost", Value::Null);
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
        let is_absent = |reason: &str| {
            matches!(reason, "server_unavailable" | "server_failed" | "server_starting" | SIGN_IN_REQUIRED)
        };
        match (reason, scope) {
            (Some(reason), Scope::One(slot_index)) if is_absent(&reason) => {
                return self.executions.unavailable(slot_index).into();
            }
            _ if member(line, error, "code").is_some_and(|code| code.of(line) == RESOURCE_NOT_FOUND) => {
                return not_found();
            }
            _ => {}
        }
        let said = member(line, error, "message").and_then(|message| text::decode(message.of(line)));
        let message = format!("the server answered with an error: {}", said.unwrap_or_default());
        // An error that a tree cannot represent is passed on as text.
        let error = String::from_utf8_lossy(error.of(line));
        let error = RawJson::parse(&*error).map_or_else(|_| error.into(), |error| error.to_value());
        failed(message, "server_error", error)
    }
}

/// A request to be made.
struct Request<'r> {
    method: &'r str,
    scope: Scope,
    /// The lifecycle of the server, so that nothing need be translated.
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

/// Cancels the request if its response is no longer awaited.
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

fn understood(line: &Bytes, found: Span) -> Result<RawJson, Error> {
    if result::kind(line, found) == ResultType::InputRequired {
        let message = "the server requests input from a person, which is not possible here".to_owned();
        return Err(failed(message, "input_required", Value::Null));
    }
    RawJson::parse(String::from_utf8_lossy(found.of(line)).into_owned())
        .map_err(|error| failed(format!("the result cannot be displayed: {error}"), "unreadable_answer", Value::Null))
}

/// Reading changes nothing, so a retry is safe.
fn failed(message: String, reason: &str, error: Value) -> Error {
    let mut context = object(json!({ "reason": reason, "safeToRetry": true }));
    if !error.is_null() {
        context.insert("error".to_owned(), error);
    }
    Error::Call(CallError::ExecutionFailed { message, context })
}

/// A page of items. Their definitions are not read before they are described.
pub struct ItemPage {
    view: Arc<View>,
    kind: Kind,
    routes: Vec<Route>,
    size: ListSize,
    total: u64,
}

impl ItemPage {
    /// The number and the bytes of its definitions.
    pub fn size(&self) -> ListSize {
        self.size
    }

    /// Describes it as prompts, until `is_over` returns true.
    pub fn prompts(&self, is_over: &dyn Fn() -> bool) -> Result<Listed<PromptView>, Error> {
        self.described(is_over, prompt)
    }

    /// The same as resources or resource templates.
    pub fn resources(&self, is_over: &dyn Fn() -> bool) -> Result<Listed<ResourceView>, Error> {
        self.described(is_over, |snapshot, route| resource(snapshot, self.kind, route))
    }

    fn described<T>(
        &self,
        is_over: &dyn Fn() -> bool,
        view: impl Fn(&Snapshot, Route) -> T,
    ) -> Result<Listed<T>, Error> {
        self.size.check("pass `limit`, or a smaller one, to get fewer items")?;
        let mut items = Vec::with_capacity(self.routes.len());
        for route in &self.routes {
            if is_over() {
                return Err(took_too_long(&"describing the items took too long"));
            }
            items.push(view(&self.view.snapshot, *route));
        }
        Ok(Listed { items, total: self.total })
    }
}

/// A definition, of which only the needed members are read.
struct Definition<'d>(&'d [u8]);

impl<'d> Definition<'d> {
    fn of(snapshot: &'d Snapshot, kind: Kind, route: Route) -> Self {
        Self(&snapshot.item(kind, route).definition)
    }

    fn raw(&self, name: &str) -> Option<&'d [u8]> {
        let whole = Span { start: 0, end: self.0.len() };
        member(self.0, whole, name).map(|span| span.of(self.0))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.raw(name).and_then(text::decode).map(|text| text.into_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        std::str::from_utf8(self.raw(name)?).ok()?.parse().ok()
    }

    fn list(&self, name: &str) -> Option<RawJson> {
        let list = self.raw(name).filter(|value| value.starts_with(b"["))?;
        RawJson::parse(std::str::from_utf8(list).ok()?).ok()
    }
}

fn prompt(snapshot: &Snapshot, route: Route) -> PromptView {
    let definition = Definition::of(snapshot, Kind::Prompt, route);
    PromptView {
        name: snapshot.listed_name(Kind::Prompt, route, NameStyle::Canonical),
        original_name: snapshot.item(Kind::Prompt, route).id.to_string(),
        server_name: server_name(snapshot, route),
        title: definition.text("title"),
        description: definition.text("description"),
        arguments: definition.list("arguments").unwrap_or_else(|| RawJson::parse("[]").expect("that is JSON")),
    }
}

fn resource(snapshot: &Snapshot, kind: Kind, route: Route) -> ResourceView {
    let definition = Definition::of(snapshot, kind, route);
    ResourceView {
        uri: snapshot.item(kind, route).id.to_string(),
        name: definition.text("name"),
        title: definition.text("title"),
        description: definition.text("description"),
        mime_type: definition.text("mimeType"),
        size: definition.number("size"),
        server_name: server_name(snapshot, route),
    }
}

fn server_name(snapshot: &Snapshot, route: Route) -> String {
    snapshot.servers()[route.server].name.to_string()
}

/// Servers read lines. In JSON a line end occurs only between tokens, where a space is equivalent.
fn on_one_line(json: &str) -> Vec<u8> {
    json.replace(['\n', '\r'], " ").into_bytes()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
