//! Rules of the repository as tests: which crate may depend on which, and what must be absent where.

use std::fs;
use std::path::{Path, PathBuf};

/// Each crate, and our crates that its shipped code may use. Lower crates do not know higher ones.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("crates/protocol", &[]),
    ("crates/catalog", &["protocol"]),
    ("crates/registry", &["protocol", "catalog"]),
    ("crates/search", &[]),
    ("crates/vectors", &["search"]),
    ("crates/upstream", &["protocol", "catalog"]),
    ("crates/oauth", &["protocol", "catalog"]),
    ("crates/identity", &["catalog", "oauth"]),
    ("crates/remote", &["protocol", "catalog", "oauth", "upstream"]),
    ("crates/containers", &["protocol", "catalog", "upstream"]),
    ("crates/models", &["protocol", "remote", "schema"]),
    ("crates/assistant", &["models"]),
    ("crates/aggregator", &["protocol", "catalog", "upstream"]),
    ("crates/executions", &["protocol", "catalog", "upstream", "aggregator", "registry"]),
    ("crates/tool-search", &["protocol", "catalog", "aggregator", "models", "registry", "search"]),
    (
        "crates/service",
        &[
            "protocol",
            "catalog",
            "oauth",
            "offload",
            "upstream",
            "aggregator",
            "executions",
            "registry",
            "search",
            "tool-search",
        ],
    ),
    ("crates/http-server", &["protocol", "catalog", "identity", "upstream", "aggregator"]),
    ("crates/schema", &[]),
    ("crates/offload", &[]),
    ("crates/api", &["assistant", "executions", "models", "notebook", "registry", "service", "tool-search"]),
    ("crates/console", &["executions", "notebook", "registry", "schema", "service", "tool-search"]),
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
            "executions",
            "http-server",
            "identity",
            "remote",
            "upstream",
            "catalog",
            "protocol",
            "models",
            "notebook",
            "oauth",
            "search",
            "registry",
            "service",
            "tool-search",
            "vectors",
        ],
    ),
    ("examples/servers", &[]),
];

const OUR_CRATES: &[&str] = &[
    "protocol",
    "catalog",
    "upstream",
    "containers",
    "remote",
    "aggregator",
    "registry",
    "executions",
    "tool-search",
    "service",
    "search",
    "models",
    "assistant",
    "notebook",
    "oauth",
    "offload",
    "schema",
    "http-server",
    "identity",
    "api",
    "console",
    "testkit",
    "vectors",
];

/// The crate with all SQL.
const SPEAKS_SQL: &str = "crates/registry";

/// Libraries that only that crate may use.
const DATABASE_LIBRARIES: [&str; 6] =
    ["rusqlite", "libsqlite3-sys", "tokio-postgres", "tokio-postgres-rustls", "deadpool-postgres", "sqlx"];

/// The crates that speak HTTP: one to servers, one to clients.
const SPEAK_HTTP: [&str; 2] = ["crates/remote", "crates/http-server"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("could not read {}: {error}", path.display()))
}

/// The names under `[dependencies]` of a manifest, without those for tests and builds.
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

