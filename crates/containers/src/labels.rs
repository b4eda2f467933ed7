//! The labels by which we know our own, and what is left of a program that was killed.
//!
//! A container says which instance it belongs to and which process made it. One whose instance is ours and whose process
//! is no more has been left behind. One whose process lives is somebody's, even if it has the same instance: two
//! programs may run on one config. Whether a process lives that counts its processes elsewhere (in a container, say)
//! nobody can tell from here: what it made is only taken for left behind where no other can have the same instance.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;

use crate::engine::Engine;
use crate::error::{ContainerError, in_words};

/// Which instance a container belongs to.
pub const INSTANCE_LABEL: &str = "io.mcp-aggregator.instance";
/// Which process made it.
pub const PROCESS_LABEL: &str = "io.mcp-aggregator.process";
/// Where its instance keeps what it knows, for people.
pub const HOME_LABEL: &str = "io.mcp-aggregator.home";
/// Which server lives in it.
pub const SERVER_LABEL: &str = "io.mcp-aggregator.server";

/// Whose containers are ours.
#[derive(Debug, Clone)]
pub struct Owner {
    pub(crate) instance: String,
    home: String,
    process: String,
    is_alone: bool,
}

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Lives,
    Gone,
    /// It is on this machine, but its number means nothing here.
    Unknown,
}

impl Owner {
    /// This process, on behalf of an instance that no other process can have at the same time, on any machine.
    pub fn alone(instance: &str, home: &str) -> Self {
        let (instance, home) = (instance.to_owned(), home.to_owned());
        Self { instance, home, process: this_process(), is_alone: true }
    }

    /// This process, one of those that may serve the same config on this machine.
    pub fn of_config(config: &str) -> Self {
        let instance = format!("{config} on {}", machine());
        Self { is_alone: false, ..Self::alone(&instance, config) }
    }

    pub(crate) fn labels(&self, server: &str) -> HashMap<String, String> {
        let labels = [
            (INSTANCE_LABEL, self.instance.as_str()),
            (HOME_LABEL, &self.home),
            (PROCESS_LABEL, &self.process),
            (SERVER_LABEL, server),
        ];
        labels.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect()
    }

    /// Whether a container with this process label has been left behind.
    fn has_left(&self, process: &str) -> bool {
        if process == self.process {
            return false;
        }
        match fate(process) {
            ProcessState::Lives => false,
            ProcessState::Gone => true,
            ProcessState::Unknown => self.is_alone,
        }
    }
}

/// Removes what was left behind; what cannot be removed now, which must keep nobody from anything.
pub(crate) async fn remove_leftovers(owner: &Owner, engine: &Engine) -> Result<Vec<String>, ContainerError> {
    let refused = |error| ContainerError::Refused { operation: "list containers", words: in_words(&error) };
    let filters = HashMap::from([("label", vec![format!("{INSTANCE_LABEL}={}", owner.instance)])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let mut stuck = Vec::new();
    for container in engine.docker.list_containers(Some(options)).await.map_err(refused)? {
        let labels = container.labels.unwrap_or_default();
        let process = labels.get(PROCESS_LABEL).map_or("", String::as_str);
        let Some(id) = container.id.filter(|_| owner.has_left(process)) else { continue };
        tracing::info!(container = %id, server = ?labels.get(SERVER_LABEL), "removing a container that was left behind");
        if let Err(error) = engine.remove(&id).await {
            tracing::warn!(container = %id, %error, "could not remove a container that was left behind; will try again");
            stuck.push(id);
        }
    }
    Ok(stuck)
}

/// A process unlike any other: machine, start of the machine, process namespace, number, and when it was started.
fn this_process() -> String {
    let id = std::process::id();
    format!("{}/{id}/{}", connection_context(), started(id).unwrap_or_default())
}

/// The machine it runs on, as far as process numbers mean something there.
fn connection_context() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}/{}", node(), start_of_machine(), namespace.display())
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn start_of_machine() -> String {
    line_of("/proc/sys/kernel/random/boot_id")
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A machine unlike any other, also after it was started again.
fn machine() -> String {
    let known = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(line_of);
    known.into_iter().find(|id| !id.is_empty()).unwrap_or_else(node)
}

/// When a process was started, in the system's ticks; nothing where the system does not tell, or if it has ended.
fn started(id: u32) -> Option<String> {
    when_started(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn when_started(stat: &str) -> Option<String> {
    // The name is in parentheses and may hold anything; the first word behind it is the state, the 20th the time.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = words.next()?;
    // One that was killed is listed until its parent has asked how it ended, which may never be.
    let has_ended = matches!(state, "Z" | "X" | "x");
    words.nth(18).filter(|_| !has_ended).map(str::to_owned)
}

/// Whether the process that is meant still runs on this machine.
fn fate(process: &str) -> ProcessState {
    let Some((rest, ticks)) = process.rsplit_once('/') else { return ProcessState::Gone };
    let Some((place, id)) = rest.rsplit_once('/') else { return ProcessState::Gone };
    let Ok(id) = id.parse::<u32>() else { return ProcessState::Gone };
    if place != connection_context() {
        let started = start_of_machine();
        let is_here = !started.is_empty() && place.split('/').any(|part| part == started);
        return if is_here { ProcessState::Unknown } else { ProcessState::Gone };
    }
    let lives = if ticks.is_empty() {
        // Somewhere without `/proc`.
        let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
        id.is_some_and(|id| rustix::process::test_kill_process(id).is_ok())
    } else {
        started(id).is_some_and(|began| began == ticks)
    };
    if lives { ProcessState::Lives } else { ProcessState::Gone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_running_process_made_is_not_left_behind() {
        let owner = Owner::alone("a", "/a");
        assert_eq!(fate(&owner.process), ProcessState::Lives, "{}", owner.process);
        assert!(!owner.has_left(&owner.process));
        let (rest, _) = owner.process.rsplit_once('/').unwrap();
        assert!(owner.has_left(&format!("{rest}/1")), "another process that had the same number");
        for odd in ["", "x", "a/b", "elsewhere/x/y/1/5"] {
            assert!(owner.has_left(odd), "{odd}");
        }
    }

    #[test]
    fn a_process_that_ended_and_was_not_buried_is_gone() {
        let stat = |state: &str| {
            let rest = (4..=22).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
            format!("77 (odd) name) {state} {rest} 23 24")
        };
        assert_eq!(when_started(&stat("S")).as_deref(), Some("22"));
        assert_eq!(when_started(&stat("Z")), None);
    }

    #[test]
    fn what_was_made_in_another_container_on_this_machine_is_left_alone_unless_only_we_can_have_made_it() {
        let elsewhere = format!("another-node/{}/pid:[1]/5/77", start_of_machine());
        assert!(Owner::alone("a", "/a").has_left(&elsewhere));
        assert!(!Owner::of_config("/etc/mcp.json").has_left(&elsewhere));
        let before_the_machine_was_started_again = "another-node/0-0/pid:[1]/5/77";
        assert!(Owner::of_config("/etc/mcp.json").has_left(before_the_machine_was_started_again));
    }
}
