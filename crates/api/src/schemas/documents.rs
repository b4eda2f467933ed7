//! What comes and goes about documents.

use serde_json::json;

use super::executions::SESSION;
use crate::schema::Schema;

const MAX_PATH_LEN: usize = 4096;
const MAX_QUESTION_LEN: usize = 1_000_000;

/// A document as a request names it.
pub(crate) fn requested() -> Schema {
    Schema::object()
        .with_optional("text", Schema::text().about("Its text.").such_as("# Notes\n\n```time\ntool: now\n```\n"))
        .with_optional(
            "path",
            Schema::kept_text().at_most(MAX_PATH_LEN).about(
                "Where it is: for what the registry binds it to, and for the account of calls. Without `text`, a document \
                 below the folder of `serve --documents`.",
            ),
        )
}

/// The path of a document.
pub(crate) fn path() -> Schema {
    Schema::kept_text().at_most(MAX_PATH_LEN).about("Its path, as seen from the folder of `serve --documents`.")
}

/// A line of a document.
pub(crate) fn line() -> Schema {
    Schema::integer(1, i64::from(i32::MAX)).about("A line, from 1.")
}

/// A run to be made.
pub(crate) fn run() -> Schema {
    requested()
        .with_optional(
            "blocks",
            Schema::list(Schema::integer(1, i64::from(i32::MAX))).about("Only these, by number from 1."),
        )
        .with_optional(
            "version",
            Schema::text().about(
                "The `version` of its map: if the document is another by then, nothing is run (DOCUMENT_CHANGED). Who names \
                 blocks by number should say which document they looked at.",
            ),
        )
        .with_optional("section", Schema::text().about("Only those under this heading: `Tools`, or `## Tools`."))
        .with_optional("line", line().about("Only the one that is in this line."))
        .with_optional(
            "dry_run",
            Schema::truth().by_default(false).about("Look tools up and check parameters; call nothing."),
        )
        .with_optional("force", Schema::truth().by_default(false).about("Replace results that somebody edited."))
        .with_optional("jobs", Schema::integer(1, 64).by_default(1).about("How many blocks may run at once."))
        .with_optional(
            "output",
            Schema::word(["text", "edits", "both", "none"])
                .by_default("text")
                .about("What is sent of the new text: all of it, how it came from the old one, both, or nothing."),
        )
        .with_optional("save", Schema::truth().by_default(false).about("Write the results into the document of `path`."))
        .with_optional("session", Schema::kept_text().at_most(SESSION).about("What the calls count for; by default this run alone."))
        .with_optional("confirm_destructive", confirm_destructive())
}

/// Whether an assistant may do what cannot be undone.
fn confirm_destructive() -> Schema {
    let about = "Let the assistant call tools that may destroy something (`destructiveHint`); else they are not called, \
                 and it is told so.";
    Schema::truth().by_default(false).about(about)
}

/// A question to the assistant.
pub(crate) fn question() -> Schema {
    requested()
        .with(
            "question",
            Schema::kept_text().at_most(MAX_QUESTION_LEN).about("What is asked.").such_as("Which issues are urgent?"),
        )
        .with_optional(
            "line",
            line().about("The line of the document that it is asked from: what it is bound to holds."),
        )
        .with_optional("servers", Schema::list(Schema::kept_text()).about("Only with tools of these, by id or name."))
        .with_optional(
            "skills",
            Schema::list(Schema::kept_text()).about("Only with tools that have one of these skills."),
        )
        .with_optional("confirm_destructive", confirm_destructive())
        .with_optional("max_rounds", Schema::integer(1, 1000).by_default(10).about("How often the model may be asked."))
        .with_optional(
            "session",
            Schema::kept_text().at_most(SESSION).about("What the calls count for; by default this question alone."),
        )
        .with_optional("transcript", Schema::truth().by_default(false).about("Also send all that was said."))
}

