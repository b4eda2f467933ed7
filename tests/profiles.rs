//! Profiles: what a profile hides is absent everywhere.
//!
//! - [`matrix`]: every way to ask for a hidden item; [`changes`]: connected clients, when a profile or a server changes
//! - [`bound`]: tokens that are bound to a profile
//! - [`administration`]: config file, REST and command line

mod administration;
mod bound;
mod changes;
mod matrix;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::serve::Fetched;
use testkit::{Puppet, Serve, Spec};

use crate::relay::serving;
use crate::rest::PREFIX;

/// Shows `log`, `review`, `docs://` and the server `git`, and nothing else.
fn dev() -> Value {
    json!({
        "servers": ["git"],
        "tools": ["git.*", "!git.push"],
        "prompts": ["git.review"],
        "resources": ["docs://*", "!docs://secret*"],
    })
}

/// A server with a visible and a hidden item of every kind.
fn git() -> Puppet {
    Puppet::new(spec(Spec::legacy()))
}

fn spec(spec: Spec) -> Spec {
    spec.tool("log")
        .tool("push")
        .prompt("review")
        .prompt("obliterate")
        .resource("docs://1")
        .resource("docs://secret1")
        .resource("keys://1")
        .template("docs://{page}")
        .template("keys://{id}")
        .instructions("Never push.")
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}"#)
        .answers("resources/read", r#"{"contents":[{"uri":"x","text":"leaked"}]}"#)
        .answers("resources/subscribe", "{}")
        .answers("completion/complete", r#"{"completion":{"values":["leaked"]}}"#)
        .answers("prompts/get", r#"{"messages":[]}"#)
        .echoes()
}

/// A server that is hidden completely.
fn vault() -> Puppet {
    Puppet::new(
        Spec::legacy()
            .tool("unlock")
            .prompt("treasure")
            .resource("vault://1")
            .template("vault://{id}")
            .capabilities(r#"{"tools":{},"prompts":{},"resources":{"subscribe":true}}"#)
            .answers("resources/read", r#"{"contents":[{"uri":"x","text":"leaked"}]}"#)
            .instructions("Ask the vault.")
            .echoes(),
    )
}

/// A service with both servers and the profile `dev`.
#[track_caller]
fn service(git: &Puppet, vault: &Puppet) -> Serve {
    let serve = serving(&[("vault", vault), ("git", git)]);
    assert_eq!(put(&serve, "dev", &dev()).status, 201);
    serve
}

#[track_caller]
pub(crate) fn put(serve: &Serve, name: &str, spec: &Value) -> Fetched {
    let ask = HttpRequest::new("PUT", &format!("{PREFIX}/profiles/{name}")).header("Content-Type", "application/json");
    serve.fetch(&ask.body(spec.to_string()))
}

#[track_caller]
fn get(serve: &Serve, path: &str) -> Fetched {
    serve.fetch(&HttpRequest::new("GET", &format!("{PREFIX}{path}")))
}
