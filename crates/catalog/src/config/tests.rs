//! Valid and invalid configs, and the messages about them.

use super::*;
use crate::secrets::Secrets;
use crate::server::{Dialect, Filled, Program, Remote, Transport};
use proptest::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

fn lookup(name: &str) -> Option<String> {
    let value = match name {
        "HOME" => "/home/me",
        "TOKEN" => "hunter2",
        "BLANK" => " ",
        "NUL" => "hunter2\0",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text.as_bytes(), Accepted::StdioOnly, lookup)
}

/// A config with this one server, named `s`.
fn with_server(server: &str) -> String {
    format!(r#"{{"mcpServers": {{"s": {server}}}}}"#)
}

fn problems(text: &str) -> Vec<Problem> {
    match parse(text) {
        Err(ConfigError::Problems(problems)) => problems,
        other => panic!("expected problems, got {other:?}"),
    }
}

/// Each problem as `path message`.
fn error_text(text: &str) -> Vec<String> {
    let problems = problems(text).into_iter();
    problems.map(|problem| format!("{} {}", problem.path, problem.message)).collect()
}

fn hint(text: &str) -> String {
    let [problem] = problems(text).try_into().expect("one problem");
    problem.hint.expect("a hint")
}

mod a_good_config {
    use super::*;

    #[test]
    fn gives_its_servers_in_file_order_with_variables_filled_in() {
        let config = parse(
            r#"{"mcpServers": {
                "zeta": {"command": "npx", "args": ["-y", "${HOME}/x"], "env": {"B": "$TOKEN", "A": ""}},
                "alpha": {"command": "$HOME/bin/run", "cwd": "${NOPE:-/tmp}"},
                "my server": {"command": "uvx"}
            }}"#,
        )
        .unwrap();
        let program = |command: &str| Program { command: command.into(), args: vec![], env: vec![], cwd: None };
        let spec = |name, program, secrets: &[&'static str]| ServerSpec {
            name: ServerName::new(name).unwrap(),
            transport: Transport::Stdio(program),
            lifecycle: None,
            timeout: None,
            start_timeout: None,
            sharing: crate::Sharing::default(),
            secrets: Secrets::default().with(secrets.iter().copied()),
            grant_key: None,
        };
        let zeta = Program {
            args: vec!["-y".into(), "/home/me/x".into()],
            env: vec![("B".into(), "hunter2".into()), ("A".into(), String::new())],
            ..program("npx")
        };
        let alpha = Program {
            command: Filled::new("/home/me/bin/run".into(), "$HOME/bin/run"),
            cwd: Some(Filled::new("/tmp".into(), "${NOPE:-/tmp}")),
            ..program("")
        };
        assert_eq!(
            config.servers,
            [spec("zeta", zeta, &["hunter2"]), spec("alpha", alpha, &[]), spec("my server", program("uvx"), &[])]
        );
        assert_eq!(config.disabled, []);
    }

    #[test]
    fn may_have_no_servers() {
        assert_eq!(parse(r#"{"mcpServers": {}}"#), Ok(Config::default()));
    }

    #[test]
    fn may_begin_with_a_byte_order_mark() {
        assert!(parse("\u{feff}{\"mcpServers\": {}}").is_ok());
    }

    #[test]
    fn may_hold_keys_of_other_programs_even_with_unset_variables() {
        let config = parse(
            r#"{"globalShortcut": "$NOPE", "x": 1, "x": 2, "mcpServers": {
                "s": {"command": "a", "type": "stdio", "autoApprove": ["${NOPE}"], "timeout": 1e2, "note": "${"}
            }}"#,
        );
        assert_eq!(config.unwrap().servers.len(), 1);
    }

    #[test]
    fn may_give_an_address_beside_a_command() {
        assert!(parse(&with_server(r#"{"command": "a", "url": "http://x"}"#)).is_ok());
    }

    #[test]
    fn leaves_disabled_servers_out_without_asking_for_their_variables() {
        let config = parse(
            r#"{"mcpServers": {
                "off": {"command": "$NOPE", "args": ["${NOPE}"], "disabled": true},
                "remote": {"url": "http://x", "disabled": true},
                "on": {"command": "a", "disabled": false}
            }}"#,
        )
        .unwrap();
        assert_eq!(config.servers.len(), 1);
        assert_eq!(config.disabled.iter().map(ServerName::as_str).collect::<Vec<_>>(), ["off", "remote"]);
    }
}