/// What came of a question.
fn assistant_answer() -> Schema {
    let endings =
        ["answered", "cut_short", "refused", "silent", "rounds_spent", "calls_spent", "goes_in_circles", "stopped"];
    let call = Schema::object()
        .with("tool", Schema::text().about("`server.tool`."))
        .with("arguments", Schema::text().about("As the model wrote them."))
        .with("took_ms", Schema::count().or_null())
        .with("problem", Schema::text().or_null().about("Why it was not made, or gave nothing good."));
    Schema::object()
        .with("ok", Schema::truth().about("Whether the model has said what it had to say."))
        .with("answer", Schema::text().about("Its last words, in Markdown."))
        .with("ended", Schema::word(endings).about("How it ended."))
        .with("message", Schema::text().about("The same in words."))
        .with("calls", Schema::list(call).about("In their order."))
        .with("model", Schema::text())
        .with("input_tokens", Schema::count().about("0 if the provider does not tell."))
        .with("output_tokens", Schema::count())
        .with("remarks", Schema::list(Schema::text()).about("What of the document's own bindings makes no sense."))
        .with_optional("transcript", Schema::any_object())
}

pub(super) fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("Document", document()),
        ("DocumentMap", map()),
        ("DocumentRun", outcome()),
        ("DocumentContext", context()),
        ("AssistantTools", assistant_tools()),
        ("AssistantAnswer", assistant_answer()),
        ("Remark", remark()),
        ("Bound", bound()),
    ]
}

const NOT_CHECKED: &str =
    "Why its parameters were not checked against the tool's schema, or not completely. The server decides then.";

fn document() -> Schema {
    Schema::object()
        .with("path", Schema::text().about("As seen from the folder."))
        .with("bytes", Schema::count())
        .with("modified_at", Schema::formatted("date-time").or_null())
        .with_optional(
            "problem",
            Schema::text().about(
                "Why this is no document, but a folder that cannot be read, or where the list ends because it is too long.",
            ),
        )
}

fn remark() -> Schema {
    Schema::object().with("line", Schema::count()).with("what", Schema::text())
}

/// A server that a place is bound to.
fn bound() -> Schema {
    Schema::object()
        .with("section_type", Schema::word(["document", "heading", "block", "range"]))
        .with_optional("heading_text", Schema::text())
        .with_optional("block_id", Schema::text())
        .with_optional("start_line", Schema::count())
        .with_optional("end_line", Schema::count())
        .with("server", Schema::text())
        .with("inherit_to_children", Schema::truth())
        .with("origin", Schema::word(["comment", "front_matter", "registry"]).about("Who says so."))
        .with_optional("line", Schema::count().about("Where in the document it is said."))
        .with("is_inherited", Schema::truth().about("It holds for a section around this one."))
}

fn bound_or_null() -> Schema {
    Schema::either([Schema::named("Bound"), Schema::anything().or_null()]).about("What it is bound to, if it is.")
}

fn map() -> Schema {
    let addressee = Schema::anything().about("`{\"server\": NAME}`, `any_server` or `assistant`.");
    let block = Schema::object()
        .with("number", Schema::count())
        .with("line", Schema::count())
        .with("addressee", addressee)
        .with("bound", bound_or_null())
        .with("title", Schema::text().about("`server.tool`, or `assistant`."))
        .with("problem", problem().about("Why it would not be run, as far as that is known without asking any server."))
        .with_optional("not_checked", Schema::text().about(NOT_CHECKED));
    let section = Schema::object()
        .with("level", Schema::count().about("0 is what stands before the first heading."))
        .with("heading", Schema::text())
        .with("line", Schema::count())
        .with("bound", bound_or_null())
        .with("server", Schema::text().or_null().about("Where an `mcp` block here would run."))
        .with("why", Schema::text().about("Why it is that one."))
        .with("blocks", Schema::list(block));
    let version = "One word for what it says and where its blocks run; results do not count. A run may be bound to it.";
    Schema::object()
        .with("sections", Schema::list(section))
        .with("remarks", Schema::list(Schema::named("Remark")))
        .with("version", Schema::text().about(version))
}

fn problem() -> Schema {
    let troubles = [
        "unclosed",
        "torn_result",
        "edited_result",
        "bad_yaml",
        "bad_arguments",
        "no_server",
        "no_tool",
        "refused",
        "no_assistant",
    ];
    Schema::object()
        .with("trouble", Schema::word(troubles))
        .with("faults", Schema::list(Schema::named("Remark")))
        .or_null()
}

