//! Changes of administrators, and the expected state after them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};

use crate::rest::{PREFIX, fake};

/// The number of tools of connected servers.
pub(super) const TOOLS: usize = 40;
/// The maximum number of servers of an administrator.
const MAX_SERVERS: usize = 5;

/// One change.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Register { name: String, description: String, connects: bool },
    Describe { name: String, description: String },
    Rename { name: String, to: String },
    Switch { name: String, on: bool },
    Remove { name: String },
    SetTimeout(u64),
}

/// The expected state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) description: Option<String>,
    pub(super) enabled: bool,
}

/// The expected state of all servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct World {
    pub(super) servers: BTreeMap<String, Kept>,
    /// Only one administrator changes it.
    pub(super) timeout_ms: Option<u64>,
}

impl Operation {
    pub(super) fn ask(&self) -> HttpRequest {
        let send = |method: &str, path: &str, body: Option<Value>| {
            let ask = HttpRequest::new(method, &format!("{PREFIX}{path}")).header("Content-Type", "application/json");
            body.map_or_else(|| ask.clone().header("Content-Length", "0"), |body| ask.clone().body(body.to_string()))
        };
        match self {
            Self::Register { name, description, connects } => {
                let mut server = fake(name, &["--only-generated", "--tools", &TOOLS.to_string()]);
                server["description"] = json!(description);
                server["auto_connect"] = json!(connects);
                send("POST", "/servers", Some(server))
            }
            Self::Describe { name, description } => {
                send("PATCH", &format!("/servers/{name}"), Some(json!({"description": description})))
            }
            Self::Rename { name, to } => send("PATCH", &format!("/servers/{name}"), Some(json!({"name": to}))),
            Self::Switch { name, on } => {
                send("POST", &format!("/servers/{name}/{}", if *on { "enable" } else { "disable" }), None)
            }
            Self::Remove { name } => send("DELETE", &format!("/servers/{name}?force=true"), None),
            Self::SetTimeout(timeout) => send("PATCH", "/settings", Some(json!({"timeout_ms": timeout}))),
        }
    }
}

impl World {
    /// The next change of an administrator: one that is possible.
    pub(super) fn next(&self, administrator: u64, chance: &mut Chance) -> Operation {
        let fresh = |chance: &mut Chance| format!("a{administrator}-{}", chance.below(1 << 40));
        let any = chance.below(self.servers.len().max(1) as u64) as usize;
        let Some((name, kept)) = self.servers.iter().nth(any) else {
            return Operation::Register { name: fresh(chance), description: fresh(chance), connects: true };
        };
        let name = name.clone();
        match chance.below(10) {
            0..4 if self.servers.len() < MAX_SERVERS => {
                // Connecting takes longer than writing, so most changes only write.
                Operation::Register { name: fresh(chance), description: fresh(chance), connects: chance.below(4) == 0 }
            }
            4 | 5 => Operation::Describe { name, description: fresh(chance) },
            6 => Operation::Rename { name, to: fresh(chance) },
            7 => Operation::Switch { name, on: !kept.enabled },
            8 if administrator == 0 => Operation::SetTimeout(1000 + chance.below(1000)),
            _ => Operation::Remove { name },
        }
    }

    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation.clone() {
            Operation::Register { name, description, .. } => {
                self.servers.insert(name, Kept { description: Some(description), enabled: true });
            }
            Operation::Describe { name, description } => {
                self.servers.entry(name).and_modify(|kept| kept.description = Some(description));
            }
            Operation::Rename { name, to } => {
                if let Some(kept) = self.servers.remove(&name) {
                    self.servers.insert(to, kept);
                }
            }
            Operation::Switch { name, on } => {
                self.servers.entry(name).and_modify(|kept| kept.enabled = on);
            }
            Operation::Remove { name } => {
                self.servers.remove(&name);
            }
            Operation::SetTimeout(timeout) => self.timeout_ms = Some(timeout),
        }
    }
}

/// The owner of a server.
pub(super) fn owner(name: &str) -> Option<u64> {
    name.strip_prefix('a')?.split_once('-')?.0.parse().ok()
}

/// A connection, unless the service has ended.
pub(super) fn connect(address: SocketAddr) -> Option<Connection> {
    Connection::try_open(address).ok()
}

/// Pseudo-random numbers that are the same for the same seed.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// A whole number below a limit.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % limit
    }

    /// A number from 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        self.below(1000) as f64 / 1000.0
    }
}
