//! `licenses`: under which licenses the program and its model are, and whom they credit.

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::output;

const LICENSE: &str = "MIT OR Apache-2.0";
const MIT: &str = include_str!("../../../../LICENSE-MIT");
const APACHE: &str = include_str!("../../../../LICENSE-APACHE");

/// Print the licenses of this program and of its built-in model, with the attributions they ask for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator licenses
  mcp-aggregator licenses --texts          with the full texts of the licenses
  mcp-aggregator licenses --json")]
pub(crate) struct LicensesArguments {
    /// Print the full texts of the licenses as well
    #[arg(long)]
    pub(crate) texts: bool,
    /// Print JSON: {"license", "model"}, with --texts also {"texts": {"MIT", "Apache-2.0"}}
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &LicensesArguments) -> Result<(), Failure> {
    let model = search::model_notice();
    if arguments.json {
        let mut whole = json!({"license": LICENSE, "model": model});
        if arguments.texts {
            whole["texts"] = json!({"MIT": MIT, "Apache-2.0": APACHE});
        }
        return output::print_json(&whole);
    }
    let mut parts = vec!["mcp-aggregator is licensed under MIT or Apache-2.0, at your choice.\n".to_owned()];
    parts.extend(model.map(|notice| format!("The model that finds tools by meaning:\n\n{notice}")));
    if arguments.texts {
        parts.extend([MIT.to_owned(), APACHE.to_owned()]);
    }
    output::print(parts.join("\n").as_bytes())
}
