//! A real browser for tests: headless Chromium through chromedriver.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How often an element may be replaced between being found and being clicked.
const MAX_STALE_CLICKS: usize = 5;
/// How often a command is repeated that chromedriver refuses. While a tab is being created or its first page is being
/// replaced, it refuses some that it accepts a moment later.
const MAX_REFUSALS: usize = 5;
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);
/// How long a page may take to reach a state. A busy machine is slow.
const PAGE_TIMEOUT: Duration = testkit::DEADLINE;
/// Printed when it listens, followed by the port.
const LISTENING: &str = "started successfully on port ";

/// The kind of screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) is_dark: bool,
}

pub(super) const DESK: Look = Look { width: 1280, height: 900, is_dark: false };
pub(super) const PHONE: Look = Look { width: 390, height: 844, is_dark: true };

/// chromedriver. It and its browsers end on drop.
pub(super) struct Driver {
    child: Child,
    port: u16,
    /// The temporary folder of browsers, which they leave behind when they are killed.
    _folder: TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.child.wait().ok();
    }
}

impl Driver {
    /// Starts it; `None`, with a loud message, if no browser is installed. With `CI=true` that is a failure.
    #[track_caller]
    pub(super) fn start() -> Option<Self> {
        let folder = TempDir::with_prefix("browser-").expect("a temporary folder can be made");
        let mut command = Command::new("chromedriver");
        command.env("TMPDIR", folder.path());
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                skipped(&format!("chromedriver cannot be started: {error}"));
                return None;
            }
        };
        let mut lines = BufReader::new(child.stdout.take().expect("its stdout is a pipe")).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, port) = line.split_once(LISTENING)?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver says where it listens");
        // Nobody reads the rest, and a full pipe would block it: it prints little after this.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, port, _folder: folder })
    }

    /// Opens a browser.
    pub(super) async fn open(&self, look: Look) -> Browser {
        let scheme = format!("--blink-settings=preferredColorScheme={}", if look.is_dark { 0 } else { 1 });
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            scheme
        ]);
        let metrics = json!({"width": look.width, "height": look.height, "pixelRatio": 1.0});
        let Value::Object(capabilities) = json!({
            "goog:chromeOptions": {"args": arguments, "mobileEmulation": {"deviceMetrics": metrics}},
            "goog:loggingPrefs": {"browser": "ALL"},
        }) else {
            unreachable!("an object was written")
        };
        let address = format!("http://127.0.0.1:{}", self.port);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(Capabilities::from_iter(capabilities));
        Browser(repeat("a browser opens", async || builder.connect(&address).await).await)
    }
}

/// Repeats what chromedriver refuses, a few times.
async fn repeat<T, E: std::fmt::Display>(what: &str, attempt: impl AsyncFn() -> Result<T, E>) -> T {
    let mut refusals = Vec::new();
    while refusals.len() < MAX_REFUSALS {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => refusals.push(error.to_string()),
        }
        // Not by a macro, because their output is hidden in tests that pass.
        writeln!(std::io::stderr(), "\nREPEATED: {what}: {}", refusals[refusals.len() - 1])
            .expect("stderr can be written");
        tokio::time::sleep(REFUSAL_PAUSE).await;
    }
    panic!("{what}: {refusals:#?}");
}

/// Reports loudly that something is not tested.
#[track_caller]
pub(super) fn skipped(why: &str) {
    let message = format!("SKIPPED: the console in a browser: {why}; run scripts/test, which installs what it needs");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{message}");
    // Not by a macro, because their output is hidden in tests that pass.
    writeln!(std::io::stderr(), "\n{message}").expect("stderr can be written");
}

/// The script that finds accessibility problems, if it is installed.
pub(super) fn axe() -> Option<String> {
    let folder = PathBuf::from(std::env::var_os("MCP_TEST_PARTS")?);
    std::fs::read_to_string(folder.join("browser/node_modules/axe-core/axe.min.js")).ok()
}

