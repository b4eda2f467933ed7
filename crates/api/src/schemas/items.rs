//! Schemas of prompts, resources and connected clients.

use serde_json::json;

use super::moment;
use crate::schema::Schema;

pub(super) fn prompt() -> Schema {
    Schema::object()
        .with("name", Schema::text().about("`server.prompt`."))
        .with("original_name", Schema::text().about("The name on its server."))
        .with("server_name", Schema::text())
        .with("title", Schema::text().or_null())
        .with("description", Schema::text().or_null())
        .with("arguments", Schema::list(Schema::anything()).about("The arguments, as the server describes them."))
}

pub(super) fn resource() -> Schema {
    Schema::object()
        .with("uri", Schema::text())
        .with("name", Schema::text().or_null())
        .with("title", Schema::text().or_null())
        .with("description", Schema::text().or_null())
        .with("mime_type", Schema::text().or_null())
        .with("size", Schema::count().or_null().about("The size in bytes, if the server reports it."))
        .with("server_name", Schema::text())
}

/// The body that gets a prompt.
pub(crate) fn prompt_request() -> Schema {
    Schema::object()
        .with("name", Schema::storable_text().about("`server.prompt`, or the prompt's own name."))
        .with_optional("arguments", Schema::any_object().about("The arguments: strings by name."))
        .and_no_more()
        .such_as(json!({"name": "github.review", "arguments": {"pull_request": "12"}}))
}

/// The body that reads a resource.
pub(crate) fn resource_request() -> Schema {
    Schema::object()
        .with("uri", Schema::storable_text().about("The URI, as listed."))
        .with_optional("server_id", Schema::storable_text().or_null().about("The server, by id or name."))
        .and_no_more()
        .such_as(json!({"uri": "file:///notes.txt"}))
}

pub(super) fn client() -> Schema {
    Schema::object()
        .with("name", Schema::text().or_null().about("The name that the client reports."))
        .with("version", Schema::text().or_null())
        .with("revision", Schema::text().about("The protocol revision of the client.").such_as("2025-11-25"))
        .with("since", moment().about("When the client connected; without a session, the time of its first request."))
        .with("calls", Schema::count().about("The number of tool calls since then."))
        .with("caller", Schema::text().or_null().about("The name of the client's token."))
}
