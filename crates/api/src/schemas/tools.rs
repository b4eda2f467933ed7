//! Schemas of tools, searches and skills.

use registry::Status;
use serde_json::json;
use tool_search::{SkillOrigin, Strategy};

use super::{moment, string_enum};
use crate::schema::{Schema, TextPattern};

/// The maximum length of a query.
const MAX_QUERY_LEN: usize = 8_000;

pub(super) fn tool() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name on its server."))
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("description", Schema::text().or_null())
        .with("input_schema", Schema::anything().about("A JSON Schema, as the server sent it."))
        .with(
            "definition_bytes",
            Schema::count().about("The size of the whole definition in bytes, which a model has to read."),
        )
        .with("is_external", Schema::truth())
        .with("enabled", Schema::truth())
        .with("is_classified", Schema::truth().about("Whether its skills are known."))
        .with("skill_ids", Schema::list(Schema::text()).about("The skills of the tool, best first."))
        .with("skill_confidences", Schema::list(Schema::number()).about("The confidence of each skill, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null().about("The skill that fits the tool best."))
        .with("position", Schema::count().about("The position in the server's list."))
        .with_optional("state", tool_state())
        .with_optional("title", Schema::text().or_null().about("The display name from the server."))
        .with_optional(
            "annotations",
            Schema::anything()
                .about("The server's hints on behaviour: `readOnlyHint`, `destructiveHint` and others; or null."),
        )
        .with_optional("output_schema", Schema::anything().about("A JSON Schema of the result, or null."))
}

/// The progress of classification.
fn tool_state() -> Schema {
    Schema::one_of(["discovered", "classifying", "classified", "unclassified"]).about(
        "The progress of classification: `discovered` waits for its vector, `classifying` for a classification by \
         vectors or a language model, `unclassified` matches no skill.",
    )
}

/// The body that enables or disables tools.
pub(crate) fn switched() -> Schema {
    Schema::object()
        .with("enabled", Schema::truth().about("Whether to enable or disable them."))
        .with_optional("names", Schema::list(Schema::storable_text()).about("Full names, such as `github.search`."))
        .with_optional("server_id", Schema::storable_text().about("All tools of this server, by id or name."))
        .with_either(&["names", "server_id"])
        .and_no_more()
}

/// The body of a search.
pub(crate) fn search() -> Schema {
    let fits = |text: &str| !text.trim().is_empty();
    let query = TextPattern { pattern: "\\S", fits, message: "describe in a few words what you want to do" };
    Schema::object()
        .with(
            "query",
            Schema::matching(query, MAX_QUERY_LEN)
                .about("What you want to do, in plain words.")
                .such_as("create an issue"),
        )
        // Typed clients send null for absent values.
        .with_optional(
            "limit",
            Schema::integer(1, 1000).by_default(10).or_null().about("The maximum number of tools to return."),
        )
        .with_optional(
            "server_filter",
            Schema::list(Schema::storable_text()).or_null().about("Only tools of these servers, by id or name."),
        )
        .with_optional(
            "skill_filter",
            Schema::list(Schema::storable_text())
                .or_null()
                .about("Only tools with one of these skills, by id or name."),
        )
        .with_optional(
            "strategy",
            string_enum!(Strategy)
                .by_default("direct")
                .or_null()
                .about("Search all tools (`direct`), or skills first (`hierarchical`)."),
        )
        .with_optional(
            "skill_threshold",
            Schema::share()
                .by_default(0.1)
                .or_null()
                .about("The minimum score of a skill whose tools are searched, from 0 to 1."),
        )
        .with_optional(
            "threshold",
            Schema::share().by_default(0).or_null().about("The minimum score of a tool, from 0 to 1."),
        )
        .with_optional(
            "include_schemas",
            Schema::truth().by_default(false).or_null().about("Include the input schema of each tool."),
        )
        .with_optional(
            "include_external",
            Schema::truth()
                .by_default(true)
                .or_null()
                .about("Accepted for compatibility: include tools of servers, which all tools are."),
        )
        .and_no_more()
}

pub(super) fn found_tool() -> Schema {
    let source = Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", string_enum!(Status));
    let why = Schema::object()
        .with("matched_words", Schema::list(Schema::text()).about("The words of the query that the tool contains."))
        .with("lexical_score", Schema::number().about("The score of the string_enum, from 0 to 1."))
        .with("vector_score", Schema::number().or_null().about("The similarity of meaning, from 0 to 1."));
    Schema::object()
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name on its server."))
        .with("description", Schema::text().or_null())
        .with("score", Schema::number().about("The score of the match, from 0 to 1."))
        .with("source_server", source)
        .with("skill_ids", Schema::list(Schema::text()))
        .with("skill_confidences", Schema::list(Schema::number()).about("The confidence of each skill, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null())
        .with("is_classified", Schema::truth())
        .with("state", tool_state())
        .with("why", why)
        .with_optional("input_schema", Schema::anything().about("A JSON Schema, as the server sent it."))
}

pub(super) fn findings() -> Schema {
    let matched = Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("score", Schema::number().about("The score of the match, from 0 to 1."));
    let metadata = Schema::object()
        .with("strategy", string_enum!(Strategy).about("`direct` if no skill led to a tool."))
        .with(
            "by_meaning",
            Schema::truth().about("Whether vectors of the model were compared, or only words and the table."),
        )
        .with("vectors", Schema::text().or_null().about("Where vectors were compared: `embedded` or `qdrant`."))
        .with("servers_searched", Schema::count())
        .with("total_tools_searched", Schema::count())
        .with(
            "tools_without_vectors",
            Schema::count().about(
                "Tools without a vector of the model: it is not computed yet, the model refused the text, or there is \
                 no model. They are found by words and, if it is compiled in, by the word table.",
            ),
        )
        .with("embedding_time_ms", Schema::number())
        .with("search_time_ms", Schema::number())
        .with("total_time_ms", Schema::number())
        .with(
            "note",
            Schema::text()
                .or_null()
                .about("A sentence for users, if the built-in model cannot read the language of the query."),
        );
    Schema::object()
        .with("query", Schema::text())
        .with("tools", Schema::list(Schema::named("FoundTool")))
        .with(
            "matched_skills",
            Schema::list(matched).about("The skills that led to the tools; empty in a direct search."),
        )
        .with("metadata", metadata)
}

/// A skill in a response.
pub(super) fn skill() -> Schema {
    Schema::object()
        .with("id", Schema::text().about("The id; it never changes."))
        .with("name", Schema::text())
        .with("description", Schema::text().about("What the tools with this skill do."))
        .with("examples", Schema::list(Schema::text()).about("Example requests for such tools."))
        .with("enabled", Schema::truth().about("Whether tools can have this skill."))
        .with(
            "origin",
            string_enum!(SkillOrigin).about("Where the skill comes from: built in, a file, or created here."),
        )
        .with("is_changed", Schema::truth().about("Whether the skill was changed or created here."))
        .with("tool_count", Schema::count().about("The number of tools of connected servers that have this skill."))
        .with("primary_tool_count", Schema::count().about("The number of tools for which this is the best skill."))
}

/// A suggested skill.
pub(crate) fn suggestion() -> Schema {
    Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("description", Schema::text().about("What the tools with this skill would do."))
        .with("tools", Schema::list(Schema::text()).about("Some tools that would have it, as `server.tool`."))
        .with("rejected", Schema::truth())
        .with("suggested_at", moment())
}

/// The body that creates or changes a skill.
pub(crate) fn changed_skill() -> Schema {
    Schema::object()
        .with_optional(
            "name",
            Schema::storable_text().at_most(100).about("The display name. Required for a new skill."),
        )
        .with_optional(
            "description",
            Schema::storable_text().at_most(2000).about("What the tools with this skill do. Required for a new skill."),
        )
        .with_optional("examples", Schema::list(Schema::storable_text().at_most(500)).about("At most 50."))
        .with_optional("enabled", Schema::truth().about("Whether tools can have this skill; a new skill is enabled."))
        .and_no_more()
        .such_as(json!({"name": "Beekeeping", "description": "Hives and honey", "examples": ["count the bees"]}))
}
