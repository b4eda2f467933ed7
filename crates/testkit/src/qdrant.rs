//! A disposable Qdrant, or the one at `QDRANT_URL`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The variable with the URL of a real Qdrant, such as `http://localhost:6334`.
const VARIABLE: &str = "QDRANT_URL";
const SCRIPT: &str = include_str!("qdrant/qdrant.py");

/// A Qdrant. The stand-in is the in-memory engine of the official Python package behind its protocol; it ends on drop,
/// or with the process, and its contents are lost.
#[derive(Debug)]
pub struct Qdrant {
    python: PathBuf,
    port: u16,
    real: Option<String>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Qdrant {
    /// The real one if it is configured, otherwise a stand-in.
    ///
    /// `None`, with a loud message, if its parts are not installed. With `CI=true` that is a failure.
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::begin(std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()))
    }

    /// A stand-in, which can be killed.
    #[track_caller]
    pub fn start_own() -> Option<Self> {
        Self::begin(None)
    }

    #[track_caller]
    fn begin(real: Option<String>) -> Option<Self> {
        let parts = std::env::var_os("MCP_TEST_PARTS").map(PathBuf::from);
        let python = parts.map(|parts| parts.join("qdrant/bin/python")).filter(|python| python.exists());
        let Some(python) = python else {
            let is_ci = std::env::var("CI").as_deref() == Ok("true");
            assert!(!is_ci, "the fixture for Qdrant was not found, and with CI=true nothing may be skipped");
            eprintln!("\n**********\nSKIPPED: the fixture for Qdrant was not found; run scripts/test\n**********\n");
            return None;
        };
        let mut qdrant = Self { python, port: 0, real, running: None };
        qdrant.start_again();
        Some(qdrant)
    }

    /// Starts it again after it was killed, at the same address, empty.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "it runs already");
        let mut command = Command::new(&self.python);
        command.args(["-W", "ignore", "-c", SCRIPT]);
        match &self.real {
            Some(url) => command.args(["observe", url]),
            None => command.args(["serve", &self.port.to_string()]),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python can be started");
        let questions = child.stdin.take().expect("its stdin is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its stdout is a pipe"));
        let mut running = Running { child, questions, answers };
        let ready = running.answer();
        self.port = ready["port"].as_u64().map_or(0, |port| u16::try_from(port).expect("it is a port"));
        self.running = Some(running);
    }

    /// Kills it, as a crash would.
    #[track_caller]
    pub fn kill(&mut self) {
        let mut running = self.running.take().expect("it runs");
        running.child.kill().expect("it can be killed");
        running.child.wait().expect("it can be waited for");
    }

    /// The value of `--vectors` for a collection with this name.
    pub fn address(&self, collection: &str) -> String {
        let url = self.real.clone().unwrap_or_else(|| format!("http://127.0.0.1:{}", self.port));
        format!("{}/{collection}", url.trim_end_matches('/'))
    }

    /// The contents of a collection: the payloads of all points, by id.
    #[track_caller]
    pub fn points(&mut self, collection: &str) -> Vec<(String, Value)> {
        let running = self.running.as_mut().expect("it runs");
        writeln!(running.questions).expect("it listens");
        let all = running.answer();
        let Some(name) = all["aliases"][collection].as_str() else { return Vec::new() };
        let points = all["collections"][name].as_object().expect("an alias names a collection");
        points.iter().map(|(id, payload)| (id.clone(), payload.clone())).collect()
    }
}

impl Running {
    #[track_caller]
    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it can be read from");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the Qdrant of the tests said `{line}`: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