fn outcome() -> Schema {
    let request = Schema::object()
        .with("server", Schema::text())
        .with("tool", Schema::text())
        .with("arguments", Schema::text().about("A JSON object, as text."))
        .with("line", Schema::count());
    let fates = ["written", "unchanged", "nothing", "block_changed", "kept", "unfit"];
    let block = Schema::object()
        .with("number", Schema::count())
        .with("line", Schema::count().about("In the text that was sent."))
        .with("title", Schema::text().about("`server.tool`, or `assistant`."))
        .with("status", Schema::word(["done", "failed", "refused", "stopped", "ready"]))
        .with("took_ms", Schema::count().or_null())
        .with("message", Schema::text().or_null().about("Why it failed or was stopped."))
        .with("problem", problem().about("Why it was not called."))
        .with("ends_run", Schema::truth().about("It was not called, and no block after it could be: the run is over."))
        .with("request", request.or_null().about("What was called, or would be."))
        .with("written", Schema::word(fates).or_null().about("What became of its result."))
        .with_optional("not_checked", Schema::text().about(NOT_CHECKED));
    let edit = Schema::object()
        .with("start", Schema::count().about("The first byte of UTF-8 that is replaced."))
        .with("end", Schema::count().about("The byte after the last."))
        .with("line", Schema::count())
        .with("text", Schema::text().about("What comes there."))
        .with("start_utf16", Schema::count().about("The same in units of UTF-16."))
        .with("end_utf16", Schema::count());
    let attachment =
        Schema::object().with("path", Schema::text().about("As the document links it.")).with("base64", Schema::text());
    Schema::object()
        .with("ok", Schema::truth().about("Whether everything that was to be run was, without an error."))
        .with("blocks", Schema::list(block))
        .with("remarks", Schema::list(Schema::named("Remark")))
        .with("saved", Schema::truth().about("Whether the document on disk has the results."))
        .with("attachments", Schema::list(attachment).about("Files that the new text links; written already if saved."))
        .with_optional("text", Schema::text())
        .with_optional("edits", Schema::list(edit).about("How the new text comes from the old one, from the top."))
}

fn context() -> Schema {
    let block = Schema::object()
        .with("number", Schema::count())
        .with("line", Schema::count())
        .with("last_line", Schema::count())
        .with("title", Schema::text())
        .with("problem", problem());
    Schema::object()
        .with("path", Schema::text().or_null())
        .with("line", Schema::count())
        .with("text_is_known", Schema::truth())
        .with("remarks", Schema::list(Schema::text()))
        .with("sections", Schema::list(Schema::text()).such_as(json!(["# Notes", "## Issues"])))
        .with("bound", bound_or_null())
        .with("server", Schema::text().or_null().about("Where an `mcp` block here would run."))
        .with("why", Schema::text())
        .with("allowed_servers", Schema::list(Schema::text()))
        .with("block", block.or_null())
        .with("tools", Schema::list(Schema::named("Tool")).about("Those that may be used here and can be called now."))
}

fn assistant_tools() -> Schema {
    let tool = Schema::object()
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("tool_name", Schema::text().about("The name its server gave it."))
        .with("name", Schema::text().about("`server.tool`."))
        .with("safe_name", Schema::text().about("A name that every provider accepts, and what models call it."))
        .with("description", Schema::text().or_null())
        .with("input_schema", Schema::anything())
        .with("definition_bytes", Schema::count().about("The length of its whole definition."))
        .with("is_read_only", Schema::truth().about("Its server says that it changes nothing."))
        .with("is_idempotent", Schema::truth().about("Its server says that calling it twice does no harm."))
        .with("is_destructive", Schema::truth().about("Its server says that it may destroy something."))
        .with("skill_ids", Schema::list(Schema::text()));
    Schema::object()
        .with("tools", Schema::list(tool))
        .with("enabled_servers", Schema::list(Schema::text()))
        .with("section_binding", Schema::text().or_null().about("The only server, if the line is bound to one."))
        .with("why", Schema::text())
        .with(
            "remarks",
            Schema::list(Schema::text()).about("What of the document's own bindings makes no sense. Until it does, no tools are offered where nothing is bound."),
        )
        .with("format", Schema::text().or_null())
        .with("provider_tools", Schema::anything().about("What stands under `tools` in a request to that provider."))
}
