//! Finds the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the folder that holds the programs under test. If unset, they are built first.
pub const BIN_DIR_VARIABLE: &str = "MCP_TEST_BIN_DIR";

/// The path of a program of this workspace.
///
/// Unless [`BIN_DIR_VARIABLE`] says where to look, every program is built once per test run with the profile of the
/// test itself, so that a test never meets yesterday's program.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let folder = match std::env::var_os(BIN_DIR_VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => built_programs().clone(),
    };
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "there is no program `{name}` in {}; build it, or set {BIN_DIR_VARIABLE} to the folder that holds it",
        folder.display()
    );
    path
}

/// Copies a program.
///
/// Another process does it: a file that this one writes may be inherited by a child that another test starts at that
/// moment, and what is open for writing cannot be executed (`ETXTBSY`).
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").arg(from).arg(to).status().expect("`cp` can be started");
    assert!(copied.success(), "could not copy {} to {}", from.display(), to.display());
}

/// Writes a script that is to be executed, by another process as well.
#[track_caller]
pub fn write_script(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"printf %s "$2" > "$1" && chmod 755 "$1""#, "sh"]).arg(path).arg(text);
    assert!(shell.status().expect("`sh` can be started").success(), "could not write {}", path.display());
}

fn built_programs() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test knows its own path");
        let folder = profile_folder(&test).unwrap_or_else(|| {
            panic!(
                "{} is not in a target folder; set {BIN_DIR_VARIABLE} to the folder that holds the programs",
                test.display()
            )
        });
        build_into(&folder);
        folder
    })
}

/// `target/debug` for a test in `target/debug/deps` (or an example in `target/debug/examples`).
fn profile_folder(test: &Path) -> Option<PathBuf> {
    let folder = test.parent()?;
    let is_below_profile = folder.ends_with("deps") || folder.ends_with("examples");
    Some(if is_below_profile { folder.parent()? } else { folder }.to_owned())
}

fn build_into(folder: &Path) {
    let profile = folder.file_name().and_then(|name| name.to_str()).unwrap_or("debug");
    // The folder of the profile `dev` is called `debug`; every other profile names its own.
    let profile = if profile == "debug" { "dev" } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--workspace", "--bins", "--profile", profile]);
    // Asked at run time first: with a shared target folder, this crate may have been compiled in another checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    build.current_dir(package);
    if let Some(target) = folder.parent() {
        build.arg("--target-dir").arg(target);
    }
    let output = build.output().unwrap_or_else(|error| panic!("could not run {build:?}: {error}"));
    assert!(
        output.status.success(),
        "could not build the programs under test with {build:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_next_to_the_deps_of_the_test() {
        let expected = Some(PathBuf::from("target/debug"));
        assert_eq!(profile_folder(Path::new("target/debug/deps/behaviour-1234")), expected);
        assert_eq!(profile_folder(Path::new("target/debug/bench")), expected);
    }
}