/// The shipped lines of a file that are not comments, with their numbers.
fn shipped_code(path: &Path) -> Vec<(usize, String)> {
    if path.file_stem().is_some_and(|name| name == "tests") {
        return Vec::new();
    }
    let text = read(path);
    // In this repository, `mod tests` is at the end of a file, so what follows its attribute is not shipped.
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
fn each_crate_uses_only_crates_below_it() {
    for (package, allowed) in ALLOWED_DEPENDENCIES {
        let manifest = read(&root().join(package).join("Cargo.toml"));
        for dependency in dependencies(&manifest) {
            let is_ours = OUR_CRATES.contains(&dependency.as_str());
            assert!(!is_ours || allowed.contains(&dependency.as_str()), "{package} must not use {dependency}");
        }
    }
}

#[test]
fn every_crate_is_in_the_plan() {
    for group in ["crates", "bin"] {
        for entry in fs::read_dir(root().join(group)).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            let package = format!("{group}/{}", entry.file_name().to_str().unwrap());
            assert!(
                ALLOWED_DEPENDENCIES.iter().any(|(known, _)| *known == package),
                "say in this file what {package} may use"
            );
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

/// Reporting the end of a server removes the names of its items, which takes long if they are many.
#[test]
fn the_end_of_a_server_is_reported_beside_calls() {
    // Where `report_ended` decides on the thread, and where an observer passes on what it was told there.
    let allowed = ["crates/upstream/src/server.rs", "crates/containers/src/http.rs"];
    for package in ["crates/upstream", "crates/remote", "crates/containers"] {
        for path in sources(&root().join(package).join("src")) {
            let found = lines_with(&path, &[".on_ended("]);
            let most = usize::from(allowed.iter().any(|allowed| path.ends_with(allowed)));
            assert!(found.len() <= most, "use `report_ended`: {found:#?}");
        }
    }
}

/// Our crates that a package is built with, directly or indirectly, itself included.
fn all_below(package: &str) -> Vec<&'static str> {
    let known = |name: &str| {
        ALLOWED_DEPENDENCIES
            .iter()
            .map(|(package, _)| *package)
            .find(|package| package.rsplit('/').next() == Some(name))
    };
    let mut found = vec![known(package).expect("the room is in the plan")];
    let mut next = 0;
    while next < found.len() {
        for dependency in dependencies(&read(&root().join(found[next]).join("Cargo.toml"))) {
            found.extend(known(&dependency).filter(|package| !found.contains(package)));
        }
        next += 1;
    }
    found
}

#[test]
fn the_tiny_program_has_nothing_that_reaches_over_http() {
    let packages = all_below("mcp-simple-aggregator");
    assert!(packages.contains(&"crates/upstream"), "{packages:?}");
    for package in SPEAK_HTTP {
        assert!(!packages.contains(&package), "{packages:?}");
        assert!(all_below("mcp-aggregator").contains(&package));
    }
}

#[test]
fn the_tiny_program_has_no_database() {
    let packages = all_below("mcp-simple-aggregator");
    assert!(!packages.contains(&SPEAKS_SQL), "{packages:?}");
    for package in packages {
        for dependency in dependencies(&read(&root().join(package).join("Cargo.toml"))) {
            assert!(!DATABASE_LIBRARIES.contains(&dependency.as_str()), "{package} uses {dependency}");
        }
    }
}

#[test]
fn the_tiny_program_compares_no_vectors() {
    let packages = all_below("mcp-simple-aggregator");
    for package in ["crates/search", "crates/vectors"] {
        assert!(!packages.contains(&package), "{packages:?}");
        assert!(all_below("mcp-aggregator").contains(&package));
    }
}

#[test]
fn only_one_crate_contains_sql() {
    assert!(dependencies(&read(&root().join(SPEAKS_SQL).join("Cargo.toml"))).contains(&"rusqlite".to_owned()));
    for package in ALLOWED_DEPENDENCIES.iter().map(|(package, _)| *package).filter(|package| *package != SPEAKS_SQL) {
        for dependency in dependencies(&read(&root().join(package).join("Cargo.toml"))) {
            assert!(!DATABASE_LIBRARIES.contains(&dependency.as_str()), "{package} uses {dependency}");
        }
        let sources = sources(&root().join(package).join("src"));
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
fn only_two_crates_implement_mcp_over_http() {
    let packages =
        ALLOWED_DEPENDENCIES.iter().map(|(package, _)| *package).filter(|package| !SPEAK_HTTP.contains(package));
    for package in packages {
        for dependency in dependencies(&read(&root().join(package).join("Cargo.toml"))) {
            assert!(!dependency.contains("hyper"), "{package} uses {dependency}");
        }
        let sources = sources(&root().join(package).join("src"));
        let found: Vec<String> = sources.iter().flat_map(|path| lines_with(path, &["hyper::", "hyper_"])).collect();
        assert!(found.is_empty(), "HTTP is spoken elsewhere:\n{}", found.join("\n"));
    }
}

#[test]
fn the_pure_crates_touch_nothing_outside() {
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
        .flat_map(|package| sources(&root().join(package)))
        .flat_map(|path| lines_with(&path, &outside))
        .collect();
    assert!(found.is_empty(), "these rooms are pure:\n{}", found.join("\n"));
}

#[test]
fn only_upstreams_process_and_watchdog_start_programs_and_one_file_the_browser() {
    // The browser of the user is no server: it stays when the program ends.
    let may = [
        "crates/upstream/src/process.rs",
        "crates/upstream/src/watchdog.rs",
        "bin/mcp-aggregator/src/sign_in/browser.rs",
    ]
    .map(|path| root().join(path));
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
        "crates/executions",
        "crates/tool-search",
        "crates/service",
        "crates/http-server",
        "crates/api",
        "crates/notebook",
        "crates/offload",
        "crates/schema",
        "bin",
    ]
    .iter()
    .flat_map(|package| sources(&root().join(package)))
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
        "crates/executions",
        "crates/tool-search",
        "crates/service",
        "crates/http-server",
        "crates/api",
        "crates/notebook",
        "crates/offload",
        "crates/schema",
    ]
    .iter()
    .flat_map(|package| sources(&root().join(package).join("src")))
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
fn payloads_are_not_parsed_on_the_call_path() {
    let found: Vec<String> = [
        "crates/protocol/src",
        "crates/upstream/src",
        "crates/remote/src",
        "crates/aggregator/src",
        "crates/http-server/src",
    ]
    .iter()
    .flat_map(|package| sources(&root().join(package)))
    .flat_map(|path| lines_with(&path, &["serde_json", "serde::"]))
    .collect();
    assert!(found.is_empty(), "bytes, not trees:\n{}", found.join("\n"));
}

#[test]
fn requests_of_clients_read_the_view_of_their_client() {
    // `Fleet::view` shows everything; a request that reads it would show what the client's profile hides.
    let folder = root().join("crates/aggregator/src");
    let is_of_fleet = |path: &PathBuf| path.starts_with(folder.join("fleet")) || path.ends_with("fleet.rs");
    let found: Vec<String> = sources(&folder)
        .iter()
        .filter(|path| !is_of_fleet(path))
        .flat_map(|path| lines_with(path, &["fleet.view()", "self.view()"]))
        // The connections to servers and their capabilities, whoever asks.
        .filter(|line| !line.contains(".connections") && !line.contains("logs.rs"))
        .collect();
    let allowed: Vec<&String> = found.iter().filter(|line| !line.contains("tasks.rs")).collect();
    assert!(allowed.is_empty() && found.len() <= 1, "{found:#?}");
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
fn the_architecture_page_describes_a_call_in_order() {
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

/// Predicates that need `&mut self`, and why.
const MUTATING_PREDICATES: [(&str, &str); 2] = [
    ("has_equal_items", "counts the steps of the validation's budget"),
    ("is_ready", "polls the connection, which registers the waker"),
];

/// The shipped functions of a file whose names are predicates, with their signatures.
fn predicates(path: &Path) -> Vec<String> {
    let lines = shipped_code(path);
    let mut found = Vec::new();
    for (at, (number, code)) in lines.iter().enumerate() {
        let Some(name) = code.split("fn ").nth(1) else { continue };
        if !["is_", "has_", "can_", "was_", "may_", "must_"].iter().any(|question| name.starts_with(question)) {
            continue;
        }
        let rest = lines[at..].iter().map(|(_, code)| code.as_str());
        let mut signature = String::new();
        for code in rest {
            signature.push_str(code);
            signature.push(' ');
            if code.contains('{') || code.ends_with(';') {
                break;
            }
        }
        let signature = signature.split('{').next().unwrap_or_default().trim().to_owned();
        found.push(format!("{}:{number}: {signature}", path.display()));
    }
    found
}

#[test]
fn functions_named_like_a_question_answer_it() {
    let functions: Vec<String> = ["crates", "bin", "examples"]
        .iter()
        .flat_map(|group| sources(&root().join(group)))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "tests"))
        .flat_map(|path| predicates(&path))
        .collect();
    assert!(
        functions.len() > 100,
        "only {} functions were found, so this test looks at the wrong files",
        functions.len()
    );
    let silent: Vec<&str> = functions.iter().filter(|function| !function.contains("->")).map(String::as_str).collect();
    assert!(
        silent.is_empty(),
        "`is_`, `has_`, `can_`, `was_`, `may_`, `must_` return something; a command is a verb:\n{}",
        silent.join("\n")
    );
    let may_mutate =
        |function: &str| MUTATING_PREDICATES.iter().any(|(name, _)| function.contains(&format!("fn {name}(")));
    let mutating: Vec<&str> =
        functions.iter().map(String::as_str).filter(|function| function.contains("&mut self")).collect();
    let unexplained: Vec<&str> = mutating.iter().copied().filter(|function| !may_mutate(function)).collect();
    assert!(
        unexplained.is_empty(),
        "a predicate changes nothing: name a function that does after what it does:\n{}",
        unexplained.join("\n")
    );
    for (name, reason) in MUTATING_PREDICATES {
        let is_needed = mutating.iter().any(|function| function.contains(&format!("fn {name}(")));
        assert!(is_needed, "no predicate `{name}` takes `&mut self` any more ({reason})");
    }
}

/// The maximum length of a function in a program.
const MAX_FUNCTION_LINES: usize = 80;

/// The functions of a file with their lines. In formatted code, a function ends with a brace at its own indentation.
fn function_lengths(path: &Path) -> Vec<(String, usize)> {
    let text = read(path);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((qualifiers, name)) = code.split_once("fn ") else { continue };
        let is_qualifier = |word: &str| word.starts_with("pub") || ["async", "const", "unsafe"].contains(&word);
        if !qualifiers.split_whitespace().all(is_qualifier) {
            continue;
        }
        let Some(body) = lines[start..].iter().position(|line| line.ends_with(['{', ';', '}'])) else { continue };
        if !lines[start + body].ends_with('{') {
            continue;
        }
        let end = format!("{}}}", " ".repeat(line.len() - code.len()));
        let length = lines[start..].iter().position(|line| *line == end).map_or(lines.len() - start, |last| last + 1);
        let name = name.split(['(', '<']).next().unwrap_or_default();
        found.push((format!("{}:{}: {name}", path.display(), start + 1), length));
    }
    found
}

#[test]
fn functions_of_the_programs_are_short() {
    let functions: Vec<_> = ["bin/mcp-aggregator/src", "bin/mcp-simple-aggregator/src"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .flat_map(|path| function_lengths(&path))
        .collect();
    assert!(functions.len() > 500, "only {} functions were found: the test reads the wrong files", functions.len());
    let long: Vec<_> = functions.iter().filter(|(_, length)| *length > MAX_FUNCTION_LINES).collect();
    assert!(long.is_empty(), "functions of a program have at most {MAX_FUNCTION_LINES} lines: {long:#?}");
}
