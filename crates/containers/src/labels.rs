//! The labels that identify our containers, and the removal of leftovers of a killed program.
//!
//! A container is labelled with its instance and the process that created it. One whose instance is ours and whose
//! process has ended is a leftover. One whose process runs is in use, even if it has the same instance: two programs
//! may run on one config. Whether a process in another process namespace (in a container, say) runs cannot be
//! determined from here: its containers are leftovers only where no other process can have the same instance.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;

use crate::engine::Engine;
use crate::error::{ContainerError, in_words};

/// The instance a container belongs to.
pub(crate) const INSTANCE_LABEL: &str = "io.mcp-aggregator.instance";
/// The process that created it.
pub(crate) const PROCESS_LABEL: &str = "io.mcp-aggregator.process";
/// The data folder of its instance, for people.
pub(crate) const HOME_LABEL: &str = "io.mcp-aggregator.home";
/// The server that runs in it.
pub(crate) const SERVER_LABEL: &str = "io.mcp-aggregator.server";

/// Identifies our containers.
#[derive(Debug, Clone)]
pub struct Owner {
    pub(crate) instance: String,
    home: String,
    process: String,
    is_alone: bool,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Alive,
    Gone,
    /// It is on this machine, but its id is of another namespace.
    Unknown,
}

impl Owner {
    /// This process, for an instance that no other process can have at the same time, on any machine.
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

    /// Whether a container with this process label is a leftover.
    fn has_left(&self, process: &str) -> bool {
        if process == self.process {
            return false;
        }
        match state_of(process) {
            ProcessState::Alive => false,
            ProcessState::Gone => true,
            ProcessState::Unknown => self.is_alone,
        }
    }
}

/// Removes leftovers; returns those that cannot be removed now, which must not block anything.
pub(crate) async fn remove_leftovers(owner: &Owner, engine: &Engine) -> Result<Vec<String>, ContainerError> {
    let refused = |error| ContainerError::Refused { operation: "list containers", words: in_words(&error) };
    let filters = HashMap::from([("label", vec![format!("{INSTANCE_LABEL}={}", owner.instance)])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let mut stuck = Vec::new();
    for container in engine.docker.list_containers(Some(options)).await.map_err(refused)? {
        let labels = container.labels.unwrap_or_default();
        let process = labels.get(PROCESS_LABEL).map_or("", String::as_str);
        let Some(id) = container.id.filter(|_| owner.has_left(process)) else { continue };
        tracing::info!(container = %id, server = ?labels.get(SERVER_LABEL), "removing a leftover container");
        if let Err(error) = engine.remove(&id).await {
            tracing::warn!(container = %id, %error, "failed to remove a leftover container; will retry");
            stuck.push(id);
        }
    }
    Ok(stuck)
}

/// Identifies a process: machine, boot, process namespace, process id, and start time.
fn this_process() -> String {
    let id = std::process::id();
    format!("{}/{id}/{}", connection_context(), started(id).unwrap_or_default())
}

/// The machine and process namespace in which process ids are valid.
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

/// Identifies a machine and its boot.
fn machine() -> String {
    let known = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(line_of);
    known.into_iter().find(|id| !id.is_empty()).unwrap_or_else(node)
}

/// The start time of a process, in ticks; `None` where the system does not report it, or if it has ended.
fn started(id: u32) -> Option<String> {
    when_started(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn when_started(stat: &str) -> Option<String> {
    // The name is in parentheses and may contain anything; the first field after it is the state, the 20th the start
    // time.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = words.next()?;
    // A zombie is listed until its parent has reaped it, which may never happen.
    let has_ended = matches!(state, "Z" | "X" | "x");
    words.nth(18).filter(|_| !has_ended).map(str::to_owned)
}

/// Whether the labelled process still runs on this machine.
fn state_of(process: &str) -> ProcessState {
    let Some((rest, ticks)) = process.rsplit_once('/') else { return ProcessState::Gone };
    let Some((context, id)) = rest.rsplit_once('/') else { return ProcessState::Gone };
    let Ok(id) = id.parse::<u32>() else { return ProcessState::Gone };
    if context != connection_context() {
        let started = start_of_machine();
        let is_here = !started.is_empty() && context.split('/').any(|part| part == started);
        return if is_here { ProcessState::Unknown } else { ProcessState::Gone };
    }
    let is_alive = if ticks.is_empty() {
        // A system without `/proc`.
        let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
        id.is_some_and(|id| rustix::process::test_kill_process(id).is_ok())
    } else {
        started(id).is_some_and(|began| began == ticks)
    };
    if is_alive { ProcessState::Alive } else { ProcessState::Gone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_running_process_made_is_not_left_behind() {
        let owner = Owner::alone("a", "/a");
        assert_eq!(state_of(&owner.process), ProcessState::Alive, "{}", owner.process);
        assert!(!owner.has_left(&owner.process));
        let (rest, _) = owner.process.rsplit_once('/').unwrap();
        assert!(owner.has_left(&format!("{rest}/1")), "another process that had the same number");
        for odd in ["", "x", "a/b", "elsewhere/x/y/1/5"] {
            assert!(owner.has_left(odd), "{odd}");
        }
    }

    #[test]
    fn an_unreaped_process_counts_as_ended() {
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
