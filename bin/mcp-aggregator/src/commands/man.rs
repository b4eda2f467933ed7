//! `man`: our manual pages, made from what `--help` tells.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use serde_json::json;

use crate::arguments::completions::ManArguments;
use crate::arguments::whole_command;
use crate::failure::Failure;
use crate::output::{self, print_message};

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

/// The command of that name: `doc map`, or `doc-map` as its file is called. Nothing is the program itself.
fn named<'c>(whole: &'c Command, typed: &str) -> Option<&'c Command> {
    typed.split([' ', '-']).filter(|word| !word.is_empty()).try_fold(whole, |above, word| above.find_subcommand(word))
}

fn unknown(verb: &str) -> Failure {
    Failure::usage(format!("there is no command `{verb}`")).with_hint("`mcp-aggregator --help` shows all")
}

fn not_made(error: &io::Error) -> Failure {
    Failure::new(format!("could not make the manual page: {error}"))
}

fn write_all(whole: &Command, folder: &Path, as_json: bool) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("could not write the manual pages into {}: {error}", folder.display()));
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
    print_message(format_args!("wrote {} pages into {}", names.len(), folder.display()));
    Ok(())
}

/// A command, and those below it that people should know of.
fn with_all_below(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    std::iter::once(command).chain(below.flat_map(with_all_below)).collect()
}

/// One page. The examples and tables behind the options keep their lines, which the library would fill.
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

/// A section in which lines stay as they are.
fn as_written(text: &str) -> String {
    let escaped = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe at the beginning would be a command.
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
