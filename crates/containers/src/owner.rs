//! The labels by which we know our own, and what is left of a program that was killed.
//!
//! A container says which instance it belongs to and which process made it. One whose instance is ours and whose process
//! is no more has been left behind. One whose process lives is somebody's, even if it has the same instance: two
//! programs may run on one config.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;

use crate::engine::Engine;
use crate::trouble::{Trouble, in_words};

/// Which instance a container belongs to.
pub const INSTANCE_LABEL: &str = "io.mcp-aggregator.instance";
/// Which process made it.
pub const PROCESS_LABEL: &str = "io.mcp-aggregator.process";
/// Which server lives in it.
pub const SERVER_LABEL: &str = "io.mcp-aggregator.server";

/// Whose containers are ours.
#[derive(Debug, Clone)]
pub struct Owner {
    pub(crate) instance: String,
    process: String,
}

impl Owner {
    /// This process, on behalf of an instance: the same for whoever serves the same registry or config.
    pub fn new(instance: &str) -> Self {
        Self { instance: instance.to_owned(), process: this_process() }
    }

    pub(crate) fn labels(&self, server: &str) -> HashMap<String, String> {
        [(INSTANCE_LABEL, self.instance.as_str()), (PROCESS_LABEL, &self.process), (SERVER_LABEL, server)]
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .collect()
    }

    /// Whether a container with this process label has been left behind.
    fn has_left(&self, process: &str) -> bool {
        process != self.process && !is_alive(process)
    }
}

/// Removes what was left behind.
pub(crate) async fn remove_leftovers(owner: &Owner, engine: &Engine) -> Result<(), Trouble> {
    let refused = |error| Trouble::Refused { deed: "list containers", words: in_words(&error) };
    let filters = HashMap::from([("label", vec![format!("{INSTANCE_LABEL}={}", owner.instance)])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    for container in engine.docker.list_containers(Some(options)).await.map_err(refused)? {
        let labels = container.labels.unwrap_or_default();
        let process = labels.get(PROCESS_LABEL).map_or("", String::as_str);
        let Some(id) = container.id.filter(|_| owner.has_left(process)) else { continue };
        tracing::info!(container = %id, server = ?labels.get(SERVER_LABEL), "removing a container that was left behind");
        engine.remove(&id).await?;
    }
    Ok(())
}

/// A process unlike any other: machine, start of the machine, process namespace, number, and when it was started.
fn this_process() -> String {
    let id = std::process::id();
    format!("{}/{id}/{}", surroundings(), started(id).unwrap_or_default())
}

/// The machine it runs on, as far as process numbers mean something there.
fn surroundings() -> String {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name}/{}/{}", line("/proc/sys/kernel/random/boot_id"), namespace.display())
}

/// When a process was started, in the system's ticks; nothing where the system does not tell.
fn started(id: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the 20th word behind it is the time.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19).map(str::to_owned)
}

/// Whether the process that is meant still runs on this machine.
fn is_alive(process: &str) -> bool {
    let Some((rest, ticks)) = process.rsplit_once('/') else { return false };
    let Some((place, id)) = rest.rsplit_once('/') else { return false };
    let Ok(id) = id.parse::<u32>() else { return false };
    if place != surroundings() {
        return false;
    }
    if ticks.is_empty() {
        // Somewhere without `/proc`.
        let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
        return id.is_some_and(|id| rustix::process::test_kill_process(id).is_ok());
    }
    started(id).is_some_and(|began| began == ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_running_process_made_is_not_left_behind() {
        let owner = Owner::new("a");
        assert!(is_alive(&owner.process), "{}", owner.process);
        assert!(!owner.has_left(&owner.process));
        let (rest, _) = owner.process.rsplit_once('/').unwrap();
        assert!(owner.has_left(&format!("{rest}/1")), "another process that had the same number");
        for odd in ["", "x", "a/b", "elsewhere/x/y/1/5"] {
            assert!(owner.has_left(odd), "{odd}");
        }
    }
}