/// One browser with one page in it.
pub(super) struct Browser(Client);

impl Browser {
    pub(super) async fn goto(&self, url: &str) {
        repeat(url, async || self.0.goto(url).await).await;
    }

    /// Opens another tab, and switches to it.
    pub(super) async fn new_tab(&self) {
        let tab = repeat("a tab opens", async || self.0.new_window(true).await).await;
        self.look_at(tab.handle).await;
    }

    /// The current tab.
    pub(super) async fn tab(&self) -> WindowHandle {
        self.0.window().await.expect("a tab is looked at")
    }

    /// Switches to another tab, as a click on it does.
    pub(super) async fn look_at(&self, tab: WindowHandle) {
        repeat("a tab can be looked at", async || {
            self.0.switch_to_window(tab.clone()).await?;
            self.0.issue_cmd(DevTools("Page.bringToFront", json!({}))).await
        })
        .await;
    }

    /// Runs a script in every page from now on, before the page's own scripts.
    pub(super) async fn run_first(&self, script: &str) {
        let command = DevTools("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
        self.0.issue_cmd(command).await.expect("a script can be added");
    }

    /// Runs a script in the page and gives what it returns.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.0.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true in the page.
    pub(super) async fn wait(&self, expression: &str) {
        let script = format!("try {{ return Boolean({expression}) }} catch {{ return false }}");
        let end = tokio::time::Instant::now() + PAGE_TIMEOUT;
        loop {
            // The page may just be changing, so that the script fails.
            if self.0.execute(&script, Vec::new()).await.is_ok_and(|value| value == true) {
                return;
            }
            if tokio::time::Instant::now() > end {
                let page = self.0.source().await.unwrap_or_default();
                panic!("waited in vain for `{expression}`; log: {:?}; page: {page}", self.log().await);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until the page shows a text.
    pub(super) async fn wait_for_text(&self, text: &str) {
        self.wait(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    pub(super) async fn click(&self, selector: &str) {
        for _ in 0..MAX_STALE_CLICKS {
            let found = self.0.wait().at_most(PAGE_TIMEOUT).for_element(Locator::Css(selector)).await;
            match found.unwrap_or_else(|error| panic!("{selector}: {error}")).click().await {
                Ok(()) => return,
                // The page was updated in between; a person would not have noticed.
                Err(error) if error.to_string().contains("stale element") => {}
                Err(error) => panic!("{selector}: {error}"),
            }
        }
        panic!("{selector} is replaced again and again");
    }

    /// Types into an input that is found by a selector, instead of what is there.
    pub(super) async fn fill(&self, selector: &str, text: &str) {
        let found = self.0.wait().at_most(PAGE_TIMEOUT).for_element(Locator::Css(selector)).await;
        let found = found.unwrap_or_else(|error| panic!("{selector}: {error}"));
        found.clear().await.expect("it can be cleared");
        found.send_keys(text).await.expect("it can be typed into");
    }

    /// All errors of the browser since the last call: of scripts, and violations of our policy.
    pub(super) async fn log(&self) -> Vec<String> {
        let entries = repeat("the log can be read", async || self.0.issue_cmd(Log).await).await;
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG")
            .map(|entry| entry["message"].to_string())
            .collect()
    }

    /// A screenshot of the page.
    pub(super) async fn picture(&self) -> Vec<u8> {
        repeat("a picture can be taken", async || self.0.screenshot().await).await
    }

    pub(super) async fn close(self) {
        self.0.close().await.expect("the browser closes");
    }
}

/// A command of the DevTools protocol with its parameters, which only Chromium supports.
#[derive(Debug)]
struct DevTools(&'static str, Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"cmd": self.0, "params": self.1}).to_string()))
    }
}

/// The log of the browser, which only Chromium has.
#[derive(Debug)]
struct Log;

impl WebDriverCompatibleCommand for Log {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}
