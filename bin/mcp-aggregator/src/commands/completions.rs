//! `completions`: prints the completion script for a shell.

use clap::{Args, ValueEnum};
use clap_complete::Shell as Generator;
use serde_json::json;

use crate::cli::whole_command;
use crate::failure::Failure;
use crate::output;

/// Print a completion script for your shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator completions bash > ~/.local/share/bash-completion/completions/mcp-aggregator
  mcp-aggregator completions zsh > ~/.zfunc/_mcp-aggregator           with ~/.zfunc in fpath, before compinit
  mcp-aggregator completions fish > ~/.config/fish/completions/mcp-aggregator.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// Print JSON: {"shell", "script"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// A supported shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let generator = match arguments.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut without_hidden(&whole_command()), "mcp-aggregator", &mut script);
    let script = with_names(arguments.shell, &whole(&String::from_utf8_lossy(&script)));
    if arguments.json {
        return output::print_json(&json!({"shell": generator.to_string(), "script": script}));
    }
    output::print(script.as_bytes())
}

/// The command line as users see it: after `help`, clap would also complete hidden commands.
fn without_hidden(whole: &clap::Command) -> clap::Command {
    let seen = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    clap::Command::new("mcp-aggregator")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments())
        .subcommands(seen.cloned())
}

/// clap's script for bash looks up options under a wrong name if the program has a hyphen in its name
/// (clap-rs/clap#6421): then no command has options.
fn whole(script: &str) -> String {
    script.replace("mcp__subcmd__aggregator", "mcp__aggregator")
}

/// The script, with the names of servers, tools and skills, which clap does not know: the hidden command `names` prints
/// them.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let script = script.replace("complete -F _mcp__aggregator ", "complete -F _mcp__aggregator_with_names ");
            match script.rfind("if [[ \"${BASH_VERSINFO") {
                Some(end) => format!("{}{BASH}{}", &script[..end], &script[end..]),
                None => format!("{BASH}{script}"),
            }
        }
        Shell::Zsh => script.replacen("\n_mcp-aggregator() {\n", &format!("\n_mcp-aggregator() {{\n{ZSH}"), 1),
        Shell::Fish => {
            // After an option, fish only completes what the option accepts.
            let is_naming = |line: &str| NAMING.iter().any(|option| line.contains(&format!(" -l {option} ")));
            let line = |line: &str| match line {
                naming if naming.ends_with(" -r") && is_naming(naming) => {
                    format!("{naming} -f -a \"(__mcp_aggregator_names)\"\n")
                }
                // A client, or a file.
                from if from.ends_with(" -r") && from.contains(" -l from ") => {
                    format!("{from} -a \"(__mcp_aggregator_names)\"\n")
                }
                other => format!("{other}\n"),
            };
            FISH.to_owned() + &script.lines().map(line).collect::<String>()
        }
    }
}

/// The options whose values are names.
const NAMING: [&str; 2] = ["server", "skill"];

const BASH: &str = "\
_mcp__aggregator_with_names() {
    local names
    if names=\"$(mcp-aggregator names -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\"; then
        COMPREPLY=( $(compgen -W \"${names}\" -- \"${COMP_WORDS[COMP_CWORD]}\") )
        if [[ ${#COMPREPLY[@]} -gt 0 ]]; then
            return 0
        fi
    fi
    _mcp__aggregator \"$@\"
}

";

const ZSH: &str = "\
    local offered
    local -a names
    if offered=\"$(mcp-aggregator names -- \"${(@Q)words[2,CURRENT]}\" 2>/dev/null)\"; then
        names=(${(f)offered})
        if (( $#names )) && compadd -a names; then
            return 0
        fi
    fi
";

const FISH: &str = "\
function __mcp_aggregator_names
    set -l typed (commandline -opc) (commandline -ct)
    mcp-aggregator names -- $typed[2..] 2>/dev/null
end
complete -c mcp-aggregator -n '__mcp_aggregator_names >/dev/null' -f -a '(__mcp_aggregator_names)'
";
