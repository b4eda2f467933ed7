//! A disposable container engine: its own images and containers in its own folder, stopped and started on demand.
//!
//! It sets up no network: containers have none, or that of the machine, unless a test creates one.

mod api;
mod image;
mod image_registry;
mod lease;
mod relay;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::wait::wait_at_most;
use crate::wait_until;

pub use image_registry::ImageRegistry;
pub use lease::Lease;
pub use relay::Relay;

/// The folder in which `scripts/test` installs what is not on the machine.
const PARTS_VARIABLE: &str = "MCP_TEST_PARTS";

/// The image with the fake servers.
pub const IMAGE: &str = "fakes:1";

/// A process between us and the engine: stops the engine on request, and when our end of the pipe closes because we
/// ended, for whatever reason. Then it cleans up.
const WATCHDOG_SCRIPT: &str = r#"
folder=$1; shift
"$@" >>"$folder/log" 2>&1 </dev/null &
engine=$!
if read -r word; then
    kill -TERM $engine
    wait $engine
else
    kill -TERM $engine
    wait $engine
    grep -o " $folder[^ ]*" /proc/mounts | sort -r | while read -r mounted; do umount -l "$mounted"; done
    rm -rf "$folder"
fi
"#;

/// A separate engine. It ends on drop, or with the process.
#[derive(Debug)]
pub struct Engine {
    programs: Programs,
    folder: TempDir,
    watchdog: Option<Child>,
}

/// A network of an engine; removed when this is dropped.
#[derive(Debug)]
pub struct Network<'a> {
    engine: &'a Engine,
    name: String,
}

impl Engine {
    /// Starts an engine with the image of fake servers and nothing else.
    ///
    /// `None`, with a loud message, if none can be started. With `CI=true` that is a failure.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let started = Self::try_start();
        if let Err(why) = &started {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}, and with CI=true nothing may be skipped");
            eprintln!("\n**********\nSKIPPED: servers in containers: {why}\n**********\n");
        }
        started.ok()
    }

    /// One engine for all tests of this process, created on first use. `None` as in [`start`](Self::start).
    #[track_caller]
    pub fn shared() -> Option<Lease> {
        static SHARED: OnceLock<Option<Engine>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map(Lease::new)
    }

    fn try_start() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a container engine of our own needs root".to_owned());
        }
        let programs = Programs::find().ok_or("no container engine was found; install Debian's `docker.io`")?;
        let folder = tempfile::Builder::new().prefix("engine-").tempdir().expect("a temporary folder can be made");
        let mut engine = Self { programs, folder, watchdog: None };
        engine.run()?;
        image::import(&engine, IMAGE);
        Ok(engine)
    }

    fn run(&mut self) -> Result<(), String> {
        let folder = self.folder.path();
        let mut watchdog = Command::new("/bin/sh");
        watchdog.args(["-c", WATCHDOG_SCRIPT, "watchdog"]).arg(folder).arg(self.programs.path("dockerd"));
        watchdog.args([
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--bridge=none",
            "--log-level=warn",
        ]);
        watchdog.arg("--data-root").arg(folder.join("data")).arg("--exec-root").arg(folder.join("exec"));
        watchdog.arg("--pidfile").arg(folder.join("pid")).arg("--host").arg(self.host());
        watchdog.arg("--init-path").arg(self.programs.init());
        self.programs.adjust(&mut watchdog);
        // In its own process group: a signal to ours must not prevent the cleanup.
        watchdog.process_group(0);
        let watchdog = watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell can be started");
        self.watchdog = Some(watchdog);
        let answers = wait_at_most(crate::DEADLINE, || {
            let ended = self.watchdog.as_mut().and_then(|watchdog| watchdog.try_wait().ok().flatten());
            if ended.is_some() {
                return Some(Err(format!("the container engine ended: {}", self.log_tail())));
            }
            api::ask(&self.socket(), "GET", "/_ping", None).is_ok_and(|answer| answer.status == 200).then_some(Ok(()))
        });
        answers.unwrap_or_else(|| Err(format!("the container engine does not answer: {}", self.log_tail())))
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().rev().take(3).collect::<Vec<_>>().join(" | ")
    }

    /// Stops it in good order, with everything it runs.
    #[track_caller]
    pub fn stop(&mut self) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        let mut pipe = watchdog.stdin.take().expect("its stdin is a pipe");
        writeln!(pipe, "stop").expect("the watchdog listens");
        watchdog.wait().expect("the watchdog ends");
    }

    /// Starts it again after it was stopped.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.watchdog.is_none(), "it runs already");
        self.run().expect("an engine that ran runs again");
    }

    /// Its address for `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Sends a request; the response must be a success.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(|body| body.to_string().into_bytes());
        let answer = api::ask(&self.socket(), method, path, body.map(|body| ("application/json", body)));
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
    }

    /// All containers that carry this label.
    #[track_caller]
    pub fn containers(&self, label: &str) -> Vec<Value> {
        let filters = json!({"label": [label]}).to_string();
        let encoded: String = filters.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let found = self.ask("GET", &format!("/containers/json?all=1&filters={encoded}"), None);
        found.as_array().cloned().unwrap_or_default()
    }

    /// What it still holds: containers, volumes, networks. After a test there is nothing.
    #[track_caller]
    pub fn belongings(&self) -> Vec<String> {
        let named = |kind: &str, list: &Value, key: &str| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.map(|item| format!("{kind} {} {}", item[key], item["Labels"])).collect()
        };
        let mut held = named("container", &self.ask("GET", "/containers/json?all=1", None), "Names");
        held.extend(named("volume", &self.ask("GET", "/volumes", None)["Volumes"], "Name"));
        let is_built_in =
            |name: &String| ["bridge", "host", "none"].iter().any(|known| name.contains(&format!("\"{known}\"")));
        held.extend(
            named("network", &self.ask("GET", "/networks", None), "Name").into_iter().filter(|name| !is_built_in(name)),
        );
        held
    }

    /// Creates a network whose containers and this machine reach each other.
    #[track_caller]
    pub fn network(&self, name: &str) -> Network<'_> {
        self.ask("POST", "/networks/create", Some(&json!({"Name": name, "Driver": "bridge"})));
        Network { engine: self, name: name.to_owned() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let held = if self.watchdog.is_some() && !std::thread::panicking() { self.belongings() } else { Vec::new() };
        self.stop();
        // A remaining mount prevents the removal of the folder.
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let folder = self.folder.path().display().to_string();
        for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|place| place.starts_with(&folder))
        {
            Command::new("umount").args(["-l", place]).status().ok();
        }
        assert_eq!(held, Vec::<String>::new(), "the engine is left as it was found");
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        // Containers in it are about to end.
        wait_until("the network can be removed", || {
            let answer = api::ask(&self.engine.socket(), "DELETE", &format!("/networks/{}", self.name), None);
            answer.is_ok_and(|answer| matches!(answer.status, 200 | 204 | 404)).then_some(())
        });
    }
}

