//! `kill -9` of the service while servers are registered, changed and removed.
//!
//! `MCP_TEST_KILLS` says how many times; the default is enough for every day.

mod operations;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::{Postgres, Signal, wait_until};

use crate::rest::{Rest, expect};
use operations::{Chance, Kept, Operation, World};

/// Administrators that work concurrently, each with its own servers.
const ADMINISTRATORS: u64 = 4;
/// The latest moment for a kill, after the changes that were waited for.
const LATEST: Duration = Duration::from_millis(400);
/// In a round, up to so many changes are waited for before the service is killed.
const MOST_AWAITED: u64 = 8;

/// How often the service is killed.
fn rounds(default: u64) -> u64 {
    let given = std::env::var("MCP_TEST_KILLS").ok();
    given.map_or(default, |text| text.parse().expect("MCP_TEST_KILLS is a number"))
}

/// What one administrator knows: the acknowledged changes, and the one in progress when the service died.
struct Worker {
    number: u64,
    world: World,
    unsure: Option<Operation>,
    chance: Chance,
}

impl Worker {
    fn new(number: u64) -> Self {
        let world = World::default();
        Self { number, world, unsure: None, chance: Chance::new(number) }
    }

    /// Makes one change after the other until the service is gone, and counts those that were acknowledged.
    fn work(&mut self, address: SocketAddr, acknowledged: &AtomicU64) {
        let Some(mut connection) = operations::connect(address) else { return };
        loop {
            let operation = self.world.next(self.number, &mut self.chance);
            let Some((status, body)) = connection.try_fetch(&operation.ask()) else {
                self.unsure = Some(operation);
                return;
            };
            assert!((200..300).contains(&status), "{operation:?}: {status} {}", String::from_utf8_lossy(&body));
            self.world.apply(&operation);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares with the actual state, and continues from it.
    fn compare(&mut self, there: &World) {
        let Some(operation) = self.unsure.take() else {
            return assert_eq!(*there, self.world, "administrator {}", self.number);
        };
        let mut other = self.world.clone();
        other.apply(&operation);
        let is_either = *there == self.world || *there == other;
        assert!(is_either, "before or after {operation:?}\nthere: {there:#?}\nbefore: {:#?}", self.world);
        self.world = there.clone();
    }
}

/// The actual servers of each administrator.
fn there(rest: &Rest) -> BTreeMap<u64, World> {
    let mut worlds: BTreeMap<u64, World> = (0..ADMINISTRATORS).map(|number| (number, World::default())).collect();
    let servers = expect(200, &rest.get("/servers?limit=1000&include_tools=true"));
    for server in servers.as_array().expect("a list") {
        let name = server["name"].as_str().expect("a name");
        let number = operations::owner(name).unwrap_or_else(|| panic!("nobody registered `{name}`"));
        let tools = server["tools"].as_array().map_or(0, Vec::len);
        assert!(tools == 0 || tools == operations::TOOLS, "`{name}` has {tools} of its tools");
        let config = &server["connection_config"];
        assert!(config["command"].is_string() && config["args"].is_array(), "{server}");
        let kept = Kept {
            description: server["description"].as_str().map(str::to_owned),
            enabled: server["enabled"] == Value::Bool(true),
        };
        worlds.get_mut(&number).expect("one of ours").servers.insert(name.to_owned(), kept);
    }
    let settings = expect(200, &rest.get("/settings"));
    worlds.get_mut(&0).expect("the first").timeout_ms = settings["timeout_ms"].as_u64();
    worlds
}

fn kill_again_and_again(mut rest: Rest, rounds: u64, look: impl Fn(&Rest)) {
    let mut accounts: Vec<Worker> = (0..ADMINISTRATORS).map(Worker::new).collect();
    let first = there(&rest);
    accounts[0].world = first[&0].clone();
    let mut chance = Chance::new(u64::from(std::process::id()));
    let mut all = 0;
    for round in 0..rounds {
        let moment = LATEST.mul_f64(chance.part());
        let acknowledged = AtomicU64::new(0);
        let address = rest.serve.address();
        std::thread::scope(|scope| {
            for account in &mut accounts {
                scope.spawn(|| account.work(address, &acknowledged));
            }
            // Any moment is right for a kill. But a busy machine may do nothing in a random time.
            let awaited = round % MOST_AWAITED;
            wait_until(&format!("{awaited} changes were acknowledged"), || {
                (acknowledged.load(Ordering::Relaxed) >= awaited).then_some(())
            });
            std::thread::sleep(moment);
            rest.serve.signal(Signal::KILL);
        });
        all += acknowledged.into_inner();
        rest = rest.restarted(true);
        look(&rest);
        let found = there(&rest);
        for account in &mut accounts {
            account.compare(&found[&account.number]);
        }
    }
    eprintln!("{rounds} kills, {all} acknowledged changes, none lost");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_written_when_the_service_is_killed() {
    kill_again_and_again(Rest::start(), rounds(20), |rest| {
        let file = rest.folder.path().join("data").join("registry.db");
        let database = rusqlite::Connection::open(file).expect("the registry is a file");
        let verdict = |pragma: &str| database.query_row(pragma, [], |row| row.get::<_, String>(0));
        assert_eq!(verdict("PRAGMA integrity_check").unwrap(), "ok");
        assert_eq!(verdict("PRAGMA foreign_key_check"), Err(rusqlite::Error::QueryReturnedNoRows));
    });
}

#[test]
fn the_same_with_postgresql() {
    let Some(postgres) = Postgres::shared() else { return };
    let url = postgres.database("kills");
    kill_again_and_again(Rest::on_database(&url), rounds(20) / 4, |_| {});
}
