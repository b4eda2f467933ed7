//! The OpenAPI document, generated from the endpoints.

use std::collections::BTreeMap;

use registry::Role;
use serde_json::{Map, Value, json};

use crate::endpoint::{DocumentedResponse, Endpoint, PREFIX};
use crate::error::{self, ErrorCode};
use crate::schema::Schema;
use crate::schemas;

const ABOUT: &str = "mcp-aggregator combines many MCP servers into one endpoint. Through this API you register, \
     connect, monitor and remove servers while the service runs, call their tools, and read the record of every call. \
     Wherever an endpoint takes a server, both its id and its name work. If tokens or an identity provider are \
     configured, send `Authorization: Bearer <token>`; the role in `security` is the lowest that suffices.";

/// The whole document.
pub(crate) fn document(endpoints: &[Endpoint]) -> Value {
    let mut paths = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path.clone()).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_ascii_lowercase()] = operation(endpoint);
    }
    let mut groups: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.group).collect();
    groups.dedup();
    let schemas: Map<String, Value> =
        schemas::all().into_iter().map(|(name, schema)| (name.to_owned(), schema.shown())).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "mcp-aggregator", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": groups.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "tags": [endpoint.group],
        "summary": endpoint.summary,
        "description": endpoint.about,
        "parameters": parameters(endpoint),
        "responses": responses(endpoint),
        // Without tokens, no token is needed.
        "security": if endpoint.is_public { json!([]) } else { json!([{}, {"token": [endpoint.role.as_str()]}]) }
    });
    for (member, role) in &endpoint.role_flags {
        let about = format!("{} With `{member}`, the role `{role}` is needed.", endpoint.about);
        operation["description"] = about.trim_start().into();
    }
    if let Some(body) = &endpoint.body {
        operation["requestBody"] = json!({
            "required": !body.is_optional,
            "content": {"application/json": {"schema": body.schema.shown()}}
        });
    }
    operation
}

/// `post_servers_server_connect`.
fn operation_id(endpoint: &Endpoint) -> String {
    let path = endpoint.path.strip_prefix(PREFIX).unwrap_or(&endpoint.path);
    let words = path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty());
    let method = endpoint.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let about = |name: &str| match name {
        "server" => "The id or name of a server.",
        "skill" => "The id of a skill.",
        "binding" => "The id of a binding.",
        "tool" => "The full name of a tool.",
        _ => "The id of an execution.",
    };
    let names = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let path_parameter = names.map(|name| {
        let schema = json!({"type": "string", "minLength": 1});
        json!({"name": name, "in": "path", "required": true, "description": about(name), "schema": schema})
    });
    let of_query = endpoint
        .query
        .iter()
        .map(|it| json!({"name": it.name, "in": "query", "required": it.is_required, "schema": it.schema.shown()}));
    path_parameter.chain(of_query).collect()
}

fn responses(endpoint: &Endpoint) -> Map<String, Value> {
    let mut responses = Map::new();
    for reply in &endpoint.answers {
        let documented = response(reply);
        match responses.get_mut(&reply.status.to_string()) {
            // The same response in another content type.
            Some(Value::Object(known)) => {
                let form = documented["content"].get(reply.content_type).cloned().unwrap_or_default();
                known["content"][reply.content_type] = form;
            }
            _ => drop(responses.insert(reply.status.to_string(), documented)),
        }
    }
    for (status, error_codes) in error_codes(endpoint) {
        let about: Vec<String> =
            error_codes.iter().map(|known_error| format!("`{}`: {}", known_error.code, known_error.about)).collect();
        let content = json!({"application/json": {"schema": Schema::named("Error").shown()}});
        responses.insert(status.to_string(), json!({"description": about.join("; "), "content": content}));
    }
    responses
}

fn response(reply: &DocumentedResponse) -> Value {
    let mut response = json!({"description": reply.about});
    if let Some(schema) = &reply.schema {
        response["content"] = json!({reply.content_type: {"schema": schema.shown()}});
    }
    if reply.is_page {
        let total = json!({"description": "The total number of items.", "schema": {"type": "integer", "minimum": 0}});
        response["headers"] = json!({"X-Total-Count": total});
    }
    response
}

/// The errors of an endpoint, by status.
fn error_codes(endpoint: &Endpoint) -> BTreeMap<u16, Vec<&'static ErrorCode>> {
    let with_body = endpoint.body.iter().flat_map(|_| error::WITH_BODY);
    let everywhere = error::EVERYWHERE.iter().filter(|_| !endpoint.is_public);
    let needs_role = endpoint.role > Role::User || !endpoint.role_flags.is_empty();
    let of_role = needs_role.then_some(&"ROLE_REQUIRED");
    let mut by_status: BTreeMap<u16, Vec<&'static ErrorCode>> = BTreeMap::new();
    for code in endpoint.fails.iter().chain(with_body).chain(everywhere).chain(of_role) {
        let known = error::known(code).expect("endpoints use only codes of the list");
        let of_status = by_status.entry(known.status).or_default();
        if !of_status.iter().any(|other| other.code == known.code) {
            of_status.push(known);
        }
    }
    by_status
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::endpoints;

    #[test]
    fn every_endpoint_is_reported_with_an_id_of_its_own() {
        let endpoints = endpoints::all();
        let document = document(&endpoints);
        let mut ids = HashSet::new();
        for endpoint in &endpoints {
            let documented = &document["paths"][&endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
            assert!(ids.insert(documented["operationId"].as_str().unwrap().to_owned()), "{documented}");
            assert!(!documented["responses"].as_object().unwrap().is_empty());
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = document(&endpoints::all());
        let text = document.to_string();
        let named = text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
        for name in named {
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
