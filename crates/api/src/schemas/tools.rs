//! What comes and goes about tools: what there is, what is looked for, and what tools are for.

use registry::Status;
use serde_json::json;
use service::tool_search::{SkillOrigin, Strategy};

use super::{moment, words};
use crate::schema::{Schema, Shape};

/// Longer texts than this are nothing anybody reads.
const QUERY: usize = 8_000;

/// A tool.
pub(super) fn tool() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name its server gave it."))
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("description", Schema::text().or_null())
        .with("input_schema", Schema::anything().about("A JSON Schema, as the server wrote it."))
        .with("definition_bytes", Schema::count().about("How long its whole definition is: what it costs a model."))
        .with("is_external", Schema::truth())
        .with("enabled", Schema::truth())
        .with("is_classified", Schema::truth().about("Whether its skills are known."))
        .with("skill_ids", Schema::list(Schema::text()).about("What it is good for, the best first."))
        .with("skill_confidences", Schema::list(Schema::number()).about("How certain each of these is, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null().about("What it is best at."))
        .with("position", Schema::count().about("Its place in its server's list."))
        .with_optional("state", tool_state())
        .with_optional("title", Schema::text().or_null().about("What people call it, as its server says."))
        .with_optional(
            "annotations",
            Schema::anything()
                .about("What its server says of what it does: `readOnlyHint`, `destructiveHint` ..; or null."),
        )
        .with_optional("output_schema", Schema::anything().about("A JSON Schema of what it gives back, or null."))
}

/// How far it is known what a tool is for.
fn tool_state() -> Schema {
    Schema::word(["discovered", "classifying", "classified", "unclassified"]).about(
        "How far it is known what it is for: `discovered` waits for its vector, `classifying` for what its vector or a \
         language model says, `unclassified` fits nowhere.",
    )
}

/// Tools to be switched on or off.
pub(crate) fn switched() -> Schema {
    Schema::object()
        .with("enabled", Schema::truth().about("Whether they are on from now on."))
        .with_optional("names", Schema::list(Schema::kept_text()).about("Full names, as in `github.search`."))
        .with_optional("server_id", Schema::kept_text().about("All tools of this server, by id or name."))
        .with_either(&["names", "server_id"])
        .and_no_more()
}

/// What can be looked for.
pub(crate) fn search() -> Schema {
    let fits = |text: &str| !text.trim().is_empty();
    let query = Shape { pattern: "\\S", fits, says: "say in some words what you want to do" };
    Schema::object()
        .with(
            "query",
            Schema::shaped(query, QUERY).about("What you want to do, in plain words.").such_as("create an issue"),
        )
        // Programs with types say null where nothing is said.
        .with_optional("limit", Schema::integer(1, 1000).by_default(10).or_null().about("At most so many."))
        .with_optional(
            "server_filter",
            Schema::list(Schema::kept_text()).or_null().about("Only of these servers, by id or name."),
        )
        .with_optional(
            "skill_filter",
            Schema::list(Schema::kept_text()).or_null().about("Only with one of these skills, by id or name."),
        )
        .with_optional(
            "strategy",
            words!(Strategy).by_default("direct").or_null().about("Among all tools, or skills first."),
        )
        .with_optional(
            "skill_threshold",
            Schema::share()
                .by_default(0.1)
                .or_null()
                .about("Skills lead to tools if they score at least so much, from 0 to 1."),
        )
        .with_optional(
            "threshold",
            Schema::share().by_default(0).or_null().about("Only what scores at least so much, from 0 to 1."),
        )
        .with_optional(
            "include_schemas",
            Schema::truth().by_default(false).or_null().about("With what each tool takes."),
        )
        .with_optional(
            "include_external",
            Schema::truth().by_default(true).or_null().about("Tools of servers; all tools are."),
        )
        .and_no_more()
}

pub(super) fn found_tool() -> Schema {
    let source = Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", words!(Status));
    let why = Schema::object()
        .with("matched_words", Schema::list(Schema::text()).about("The words of the request that it has."))
        .with("lexical_score", Schema::number().about("How well its words fit, from 0 to 1."))
        .with("vector_score", Schema::number().or_null().about("How near its meaning is, from 0 to 1."));
    Schema::object()
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name its server gave it."))
        .with("description", Schema::text().or_null())
        .with("score", Schema::number().about("How well it fits, from 0 to 1."))
        .with("source_server", source)
        .with("skill_ids", Schema::list(Schema::text()))
        .with("skill_confidences", Schema::list(Schema::number()).about("How certain each of these is, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null())
        .with("is_classified", Schema::truth())
        .with("state", tool_state())
        .with("why", why)
        .with_optional("input_schema", Schema::anything().about("A JSON Schema, as the server wrote it."))
}

pub(super) fn findings() -> Schema {
    let matched = Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("score", Schema::number().about("How well it fits, from 0 to 1."));
    let metadata = Schema::object()
        .with("strategy", words!(Strategy).about("`direct` where no skill led anywhere."))
        .with("by_meaning", Schema::truth().about("Whether meanings were compared, or words alone."))
        .with("vectors", Schema::text().or_null().about("Where meanings were compared: `embedded` or `qdrant`."))
        .with("servers_searched", Schema::count())
        .with("total_tools_searched", Schema::count())
        .with("tools_without_vectors", Schema::count().about("Found by words alone for now."))
        .with("embedding_time_ms", Schema::number())
        .with("search_time_ms", Schema::number())
        .with("total_time_ms", Schema::number());
    Schema::object()
        .with("query", Schema::text())
        .with("tools", Schema::list(Schema::named("FoundTool")))
        .with("matched_skills", Schema::list(matched).about("Those that led to the tools; none in a direct search."))
        .with("metadata", metadata)
}

/// A skill as it is shown.
pub(super) fn skill() -> Schema {
    Schema::object()
        .with("id", Schema::text().about("For ever."))
        .with("name", Schema::text())
        .with("description", Schema::text().about("What its tools do."))
        .with("examples", Schema::list(Schema::text()).about("Things one would ask its tools for."))
        .with("enabled", Schema::truth().about("Whether tools may have it."))
        .with("origin", words!(SkillOrigin).about("Whether it comes with the program, from a file, or was made here."))
        .with("is_changed", Schema::truth().about("Whether it was changed or made here."))
        .with("tool_count", Schema::count().about("Tools of connected servers that are good for it."))
        .with("primary_tool_count", Schema::count().about("Those of them that are best at it."))
}

/// A skill that a classifier missed.
pub(crate) fn suggestion() -> Schema {
    Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("description", Schema::text().about("What its tools would do."))
        .with("tools", Schema::list(Schema::text()).about("Some that would have it, as `server.tool`."))
        .with("rejected", Schema::truth())
        .with("suggested_at", moment())
}

/// What a skill is to be.
pub(crate) fn changed_skill() -> Schema {
    Schema::object()
        .with_optional("name", Schema::kept_text().at_most(100).about("For people. A new skill needs one."))
        .with_optional(
            "description",
            Schema::kept_text().at_most(2000).about("What its tools do. A new skill needs one."),
        )
        .with_optional("examples", Schema::list(Schema::kept_text().at_most(500)).about("50 at most."))
        .with_optional("enabled", Schema::truth().about("Whether tools may have it; a new one is enabled."))
        .and_no_more()
        .such_as(json!({"name": "Beekeeping", "description": "Hives and honey", "examples": ["count the bees"]}))
}