#[test]
fn comments_and_trailing_commas_are_no_problem_and_errors_behind_them_name_the_right_place() {
    let text = "// mine\n{\"mcpServers\": {/* é */ \"a\": {\"command\": \"x\", \"args\": [\"//y\",],},},}";
    let config = parse(text).unwrap();
    assert_eq!(config.servers.len(), 1);
    let error = parse("{ // é\n  /* é */ \"a\": oops }").unwrap_err();
    assert!(error.to_string().starts_with("invalid JSON in line 2, column 16: "), "{error}");
}

mod a_file_that_is_no_json {
    use super::*;

    #[test]
    fn is_shown_with_a_caret_under_the_fault() {
        let text = "{\n  \"mcpServers\": {\n    \"git\": {\"command\": npx}\n  }\n}";
        let error = parse(text).unwrap_err();
        assert_eq!(error.code(), "invalid_json");
        assert_eq!(
            error.to_string(),
            [
                "invalid JSON in line 3, column 25: expected ident",
                "  3 |     \"git\": {\"command\": npx}",
                "    |                         ^",
            ]
            .join("\n")
        );
    }

    #[test]
    fn gives_the_reason_without_a_second_position() {
        for (text, expected) in [
            ("{\"mcpServers\": {},,}", "key must be a string"),
            ("{} {}", "trailing characters"),
            ("{", "EOF while parsing an object"),
            ("  \n ", "the file is empty"),
            ("", "the file is empty"),
        ] {
            let Err(ConfigError::InvalidJson { reason, .. }) = parse(text) else { panic!("{text} was accepted") };
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn is_reported_when_it_is_no_text() {
        let error = Config::parse(b"{\n\"a\": \"\xff\"}", Accepted::StdioOnly, lookup).unwrap_err();
        assert_eq!(error.to_string(), "invalid UTF-8 in line 2");
        assert_eq!(error.code(), "invalid_json");

        let error = Config::parse(b"\xff\xfe{\0}\0", Accepted::StdioOnly, lookup).unwrap_err();
        assert!(error.to_string().contains("hint: the file looks like UTF-16"), "{error}");
    }

    #[test]
    fn endless_nesting_is_refused() {
        assert_eq!(parse(&"[".repeat(100_000)).unwrap_err().code(), "invalid_json");
    }
}

mod the_servers_object {
    use super::*;

    #[test]
    fn must_be_there_and_be_an_object() {
        assert_eq!(error_text("[]"), ["$ must be an object, not an array"]);
        assert_eq!(error_text("{}"), ["$.mcpServers is missing"]);
        assert_eq!(error_text(r#"{"mcpServers": []}"#), ["$.mcpServers must be an object, not an array"]);
    }

    #[test]
    fn under_another_name_is_recognised() {
        assert!(hint(r#"{"servers": {}}"#).contains("VS Code"));
        assert_eq!(hint(r#"{"mcp_servers": {}}"#), r#"rename "mcp_servers" to "mcpServers""#);
        assert!(hint(r#"{"git": {"command": "a"}}"#).contains(r#"{"mcpServers": { .. }}"#));
        assert_eq!(problems(r#"{"git": 1}"#)[0].hint, None);
    }

    #[test]
    fn must_not_give_a_key_twice() {
        assert_eq!(
            error_text(r#"{"mcpServers": {"git": {"command": "a"}, "x": {"command": "a"}, "git": {"command": "b"}}}"#),
            ["$.mcpServers.git is given twice"]
        );
        assert_eq!(
            error_text(r#"{"mcpServers": {}, "mcpServers": {}, "mcpServers": {}}"#),
            ["$.mcpServers is given 3 times"]
        );
        // Also when only the decoded keys are the same.
        assert_eq!(
            error_text(r#"{"mcpServers": {"a": {"command": "a"}, "\u0061": {"command": "b"}}}"#),
            ["$.mcpServers.a is given twice"]
        );
    }

    #[test]
    fn must_name_its_servers() {
        assert_eq!(error_text(r#"{"mcpServers": {"": {"command": "a"}}}"#), [r#"$.mcpServers[""] has an empty name"#]);
        assert_eq!(
            error_text(r#"{"mcpServers": {"a\u0000": {"command": "a"}}}"#),
            [r#"$.mcpServers["a\u0000"] has a NUL character in its name"#]
        );
    }
}

mod a_server {
    use super::*;

    fn error_about(server: &str) -> Vec<String> {
        let error_text = error_text(&with_server(server)).into_iter();
        error_text.map(|line| line.replacen("$.mcpServers.s", "", 1)).collect()
    }

    #[test]
    fn must_be_an_object_with_a_command() {
        assert_eq!(error_about("3"), [" must be an object, not a number"]);
        assert_eq!(error_about("{}"), [".command is missing"]);
        assert_eq!(error_about(r#"{"command": ["a"]}"#), [".command must be a string, not an array"]);
        assert_eq!(error_about(r#"{"command": " "}"#), [".command is empty"]);
        assert_eq!(error_about(r#"{"command": "$BLANK"}"#), [".command is empty after its variables are replaced"]);
    }

    #[test]
    fn must_have_strings_where_strings_belong() {
        let error_text = error_about(
            r#"{"command": "a", "args": ["ok", 1, null], "env": {"A": 1, "B": {}}, "cwd": false, "disabled": "no"}"#,
        );
        assert_eq!(
            error_text,
            [
                ".disabled must be true or false, not a string",
                ".args[1] must be a string, not a number",
                ".args[2] must be a string, not null",
                ".env.A must be a string, not a number",
                ".env.B must be a string, not an object",
                ".cwd must be a string, not a boolean",
            ]
        );
        assert_eq!(
            error_about(r#"{"command": "a", "args": "x", "env": [], "cwd": ""}"#),
            [
                ".args must be an array of strings, not a string",
                ".env must be an object of strings, not an array",
                ".cwd is empty",
            ]
        );
        assert_eq!(hint(&with_server(r#"{"command": "a", "env": {"PORT": 80}}"#)), "put the value in quotes");
    }

    #[test]
    fn must_not_hold_what_no_system_can_pass_on() {
        let error_text = error_about(
            r#"{"command": "a\u0000", "args": ["$NUL"], "env": {"": "x", "A=B": "x", "C": "\u0000"}, "cwd": "\u0000"}"#,
        );
        let nul = "contains a NUL character, which cannot be passed to a program";
        assert_eq!(
            error_text,
            [
                format!(".command {nul}"),
                format!(".args[0] {nul}"),
                r#".env[""] has an empty name"#.to_owned(),
                r#".env["A=B"] has a name that is not valid for a variable: it contains `=` or NUL"#.to_owned(),
                format!(".env.C {nul}"),
                format!(".cwd {nul}"),
            ]
        );
    }

    #[test]
    fn must_not_give_a_key_twice() {
        assert_eq!(
            error_about(r#"{"command": "a", "command": "b", "env": {"A": "1", "A": "2"}}"#),
            [".command is given twice", ".env.A is given twice",]
        );
    }

    #[test]
    fn over_http_is_refused_with_a_pointer_to_the_program_that_can() {
        let only_stdio = "this program starts servers over stdio only";
        for (server, expected) in [
            (r#"{"url": "http://x"}"#, " is reached over HTTP (`url`)"),
            (r#"{"serverUrl": "http://x"}"#, " is reached over HTTP (`serverUrl`)"),
            (r#"{"type": "http", "url": "http://x"}"#, r#" has the type "http""#),
            (r#"{"command": "a", "type": "sse"}"#, r#" has the type "sse""#),
            (r#"{"command": "a", "transport": "streamable-http"}"#, r#" has the transport "streamable-http""#),
        ] {
            assert_eq!(error_about(server), [format!("{expected}; {only_stdio}")]);
            assert!(hint(&with_server(server)).contains("`mcp-aggregator`"));
        }
        assert_eq!(error_about(r#"{"command": "a", "type": 1}"#), [".type must be a string, not a number"]);
    }

    #[test]
    fn that_is_disabled_must_still_be_well_formed() {
        assert_eq!(
            error_about(r#"{"disabled": true, "args": [1, "${"]}"#),
            [".command is missing", ".args[0] must be a string, not a number"]
        );
    }

    #[test]
    fn may_have_what_only_looks_like_a_reference_and_is_warned_of_it() {
        for is_disabled in [false, true] {
            let entry =
                format!(r#"{{"command": "sh", "args": ["-c", "echo ${{HOME", "${{}}"], "disabled": {is_disabled}}}"#);
            let config = parse(&with_server(&entry)).unwrap();
            let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(
                warnings,
                [
                    "$.mcpServers.s.args[1] has a `${` that is never closed; it is passed on unchanged",
                    "$.mcpServers.s.args[2] has a `${}` without a variable name; it is passed on unchanged",
                ]
            );
            if let Some(Transport::Stdio(program)) = config.servers.first().map(|server| &server.transport) {
                assert_eq!(program.args, ["-c", "echo ${HOME", "${}"]);
            }
        }
    }
}

mod missing_variables {
    use super::*;

    #[test]
    fn are_all_named_with_every_place_of_use() {
        let error = parse(
            r#"{"mcpServers": {
                "postgres": {"command": "node", "args": ["$DATABASE_URL $DATABASE_URL"], "env": {"DATABASE_URL": "${DATABASE_URL}"}},
                "my key": {"command": "a", "env": {"X": "${a b}"}}
            }}"#,
        )
        .unwrap_err();
        assert_eq!(error.code(), "missing_env_var");
        assert_eq!(
            error.to_string(),
            [
                "2 problems",
                "  DATABASE_URL is not set; used at $.mcpServers.postgres.args[0], $.mcpServers.postgres.env.DATABASE_URL",
                r#"  "a b" is not set; used at $.mcpServers["my key"].env.X"#,
                "  hint: set it in the environment of this program, or give a default: `${NAME:-default}`",
            ]
            .join("\n")
        );
    }

    #[test]
    fn in_the_notation_of_other_programs_are_explained() {
        assert!(hint(&with_server(r#"{"command": "a", "cwd": "${env:HOME}"}"#)).ends_with("here, write `${HOME}`"));
    }

    #[test]
    fn are_reported_together_with_everything_else() {
        let error = parse(
            r#"{"mcpServers": {
                "a": {"command": "$NOPE"},
                "longer": {"args": [1, 2]}
            }}"#,
        )
        .unwrap_err();
        assert_eq!(error.code(), "invalid_schema");
        assert_eq!(
            error.to_string(),
            [
                "4 problems",
                "  $.mcpServers.longer.command  is missing",
                "  $.mcpServers.longer.args[0]  must be a string, not a number",
                "  $.mcpServers.longer.args[1]  must be a string, not a number",
                "  hint: put the value in quotes",
                "  NOPE is not set; used at $.mcpServers.a.command",
                "  hint: set it in the environment of this program, or give a default: `${NAME:-default}`",
            ]
            .join("\n")
        );
    }
}

mod whatever_the_input {
    use super::*;

    const VALID: &str = r#"{"mcpServers": {"a": {"command": "$SET", "args": ["${SET}", "${UNSET:-$SET}", 1],
        "env": {"KEY": "$SET$UNSET"}, "cwd": "${SET}", "disabled": false, "type": "stdio"}, "b": {"url": "x"}}}"#;

    const REPLACEMENTS: &[&[u8]] =
        &[b"", b"\"", b"{", b"}", b"$", b"${", b"[", b",", b"1", b"null", b"\\u0000", b"\xff", b"\n", "é".as_bytes()];

    /// Parses with a secret in every variable and searches the error for it. The fuzz target does the same.
    fn parse_without_printing_secrets(bytes: &[u8]) {
        // Derived from the input, so the input cannot contain it.
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let secret = format!("secret-{:016x}", hasher.finish());
        let lookup = |name: &str| match name {
            "EMPTY" => Some(String::new()),
            "NUL" => Some(format!("{secret}\0")),
            _ if name.contains("UNSET") => None,
            _ => Some(format!("{secret} ${{{secret}")),
        };
        let both = [Accepted::StdioOnly, Accepted::All].map(|accepted| Config::parse(bytes, accepted, lookup));
        for error in both.into_iter().filter_map(Result::err) {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(&secret), "{shown}");
        }
    }

    #[test]
    fn every_file_of_the_fuzz_corpus_is_read_without_printing_secrets() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
        let mut count = 0;
        for file in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
            parse_without_printing_secrets(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 12, "only {count} files");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_without_printing_secrets(&bytes);
        }

        #[test]
        fn a_mutated_config_does_not_panic(
            edits in prop::collection::vec((0..VALID.len(), prop::sample::select(REPLACEMENTS)), 1..4),
        ) {
            let mut bytes = VALID.as_bytes().to_vec();
            for (at, replacement) in edits {
                let at = at.min(bytes.len() - 1);
                bytes.splice(at..=at, replacement.iter().copied());
            }
            parse_without_printing_secrets(&bytes);
        }

        #[test]
        fn any_server_key_and_any_strings_round_trip(
            key in "[^\\x00]{1,10}", command in "[^$\\x00\\s]{1,10}", args in prop::collection::vec("[^$\\x00]{0,10}", 0..4),
        ) {
            let text = serde_json::json!({"mcpServers": {&key: {"command": command, "args": args}}}).to_string();
            let config = Config::parse(text.as_bytes(), Accepted::StdioOnly, |_| None).unwrap();
            prop_assert_eq!(config.servers[0].name.as_str(), &key);
            let Transport::Stdio(program) = &config.servers[0].transport else { panic!() };
            prop_assert_eq!(&program.command.value, &command);
            prop_assert_eq!(&program.args, &args);
        }
    }
}

mod remote_servers {
    use super::*;

    fn parse_all(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text.as_bytes(), Accepted::All, lookup)
    }

    fn remote(text: &str) -> Remote {
        let [spec] = parse_all(&with_server(text)).unwrap().servers.try_into().expect("one server");
        match spec.transport {
            Transport::Remote(remote) => remote,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn are_understood_as_every_client_writes_them() {
        for (text, dialect) in [
            (r#"{"url": "http://x/mcp"}"#, Dialect::Unknown),
            (r#"{"serverUrl": "http://x/mcp"}"#, Dialect::Unknown),
            (r#"{"type": "http", "url": "http://x/mcp"}"#, Dialect::Streamable),
            (r#"{"type": "streamable-http", "url": "http://x/mcp"}"#, Dialect::Streamable),
            (r#"{"type": "streamableHttp", "url": "http://x/mcp"}"#, Dialect::Streamable),
            (r#"{"type": "sse", "url": "http://x/mcp"}"#, Dialect::Sse),
            (r#"{"transport": "SSE", "url": "http://x/mcp"}"#, Dialect::Sse),
        ] {
            assert_eq!(remote(text), Remote { dialect, ..Remote::at("http://x/mcp", vec![]) }, "{text}");
        }
        let servers = parse_all(r#"{"servers": {"s": {"type": "http", "url": "https://x"}}}"#).unwrap().servers;
        assert_eq!(servers.len(), 1, "as VS Code writes it");
    }

    #[test]
    fn have_variables_in_address_and_headers() {
        let found = remote(r#"{"url": "https://x${HOME}", "headers": {"Authorization": "Bearer $TOKEN"}}"#);
        assert_eq!((found.url.value.as_str(), found.url.shown()), ("https://x/home/me", "https://x${HOME}"));
        assert_eq!(found.headers, [("Authorization".to_owned(), "Bearer hunter2".to_owned())]);
    }

    #[test]
    fn are_refused_with_the_place_of_every_mistake() {
        for (text, expected) in [
            (r#"{"type": "http"}"#, "$.mcpServers.s.url"),
            (r#"{"url": "ftp://x"}"#, "http:// or https://"),
            (r#"{"url": 5}"#, "$.mcpServers.s.url"),
            (r#"{"url": "https://me:hunter2@x/mcp"}"#, "must not contain credentials"),
            (r#"{"url": "http://x", "headers": []}"#, "$.mcpServers.s.headers"),
            (r#"{"url": "http://x", "headers": {"a b": "c"}}"#, "is not valid for a header"),
            (r#"{"url": "http://x", "headers": {"a": "c\nd"}}"#, "control character"),
            (r#"{"type": "carrier-pigeon", "url": "http://x"}"#, "carrier-pigeon"),
        ] {
            let error = parse_all(&with_server(text)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

#[test]
fn an_unset_variable_may_fail_only_the_server_that_uses_it() {
    let text = r#"{"mcpServers": {
        "needy": {"command": "x", "args": ["$NADA", "${NOPE}"], "env": {"E": "$NADA"}},
        "fine": {"command": "y"},
        "off": {"command": "$NADA", "disabled": true}
    }}"#;
    let config = Config::parse_each(text.as_bytes(), Accepted::All, |_| None).unwrap();
    assert_eq!(config.servers.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["fine"]);
    let [unset] = config.unset.as_slice() else { panic!("{config:?}") };
    assert_eq!(unset.name.as_str(), "needy");
    let expected = "NADA is not set; used at $.mcpServers.needy.args[0], $.mcpServers.needy.env.E; \
                    NOPE is not set; used at $.mcpServers.needy.args[1]";
    assert_eq!(unset.reason, expected);
    assert!(Config::parse(text.as_bytes(), Accepted::All, |_| None).is_err(), "unless the whole file is refused");
    let wrong = text.replace("\"y\"", "5");
    assert!(
        Config::parse_each(wrong.as_bytes(), Accepted::All, |_| None).is_err(),
        "what else is wrong is no variable"
    );
}

#[test]
fn a_variable_that_is_not_utf_8_is_neither_unset_nor_replaced_by_its_default() {
    let text = r#"{"mcpServers": {
        "needy": {"command": "x", "args": ["${ODD:-default}"], "env": {"E": "${env:ODD}"}},
        "fine": {"command": "y", "args": ["${OTHER:-default}"]}
    }}"#;
    let lookup = |name: &str| if name == "ODD" { Variable::NotUtf8 } else { Variable::Unset };
    let config = Config::parse_each(text.as_bytes(), Accepted::All, lookup).unwrap();
    assert_eq!(config.servers.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["fine"]);
    let expected = "ODD is set, but not to UTF-8 text; used at $.mcpServers.needy.args[0], $.mcpServers.needy.env.E";
    assert_eq!(config.unset[0].reason, expected);
    let error = Config::parse(text.as_bytes(), Accepted::All, lookup).unwrap_err();
    assert_eq!(error.code(), "missing_env_var");
    assert!(error.to_string().contains("give it a value that is UTF-8 text"), "{error}");
}

#[test]
fn the_entries_of_a_file_are_read_by_the_same_parser() {
    let text =
        "\u{feff}{ // a\n \"servers\": {\"b\": {\"command\": \"${X}\", \"timeout\": 1e3,}, /* */ \"a\": {},},\n}";
    let entries = Config::entries(text.as_bytes(), Accepted::All).unwrap();
    assert_eq!(entries["b"]["command"], "${X}");
    assert_eq!(entries.len(), 2);
    assert!(Config::entries(text.as_bytes(), Accepted::StdioOnly).unwrap().is_empty());
    assert!(matches!(Config::entries(b"{", Accepted::All), Err(ConfigError::InvalidJson { .. })));
    assert_eq!(Config::document(b"{\"assistant\": {},}").unwrap()["assistant"], serde_json::json!({}));
}
