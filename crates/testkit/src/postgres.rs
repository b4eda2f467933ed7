//! A disposable PostgreSQL server: its own data, a socket in its own folder, stopped and started on demand.

mod programs;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::wait_until;
use programs::Programs;

/// A process between us and the server: stops the server on request, and when our end of the pipe closes because we
/// ended, for whatever reason. Then it deletes the data.
const WATCHDOG_SCRIPT: &str = r#"
folder=$1; shift
"$@" >>"$folder/log" 2>&1 </dev/null &
server=$!
if read -r word; then
    case $word in
        stop) kill -INT $server ;;
        crash) kill -QUIT $server ;;
    esac
    wait $server
else
    kill -INT $server
    wait $server
    rm -rf "$folder"
fi
"#;

/// A separate PostgreSQL server. It ends on drop, or with the process.
#[derive(Debug)]
pub struct Postgres {
    programs: Programs,
    folder: TempDir,
    watchdog: Option<Child>,
}

impl Postgres {
    /// Starts a server with an empty cluster.
    ///
    /// `None`, with a loud message, if PostgreSQL is not installed. With `CI=true` that is a failure.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let Some(programs) = Programs::find() else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "PostgreSQL was not found, and with CI=true nothing may be skipped"
            );
            eprintln!("\n**********\nSKIPPED: PostgreSQL was not found; install Debian's `postgresql`\n**********\n");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("postgres-").tempdir().expect("a temporary folder can be made");
        programs.hand_over(folder.path());
        let data = folder.path().join("data");
        let mut initdb = programs.command("initdb", folder.path());
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(&data);
        let made = initdb.output().expect("initdb can be started");
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let mut server = Self { programs, folder, watchdog: None };
        server.start_again();
        Some(server)
    }

    /// One server for all tests of this process, created on first use. `None` as in [`start`](Self::start).
    #[track_caller]
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Starts it again after it was stopped, and waits until it takes connections.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.watchdog.is_none(), "it runs already");
        let folder = self.folder.path();
        let data = folder.join("data");
        // A crash leaves this file behind, which would look like a server that is ready.
        match std::fs::remove_file(data.join("postmaster.pid")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("a stale pid file stays: {error}"),
            _ => {}
        }
        let mut watchdog = self.programs.shell(folder);
        watchdog
            .args(["-c", WATCHDOG_SCRIPT, "watchdog"])
            .arg(folder)
            .arg(self.programs.path("postgres"))
            .arg("-D")
            .arg(&data);
        // Durable enough for a disposable server: after a kill, it still has what it committed.
        for option in ["fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=200"] {
            watchdog.args(["-c", option]);
        }
        watchdog.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
        // In its own process group: a signal to ours must not prevent the cleanup.
        watchdog.process_group(0);
        let watchdog = watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell can be started");
        self.watchdog = Some(watchdog);
        wait_until("PostgreSQL takes connections", || {
            let ended = self.watchdog.as_mut().and_then(|watchdog| watchdog.try_wait().ok().flatten());
            assert!(ended.is_none(), "PostgreSQL ended: {}", self.log());
            is_ready(&data).then_some(())
        });
    }

    /// Stops it normally: clients are disconnected, committed data is kept.
    #[track_caller]
    pub fn stop(&mut self) {
        self.tell("stop");
    }

    /// Kills it, as a crash would. Committed data is kept.
    #[track_caller]
    pub fn crash(&mut self) {
        self.tell("crash");
    }

    fn tell(&mut self, word: &str) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        let mut pipe = watchdog.stdin.take().expect("its stdin is a pipe");
        writeln!(pipe, "{word}").expect("the watchdog listens");
        watchdog.wait().expect("the watchdog ends");
    }

    /// Creates a database with that name, and returns its address for `--database`.
    #[track_caller]
    pub fn database(&self, name: &str) -> String {
        self.psql("postgres", &format!("CREATE DATABASE \"{name}\""));
        self.url(name)
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}/{database}")
    }

    /// Runs SQL as the superuser; its output, without headers.
    #[track_caller]
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.programs.command("psql", self.folder.path());
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--username=postgres"]);
        psql.arg("--host").arg(self.folder.path()).args(["--dbname", database, "--command", sql]);
        let output = psql.output().expect("psql can be started");
        assert!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.tell("crash");
    }
}

/// PostgreSQL writes its state into the eighth line of its pid file.
fn is_ready(data: &Path) -> bool {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    text.lines().nth(7).is_some_and(|state| state.trim() == "ready")
}

/// A command with a working directory that its user may enter.
fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_remove("LC_ALL").env("LANG", "C").stderr(Stdio::piped());
    command
}
