//! `skills`: lists skills with their numbers of tools, and suggested skills.

use clap::Args;
use serde_json::Value;

use crate::cli::shared::REST_JSON;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::session;
use crate::table::printable;
use crate::target::TargetArguments;

/// List skills and the number of tools in each. Needs a running service.
///
/// The service assigns skills to tools in the background, by their descriptions. You can change skills with the REST
/// API (see /api/docs) or define them with `serve --skills`. A classifier (`serve --classifier-url`) may suggest new
/// ones: `skills suggestions` lists them, `skills accept ID` adds one, `skills reject ID` rejects one permanently.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator skills
  mcp-aggregator skills suggestions
  mcp-aggregator skills accept image-editing"
)]
pub(crate) struct SkillsArguments {
    /// What to do with suggested skills
    #[arg(value_name = "suggestions|accept|reject")]
    pub(crate) verb: Option<SkillsVerb>,
    /// The skill to accept or reject
    #[arg(value_name = "ID", required_if_eq_any([("verb", "accept"), ("verb", "reject")]))]
    pub(crate) id: Option<String>,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What to do with suggested skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SkillsVerb {
    Suggestions,
    Accept,
    Reject,
}

pub(crate) fn run(arguments: &SkillsArguments) -> Result<(), Failure> {
    let id = arguments.id.as_deref().unwrap_or_default();
    match arguments.verb {
        None => list(arguments),
        Some(SkillsVerb::Suggestions) => suggestions(arguments),
        Some(SkillsVerb::Accept) => {
            decide(arguments, id, "accept", "is a skill now; the service classifies tools again")
        }
        Some(SkillsVerb::Reject) => decide(arguments, id, "reject", "will not be suggested again"),
    }
}

fn suggestions(arguments: &SkillsArguments) -> Result<(), Failure> {
    let found = session::block_on(async { Ok(arguments.target.service().await?.list("/skills/suggestions").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(found));
    }
    if found.is_empty() {
        print_message("there are no suggestions; a classifier makes them (`serve --classifier-url`)");
        return Ok(());
    }
    output::print_lines(&table(["SKILL", "NAME", "WHAT ITS TOOLS DO", "TOOLS"], found.iter().map(suggested).collect()))
}

fn suggested(suggestion: &Value) -> [String; 4] {
    let words = |name: &str| printable(suggestion[name].as_str().unwrap_or_default());
    let tools = suggestion["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).map(printable);
    [text(suggestion, "id"), words("name"), words("description"), tools.collect::<Vec<_>>().join(", ")]
}

fn decide(arguments: &SkillsArguments, id: &str, verb: &str, outcome: &str) -> Result<(), Failure> {
    let path = format!("/skills/suggestions/{}/{verb}", encoded(id));
    let decided = session::block_on(async { Ok(arguments.target.service().await?.post(&path, None).await?) });
    decided.map_err(|failure| match failure.kind.as_deref() {
        Some("SKILL_NOT_FOUND") => {
            Failure { message: format!("there is no suggestion `{}`", printable(id)), ..failure }
                .with_hint("`mcp-aggregator skills suggestions` lists all")
        }
        _ => failure,
    })?;
    print_message(format!("`{}` {outcome}", printable(id)));
    Ok(())
}

fn list(arguments: &SkillsArguments) -> Result<(), Failure> {
    let skills = session::block_on(async { Ok(arguments.target.service().await?.list("/skills").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(skills));
    }
    output::print_lines(&table(["SKILL", "TOOLS", "NAME", "WHAT ITS TOOLS DO"], skills.iter().map(row).collect()))
}

fn row(skill: &Value) -> [String; 4] {
    let count = match skill["enabled"].as_bool() {
        Some(false) => "off".to_owned(),
        _ => skill["tool_count"].to_string(),
    };
    let words = |name: &str| printable(skill[name].as_str().unwrap_or_default());
    [text(skill, "id"), count, words("name"), words("description")]
}
