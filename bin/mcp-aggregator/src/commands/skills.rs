//! `skills`: what tools can be for, and how many are; and skills that a classifier missed.

use serde_json::Value;

use crate::arguments::tools::{SkillsArguments, SkillsVerb};
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::session;
use crate::table::printable;

pub(crate) fn run(arguments: &SkillsArguments) -> Result<(), Failure> {
    let id = arguments.id.as_deref().unwrap_or_default();
    match arguments.verb {
        None => list(arguments),
        Some(SkillsVerb::Suggestions) => suggestions(arguments),
        Some(SkillsVerb::Accept) => decide(arguments, id, "accept", "is a skill now; tools are classified anew"),
        Some(SkillsVerb::Reject) => decide(arguments, id, "reject", "is not suggested again"),
    }
}

fn suggestions(arguments: &SkillsArguments) -> Result<(), Failure> {
    let found = session::block_on(async { Ok(arguments.target.service().await?.list("/skills/suggestions").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(found));
    }
    if found.is_empty() {
        print_message("no skill was suggested; a classifier does that (`serve --classifier-url`)");
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
                .with_hint("`mcp-aggregator skills suggestions` shows all of them")
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
