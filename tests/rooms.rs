//! Rules of the house, kept by tests: who may depend on whom, and what is absent where.

use std::fs;
use std::path::{Path, PathBuf};

/// Each room and the rooms of ours that it may use in what is shipped. Lower rooms know nothing of higher ones.
const MAY_USE: &[(&str, &[&str])] = &[
    ("crates/protocol", &[]),
    ("crates/catalog", &["protocol"]),
    ("crates/registry", &["protocol", "catalog"]),
    ("crates/search", &[]),
    ("crates/vectors", &["search"]),
    ("crates/upstream", &["protocol", "catalog"]),
    ("crates/remote", &["protocol", "catalog", "upstream"]),
    ("crates/containers", &["protocol", "catalog", "upstream"]),
    ("crates/models", &["protocol", "remote", "schema"]),
    ("crates/assistant", &["models"]),
    ("crates/aggregator", &["protocol", "catalog", "upstream"]),
    ("crates/service", &["protocol", "catalog", "upstream", "aggregator", "models", "registry", "search"]),
    ("crates/http", &["protocol", "catalog", "upstream", "aggregator"]),
    ("crates/schema", &[]),
    ("crates/offload", &[]),
    ("crates/api", &["assistant", "models", "notebook", "registry", "service"]),
    ("crates/console", &["notebook", "registry", "schema", "service"]),
    ("crates/notebook", &["offload", "schema"]),
    ("crates/testkit", &[]),
    ("bin/mcp-simple-aggregator", &["aggregator", "upstream", "catalog", "protocol"]),
    (
        "bin/mcp-aggregator",
        &[
            "aggregator",
            "api",
            "assistant",
            "console",
            "containers",
            "example-servers",
            "front",
            "remote",
            "upstream",
            "catalog",
            "protocol",
            "models",
            "notebook",
            "search",
            "registry",
            "service",
            "vectors",
        ],
    ),
    ("examples/servers", &[]),
];

const OUR_ROOMS: &[&str] = &[
    "protocol",
    "catalog",
    "upstream",
    "containers",
    "remote",
    "aggregator",
    "registry",
    "service",
    "search",
    "models",
    "assistant",
    "notebook",
    "offload",
    "schema",
    "front",
    "api",
    "console",
    "testkit",
    "vectors",
];

/// The room that speaks SQL.
const SPEAKS_SQL: &str = "crates/registry";

/// What only that room may use.
const DATABASE_LIBRARIES: [&str; 6] =
    ["rusqlite", "libsqlite3-sys", "tokio-postgres", "tokio-postgres-rustls", "deadpool-postgres", "sqlx"];

/// The rooms that speak HTTP: one to servers, one to clients.
const SPEAK_HTTP: [&str; 2] = ["crates/remote", "crates/http"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("could not read {}: {error}", path.display()))
}

/// The names under `[dependencies]` of a manifest. Those for tests and builds are another matter.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            is_inside = line == "[dependencies]" || (line.starts_with("[target.") && line.ends_with(".dependencies]"));
        } else if is_inside && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend((!name.is_empty()).then(|| name.to_owned()));
        }
    }
    found
}

/// Every Rust file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of a file that are shipped and are no comment, with their numbers.
fn shipped_code(path: &Path) -> Vec<(usize, String)> {
    if path.file_stem().is_some_and(|name| name == "tests") {
        return Vec::new();
    }
    let text = read(path);
    // A `mod tests` closes a file in this repository, so what follows its attribute is not shipped.
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut previous_is_test_attribute = false;
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim().to_owned();
        if previous_is_test_attribute && code.starts_with("mod tests {") {
            break;
        }
        previous_is_test_attribute = code == "#[cfg(test)]";
        if !code.is_empty() {
            lines.push((number + 1, code));
        }
    }
    lines
}

fn lines_with(path: &Path, words: &[&str]) -> Vec<String> {
    let shown = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    shipped_code(path)
        .into_iter()
        .filter(|(_, code)| words.iter().any(|word| code.contains(word)))
        .map(|(number, code)| format!("{shown}:{number}: {code}"))
        .collect()
}

#[test]
fn each_room_uses_only_rooms_below_it() {
    for (room, allowed) in MAY_USE {
        let manifest = read(&root().join(room).join("Cargo.toml"));
        for dependency in dependencies(&manifest) {
            let is_ours = OUR_ROOMS.contains(&dependency.as_str());
            assert!(!is_ours || allowed.contains(&dependency.as_str()), "{room} must not use {dependency}");
        }
    }
}

