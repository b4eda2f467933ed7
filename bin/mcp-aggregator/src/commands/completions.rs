//! `completions`: what a shell needs to complete our commands.

use clap_complete::Shell as Generator;

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
    output::print(&script)
}
