//! `skills`: what tools can be for, and how many are.

use serde_json::Value;

use crate::arguments::servers::SkillsArguments;
use crate::failure::Failure;
use crate::output;
use crate::session;
use crate::shown::{table, text};
use crate::table::printable;

pub(crate) fn run(arguments: &SkillsArguments) -> Result<(), Failure> {
    let skills = session::block_on(async { Ok(arguments.target.service().await?.get("/skills").await?) })?;
    if arguments.json {
        return output::print_json(&skills);
    }
    let skills = skills.as_array().map(Vec::as_slice).unwrap_or_default();
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