#[test]
fn every_room_is_in_the_plan() {
    for group in ["crates", "bin"] {
        for entry in fs::read_dir(root().join(group)).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            let room = format!("{group}/{}", entry.file_name().to_str().unwrap());
            assert!(MAY_USE.iter().any(|(known, _)| *known == room), "say in this file what {room} may use");
        }
    }
}

#[test]
fn the_tiny_program_stays_tiny() {
    let manifest = read(&root().join("bin/mcp-simple-aggregator/Cargo.toml"));
    for heavy in ["axum", "hyper", "reqwest", "sqlx", "rusqlite", "clap", "serde_json", "rmcp"] {
        assert!(!dependencies(&manifest).contains(&heavy.to_owned()), "{heavy}");
    }
}

/// The rooms of ours that a room is built with, itself included, whatever way they come in.
fn all_below(room: &str) -> Vec<&'static str> {
    // The front's package has another name than its folder: `http` is a crate everybody knows.
    let folder = |name: &str| if name == "front" { "http".to_owned() } else { name.to_owned() };
    let known = |name: &str| {
        let folder = folder(name);
        MAY_USE.iter().map(|(room, _)| *room).find(|room| room.rsplit('/').next() == Some(&folder))
    };
    let mut found = vec![known(room).expect("the room is in the plan")];
    let mut next = 0;
    while next < found.len() {
        for dependency in dependencies(&read(&root().join(found[next]).join("Cargo.toml"))) {
            found.extend(known(&dependency).filter(|room| !found.contains(room)));
        }
        next += 1;
    }
    found
}

#[test]
fn the_tiny_program_has_nothing_that_reaches_over_http() {
    let rooms = all_below("mcp-simple-aggregator");
    assert!(rooms.contains(&"crates/upstream"), "{rooms:?}");
    for room in SPEAK_HTTP {
        assert!(!rooms.contains(&room), "{rooms:?}");
        assert!(all_below("mcp-aggregator").contains(&room));
    }
}

#[test]
fn the_tiny_program_has_no_database() {
    let rooms = all_below("mcp-simple-aggregator");
    assert!(!rooms.contains(&SPEAKS_SQL), "{rooms:?}");
    for room in rooms {
        for dependency in dependencies(&read(&root().join(room).join("Cargo.toml"))) {
            assert!(!DATABASE_LIBRARIES.contains(&dependency.as_str()), "{room} uses {dependency}");
        }
    }
}

#[test]
fn the_tiny_program_compares_no_vectors() {
    let rooms = all_below("mcp-simple-aggregator");
    for room in ["crates/search", "crates/vectors"] {
        assert!(!rooms.contains(&room), "{rooms:?}");
        assert!(all_below("mcp-aggregator").contains(&room));
    }
}

#[test]
fn only_one_room_speaks_sql() {
    assert!(dependencies(&read(&root().join(SPEAKS_SQL).join("Cargo.toml"))).contains(&"rusqlite".to_owned()));
    for room in MAY_USE.iter().map(|(room, _)| *room).filter(|room| *room != SPEAKS_SQL) {
        for dependency in dependencies(&read(&root().join(room).join("Cargo.toml"))) {
            assert!(!DATABASE_LIBRARIES.contains(&dependency.as_str()), "{room} uses {dependency}");
        }
        let sources = sources(&root().join(room).join("src"));
        let found: Vec<String> =
            sources.iter().flat_map(|path| lines_with(path, &["rusqlite", "tokio_postgres", "\"SELECT "])).collect();
        assert!(found.is_empty(), "SQL is spoken elsewhere:\n{}", found.join("\n"));
    }
}

#[test]
fn the_registry_knows_nothing_of_clients_and_processes() {
    let found: Vec<String> = sources(&root().join(SPEAKS_SQL).join("src"))
        .iter()
        .flat_map(|path| lines_with(path, &["std::net", "tokio::net", "std::process", "tokio::process", "std::env"]))
        .collect();
    assert!(found.is_empty(), "the registry only keeps things:\n{}", found.join("\n"));
}

#[test]
fn only_two_rooms_know_how_http_is_spoken() {
    let rooms = MAY_USE.iter().map(|(room, _)| *room).filter(|room| !SPEAK_HTTP.contains(room));
    for room in rooms {
        for dependency in dependencies(&read(&root().join(room).join("Cargo.toml"))) {
            assert!(!dependency.contains("hyper"), "{room} uses {dependency}");
        }
        let sources = sources(&root().join(room).join("src"));
        let found: Vec<String> = sources.iter().flat_map(|path| lines_with(path, &["hyper::", "hyper_"])).collect();
        assert!(found.is_empty(), "HTTP is spoken elsewhere:\n{}", found.join("\n"));
    }
}

