//! A config with the protected server, a data directory, and the commands that use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::run::{Output, run_command};
use testkit::{Driver, Launch, program, wait_until};

use super::person::{Page, Person, Say};
use super::provider::SERVER;

/// What is printed wherever a person has to sign in.
pub(super) const HINT: &str = "mcp-aggregator login protected";

/// A folder that goes away with this.
pub(super) struct Home {
    folder: TempDir,
}

/// How a `login` went.
#[derive(Debug)]
pub(super) struct LoggedIn {
    pub(super) succeeded: bool,
    /// What it printed, on both streams.
    pub(super) text: String,
    /// What the browser shows.
    pub(super) page: Page,
}

impl Home {
    /// A home whose config has this server alone.
    pub(super) fn with(entry: &Value) -> Self {
        let folder = TempDir::with_prefix("oauth-").expect("a temporary folder can be made");
        let home = Self { folder };
        let config = json!({"mcpServers": {SERVER: entry}}).to_string();
        std::fs::write(home.config(), config).expect("a temporary folder can be written");
        home
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    /// Where sign-ins are stored.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What every command is told.
    fn places(&self) -> [PathBuf; 4] {
        ["--config".into(), self.config(), "--data-dir".into(), self.data()]
    }

    /// The program with a command, about to be started.
    pub(super) fn launch(&self, arguments: &[&str]) -> Launch {
        let launch = Launch::program(program("mcp-aggregator")).args(arguments).args(self.places());
        launch.env("HOME", self.folder.path()).env_remove("BROWSER").env_remove("DISPLAY")
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(arguments).args(self.places()).env("HOME", self.folder.path()).stdin(Stdio::null());
        run_command(&mut command)
    }

    /// Runs `login` and opens the address it prints.
    #[track_caller]
    pub(super) fn login_as(&self, person: &mut Person, say: Say) -> LoggedIn {
        let mut login = self.launch(&["login", SERVER, "--no-browser"]).start();
        let mut text = String::new();
        let address = wait_until("`login` prints an address", || {
            let lines = login.drain();
            text.extend(lines.iter().map(|line| format!("{}\n", String::from_utf8_lossy(line).trim_end())));
            authorization_url(&text).or_else(|| authorization_url(&login.stderr_text()))
        });
        let page = person.open(&address, say);
        let rest = login.wait_stdout_end();
        text.extend(rest.iter().map(|line| format!("{}\n", String::from_utf8_lossy(line).trim_end())));
        let succeeded = login.wait_exit().success();
        text.push_str(&login.stderr_text());
        LoggedIn { succeeded, text, page }
    }

    /// Signs in, which must succeed.
    #[track_caller]
    pub(super) fn login(&self, person: &mut Person) -> LoggedIn {
        let login = self.login_as(person, Say::Yes);
        assert!(login.succeeded && login.page.status == 200, "{login:?}");
        login
    }

    /// A client of `stdio`.
    #[track_caller]
    pub(super) fn stdio(&self) -> Driver {
        let mut client = self.launch(&["stdio"]).start();
        client.initialize();
        client
    }

    /// Every file in the data directory.
    pub(super) fn stored(&self) -> Vec<(PathBuf, Vec<u8>)> {
        files_in(&self.data())
    }
}

/// Every file in a folder and below it.
pub(super) fn files_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        match path.is_dir() {
            true => found.extend(files_in(&path)),
            // Sockets cannot be read.
            false => found.extend(std::fs::read(&path).map(|bytes| (path, bytes))),
        }
    }
    found
}

/// The address of an authorization request in a complete line.
pub(super) fn authorization_url(text: &str) -> Option<String> {
    let (complete, _) = text.rsplit_once('\n')?;
    let found =
        complete.split_whitespace().find(|word| word.starts_with("http") && word.contains("response_type=code"));
    found.map(str::to_owned)
}

/// Whether an answer says that somebody has to sign in. It then says how.
#[track_caller]
pub(super) fn asks_to_sign_in(answer: &Value) -> bool {
    let asks = answer["error"]["data"]["reason"] == "sign_in_required";
    assert!(!asks || answer["error"].to_string().contains(HINT), "{answer}");
    asks
}
