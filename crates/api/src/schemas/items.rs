//! What comes and goes about prompts, resources and the clients that are connected.

use serde_json::json;

use super::moment;
use crate::schema::Schema;

pub(super) fn prompt() -> Schema {
    Schema::object()
        .with("name", Schema::text().about("`server.prompt`."))
        .with("original_name", Schema::text().about("The name its server gave it."))
        .with("server_name", Schema::text())
        .with("title", Schema::text().or_null())
        .with("description", Schema::text().or_null())
        .with("arguments", Schema::list(Schema::anything()).about("What it takes, as its server describes it."))
}

pub(super) fn resource() -> Schema {
    Schema::object()
        .with("uri", Schema::text())
        .with("name", Schema::text().or_null())
        .with("title", Schema::text().or_null())
        .with("description", Schema::text().or_null())
        .with("mime_type", Schema::text().or_null())
        .with("size", Schema::count().or_null().about("In bytes, if its server says so."))
        .with("server_name", Schema::text())
}

/// A prompt to be filled in.
pub(crate) fn prompt_request() -> Schema {
    Schema::object()
        .with("name", Schema::kept_text().about("`server.prompt`, or the prompt's own name."))
        .with_optional("arguments", Schema::any_object().about("Texts by the names of its arguments."))
        .and_no_more()
        .such_as(json!({"name": "github.review", "arguments": {"pull_request": "12"}}))
}

/// A resource to be read.
pub(crate) fn resource_request() -> Schema {
    Schema::object()
        .with("uri", Schema::kept_text().about("Its address, as it is listed."))
        .with_optional("server_id", Schema::kept_text().or_null().about("The server, by id or name."))
        .and_no_more()
        .such_as(json!({"uri": "file:///notes.txt"}))
}

pub(super) fn client() -> Schema {
    Schema::object()
        .with("name", Schema::text().or_null().about("What it calls itself."))
        .with("version", Schema::text().or_null())
        .with("revision", Schema::text().about("The revision of the protocol it speaks.").such_as("2025-11-25"))
        .with("since", moment().about("When it connected; without a session, when it was first heard of."))
        .with("calls", Schema::count().about("How many tools it has called since."))
        .with("caller", Schema::text().or_null().about("The name of its token."))
}
