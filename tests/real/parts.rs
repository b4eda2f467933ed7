//! Finds the real servers and clients.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Names the folder that `scripts/test` installs into.
const PARTS_VARIABLE: &str = "MCP_TEST_PARTS";

/// One half of the folder: there as a whole, or not at all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Servers and the Inspector from npm.
    Npm,
    /// `mcp-remote` and `oauth2-mock-server` from npm, for the Node of [`Npm`](Self::Npm).
    Identity,
    /// Servers and the `mcp` client from PyPI.
    Python,
    /// Schemathesis from PyPI.
    Contract,
}

/// A folder that holds what the test asked for.
#[derive(Debug)]
pub(super) struct Parts {
    folder: PathBuf,
}

impl Parts {
    /// The folder, if everything needed is in it. If not, says so loudly; with `CI=true` that is a failure.
    #[track_caller]
    pub(super) fn with(needed: &[Part]) -> Option<Self> {
        let missing = match std::env::var_os(PARTS_VARIABLE) {
            None => format!("{PARTS_VARIABLE} is not set"),
            Some(folder) => {
                let parts = Self { folder: folder.into() };
                match needed.iter().find(|part| !parts.has(**part)) {
                    None => return Some(parts),
                    Some(part) => format!("{part:?} is not in {}", parts.folder.display()),
                }
            }
        };
        let test = std::thread::current().name().unwrap_or("a test with real servers").to_owned();
        let message = format!("SKIPPED: {test}: {missing}; run scripts/test, which installs what it needs");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{message}");
        // Not by a macro, for those are silent in a test that passes.
        writeln!(std::io::stderr(), "\n{message}").expect("stderr can be written");
        None
    }

    fn has(&self, part: Part) -> bool {
        match part {
            Part::Npm => self.node().is_file(),
            Part::Identity => self.identity_file("mcp-remote/dist/proxy.js").is_file(),
            Part::Python => self.python().is_file(),
            Part::Contract => self.contract_python().is_file(),
        }
    }

    pub(super) fn node(&self) -> PathBuf {
        self.folder.join("npm/bin/node")
    }

    /// A file of a package for sign-ins.
    pub(super) fn identity_file(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder.join("identity/node_modules").join(path)
    }

    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("python/bin/python")
    }

    /// The Python that has Schemathesis. Its programs name the folder they were installed into, which was another.
    pub(super) fn contract_python(&self) -> PathBuf {
        self.folder.join("contract/bin/python")
    }

    /// The folder that npm installed into.
    pub(super) fn npm_folder(&self) -> PathBuf {
        self.folder.join("npm")
    }

    /// A file of an npm package.
    pub(super) fn npm_file(&self, path: impl AsRef<Path>) -> PathBuf {
        self.npm_folder().join("node_modules").join(path)
    }
}
