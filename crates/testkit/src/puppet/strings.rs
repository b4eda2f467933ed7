//! A puppet over stdio: the program `puppet` connects to our socket each time it is started.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;

use super::Instance;
use super::received::{Received, ResponseRoute};
use super::stage::Stage;
use crate::config::ServerEntry;
use crate::program::program;

#[derive(Debug)]
pub(super) struct Strings {
    folder: TempDir,
    acceptor: Option<JoinHandle<()>>,
}

impl Strings {
    #[track_caller]
    pub(super) fn attach(stage: &Arc<Stage>) -> Self {
        let folder = TempDir::with_prefix("puppet-").expect("a temporary folder can be made");
        let listener = UnixListener::bind(folder.path().join("strings")).expect("a socket can be bound there");
        let stage = Arc::clone(stage);
        let acceptor = std::thread::spawn(move || {
            while let Ok((strings, _)) = listener.accept() {
                if stage.seen().stopped {
                    return;
                }
                let stage = Arc::clone(&stage);
                std::thread::spawn(move || live(&stage, strings));
            }
        });
        Self { folder, acceptor: Some(acceptor) }
    }

    #[track_caller]
    pub(super) fn entry(&self) -> ServerEntry {
        ServerEntry::new(program("puppet")).arg(self.folder.path().join("strings").to_string_lossy())
    }

    /// Stops accepting runs; existing ones have ended.
    pub(super) fn detach(&mut self) {
        // `accept` has no time-out. If this fails, the listener is gone and so is the thread.
        drop(UnixStream::connect(self.folder.path().join("strings")));
        if let Some(acceptor) = self.acceptor.take() {
            assert!(acceptor.join().is_ok() || std::thread::panicking(), "the thread of a puppet panicked");
        }
    }
}

/// One run: from the first line to the end of its stdin.
fn live(stage: &Arc<Stage>, strings: UnixStream) {
    let Ok(reader) = strings.try_clone() else { return };
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    let mut introduction = String::new();
    if reader.read_line(&mut introduction).unwrap_or(0) == 0 {
        return;
    }
    let run_index = stage.enter(read_introduction(&introduction), strings);
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        stage.take(&Received::new(line, ResponseRoute::Stdout { stage: Arc::clone(stage), run_index }));
    }
    // Its stdin ended: a well-behaved server ends too.
    stage.end(run_index);
}

fn read_introduction(line: &str) -> Instance {
    let said: Value = serde_json::from_str(line).expect("a puppet introduces itself in JSON");
    let env = said["env"].as_object().into_iter().flatten();
    let env = env.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    let args = said["args"].as_array().into_iter().flatten();
    let args = args.map(|argument| argument.as_str().unwrap_or_default().to_owned()).collect();
    let pid = said["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    Instance { pid, args, env }
}
