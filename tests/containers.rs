//! Servers in containers, on a real engine that is thrown away afterwards.
//!
//! - [`lives`]: started, called, shown, stopped, removed; many at once; over HTTP
//! - [`troubles`]: what keeps a container from being made or from lasting, and what people hear of it
//! - [`surprises`]: somebody else stops or removes it; we are killed; the engine goes away
//! - [`shown`]: what the command line tells of them
//! - [`descriptions`]: what is wrong with how one is described

mod cli_output;
mod descriptions;
mod errors;
mod external_changes;
mod lifecycle;

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Lease};
use testkit::{Engine, Launch, Signal, free_port, wait_until};

use crate::rest::{Rest, expect};

/// A service that has its containers made by an engine.
struct ContainerFixture<'a> {
    rest: Rest,
    engine: &'a Engine,
    /// Given back when the service is gone.
    lease: Option<Lease>,
}

impl ContainerFixture<'static> {
    /// On the engine that all tests share; nothing where there is none.
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

    /// With another way to the engine.
    #[track_caller]
    fn start_at(engine: &'a Engine, host: &str) -> Self {
        let rest = Rest::start_as(|launch| launch.env("DOCKER_HOST", host));
        // Who fails is tried again soon.
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

    /// Registers a fake server over HTTP in the network of the machine, and waits until it is connected. It is run by
    /// `shell`, if that is given, in which it is `"$@"`.
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

    /// Registers one that cannot come up; what is said of it.
    #[track_caller]
    fn failing(&self, name: &str, transport: &str, docker: &Value) -> String {
        self.register(name, transport, docker);
        self.complaint(name)
    }

    /// What is wrong with a server that does not come up.
    #[track_caller]
    fn complaint(&self, name: &str) -> String {
        wait_until("something is said of it", || {
            let server = self.rest.get(&format!("/servers/{name}")).json();
            server["error_message"].as_str().map(str::to_owned)
        })
    }

    /// Waits until its history tells this.
    #[track_caller]
    fn wait_for_history(&self, name: &str, words: &str) {
        wait_until(&format!("the history of `{name}` says `{words}`"), || {
            let history = self.rest.get(&format!("/servers/{name}/history")).body;
            history.contains(words).then_some(())
        });
    }

    /// Waits until it is connected in another container than this one; that container.
    #[track_caller]
    fn wait_for_another(&self, name: &str, than: &Value) -> Value {
        wait_until(&format!("`{name}` lives in another container"), || {
            let server = self.rest.get(&format!("/servers/{name}")).json();
            let is_another = server["container"]["id"].is_string() && server["container"]["id"] != than["id"];
            (is_another && server["status"] == "connected").then(|| server["container"].clone())
        })
    }

    /// Where it keeps its registry, as its containers say it.
    fn home(&self) -> String {
        let registry = self.rest.registry();
        let folder = registry.parent().and_then(|folder| folder.canonicalize().ok()).expect("its folder is there");
        folder.join("registry.db").display().to_string()
    }

    fn label(&self) -> String {
        format!("io.mcp-aggregator.home={}", self.home())
    }

    /// Its containers, as the engine sees them.
    #[track_caller]
    fn containers(&self) -> Vec<Value> {
        self.engine.containers(&self.label())
    }

    /// Stops the service; nothing of it may be left in the engine.
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
