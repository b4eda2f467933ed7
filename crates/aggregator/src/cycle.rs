//! Detects an aggregator that would start itself.
//!
//! Each aggregator passes the list of configurations above it to its servers, in their environment. One that finds its
//! own configuration in that list would start itself without end, and refuses to start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use upstream::stderr::LOOP_MESSAGE;

/// The variable that holds the list: one resolved path a line, outermost first.
pub const VARIABLE: &str = "MCP_AGGREGATOR_CONFIGS";

/// The configurations from the outermost aggregator to this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain(Vec<PathBuf>);

/// The cycle back to a configuration that is already being served.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle(Vec<PathBuf>);

impl Chain {
    /// The chain that ends with `config`, a resolved path, below those in `above`, the variable's value.
    pub fn enter(above: Option<&OsStr>, config: &Path) -> Result<Self, Cycle> {
        let lines = above.map(OsStrExt::as_bytes).unwrap_or_default().split(|&byte| byte == b'\n');
        let mut chain: Vec<PathBuf> =
            lines.filter(|line| !line.is_empty()).map(|line| PathBuf::from(OsStr::from_bytes(line))).collect();
        let first = chain.iter().position(|known| known == config);
        chain.push(config.to_owned());
        match first {
            Some(first) => Err(Cycle(chain.split_off(first))),
            None => Ok(Self(chain)),
        }
    }

    /// The value of the variable for our servers.
    pub fn as_value(&self) -> OsString {
        let paths: Vec<_> = self.0.iter().map(|path| path.as_os_str().as_bytes()).collect();
        OsString::from_vec(paths.join(&b'\n'))
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.0.iter().map(|path| path.display().to_string()).collect();
        write!(out, "{LOOP_MESSAGE}: {}", paths.join(" → "))
    }
}

impl std::error::Error for Cycle {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_without_repetition_grows() {
        let outer = Chain::enter(None, Path::new("/a.json")).unwrap();
        let inner = Chain::enter(Some(&outer.as_value()), Path::new("/b.json")).unwrap();
        assert_eq!(inner.as_value(), "/a.json\n/b.json");
    }

    #[test]
    fn a_configuration_that_repeats_is_reported_with_its_cycle() {
        let cycle = Chain::enter(Some(OsStr::new("/x.json\n/a.json\n/b.json")), Path::new("/a.json")).unwrap_err();
        assert_eq!(cycle.to_string(), "this aggregator would start itself: /a.json → /b.json → /a.json");
        let cycle = Chain::enter(Some(OsStr::new("/a.json")), Path::new("/a.json")).unwrap_err();
        assert_eq!(cycle.to_string(), "this aggregator would start itself: /a.json → /a.json");
    }
}
