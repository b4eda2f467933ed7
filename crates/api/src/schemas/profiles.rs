//! Schemas of profiles.

use registry::Origin;
use serde_json::json;

use super::{moment, string_enum};
use crate::schema::Schema;

/// The body that creates or replaces a profile. Its values are checked by the service.
pub(crate) fn profile_request() -> Schema {
    members(Schema::object()).and_no_more().such_as(json!({"servers": ["git"], "tools": ["git.*", "!git.push"]}))
}

/// A profile, and what its clients see.
pub(super) fn profile() -> Schema {
    let counts = Schema::object()
        .with("servers", Schema::count().about("Servers, connected or not."))
        .with("tools", Schema::count())
        .with("prompts", Schema::count())
        .with("resources", Schema::count().about("Listed resources."))
        .with("resource_templates", Schema::count());
    let profile = Schema::object()
        .with("name", Schema::text())
        .with("origin", string_enum!(Origin).about("Whether it was registered, or comes from the config file."));
    members(profile)
        .with("sees", counts.about("What its clients see now."))
        .with("bound", Schema::list(Schema::text()).about("The names of the tokens that are bound to it."))
        .with("warnings", Schema::list(Schema::text()).about("Patterns that match nothing now."))
        .with("updated_at", moment().or_null())
}

fn members(schema: Schema) -> Schema {
    let patterns = |about| Schema::list(Schema::storable_text()).about(about);
    schema
        .with_optional("servers", patterns("Patterns of the names of servers."))
        .with_optional("tools", patterns("Patterns of `server.tool`."))
        .with_optional("prompts", patterns("Patterns of `server.prompt`."))
        .with_optional("resources", patterns("Patterns of the URIs of resources."))
        .with_optional(
            "classes",
            patterns("Only tools of these classes, by their annotations: `read_only`, `non_destructive`."),
        )
        .with_optional(
            "surface",
            Schema::text().about("How its clients see the tools: `full`, `search`, `grow` or `auto`."),
        )
        .with_optional("pinned", patterns("Tools that are listed on every surface, by their full names."))
}
