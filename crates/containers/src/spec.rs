//! The container's definition: it can do what its server needs, and little else.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, PortBinding};
use catalog::{Contact, Container};

/// The memory limit of a server without a configured one.
pub(crate) const DEFAULT_MEMORY: u64 = 1 << 30;
/// The maximum number of processes and threads.
const MAX_PROCESSES: i64 = 512;
/// Where published ports are reached: from this machine only.
pub(crate) const LOOPBACK: &str = "127.0.0.1";

/// The definition of a container. Values of `env` are sent to the engine in a request body and are on no command line.
pub(crate) fn body(
    wanted: &Container,
    labels: HashMap<String, String>,
    extra_env: impl Iterator<Item = (String, String)>,
) -> ContainerCreateBody {
    let is_stdio = wanted.contact == Contact::Stdio;
    let env = wanted.env.iter().cloned().chain(extra_env).map(|(name, value)| format!("{name}={value}"));
    ContainerCreateBody {
        image: Some(wanted.image.value.clone()),
        entrypoint: some(&wanted.command),
        cmd: some(&wanted.args),
        env: Some(env.collect()),
        user: wanted.user.clone(),
        labels: Some(labels),
        attach_stdin: Some(is_stdio),
        open_stdin: Some(is_stdio),
        // When our end of its stdin is closed, so is its own.
        stdin_once: Some(is_stdio),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        exposed_ports: Some(wanted.ports.iter().map(|port| key(port.inside)).collect()),
        host_config: Some(limits(wanted, is_stdio)),
        ..ContainerCreateBody::default()
    }
}

fn limits(wanted: &Container, is_stdio: bool) -> HostConfig {
    let memory = signed(wanted.memory.unwrap_or(DEFAULT_MEMORY));
    let network = wanted.network.clone().or_else(|| is_stdio.then(|| "none".to_owned()));
    let (mut mounts, mut binds) = (Vec::new(), Vec::new());
    for volume in &wanted.volumes {
        match folder_of_machine(volume) {
            Some(mount) => mounts.push(mount),
            None => binds.push(volume.clone()),
        }
    }
    HostConfig {
        memory: Some(memory),
        // No swap on top of it.
        memory_swap: Some(memory),
        nano_cpus: wanted.nano_cpus.map(signed),
        pids_limit: Some(MAX_PROCESSES),
        // An init process reaps the children of a server that does not do it itself, and forwards signals.
        init: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        privileged: Some(false),
        readonly_rootfs: Some(wanted.read_only),
        binds: some(&binds),
        mounts: (!mounts.is_empty()).then_some(mounts),
        port_bindings: (network.as_deref() != Some("host")).then(|| published(wanted)),
        network_mode: network,
        // Its output is read by us. The engine would store every message on disk.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

/// A host folder as a mount, which must exist. As a bind the engine would create a missing one, owned by root. Options
/// other than `ro` are only possible in a bind.
fn folder_of_machine(volume: &str) -> Option<Mount> {
    let mut parts = volume.split(':');
    let (here, inside, mode) = (parts.next()?, parts.next()?, parts.next());
    let is_read_only = match mode {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(_) => return None,
    };
    here.starts_with('/').then(|| Mount {
        source: Some(here.to_owned()),
        target: Some(inside.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(is_read_only),
        ..Mount::default()
    })
}

fn published(wanted: &Container) -> HashMap<String, Option<Vec<PortBinding>>> {
    let binding = |here: Option<u16>| PortBinding {
        host_ip: Some(LOOPBACK.to_owned()),
        host_port: Some(here.map_or_else(String::new, |port| port.to_string())),
    };
    wanted.ports.iter().map(|port| (key(port.inside), Some(vec![binding(port.here)]))).collect()
}

/// The engine's name of a port.
pub(crate) fn key(port: u16) -> String {
    format!("{port}/tcp")
}

fn some(texts: &[String]) -> Option<Vec<String>> {
    (!texts.is_empty()).then(|| texts.to_vec())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Dialect, Port, Pull};

    fn wanted(contact: Contact) -> Container {
        Container {
            image: "a".into(),
            name: None,
            command: Vec::new(),
            args: vec!["x".to_owned()],
            env: vec![("KEY".to_owned(), "hunter2".to_owned())],
            ports: vec![Port { inside: 80, here: None }],
            volumes: Vec::new(),
            network: None,
            memory: None,
            nano_cpus: None,
            user: None,
            pull: Pull::Missing,
            read_only: false,
            contact,
        }
    }

    #[test]
    fn a_server_over_stdio_has_no_network_by_default() {
        let network =
            |wanted: &Container| body(wanted, HashMap::new(), std::iter::empty()).host_config.unwrap().network_mode;
        assert_eq!(network(&wanted(Contact::Stdio)), Some("none".to_owned()));
        let asked = Container { network: Some("web".to_owned()), ..wanted(Contact::Stdio) };
        assert_eq!(network(&asked), Some("web".to_owned()));
        let http = Contact::Http { dialect: Dialect::Streamable, path: "/".to_owned(), headers: Vec::new() };
        assert_eq!(network(&wanted(http)), None, "the engine's usual one");
    }

    #[test]
    fn folders_of_the_machine_must_be_there_and_volumes_are_made() {
        let volumes = ["/a:/b", "/c:/d:ro", "notes:/n", "/e:/f:z"].map(str::to_owned).to_vec();
        let limits = limits(&Container { volumes, ..wanted(Contact::Stdio) }, true);
        let shown = |mount: &Mount| (mount.source.clone().unwrap(), mount.target.clone().unwrap(), mount.read_only);
        let mounts: Vec<_> = limits.mounts.unwrap().iter().map(shown).collect();
        let folder = |here: &str, inside: &str, ro| (here.to_owned(), inside.to_owned(), Some(ro));
        assert_eq!(mounts, [folder("/a", "/b", false), folder("/c", "/d", true)]);
        assert_eq!(limits.binds.unwrap(), ["notes:/n", "/e:/f:z"]);
    }

    #[test]
    fn a_container_gets_only_requested_permissions() {
        let made = body(&wanted(Contact::Stdio), HashMap::new(), std::iter::empty());
        assert!(made.env.unwrap().contains(&"KEY=hunter2".to_owned()));
        assert_eq!((made.entrypoint, made.cmd), (None, Some(vec!["x".to_owned()])));
        let limits = made.host_config.unwrap();
        assert_eq!(limits.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(limits.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert_eq!((limits.memory, limits.memory_swap), (Some(1 << 30), Some(1 << 30)));
        assert_eq!((limits.pids_limit, limits.init), (Some(512), Some(true)));
        let bindings = limits.port_bindings.unwrap();
        let binding = &bindings["80/tcp"].as_ref().unwrap()[0];
        assert_eq!(binding.host_ip.as_deref(), Some("127.0.0.1"), "reached from this machine only");
    }
}
