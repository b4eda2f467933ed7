//! Tools of real servers are found by what the user wants to do.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::wait_until;

use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, config_of};
use crate::rest::{Rest, expect};

#[test]
fn a_query_about_remembering_finds_the_memory_server_first() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let servers = servers::all(&parts, &sandbox);
    let config = config_of(&servers.iter().collect::<Vec<_>>()).write();
    let rest = Rest::start_as(|launch| launch.arg("--config").arg(config.path()).env("HOME", sandbox.home()));
    for query in ["remember something", "memory"] {
        let found = wait_until("all vectors are there", || {
            let found = expect(
                200,
                &rest.serve.fetch(&HttpRequest::post("/api/v1/search", json!({"query": query}).to_string())),
            );
            let metadata = &found["metadata"];
            let is_whole = metadata["tools_without_vectors"] == 0 && metadata["servers_searched"] == servers.len();
            is_whole.then_some(found)
        });
        assert_eq!(found["tools"][0]["source_server"]["name"], "memory", "{query}: {found}");
    }
}
