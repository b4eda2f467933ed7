//! The REST API of `mcp-aggregator serve`: every endpoint, and every error.
//!
//! - [`servers`]: registered, changed, connected, tested, removed; [`config_file`]: those of a config file
//! - [`unreachable_servers`]: remote servers that are unreachable
//! - [`lifecycle`]: from registration to removal, with restarts in between, on either database
//! - [`tools`]: listing and calling; [`executions`]: the records of calls; [`skills`]: the skills of tools
//! - [`items`]: prompts, resources, connected clients and restarts
//! - [`documents`]: Markdown documents that run tools; [`assistant`]: the assistant and its tools
//! - [`resource_limits`]: documents and schemas that would take too long
//! - [`overview`]: state, health, settings, audit, metrics; [`events`]: the event stream
//! - [`audit`]: the audit log; [`registry_file`], [`database_wait`]: a lost registry, or an unreachable database
//! - [`errors`]: invalid and forbidden requests; [`document`]: the OpenAPI document

mod assistant;
mod audit;
mod config_file;
mod database_wait;
mod document;
mod documents;
mod errors;
mod events;
mod executions;
mod items;
mod lifecycle;
mod overview;
mod registry_file;
mod resource_limits;
mod servers;
mod skills;
mod tools;
mod unreachable_servers;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http_client::{Connection, HttpRequest};
use testkit::serve::Fetched;
use testkit::{Launch, Serve, program, wait_until};

pub(crate) const PREFIX: &str = "/api/v1/aggregator";

/// A service with an empty registry of its own.
pub(crate) struct Rest {
    pub(crate) serve: Serve,
    pub(crate) folder: TempDir,
    /// The location of its registry, unless it is in its folder.
    database: Option<String>,
}

impl Rest {
    #[track_caller]
    pub(crate) fn start() -> Self {
        Self::start_as(|launch| launch)
    }

    #[track_caller]
    pub(crate) fn start_as(adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let folder = TempDir::with_prefix("rest-").expect("a temporary folder can be made");
        let serve = Serve::in_folder(&folder.path().join("data"), adjust);
        Self { serve, folder, database: None }
    }

    /// A service whose registry is in PostgreSQL.
    #[track_caller]
    pub(crate) fn on_database(url: &str) -> Self {
        let rest = Self::start_as(|launch| launch.args(["--database", url]));
        Self { database: Some(url.to_owned()), ..rest }
    }

    /// Stops it, and starts another one with the same registry.
    #[track_caller]
    pub(crate) fn restarted(self, kill: bool) -> Self {
        self.restarted_as(kill, |launch| launch)
    }

    /// The same with a changed launch.
    #[track_caller]
    pub(crate) fn restarted_as(self, kill: bool, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let Self { mut serve, folder, database } = self;
        serve.signal(if kill { testkit::Signal::KILL } else { testkit::Signal::TERM });
        serve.wait_exit();
        let database_option = database.iter().flat_map(|url| ["--database", url]);
        let serve = Serve::in_folder(&folder.path().join("data"), |launch| adjust(launch.args(database_option)));
        Self { serve, folder, database }
    }

    /// The file its registry is in.
    pub(crate) fn registry(&self) -> std::path::PathBuf {
        self.folder.path().join("data/registry.db")
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Fetched {
        self.serve.fetch(&HttpRequest::new("GET", &format!("{PREFIX}{path}")))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Fetched {
        self.serve.fetch(&HttpRequest::post(&format!("{PREFIX}{path}"), body.to_string()))
    }

    /// A POST without a body.
    #[track_caller]
    pub(crate) fn order(&self, path: &str) -> Fetched {
        self.serve.fetch(&HttpRequest::new("POST", &format!("{PREFIX}{path}")).header("Content-Length", "0"))
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Fetched {
        let ask = HttpRequest::new("PATCH", &format!("{PREFIX}{path}")).header("Content-Type", "application/json");
        self.serve.fetch(&ask.body(body.to_string()))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Fetched {
        self.serve.fetch(&HttpRequest::new("DELETE", &format!("{PREFIX}{path}")))
    }

    /// Registers a fake server and waits until it is connected.
    #[track_caller]
    pub(crate) fn register(&self, name: &str, arguments: &[&str]) -> Value {
        expect(201, &self.post("/servers", &fake(name, arguments)));
        self.wait_for_status(name, "connected")
    }

    #[track_caller]
    pub(crate) fn wait_for_status(&self, name: &str, status: &str) -> Value {
        wait_until(&format!("server `{name}` is {status}"), || {
            let server = self.get(&format!("/servers/{name}")).json();
            (server["status"] == status).then_some(server)
        })
    }

    #[track_caller]
    pub(crate) fn call(&self, name: &str, arguments: &Value) -> Fetched {
        self.post("/tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Makes a call that never ends, and waits until the server has received it. Returns its id, and the call.
    #[track_caller]
    pub(crate) fn begin_to_hang(&self, server: &str) -> (String, Begun) {
        let mut connection = self.serve.connect();
        let body = json!({"name": format!("{server}.hang")}).to_string();
        connection.send(&HttpRequest::post(&format!("{PREFIX}/execute"), body));
        let id = wait_until("the call is on its way", || {
            let running = self.get("/executions?status=executing").json();
            running[0]["id"].as_str().map(str::to_owned)
        });
        (id, Begun(connection))
    }
}

/// A call without a response so far.
pub(crate) struct Begun(pub(crate) Connection);

impl Begun {
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Fetched {
        let mut answer = self.0.answer();
        let body = String::from_utf8_lossy(&answer.bytes()).into_owned();
        Fetched { status: answer.status, headers: answer.headers().clone(), body }
    }
}

/// The body that registers a fake server.
pub(crate) fn fake(name: &str, arguments: &[&str]) -> Value {
    let command = program("fake-server");
    let config = json!({"command": command.to_str().expect("our folders are UTF-8"), "args": arguments});
    json!({"name": name, "transport_type": "stdio", "connection_config": config})
}

/// The body of a response, which must have this status.
#[track_caller]
pub(crate) fn expect(status: u16, answer: &Fetched) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// The `context` of an error response, which must have this status and code.
#[track_caller]
pub(crate) fn expect_error(status: u16, code: &str, answer: &Fetched) -> Value {
    let body = expect(status, answer);
    assert_eq!(body["error_code"], code, "{body}");
    assert!(body["detail"].is_string() || body["detail"].is_array(), "{body}");
    assert!(body["context"].is_object(), "{body}");
    assert_eq!(body.as_object().expect("an error is an object").len(), 3, "{body}");
    assert_eq!(answer.headers["content-type"], "application/json");
    body["context"].clone()
}

/// The locations and kinds of the problems in a request.
#[track_caller]
pub(crate) fn expect_problems(answer: &Fetched) -> Vec<(String, String)> {
    let context = expect_error(422, "VALIDATION_ERROR", answer);
    let body = answer.json();
    assert_eq!(body["detail"], context["errors"], "the list is in both places");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let problems = body["detail"].as_array().expect("a list of problems").iter();
    problems
        .map(|problem| {
            assert!(problem["msg"].is_string(), "{problem}");
            let place = problem["loc"].as_array().expect("a place").iter().map(text).collect::<Vec<_>>();
            (place.join("."), text(&problem["type"]))
        })
        .collect()
}

/// The names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}
