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
    let script = with_names(arguments.shell, &whole(&String::from_utf8_lossy(&script)));
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

/// The verbs behind which stands a server or a tool. Which there are, `names` says.
const NAMING: [&str; 9] = ["show", "enable", "disable", "connect", "disconnect", "test", "history", "remove", "call"];

/// The script with the names of servers and tools, which the library knows nothing of.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let function = BASH.replace("VERBS", &NAMING.join("|"));
            let script = script.replace("complete -F _mcp__aggregator ", "complete -F _mcp__aggregator_with_names ");
            match script.rfind("if [[ \"${BASH_VERSINFO") {
                Some(end) => format!("{}{function}{}", &script[..end], &script[end..]),
                None => format!("{function}{script}"),
            }
        }
        Shell::Zsh => {
            let is_name = |line: &str| {
                ["':server -- ", "':tool -- ", "'*::names -- "].iter().any(|beginning| line.starts_with(beginning))
            };
            let line = |line: &str| match is_name(line) {
                true => line.replace(":_default'", ":_mcp-aggregator_names'"),
                false => line.to_owned(),
            };
            let lines: Vec<String> = script.lines().map(line).collect();
            lines.join("\n").replacen("\n_mcp-aggregator() {", &format!("\n{ZSH}\n_mcp-aggregator() {{"), 1) + "\n"
        }
        Shell::Fish => {
            let line = |verb: &&str| {
                format!(
                    "complete -c mcp-aggregator -n \"__fish_seen_subcommand_from {verb}\" -f \
                     -a \"(mcp-aggregator names {verb} 2>/dev/null)\"\n"
                )
            };
            let switch = |verb: &str| {
                format!(
                    "complete -c mcp-aggregator -n \"__fish_seen_subcommand_from tools; and __fish_seen_subcommand_from {verb}\" \
                     -f -a \"(mcp-aggregator names {verb} 2>/dev/null)\"\n"
                )
            };
            let switches = ["on", "off"].map(switch).concat();
            script.to_owned() + &NAMING.iter().map(line).collect::<String>() + &switches
        }
    }
}

const BASH: &str = "\
_mcp__aggregator_with_names() {
    _mcp__aggregator \"$@\"
    local verb=\"${COMP_WORDS[1]}\" current=\"${COMP_WORDS[COMP_CWORD]}\" place=2
    if [[ \"${verb}\" == tools && ${COMP_CWORD} -ge 3 ]]; then
        verb=\"${COMP_WORDS[2]}\" place=${COMP_CWORD}
    fi
    if [[ ${COMP_CWORD} -ne ${place} || \"${current}\" == -* ]]; then
        return 0
    fi
    case \"${verb}\" in
        VERBS|on|off)
            COMPREPLY=( $(compgen -W \"$(mcp-aggregator names \"${verb}\" 2>/dev/null)\" -- \"${current}\") )
            ;;
    esac
}

";

const ZSH: &str = "\
_mcp-aggregator_names() {
    local -a names
    names=(${(f)\"$(mcp-aggregator names $words[1] 2>/dev/null)\"})
    compadd -a names
}
";
