//! The command line of the verbs about this program itself: completions and manual pages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print a script that completes our commands in your shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator completions bash > ~/.local/share/bash-completion/completions/mcp-aggregator
  mcp-aggregator completions zsh > ~/.zfunc/_mcp-aggregator           with ~/.zfunc in fpath, before compinit
  mcp-aggregator completions fish > ~/.config/fish/completions/mcp-aggregator.fish")]
pub(crate) struct CompletionsArguments {
    /// Your shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// Print {"shell", "script"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// A shell that can complete commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print the manual page of a command, or write those of all commands.
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
    /// Write the pages of all commands into this folder, one file each
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
    /// Print {"page"}, or with --dir {"folder", "pages": [..]}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the names that can stand where a command line ends, for shells that complete it.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct NamesArguments {
    /// What was typed behind `mcp-aggregator`; the last word is the one that is being typed
    #[arg(value_name = "WORDS", last = true)]
    pub(crate) words: Vec<String>,
}
