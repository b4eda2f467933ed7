//! The command line of the runner.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use lexopt::ValueExt;

pub(crate) const USAGE: &str = "\
Measures direct, the parse-nothing floor, us, and other aggregators, side by side in one run.

usage: cargo run --profile dist -p bench -- [OPTIONS]
  --quick                a short run that shows that everything works; its numbers are noise
  --only SECTION         latency, throughput, startup, memory, listing, isolation, http, http2,
                         sign-in, profiles, limits, history or registry; repeatable
  --other 'NAME=COMMAND' also measure this command line; {config} in it becomes the config's path; repeatable
  --program PATH         measure this program as `us` over stdio instead of building mcp-simple-aggregator
  --service PATH         measure this program as `us` over HTTP instead of building mcp-aggregator
  --no-build             use the existing programs in the folder of this one
  --help                 this text";

/// The parts of a run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Latency,
    Throughput,
    Startup,
    Memory,
    Listing,
    Isolation,
    Http,
    Http2,
    SignIn,
    Profiles,
    Limits,
    History,
    Registry,
}

impl Section {
    pub(crate) const ALL: [Self; 13] = [
        Self::Latency,
        Self::Throughput,
        Self::Startup,
        Self::Memory,
        Self::Listing,
        Self::Isolation,
        Self::Http,
        Self::Http2,
        Self::SignIn,
        Self::Profiles,
        Self::Limits,
        Self::History,
        Self::Registry,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Startup => "startup",
            Self::Memory => "memory",
            Self::Listing => "listing",
            Self::Isolation => "isolation",
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::SignIn => "sign-in",
            Self::Profiles => "profiles",
            Self::Limits => "limits",
            Self::History => "history",
            Self::Registry => "registry",
        }
    }
}

impl Section {
    fn is_over_http(self) -> bool {
        !matches!(
            self,
            Self::Latency | Self::Throughput | Self::Startup | Self::Memory | Self::Listing | Self::Isolation
        )
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Quick,
    Full,
}

impl Effort {
    /// This many in a full run; a twentieth, but not less than `least`, in a quick one.
    pub(crate) fn of(self, full: usize, least: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / 20).max(least),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) effort: Effort,
    pub(crate) sections: Vec<Section>,
    /// Name and command line.
    pub(crate) others: Vec<(String, String)>,
    pub(crate) program: Option<PathBuf>,
    pub(crate) service: Option<PathBuf>,
    pub(crate) build: bool,
    pub(crate) help: bool,
}

impl Options {
    pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Self> {
        let mut options = Self {
            effort: Effort::Full,
            sections: Vec::new(),
            others: Vec::new(),
            program: None,
            service: None,
            build: true,
            help: false,
        };
        while let Some(argument) = parser.next()? {
            match argument {
                lexopt::Arg::Long("quick") => options.effort = Effort::Quick,
                lexopt::Arg::Long("only") => options.sections.push(section(&parser.value()?.string()?)?),
                lexopt::Arg::Long("other") => options.others.push(other(&parser.value()?.string()?)?),
                lexopt::Arg::Long("program") => options.program = Some(parser.value()?.into()),
                lexopt::Arg::Long("service") => options.service = Some(parser.value()?.into()),
                lexopt::Arg::Long("no-build") => options.build = false,
                lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => options.help = true,
                unknown => bail!("{}\n\n{USAGE}", unknown.unexpected()),
            }
        }
        if options.sections.is_empty() {
            options.sections = Section::ALL.to_vec();
        }
        Ok(options)
    }

    /// Whether `us` over HTTP takes part.
    pub(crate) fn measures_http(&self) -> bool {
        self.sections.iter().any(|section| section.is_over_http())
    }

    /// Whether `us` over stdio takes part.
    pub(crate) fn measures_stdio(&self) -> bool {
        self.sections.iter().any(|section| !section.is_over_http())
    }
}

fn section(name: &str) -> Result<Section> {
    Section::ALL
        .into_iter()
        .find(|section| section.name() == name)
        .with_context(|| format!("no section is called `{name}`\n\n{USAGE}"))
}

fn other(text: &str) -> Result<(String, String)> {
    let (name, command) = text.split_once('=').context("--other takes NAME=COMMAND")?;
    ensure!(
        !name.is_empty() && command.contains("{config}"),
        "--other takes NAME=COMMAND, and the command must say where the config goes: {{config}}"
    );
    Ok((name.to_owned(), command.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(lexopt::Parser::from_args(words))
    }

    #[test]
    fn everything_is_measured_by_default() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.sections, Section::ALL);
        assert_eq!(options.effort, Effort::Full);
        let options = parse(&["--only", "latency", "--quick"]).unwrap();
        assert_eq!(options.sections, [Section::Latency]);
        assert_eq!(options.effort, Effort::Quick);
    }

    #[test]
    fn others_are_named_command_lines_with_a_config() {
        let options = parse(&["--other", "x=run --c={config}", "--other", "y={config}"]).unwrap();
        assert_eq!(options.others[0], ("x".to_owned(), "run --c={config}".to_owned()));
        assert_eq!(options.others.len(), 2);
        assert!(parse(&["--other", "x=run"]).is_err());
        assert!(parse(&["--other", "{config}"]).is_err());
        assert!(parse(&["--only", "nothing"]).is_err());
    }
}
