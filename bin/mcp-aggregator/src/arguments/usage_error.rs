//! What is said about a command line that makes no sense, and to who asks for help.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Arguments;
use super::help_wrap::wrapped_help;
use crate::failure::Failure;
use crate::{colour, command_hint, output, table};

/// Says what makes no sense, for people and, if that was asked for, for machines.
pub(super) fn refuse(error: &clap::Error) -> ! {
    let is_help = !error.use_stderr();
    if let Some(width) = table::seen_width().filter(|_| is_help) {
        explain(error, width);
    }
    let typed: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let has = |option: &str| typed.iter().any(|word| word == option);
    let hint = (error.kind() == ErrorKind::MissingRequiredArgument && has("add") && has("--url"))
        .then(|| URL_HINT.to_owned())
        .or_else(|| program_hint(error.kind(), &typed));
    if !is_help && has("--json") {
        let told = error.render().to_string();
        let told = told.strip_prefix("error: ").unwrap_or(&told).trim_end();
        let failure = Failure { hint: hint.clone(), ..Failure::usage(told) };
        // Whoever cannot be told on stdout is told on stderr all the same.
        output::print_json(&failure.to_json()).unwrap_or_else(output::print_message);
    }
    if let Some(hint) = hint {
        // If stderr is gone, so is who reads it.
        error.print().ok();
        output::print_message(format_args!("hint: {hint}"));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Prints what was asked for, for somebody who looks at a terminal.
fn explain(help: &clap::Error, width: usize) -> ! {
    let text = help.render();
    let is_coloured = colour::is_wanted(io::stdout().is_terminal());
    let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
    output::print(wrapped_help(&text, width).as_bytes()).unwrap_or_else(output::print_message);
    std::process::exit(help.exit_code())
}

/// For who writes a program as other programs' own `add` take it, without `--`.
fn program_hint(kind: ErrorKind, typed: &[OsString]) -> Option<String> {
    let mistakes = [ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict, ErrorKind::MissingRequiredArgument];
    let words: Vec<&str> = typed.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let ["add", words @ ..] = words.as_slice() else { return None };
    if !mistakes.contains(&kind) {
        return None;
    }
    // What is typed behind `--` is the program's, too.
    let behind: Vec<String> = std::env::args().skip(typed.len() + 2).collect();
    Adding::read(words)?.hint(&behind)
}

/// What was typed behind `add`, as far as it can be told apart.
struct Adding<'w> {
    /// Options, as they can be pasted.
    options: String,
    name: &'w str,
    /// What should stand behind `--`.
    program: &'w [&'w str],
}

impl<'w> Adding<'w> {
    fn read(words: &'w [&'w str]) -> Option<Self> {
        let whole = Arguments::command();
        let add = whole.find_subcommand("add")?;
        let (mut options, mut name) = (String::new(), None);
        let mut at = 0;
        while let Some(&word) = words.get(at) {
            at += 1;
            let long = word.strip_prefix("--").map(|long| long.split('=').next().unwrap_or(long));
            if let Some(option) = long.and_then(|long| add.get_arguments().find(|known| known.get_long() == Some(long)))
            {
                options += &format!(" {}", shown(word));
                if option.get_action().takes_values() && !word.contains('=') {
                    options += &format!(" {}", shown(words.get(at)?));
                    at += 1;
                }
            } else if word.starts_with('-') {
                return None;
            } else if let Some(name) = name {
                return Some(Self { options, name, program: &words[at - 1..] });
            } else {
                name = Some(word);
            }
        }
        Some(Self { options, name: name?, program: &[] })
    }

    fn hint(&self, behind: &[String]) -> Option<String> {
        let Self { options, name, program } = self;
        if program.is_empty() {
            return (options.is_empty() && behind.is_empty()).then(|| {
                format!(
                    "`mcp-aggregator add {name} -- PROGRAM` starts one, `mcp-aggregator add {name} URL` reaches one \
                     elsewhere, `mcp-aggregator add {name} --docker IMAGE` runs one in a container"
                )
            });
        }
        if program[0].contains("://") {
            return None;
        }
        let all = program.iter().copied().chain(behind.iter().map(String::as_str)).map(command_hint::quoted);
        let all = all.collect::<Vec<_>>().join(" ");
        Some(format!("a program stands after `--`: `mcp-aggregator add {name}{options} -- {all}`"))
    }
}

/// What was typed, for a shell; without what may be a secret, unless only its place is named.
fn shown(word: &str) -> String {
    let secret = word.split_once(['=', ':']).filter(|(name, value)| !name.contains('/') && !value.starts_with("//"));
    match secret {
        Some((name, value)) if !name.starts_with("--") && !value.trim_start().starts_with('$') => {
            command_hint::quoted(&format!("{}***", &word[..=name.len()]))
        }
        _ => command_hint::quoted(word),
    }
}

/// For who writes the address of a server where that of a service belongs.
const URL_HINT: &str =
    "the address of a server goes without --url, which says which service: `mcp-aggregator add NAME https://host/mcp`";

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        Adding::read(words)?.hint(&[])
    }

    #[test]
    fn who_forgets_what_stands_before_a_program_is_told_wherever_options_stand() {
        let told = |rest: &str| Some(format!("a program stands after `--`: `mcp-aggregator add mem{rest}`"));
        assert_eq!(hint(&["mem", "npx", "-y", "foo"]), told(" -- npx -y foo"));
        assert_eq!(hint(&["--data-dir", "D", "mem", "npx", "-y"]), told(" --data-dir D -- npx -y"));
        assert_eq!(hint(&["mem", "--lazy", "--data-dir=D", "npx", "-y"]), told(" --lazy --data-dir=D -- npx -y"));
        assert_eq!(hint(&["--env", "A=${B}", "mem", "npx"]), told(" --env 'A=${B}' -- npx"));
        assert_eq!(hint(&["--env", "A=hunter2", "mem", "npx"]), told(" --env 'A=***' -- npx"), "no secret is repeated");
        assert_eq!(hint(&["mem", "https://host", "-y"]), None);
        assert_eq!(hint(&["--bogus", "mem", "npx"]), None);
        assert!(hint(&["mem"]).is_some_and(|hint| hint.contains("--docker IMAGE")));
    }
}
