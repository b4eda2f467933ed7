//! Schemas of bindings, exports and imports.

use registry::{Deployment, SectionKind};
use serde_json::json;

use super::{changed_settings, moment, registration, string_enum};
use crate::schema::Schema;

/// The body that creates a binding.
pub(crate) fn new_binding() -> Schema {
    let line = || Schema::integer(1, i64::from(i32::MAX)).or_null();
    let part = || Schema::storable_text().at_most(notebook::MAX_BINDING_TEXT);
    Schema::object()
        .with(
            "document",
            Schema::storable_text()
                .about(
                    "The path of the document, or a pattern: `*` matches anything except `/`, `**` matches anything. A \
                 pattern that does not start with `/` matches in any folder.",
                )
                .at_most(notebook::MAX_PATTERN_LENGTH)
                .such_as("notes/*.md"),
        )
        .with("server_id", Schema::storable_text().about("The server, by id or name."))
        .with_optional(
            "heading_text",
            part().or_null().about("The text of the heading: `Issues`, or `## Issues` for that level only."),
        )
        .with_optional("block_id", part().or_null().about("The id of the block, without its `^`."))
        .with_optional("start_line", line().about("The first line of the range. Lines of results do not count."))
        .with_optional("end_line", line().about("The last line of the range; must come after the first."))
        .with_optional(
            "inherit_to_children",
            Schema::truth().by_default(true).about("Whether the sections inside inherit the binding."),
        )
}

/// A binding in a response.
pub(super) fn binding() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("document", Schema::text().about("The path of the document, or a pattern."))
        .with(
            "section_type",
            string_enum!(SectionKind).about("The kind of section; decides which of the following members are present."),
        )
        .with_optional("heading_text", Schema::text())
        .with_optional("block_id", Schema::text())
        .with_optional("start_line", Schema::count())
        .with_optional("end_line", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("inherit_to_children", Schema::truth().about("Whether the sections inside inherit the binding."))
        .with("created_at", moment())
        .with("updated_at", moment())
}

/// An exported registry.
pub(crate) fn backup() -> Schema {
    let server = registration().with_optional("deployment_type", string_enum!(Deployment).or_null());
    Schema::object()
        .with("format", Schema::one_of(["mcp-aggregator registry"]))
        .with("version", Schema::integer(1, 1))
        .with_optional("exported_at", moment().or_null())
        .with_optional("servers", Schema::list(server))
        .with_optional("settings", changed_settings())
        .with_optional("skills", Schema::list(Schema::any_object()).about("Skills that were changed or created."))
        .with_optional("profiles", Schema::any_object().about("Registered profiles, by name."))
        .with_optional(
            "bindings",
            Schema::list(Schema::any_object()).about("Bindings of document sections to servers."),
        )
        .with_optional("switched_off", Schema::list(Schema::any_object()).about("Disabled tools: `server` and `tool`."))
        .with_optional("limits", Schema::list(Schema::any_object()).about("Limits of calls, with `kind` and `name`."))
        .such_as(json!({"format": "mcp-aggregator registry", "version": 1, "servers": []}))
}

pub(super) fn import_report() -> Schema {
    let names = |about| Schema::list(Schema::text()).about(about);
    Schema::object()
        .with("added", names("Added servers."))
        .with("replaced", names("Always empty: nothing is replaced."))
        .with("kept", names("Existing servers, which were not changed."))
        .with("without_secrets", names("Servers whose secrets are masked. They are registered, but disabled."))
        .with("settings", Schema::count().about("The number of imported settings."))
        .with("skills", Schema::count().about("The number of imported skills; existing skills were not changed."))
        .with("limits", Schema::count().about("The number of imported limits; existing limits were not changed."))
        .with("profiles", Schema::count().about("The number of imported profiles; existing ones were not changed."))
        .with("bindings", Schema::count().about("The number of imported bindings."))
        .with(
            "bindings_left_out",
            Schema::count().about("The number of bindings that name an unknown server and were skipped."),
        )
}
