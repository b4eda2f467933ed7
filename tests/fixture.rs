//! Common setups of tests: a running program, an initialized client, a server with a journal.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Config, Driver, Launch, Output, ServerEntry, fake, program, raw, wait_until};

/// The start timeout of servers, in seconds; see the help of the program. A server next to those that do not start must
/// connect in time, also on a busy machine.
pub(crate) const START_TIMEOUT: &str = "MCP_AGGREGATOR_START_TIMEOUT";

/// Starts the program and initializes.
#[track_caller]
pub(crate) fn connected(config: &Config) -> Driver {
    initialized(Launch::aggregator(config))
}

/// Starts the program with this launch, and initializes.
#[track_caller]
pub(crate) fn initialized(launch: Launch) -> Driver {
    let mut client = launch.start();
    client.initialize();
    client
}

/// The default: one fake server called `one`.
#[track_caller]
pub(crate) fn with_one_server() -> Driver {
    connected(&Config::new().server("one", fake()))
}

/// Runs the program on this config with an empty stdin, to its end.
#[track_caller]
pub(crate) fn run_config(config: &Config, environment: &[(&str, &str)]) -> Output {
    let file = config.write();
    run_arguments([OsStr::new("--config"), file.path().as_os_str()], environment)
}

/// Runs the program with these arguments and an empty stdin, to its end.
#[track_caller]
pub(crate) fn run_arguments<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    environment: &[(&str, &str)],
) -> Output {
    let mut command = Command::new(program("mcp-simple-aggregator"));
    run_command(command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()))
}

/// The text of a result's first content block.
#[track_caller]
pub(crate) fn text_of(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("expected a result with text, but got {answer}"))
}

/// The pid in the answer of the tools `pid` and `grandchild`.
#[track_caller]
pub(crate) fn pid_in(answer: &Value) -> u32 {
    let pid = answer["result"]["structuredContent"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.unwrap_or_else(|| panic!("expected a pid, but got {answer}"))
}

/// The code and message of an error answer.
#[track_caller]
pub(crate) fn error_of(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    match (error["code"].as_i64(), error["message"].as_str()) {
        (Some(code), Some(message)) => (code, message),
        _ => panic!("expected an error, but got {answer}"),
    }
}

/// Every line that a fake server received, byte for byte.
pub(crate) struct Journal {
    folder: TempDir,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::with_prefix("journal-").expect("a temporary folder can be made") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// A fake server that writes this journal.
    #[track_caller]
    pub(crate) fn fake(&self) -> ServerEntry {
        fake().arg("--journal").arg(self.path().to_string_lossy())
    }

    /// The same, but it starts only after [`Journal::let_it_start`].
    #[track_caller]
    pub(crate) fn fake_that_waits(&self) -> ServerEntry {
        let script = r#"while ! test -e "$0"; do sleep 0.02; done; exec "$@""#;
        let gate = self.gate().to_string_lossy().into_owned();
        let program = testkit::program("fake-server").to_string_lossy().into_owned();
        let args = ["-c".to_owned(), script.to_owned(), gate, program, "--journal".to_owned()];
        ServerEntry::new("sh").args(args).arg(self.path().to_string_lossy())
    }

    pub(crate) fn let_it_start(&self) {
        fs::write(self.gate(), "").expect("the folder can be written");
    }

    fn gate(&self) -> PathBuf {
        self.folder.path().join("may-start")
    }

    /// Whether the server was ever started.
    pub(crate) fn exists(&self) -> bool {
        self.path().exists()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap_or_default()
    }

    /// The complete lines so far, without their newlines.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes();
        let mut lines: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        // The text after the last newline is empty, or an incomplete line.
        lines.pop();
        lines
    }

    /// The lines of this method so far.
    pub(crate) fn of_method(&self, method: &str) -> Vec<Vec<u8>> {
        let quoted = raw::quote(method);
        let is_wanted = |line: &Vec<u8>| raw::at(line, &["method"]) == Some(&quoted);
        self.lines().into_iter().filter(is_wanted).collect()
    }

    /// Waits for a line of this method, and returns the first.
    #[track_caller]
    pub(crate) fn wait_for(&self, method: &str) -> Vec<u8> {
        wait_until(&format!("the server receives `{method}`"), || self.of_method(method).into_iter().next())
    }
}
