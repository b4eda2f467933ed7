//! Schemas of documents and the assistant.

use serde_json::json;

use super::executions::SESSION;
use crate::schema::Schema;

const MAX_PATH_LEN: usize = 4096;
const MAX_QUESTION_LEN: usize = 1_000_000;

/// A document in a request.
pub(crate) fn requested() -> Schema {
    Schema::object()
        .with_optional(
            "text",
            Schema::text().about("The text of the document.").such_as("# Notes\n\n```time\ntool: now\n```\n"),
        )
        .with_optional(
            "path",
            Schema::storable_text().at_most(MAX_PATH_LEN).about(
                "The path of the document. It decides which bindings of the registry apply, and is recorded with each \
                 call. Without `text`, the document is read from the folder of `serve --documents`.",
            ),
        )
}

/// The path of a document.
pub(crate) fn path() -> Schema {
    Schema::storable_text()
        .at_most(MAX_PATH_LEN)
        .about("The path of the document, relative to the folder of `serve --documents`.")
}

/// A line of a document.
pub(crate) fn line() -> Schema {
    Schema::integer(1, i64::from(i32::MAX)).about("A line number, starting at 1.")
}

/// The body that runs a document.
pub(crate) fn run() -> Schema {
    requested()
        .with_optional(
            "blocks",
            Schema::list(Schema::integer(1, i64::from(i32::MAX))).about("Run only these blocks. Numbers start at 1."),
        )
        .with_optional(
            "version",
            Schema::text().about(
                "The `version` of a map of the document. If the document has changed since then, nothing runs \
                 (DOCUMENT_CHANGED). Send it together with `blocks`, so that the numbers refer to the document you \
                 saw.",
            ),
        )
        .with_optional(
            "section",
            Schema::text().about("Run only blocks under this heading: `Tools`, or `## Tools` for that level only."),
        )
        .with_optional("line", line().about("Run only the block on this line."))
        .with_optional(
            "dry_run",
            Schema::truth().by_default(false).about("Find the tools and check the parameters, but call nothing."),
        )
        .with_optional("force", Schema::truth().by_default(false).about("Replace results that were edited by hand."))
        .with_optional(
            "jobs",
            Schema::integer(1, 64).by_default(1).about("The maximum number of blocks that run at the same time."),
        )
        .with_optional(
            "output",
            Schema::one_of(["text", "edits", "both", "none"])
                .by_default("text")
                .about("How to return the new text: whole, as edits of the old text, both, or not at all."),
        )
        .with_optional(
            "save",
            Schema::truth().by_default(false).about("Write the results into the document at `path`."),
        )
        .with_optional(
            "session",
            Schema::storable_text()
                .at_most(SESSION)
                .about("The session that the calls belong to; by default a new one for this run."),
        )
        .with_optional("confirm_destructive", confirm_destructive())
}

/// Whether an assistant may call destructive tools.
fn confirm_destructive() -> Schema {
    let about = "Let the assistant call destructive tools (`destructiveHint`). Otherwise such calls fail with an \
         explanation for the model.";
    Schema::truth().by_default(false).about(about)
}

/// A question to the assistant.
pub(crate) fn question() -> Schema {
    requested()
        .with(
            "question",
            Schema::storable_text()
                .at_most(MAX_QUESTION_LEN)
                .about("The question.")
                .such_as("Which issues are urgent?"),
        )
        .with_optional(
            "line",
            line().about("The line of the document that the question belongs to; its binding applies."),
        )
        .with_optional(
            "servers",
            Schema::list(Schema::storable_text()).about("Only tools of these servers, by id or name."),
        )
        .with_optional(
            "skills",
            Schema::list(Schema::storable_text()).about("Only tools with one of these skills, by id or name."),
        )
        .with_optional("confirm_destructive", confirm_destructive())
        .with_optional(
            "max_rounds",
            Schema::integer(1, 1000).by_default(10).about("The maximum number of requests to the model."),
        )
        .with_optional(
            "session",
            Schema::storable_text()
                .at_most(SESSION)
                .about("The session that the calls belong to; by default a new one for this question."),
        )
        .with_optional(
            "transcript",
            Schema::truth().by_default(false).about("Include the whole conversation with the model."),
        )
}