#[test]
fn the_pure_rooms_touch_nothing_outside() {
    let outside = [
        "tokio",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::env",
        "std::io",
        "Instant",
        "SystemTime",
        "Command",
        "println!",
        "eprintln!",
    ];
    let found: Vec<String> = ["crates/protocol/src", "crates/catalog/src", "crates/search/src", "crates/schema/src"]
        .iter()
        .flat_map(|room| sources(&root().join(room)))
        .flat_map(|path| lines_with(&path, &outside))
        .collect();
    assert!(found.is_empty(), "these rooms are pure:\n{}", found.join("\n"));
}

#[test]
fn only_upstreams_process_and_watchdog_start_programs() {
    let may = ["crates/upstream/src/process.rs", "crates/upstream/src/watchdog.rs"].map(|path| root().join(path));
    let found: Vec<String> = [
        "crates/protocol",
        "crates/catalog",
        "crates/upstream",
        "crates/remote",
        "crates/models",
        "crates/registry",
        "crates/search",
        "crates/vectors",
        "crates/aggregator",
        "crates/service",
        "crates/http",
        "crates/api",
        "crates/notebook",
        "crates/offload",
        "crates/schema",
        "bin",
    ]
    .iter()
    .flat_map(|room| sources(&root().join(room)))
    .filter(|path| !may.contains(path) && !path.components().any(|part| part.as_os_str() == "tests"))
    .flat_map(|path| lines_with(&path, &["process::Command", "Command::new", "fork(", "posix_spawn"]))
    .filter(|line| !line.contains("clap::Command"))
    .collect();
    assert!(found.is_empty(), "programs are started elsewhere:\n{}", found.join("\n"));
}

#[test]
fn nothing_but_the_front_writes_to_stdout() {
    let found: Vec<String> = [
        "crates/protocol",
        "crates/catalog",
        "crates/upstream",
        "crates/remote",
        "crates/models",
        "crates/registry",
        "crates/search",
        "crates/vectors",
        "crates/aggregator",
        "crates/service",
        "crates/http",
        "crates/api",
        "crates/notebook",
        "crates/offload",
        "crates/schema",
    ]
    .iter()
    .flat_map(|room| sources(&root().join(room).join("src")))
    .filter(|path| !path.ends_with("aggregator/src/stdio.rs"))
    .flat_map(|path| lines_with(&path, &["println!", "print!(", "io::stdout", "stdout()"]))
    .filter(|line| !line.contains("eprint"))
    .collect();
    assert!(found.is_empty(), "stdout carries JSON-RPC only:\n{}", found.join("\n"));
}

#[test]
fn every_file_begins_by_saying_what_it_is_for() {
    for path in ["crates", "bin", "tests"].iter().flat_map(|group| sources(&root().join(group))) {
        assert!(read(&path).starts_with("//! "), "{} has no module doc", path.display());
    }
}

#[test]
fn payloads_are_not_parsed_on_the_way_of_a_call() {
    let found: Vec<String> =
        ["crates/protocol/src", "crates/upstream/src", "crates/remote/src", "crates/aggregator/src", "crates/http/src"]
            .iter()
            .flat_map(|room| sources(&root().join(room)))
            .flat_map(|path| lines_with(&path, &["serde_json", "serde::"]))
            .collect();
    assert!(found.is_empty(), "bytes, not trees:\n{}", found.join("\n"));
}

#[test]
fn every_path_that_the_architecture_names_is_there() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let tops = ["crates/", "bin/", "tests/", "bench/", "examples/", "scripts/", "fuzz/", ".ci/"];
    let quoted = text.split('`').skip(1).step_by(2);
    let missing: Vec<&str> = quoted
        .filter(|word| tops.iter().any(|top| word.starts_with(top)) && !word.contains(['*', ' ', '<', '{']))
        .filter(|word| !root().join(word.split(':').next().unwrap_or(word)).exists())
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
}

#[test]
fn the_architecture_tells_the_life_of_a_call_in_its_order() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let stations = [
        "crates/aggregator/src/stdio.rs",
        "crates/aggregator/src/dispatch.rs",
        "crates/aggregator/src/call.rs",
        "crates/catalog/src/snapshot.rs",
        "crates/upstream/src/connection.rs",
        "crates/upstream/src/outbox.rs",
    ];
    let places: Vec<usize> = stations
        .iter()
        .map(|station| text.find(&format!("`{station}`")).unwrap_or_else(|| panic!("{station} is not named")))
        .collect();
    assert!(places.is_sorted(), "{stations:?} are told at {places:?}");
}
