//! `man`: prints the manual pages, generated from `--help`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};
use clap_mangen::Man;
use serde_json::json;

use crate::cli::whole_command;
use crate::failure::Failure;
use crate::output::{self, print_message};

/// Print the manual page of a command, or write the pages of all commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator man serve | man -l -
  mcp-aggregator man doc map | man -l -
  mcp-aggregator man --dir ~/.local/share/man/man1; man mcp-aggregator-serve")]
pub(crate) struct ManArguments {
    /// The command [default: mcp-aggregator itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands to this folder, one file each
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON: {"page"}, or with --dir {"folder", "pages": [..]}
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    let mut whole = whole_command().disable_help_subcommand(true);
    whole.build();
    if let Some(folder) = &arguments.dir {
        return write_all(&whole, folder, arguments.json);
    }
    let typed = arguments.command.join(" ");
    let command = named(&whole, &typed).ok_or_else(|| unknown(&typed))?;
    let page = page(command).map_err(|error| not_made(&error))?;
    if arguments.json {
        return output::print_json(&json!({"page": String::from_utf8_lossy(&page)}));
    }
    output::print(&page)
}

/// The command with that name: `doc map`, or `doc-map` as its file is called. An empty name is the program itself.
fn named<'c>(whole: &'c Command, typed: &str) -> Option<&'c Command> {
    typed.split([' ', '-']).filter(|word| !word.is_empty()).try_fold(whole, |above, word| above.find_subcommand(word))
}

fn unknown(verb: &str) -> Failure {
    Failure::usage(format!("there is no command `{verb}`")).with_hint("`mcp-aggregator --help` lists all")
}

fn not_made(error: &io::Error) -> Failure {
    Failure::new(format!("could not create the manual page: {error}"))
}

fn write_all(whole: &Command, folder: &Path, as_json: bool) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("could not write the manual pages to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut names = Vec::new();
    for command in with_all_below(whole) {
        let name = Man::new(command.clone()).get_filename();
        fs::write(folder.join(&name), page(command).map_err(failed)?).map_err(failed)?;
        names.push(name);
    }
    if as_json {
        return output::print_json(&json!({"folder": folder, "pages": names}));
    }
    print_message(format_args!("wrote {} pages to {}", names.len(), folder.display()));
    Ok(())
}

/// A command and its visible subcommands.
fn with_all_below(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    std::iter::once(command).chain(below.flat_map(with_all_below)).collect()
}

/// One page. Examples and tables after the options keep their lines, which the library would join.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).manual("mcp-aggregator").date("");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(more) = command.get_after_help() {
        page.extend_from_slice(as_written(&more.to_string()).as_bytes());
    }
    Ok(page)
}

/// A section that keeps its lines.
fn as_written(text: &str) -> String {
    let escaped = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe at the start of a line would be a roff command.
        if line.starts_with(['.', '\'']) { format!("\\&{line}\n") } else { format!("{line}\n") }
    };
    let lines: String = text.lines().map(escaped).collect();
    format!(".SH NOTES\n.nf\n{lines}.fi\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_steers_the_formatter() {
        let section = as_written(".dot\n'x\na\\b --c");
        assert_eq!(section, ".SH NOTES\n.nf\n\\&.dot\n\\&'x\na\\eb \\-\\-c\n.fi\n");
    }
}
