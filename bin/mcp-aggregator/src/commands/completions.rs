//! `completions`: what a shell needs to complete our commands.

use clap_complete::Shell as Generator;
use serde_json::json;

use crate::arguments::manual::{CompletionsArguments, Shell};
use crate::arguments::whole_command;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let generator = match arguments.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut whole_command(), "mcp-aggregator", &mut script);
    let script = whole(&String::from_utf8_lossy(&script));
    if arguments.json {
        return output::print_json(&json!({"shell": generator.to_string(), "script": script}));
    }
    output::print(script.as_bytes())
}

/// The script for bash looks for options under another name than it files them, if the program has a hyphen in its name
/// (clap-rs/clap#6421): then no verb has any.
fn whole(script: &str) -> String {
    script.replace("mcp__subcmd__aggregator", "mcp__aggregator")
}
