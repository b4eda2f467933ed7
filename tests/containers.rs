//! Servers in containers, on a disposable real engine.
//!
//! - [`lifecycle`]: started, called, shown, stopped, removed; many at once; over HTTP
//! - [`errors`]: why a container cannot be created or ends, and the messages about it
//! - [`external_changes`]: stopped or removed externally; the service is killed; the engine becomes unreachable
//! - [`instances`]: a container for each session
//! - [`cli_output`]: the output of the command line
//! - [`descriptions`]: invalid configs

mod cli_output;
mod descriptions;
mod errors;
mod external_changes;
mod instances;
mod lifecycle;

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Lease};
use testkit::{Engine, Launch, Signal, free_port, wait_until};

use crate::rest::{Rest, expect};

/// A service that creates containers through an engine.
struct ContainerFixture<'a> {
    rest: Rest,
    engine: &'a Engine,
    /// Released when the service has ended.
    lease: Option<Lease>,
}

impl ContainerFixture<'static> {
    /// With the engine that all tests share; `None` without one.
    #[track_caller]
    fn start() -> Option<Self> {
        let lease = Engine::shared()?;
        let engine = lease.engine();
        Some(Self { lease: Some(lease), ..ContainerFixture::start_on(engine) })
    }
}

impl<'a> ContainerFixture<'a> {
    #[track_caller]
    fn start_on(engine: &'a Engine) -> Self {
        Self::start_at(engine, &engine.host())
    }

    /// With another connection to the engine.
    #[track_caller]
    fn start_at(engine: &'a Engine, host: &str) -> Self {
        let rest = Rest::start_as(|launch| launch.env("DOCKER_HOST", host));
        // Failed servers are retried soon.
        rest.patch("/settings", &json!({"retry_backoff_ms": [200, 200, 200]}));
        Self { rest, engine, lease: None }
    }

    /// Registers a server in a container of the fake image.
    #[track_caller]
    fn register(&self, name: &str, transport: &str, docker: &Value) -> Value {
        let mut block = json!({"image": IMAGE, "pull": "never"});
        for (key, value) in docker.as_object().expect("a block is an object") {
            block[key] = value.clone();
        }
        let body = json!({"name": name, "transport_type": transport, "connection_config": {"docker": block}});
        expect(201, &self.rest.post("/servers", &body))
    }

    /// Registers a fake server over stdio, and waits until it is connected.
    #[track_caller]
    fn connected(&self, name: &str, docker: &Value) -> Value {
        let mut block = json!({"command": "/bin/fake-server"});
        for (key, value) in docker.as_object().expect("a block is an object") {
            block[key] = value.clone();
        }
        self.register(name, "stdio", &block);
        self.rest.wait_for_status(name, "connected")
    }

    /// Registers a fake server over HTTP in the host network, and waits until it is connected. If `shell` is given, it
    /// runs the server, as `"$@"`.
    #[track_caller]
    fn connected_over_http(&self, name: &str, transport: &str, shell: Option<&str>, docker: &Value) -> Value {
        let port = free_port();
        let flag = if transport == "sse" { "--sse" } else { "--streamable" };
        let fake = ["/bin/fake-http-server", "--until-killed", "--port", &port.to_string(), flag].map(str::to_owned);
        let mut block =
            json!({"network": "host", "ports": [port], "path": if transport == "sse" { "/sse" } else { "/mcp" }});
        match shell {
            Some(shell) => {
                block["command"] = json!("/bin/sh");
                block["args"] = json!([["-c", shell, "sh"].map(str::to_owned).as_slice(), &fake].concat());
            }
            None => {
                block["command"] = json!(fake[0]);
                block["args"] = json!(fake[1..]);
            }
        }
        for (key, value) in docker.as_object().expect("a block is an object") {
            block[key] = value.clone();
        }
        self.register(name, transport, &block);
        self.rest.wait_for_status(name, "connected")
    }

    /// Registers a server that cannot connect; returns its error.
    #[track_caller]
    fn failing(&self, name: &str, transport: &str, docker: &Value) -> String {
        self.register(name, transport, docker);
        self.complaint(name)
    }

    /// The error of a server that cannot connect.
    #[track_caller]
    fn complaint(&self, name: &str) -> String {
        wait_until("something is said of it", || {
            let server = self.rest.get(&format!("/servers/{name}")).json();
            server["error_message"].as_str().map(str::to_owned)
        })
    }

    /// Waits until its history contains this.
    #[track_caller]
    fn wait_for_history(&self, name: &str, words: &str) {
        wait_until(&format!("the history of `{name}` says `{words}`"), || {
            let history = self.rest.get(&format!("/servers/{name}/history")).body;
            history.contains(words).then_some(())
        });
    }

    /// Waits until it is connected in another container than this one; returns that container.
    #[track_caller]
    fn wait_for_another(&self, name: &str, than: &Value) -> Value {
        wait_until(&format!("`{name}` lives in another container"), || {
            let server = self.rest.get(&format!("/servers/{name}")).json();
            let is_another = server["container"]["id"].is_string() && server["container"]["id"] != than["id"];
            (is_another && server["status"] == "connected").then(|| server["container"].clone())
        })
    }

    /// The instance id of its registry, as its containers are labelled.
    fn home(&self) -> String {
        let registry = self.rest.registry();
        let folder = registry.parent().and_then(|folder| folder.canonicalize().ok()).expect("its folder is there");
        folder.join("registry.db").display().to_string()
    }

    fn label(&self) -> String {
        format!("io.mcp-aggregator.home={}", self.home())
    }

    /// Its containers, as the engine lists them.
    #[track_caller]
    fn containers(&self) -> Vec<Value> {
        self.engine.containers(&self.label())
    }

    /// Stops the service; nothing of it may remain in the engine.
    #[track_caller]
    fn finish(mut self) {
        let label = self.label();
        self.rest.serve.signal(Signal::TERM);
        self.rest.serve.wait_exit();
        assert_eq!(self.engine.containers(&label), Vec::<Value>::new(), "{}", self.rest.serve.stderr_text());
    }
}

fn on(engine: &Engine, launch: Launch) -> Launch {
    launch.env("DOCKER_HOST", engine.host())
}

fn id(container: &Value) -> &str {
    container["id"].as_str().expect("a container has an id")
}
