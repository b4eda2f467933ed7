//! Which process holds a port or a file, according to `/proc`. Without `/proc`, nothing is known.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use protocol::escape;

/// How much of a command line is shown.
const MAX_COMMAND_CHARS: usize = 200;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The holder of a port or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    Process(u32),
    /// A process of this user, whose details we may not read.
    ProcessOfUser(u32),
}

impl Holder {
    /// The process that listens at `address`. A wildcard socket counts, and so does any if `address` is a wildcard.
    pub fn of_port(address: SocketAddr) -> Option<Self> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
        let sockets = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(Socket::read);
        let found: Vec<Socket> = sockets.filter(|socket| socket.conflicts_with(address)).collect();
        let exact = found.iter().find(|socket| socket.address.ip() == address.ip().to_canonical());
        let socket = exact.or(found.first())?;
        let link = PathBuf::from(format!("socket:[{}]", socket.inode));
        let holds = |descriptor: &Path| fs::read_link(descriptor).is_ok_and(|target| target == link);
        Some(processes().find(|&pid| any_descriptor(pid, holds)).map_or(Self::ProcessOfUser(socket.uid), Self::Process))
    }

    /// The only other process that has `file` open.
    pub fn of_file(file: &Path) -> Option<Self> {
        let wanted = fs::metadata(file).ok()?;
        let is_it = |descriptor: &Path| {
            fs::metadata(descriptor).is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        };
        let mut others = processes().filter(|&pid| pid != std::process::id() && any_descriptor(pid, is_it));
        let first = others.next()?;
        others.next().is_none().then_some(Self::Process(first))
    }
}

/// A process by its id and, where that can be read, its command line without secrets.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => match command_line(*pid) {
                Some(command) => write!(f, "process {pid} (`{command}`)"),
                None => write!(f, "process {pid}"),
            },
            Self::ProcessOfUser(uid) => write!(f, "a process of user {uid}"),
        }
    }
}

/// The command line of a process, on one line.
fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    // The last argument ends with a NUL, too.
    words.pop();
    let (program, arguments) = words.split_first()?;
    let shown = std::iter::once(program.clone()).chain(catalog::mask::arguments(program, arguments));
    let line = shown.collect::<Vec<_>>().join(" ");
    let line = escape::one_line(&line);
    if line.chars().count() <= MAX_COMMAND_CHARS {
        return Some(line.into_owned());
    }
    Some(line.chars().take(MAX_COMMAND_CHARS).chain(['…']).collect())
}

/// All processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether `holds` is true for a descriptor of a process. False for processes whose descriptors we may not read.
fn any_descriptor(pid: u32, holds: impl Fn(&Path) -> bool) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.map(|descriptor| descriptor.path()).any(|descriptor| holds(&descriptor))
}

/// A listening socket: a line of `/proc/net/tcp` or `/proc/net/tcp6`.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: SocketAddr,
    uid: u32,
    inode: u64,
}

impl Socket {
    fn read(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state) = (fields.get(1)?, fields.get(3)?);
        if *state != LISTENING {
            return None;
        }
        let (ip, port) = local.split_once(':')?;
        let address = SocketAddr::new(read_ip(ip)?.to_canonical(), u16::from_str_radix(port, 16).ok()?);
        Some(Self { address, uid: fields.get(7)?.parse().ok()?, inode: fields.get(9)?.parse().ok()? })
    }

    fn conflicts_with(&self, wanted: SocketAddr) -> bool {
        let (own, wanted_ip) = (self.address.ip(), wanted.ip().to_canonical());
        let overlaps = own == wanted_ip || own.is_unspecified() || wanted_ip.is_unspecified();
        self.address.port() == wanted.port() && overlaps
    }
}

/// An address as the kernel prints it: words of 32 bits in the order of the machine, each holding bytes in network order.
fn read_ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let octets = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A program that runs until its input ends.
    struct Waiting(Child);

    impl Drop for Waiting {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn the_holder_of_a_port_is_found_by_each_conflicting_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = Some(Holder::Process(std::process::id()));
        assert_eq!(Holder::of_port(address), own);
        assert_eq!(Holder::of_port(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port())), own);
        assert_eq!(Holder::of_port(SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), address.port())), None);
        drop(listener);
        assert_eq!(Holder::of_port(address), None);
    }

    #[test]
    fn the_holder_of_a_file_is_reported_with_its_command_line_but_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create(&path).unwrap();
        assert_eq!(Holder::of_file(&path), None, "we do not count");
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read -r _", "sh", "--token", "hunter2"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = Waiting(command.spawn().unwrap());
        let mut said = std::io::BufReader::new(child.0.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
        drop(command);
        let holder = Holder::of_file(&path).unwrap();
        assert_eq!(holder, Holder::Process(child.0.id()));
        let shown = holder.to_string();
        assert!(shown.starts_with(&format!("process {} (`sh -c ", child.0.id())), "{shown}");
        assert!(shown.contains("--token") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line =
            "   0: 0100007F:2268 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 x";
        let expected = Socket { address: "127.0.0.1:8808".parse().unwrap(), uid: 1000, inode: 4242 };
        if cfg!(target_endian = "little") {
            assert_eq!(Socket::read(line), Some(expected));
        }
        assert_eq!(Socket::read(&line.replace(" 0A ", " 01 ")), None, "it does not listen");
        assert_eq!(Socket::read("  sl  local_address rem_address   st"), None);
    }
}