/// The answer of the assistant.
fn assistant_answer() -> Schema {
    let endings =
        ["answered", "cut_short", "refused", "silent", "rounds_spent", "calls_spent", "goes_in_circles", "stopped"];
    let call = Schema::object()
        .with("tool", Schema::text().about("`server.tool`."))
        .with("arguments", Schema::text().about("As the model wrote them."))
        .with("took_ms", Schema::count().or_null())
        .with("problem", Schema::text().or_null().about("Why the call was not made, or failed."));
    Schema::object()
        .with("ok", Schema::truth().about("Whether the model gave a complete answer."))
        .with("answer", Schema::text().about("The last text of the model, in Markdown."))
        .with("ended", Schema::one_of(endings).about("Why the conversation ended."))
        .with("message", Schema::text().about("The reason as a sentence."))
        .with("calls", Schema::list(call).about("Calls in the order in which they were made."))
        .with("model", Schema::text())
        .with("input_tokens", Schema::count().about("0 if the provider does not report it."))
        .with("output_tokens", Schema::count())
        .with("remarks", Schema::list(Schema::text()).about("Problems with the bindings in the document."))
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
    "Why the parameters were not, or not completely, checked against the schema of the tool. The server checks them.";

fn document() -> Schema {
    Schema::object()
        .with("path", Schema::text().about("The path relative to the folder."))
        .with("bytes", Schema::count())
        .with("modified_at", Schema::formatted("date-time").or_null())
        .with_optional(
            "problem",
            Schema::text().about(
                "Why this entry is not a document: a folder that cannot be read, or the point where the list ends \
                 because it is too long.",
            ),
        )
}

fn remark() -> Schema {
    Schema::object().with("line", Schema::count()).with("what", Schema::text())
}

/// The binding of a section or block.
fn bound() -> Schema {
    Schema::object()
        .with("section_type", Schema::one_of(["document", "heading", "block", "range"]))
        .with_optional("heading_text", Schema::text())
        .with_optional("block_id", Schema::text())
        .with_optional("start_line", Schema::count())
        .with_optional("end_line", Schema::count())
        .with("server", Schema::text())
        .with("inherit_to_children", Schema::truth())
        .with("origin", Schema::one_of(["comment", "front_matter", "registry"]).about("Where the binding is declared."))
        .with_optional("line", Schema::count().about("The line of the document that declares it."))
        .with("is_inherited", Schema::truth().about("Whether the binding belongs to an enclosing section."))
}

fn bound_or_null() -> Schema {
    Schema::either([Schema::named("Bound"), Schema::anything().or_null()]).about("The binding, if there is one.")
}

fn map() -> Schema {
    let addressee = Schema::anything().about("`{\"server\": NAME}`, `any_server` or `assistant`.");
    let block = Schema::object()
        .with("number", Schema::count())
        .with("line", Schema::count())
        .with("addressee", addressee)
        .with("bound", bound_or_null())
        .with("title", Schema::text().about("`server.tool`, or `assistant`."))
        .with(
            "problem",
            problem().about("Why the block cannot run, as far as that is known without contacting a server."),
        )
        .with_optional("not_checked", Schema::text().about(NOT_CHECKED));
    let section = Schema::object()
        .with("level", Schema::count().about("0 for the text before the first heading."))
        .with("heading", Schema::text())
        .with("line", Schema::count())
        .with("bound", bound_or_null())
        .with("server", Schema::text().or_null().about("The server on which an `mcp` block here would run."))
        .with("why", Schema::text().about("Why it is that server."))
        .with("blocks", Schema::list(block));
    let version = "Identifies the content of the document and the servers of its blocks; results do not count. A run \
         can require it.";
    Schema::object()
        .with("sections", Schema::list(section))
        .with("remarks", Schema::list(Schema::named("Remark")))
        .with("version", Schema::text().about(version))
}

fn problem() -> Schema {
    let kinds = [
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
        .with("trouble", Schema::one_of(kinds))
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
        .with("line", Schema::count().about("The line in the text that was sent."))
        .with("title", Schema::text().about("`server.tool`, or `assistant`."))
        .with("status", Schema::one_of(["done", "failed", "refused", "stopped", "ready"]))
        .with("took_ms", Schema::count().or_null())
        .with("message", Schema::text().or_null().about("Why the block failed or was stopped."))
        .with("problem", problem().about("Why the block was not called."))
        .with(
            "ends_run",
            Schema::truth().about("Whether the run ends here, because this block and all blocks after it cannot run."),
        )
        .with("request", request.or_null().about("The call that was made, or would be."))
        .with("written", Schema::one_of(fates).or_null().about("What happened to the result."))
        .with_optional("not_checked", Schema::text().about(NOT_CHECKED));
    let edit = Schema::object()
        .with("start", Schema::count().about("The first UTF-8 byte that is replaced."))
        .with("end", Schema::count().about("The byte after the last one."))
        .with("line", Schema::count())
        .with("text", Schema::text().about("The replacement."))
        .with("start_utf16", Schema::count().about("The same, in UTF-16 code units."))
        .with("end_utf16", Schema::count());
    let attachment = Schema::object()
        .with("path", Schema::text().about("The path in the link of the document."))
        .with("base64", Schema::text());
    Schema::object()
        .with("ok", Schema::truth().about("Whether every selected block ran without an error."))
        .with("blocks", Schema::list(block))
        .with("remarks", Schema::list(Schema::named("Remark")))
        .with("saved", Schema::truth().about("Whether the results were written into the document on disk."))
        .with(
            "attachments",
            Schema::list(attachment)
                .about("Files that the new text links to. If the document was saved, they are already written."),
        )
        .with_optional("text", Schema::text())
        .with_optional(
            "edits",
            Schema::list(edit).about("The edits that turn the old text into the new one, from top to bottom."),
        )
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
        .with("server", Schema::text().or_null().about("The server on which an `mcp` block here would run."))
        .with("why", Schema::text())
        .with("allowed_servers", Schema::list(Schema::text()))
        .with("block", block.or_null())
        .with(
            "tools",
            Schema::list(Schema::named("Tool")).about("The tools that may be used here and can be called now."),
        )
}

fn assistant_tools() -> Schema {
    let tool = Schema::object()
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("tool_name", Schema::text().about("The name on its server."))
        .with("name", Schema::text().about("`server.tool`."))
        .with("safe_name", Schema::text().about("The name that models use; every provider accepts it."))
        .with("description", Schema::text().or_null())
        .with("input_schema", Schema::anything())
        .with("definition_bytes", Schema::count().about("The length of the whole definition in bytes."))
        .with("is_read_only", Schema::truth().about("Whether the server declares the tool as read-only."))
        .with("is_idempotent", Schema::truth().about("Whether the server declares the tool as idempotent."))
        .with("is_destructive", Schema::truth().about("Whether the server declares the tool as destructive."))
        .with("skill_ids", Schema::list(Schema::text()));
    Schema::object()
        .with("tools", Schema::list(tool))
        .with("enabled_servers", Schema::list(Schema::text()))
        .with("section_binding", Schema::text().or_null().about("The server that the line is bound to, if any."))
        .with("why", Schema::text())
        .with(
            "remarks",
            Schema::list(Schema::text()).about(
                "Problems with the bindings in the document. While there are any, parts without a binding have no tools.",
            ),
        )
        .with("format", Schema::text().or_null())
        .with("provider_tools", Schema::anything().about("The value for `tools` in a request to that provider."))
}
