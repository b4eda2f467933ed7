//! `example-notes`: an MCP server that keeps notes as Markdown files in a folder. See [`example_servers::notes`].

use anyhow::{Context, bail};
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

const HELP: &str = "\
An MCP server over stdio that keeps notes as Markdown files.

Usage: example-notes [--dir <FOLDER>]

  --dir <FOLDER>  where the notes are [default: $XDG_DATA_HOME/mcp-example-notes,
                  else ~/.local/share/mcp-example-notes]
  --help          print this and exit
";

fn main() -> anyhow::Result<()> {
    match Command::parse(env::args_os().skip(1))? {
        Command::Help => std::io::stderr().write_all(HELP.as_bytes())?,
        Command::Serve { dir } => {
            let dir = dir.or_else(default_dir).context("no home folder is known; use --dir")?;
            example_servers::notes::server(dir).serve()?;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Serve { dir: Option<PathBuf> },
}

impl Command {
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut arguments = arguments.into_iter();
        let mut dir = None;
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--help" | "-h") => return Ok(Self::Help),
                Some("--dir") => {
                    let value = arguments.next().filter(|value| !value.is_empty());
                    dir = Some(PathBuf::from(value.context("--dir needs a folder")?));
                }
                _ => bail!("unexpected argument {argument:?}; see --help"),
            }
        }
        Ok(Self::Serve { dir })
    }
}

fn default_dir() -> Option<PathBuf> {
    // The XDG rules say to ignore a relative path.
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("mcp-example-notes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<Command> {
        Command::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_command_line_is_read() {
        assert_eq!(parse(&[]).expect("valid"), Command::Serve { dir: None });
        let dir = Some(PathBuf::from("a b"));
        assert_eq!(parse(&["--dir", "a b"]).expect("valid"), Command::Serve { dir });
        assert_eq!(parse(&["--help"]).expect("valid"), Command::Help);
        for wrong in [&["--dir"][..], &["--dir", ""], &["notes"], &["--dirr", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