/// The engine's programs.
#[derive(Debug)]
struct Programs {
    /// The folders to search.
    folders: Vec<PathBuf>,
    /// Their libraries, if they were unpacked and not installed.
    libraries: Vec<PathBuf>,
}

impl Programs {
    /// Searches `PATH`, the folders of Debian, and the folder of `scripts/test`.
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend(["/usr/sbin", "/usr/bin"].map(PathBuf::from));
        let installed = Self { folders, libraries: Vec::new() };
        if installed.has("dockerd") && installed.has("containerd") {
            return Some(installed);
        }
        let root = PathBuf::from(std::env::var_os(PARTS_VARIABLE)?).join("engine");
        let mut folders = vec![root.join("usr/sbin"), root.join("usr/bin")];
        folders.extend(installed.folders);
        let libraries = ["usr/lib", "lib"].map(|lib| root.join(format!("{lib}/{}-linux-gnu", std::env::consts::ARCH)));
        Some(Self { folders, libraries: libraries.to_vec() }).filter(|unpacked| unpacked.has("dockerd"))
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).is_absolute()
    }

    fn path(&self, name: &str) -> PathBuf {
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        found.unwrap_or_else(|| Path::new(name).to_owned())
    }

    /// The first program in a container must not depend on anything that is missing.
    fn init(&self) -> PathBuf {
        let names = ["tini-static", "docker-init", "tini"];
        names.into_iter().map(|name| self.path(name)).find(|path| path.is_absolute()).unwrap_or_default()
    }

    fn adjust(&self, command: &mut Command) {
        let joined = |folders: &[PathBuf]| std::env::join_paths(folders).expect("no folder of ours has a colon");
        command.env("PATH", joined(&self.folders));
        if !self.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", joined(&self.libraries));
        }
    }
}
