//! What comes and goes about what is kept: bindings of documents, and all of the registry.

use registry::{Deployment, SectionKind};
use serde_json::json;

use super::{changed_settings, moment, registration, words};
use crate::schema::Schema;

/// A binding to be made.
pub(crate) fn new_binding() -> Schema {
    let line = || Schema::integer(1, i64::from(i32::MAX)).or_null();
    let part = || Schema::kept_text().at_most(notebook::MAX_BINDING_TEXT);
    Schema::object()
        .with(
            "document",
            Schema::kept_text().about(
                "The document's path, or a pattern: `*` is anything but `/`, `**` anything. One that does not begin \
                 with `/` may begin at any folder.",
            ).at_most(notebook::MAX_PATTERN_LENGTH).such_as("notes/*.md"),
        )
        .with("server_id", Schema::kept_text().about("The server, by id or name."))
        .with_optional("heading_text", part().or_null().about("`Issues`, or `## Issues` of that level only."))
        .with_optional("block_id", part().or_null().about("The id of a block, without its `^`."))
        .with_optional("start_line", line().about("The first line of a range. Lines of results are not counted."))
        .with_optional("end_line", line().about("The last line of a range, after the first."))
        .with_optional("inherit_to_children", Schema::truth().by_default(true).about("Whether sections inside inherit it."))
}

/// A binding as it is shown.
pub(super) fn binding() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("document", Schema::text().about("The document's path, or a pattern for several."))
        .with("section_type", words!(SectionKind).about("Which of the following there is."))
        .with_optional("heading_text", Schema::text())
        .with_optional("block_id", Schema::text())
        .with_optional("start_line", Schema::count())
        .with_optional("end_line", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("inherit_to_children", Schema::truth().about("Whether sections inside inherit it."))
        .with("created_at", moment())
        .with("updated_at", moment())
}

/// A registry in one piece.
pub(crate) fn backup() -> Schema {
    let server = registration().with_optional("deployment_type", words!(Deployment).or_null());
    Schema::object()
        .with("format", Schema::word(["mcp-aggregator registry"]))
        .with("version", Schema::integer(1, 1))
        .with_optional("exported_at", moment().or_null())
        .with_optional("servers", Schema::list(server))
        .with_optional("settings", changed_settings())
        .with_optional("skills", Schema::list(Schema::any_object()).about("Skills that are not as they come."))
        .with_optional("bindings", Schema::list(Schema::any_object()).about("Which servers sections of documents use."))
        .with_optional(
            "switched_off",
            Schema::list(Schema::any_object()).about("Tools that are off: `server` and `tool`."),
        )
        .such_as(json!({"format": "mcp-aggregator registry", "version": 1, "servers": []}))
}

pub(super) fn import_report() -> Schema {
    let names = |about| Schema::list(Schema::text()).about(about);
    Schema::object()
        .with("added", names("New servers."))
        .with("replaced", names("Always empty: nothing is replaced."))
        .with("kept", names("Servers that were there, and stayed as they are."))
        .with("without_secrets", names("Servers whose secrets are masked. They are registered, but switched off."))
        .with("settings", Schema::count().about("How many settings were set."))
        .with("skills", Schema::count().about("How many skills were taken over; those that are here stay."))
        .with("bindings", Schema::count().about("How many bindings were made."))
        .with("bindings_left_out", Schema::count().about("How many bindings name a server that is not there."))
}
