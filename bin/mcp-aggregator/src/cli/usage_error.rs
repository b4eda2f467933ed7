//! Prints the error about an invalid command line, or the requested help.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Arguments;
use super::help_wrap::wrapped_help;
use crate::failure::Failure;
use crate::{colour, command_hint, output, table};

/// Prints the error, as text and, if requested, as JSON.
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
        let message = error.render().to_string();
        let message = message.strip_prefix("error: ").unwrap_or(&message).trim_end();
        let failure = Failure { hint: hint.clone(), ..Failure::usage(message) };
        // If stdout cannot be written, stderr still has the message.
        output::print_json(&failure.to_json()).unwrap_or_else(output::print_message);
    }
    if let Some(hint) = hint {
        // If stderr cannot be written, nobody can read the message.
        error.print().ok();
        output::print_message(format_args!("hint: {hint}"));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Prints the requested text for a terminal.
fn explain(help: &clap::Error, width: usize) -> ! {
    let text = help.render();
    let is_coloured = colour::is_wanted(io::stdout().is_terminal());
    let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
    output::print(wrapped_help(&text, width).as_bytes()).unwrap_or_else(output::print_message);
    std::process::exit(help.exit_code())
}

/// The hint for a program without `--`, as the `add` commands of other programs accept it.
fn program_hint(kind: ErrorKind, typed: &[OsString]) -> Option<String> {
    let mistakes = [ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict, ErrorKind::MissingRequiredArgument];
    let words: Vec<&str> = typed.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let ["add", words @ ..] = words.as_slice() else { return None };
    if !mistakes.contains(&kind) {
        return None;
    }
    // Arguments after `--` also belong to the program.
    let behind: Vec<String> = std::env::args().skip(typed.len() + 2).collect();
    Adding::read(words)?.hint(&behind)
}

/// The arguments of `add`, as far as they can be told apart.
struct Adding<'w> {
    /// Options, quoted for a shell.
    options: String,
    name: &'w str,
    /// The arguments that belong after `--`.
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
                    "`mcp-aggregator add {name} -- PROGRAM` adds a program, `mcp-aggregator add {name} URL` a \
                     remote server, `mcp-aggregator add {name} --docker IMAGE` a container"
                )
            });
        }
        if program[0].contains("://") {
            return None;
        }
        let all = program.iter().copied().chain(behind.iter().map(String::as_str)).map(command_hint::quoted);
        let all = all.collect::<Vec<_>>().join(" ");
        Some(format!("write a program after `--`: `mcp-aggregator add {name}{options} -- {all}`"))
    }
}

/// What the user typed, quoted for a shell, without possible secrets unless only their position is named.
fn shown(word: &str) -> String {
    let secret = word.split_once(['=', ':']).filter(|(name, value)| !name.contains('/') && !value.starts_with("//"));
    match secret {
        Some((name, value)) if !name.starts_with("--") && !value.trim_start().starts_with('$') => {
            command_hint::quoted(&format!("{}***", &word[..=name.len()]))
        }
        _ => command_hint::quoted(word),
    }
}

/// The hint for the address of a server where that of a service belongs.
const URL_HINT: &str =
    "write the URL of a server without --url, which names the service: `mcp-aggregator add NAME https://host/mcp`";

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        Adding::read(words)?.hint(&[])
    }

    #[test]
    fn a_missing_separator_before_a_program_is_reported_wherever_options_are() {
        let reported = |rest: &str| Some(format!("write a program after `--`: `mcp-aggregator add mem{rest}`"));
        assert_eq!(hint(&["mem", "npx", "-y", "foo"]), reported(" -- npx -y foo"));
        assert_eq!(hint(&["--data-dir", "D", "mem", "npx", "-y"]), reported(" --data-dir D -- npx -y"));
        assert_eq!(hint(&["mem", "--lazy", "--data-dir=D", "npx", "-y"]), reported(" --lazy --data-dir=D -- npx -y"));
        assert_eq!(hint(&["--env", "A=${B}", "mem", "npx"]), reported(" --env 'A=${B}' -- npx"));
        assert_eq!(
            hint(&["--env", "A=hunter2", "mem", "npx"]),
            reported(" --env 'A=***' -- npx"),
            "no secret is repeated"
        );
        assert_eq!(hint(&["mem", "https://host", "-y"]), None);
        assert_eq!(hint(&["--bogus", "mem", "npx"]), None);
        assert!(hint(&["mem"]).is_some_and(|hint| hint.contains("--docker IMAGE")));
    }
}
