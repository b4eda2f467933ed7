//! `login` and `logout` at a running service, where the browser comes back to, and what shows that somebody is needed.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::processes::descendants;
use testkit::{Driver, Launch, free_port, program, wait_until, write_script};

use super::home::authorization_url;
use super::person::{Person, Say};
use super::provider::{Provider, SERVER};
use crate::console::Visitor;
use crate::rest::{PREFIX, Rest, expect, expect_error};

const LOGIN: &str = "/servers/protected/login";

/// A service with the protected server, which nobody is signed in to.
#[track_caller]
fn service(provider: &Provider, oauth: &Value, adjust: impl FnOnce(Launch) -> Launch) -> Rest {
    let rest = Rest::start_as(adjust);
    let config = json!({"url": provider.server, "oauth": oauth});
    let registration = json!({"name": SERVER, "transport_type": "http", "connection_config": config});
    expect(201, &rest.post("/servers", &registration));
    rest.wait_for_status(SERVER, "sign_in_required");
    rest
}

/// A command for this service, about to be started in a session without a browser.
fn command(rest: &Rest, arguments: &[&str]) -> Launch {
    let launch = Launch::program(program("mcp-aggregator")).args(arguments).env("HOME", rest.folder.path());
    let launch = launch.arg("--data-dir").arg(rest.folder.path().join("data"));
    ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY", "MCP_AGGREGATOR_TOKEN"]
        .into_iter()
        .fold(launch, Launch::env_remove)
}

/// A browser for `BROWSER`: it writes the address that it is to open into a file.
fn browser(rest: &Rest) -> (PathBuf, impl Fn() -> String) {
    let (program, opened) = (rest.folder.path().join("browser"), rest.folder.path().join("opened"));
    let script = format!("#!/bin/sh\necho \"$1\" > {0}.draft && mv {0}.draft {0}\n", opened.display());
    write_script(&program, &script);
    let address = move || wait_until("the browser is opened", || fs::read_to_string(&opened).ok()).trim().to_owned();
    (program, address)
}

#[track_caller]
fn printed_address(login: &Driver) -> String {
    wait_until("`login` prints an address", || authorization_url(&login.stderr_text()))
}

/// Waits for the end of a command that must succeed. Returns what it printed, on both streams.
#[track_caller]
fn succeeds(mut command: Driver) -> String {
    let lines: Vec<String> =
        command.wait_stdout_end().iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let status = command.wait_exit();
    let text = format!("{}{}", lines.concat(), command.stderr_text());
    assert!(status.success(), "{text}");
    text
}

#[test]
fn login_leads_back_to_the_service_and_says_which_port_to_forward() {
    let Some(provider) = Provider::start() else { return };
    let rest = service(&provider, &json!({}), |launch| launch);
    let over_ssh = "192.0.2.7 50000 192.0.2.9 22";
    let login = command(&rest, &["login", SERVER, "--no-browser"]).env("SSH_CONNECTION", over_ssh).start();
    let page = Person::new("ada").open(&printed_address(&login), Say::Yes);
    let port = rest.serve.address().port();
    assert_eq!((page.status, page.url.path(), page.url.port()), (200, "/oauth/callback", Some(port)), "{page:?}");
    let text = succeeds(login);
    assert!(text.contains(&format!("ssh -L {port}:127.0.0.1:{port} 192.0.2.9")), "{text}");
    assert!(text.contains("whoami"), "{text}");
    rest.wait_for_status(SERVER, "connected");

    let text = succeeds(command(&rest, &["logout", SERVER]).start());
    assert!(text.contains("signed out of `protected`"), "{text}");
    rest.wait_for_status(SERVER, "sign_in_required");
    assert_eq!(provider.secrets(), Vec::<String>::new(), "the provider knows no token any more");
}

#[test]
fn a_browser_that_the_user_names_is_opened_over_ssh_too() {
    let Some(provider) = Provider::start() else { return };
    let rest = service(&provider, &json!({}), |launch| launch);
    let (browser, opened) = browser(&rest);
    let login = command(&rest, &["login", SERVER]).env("BROWSER", browser).env("SSH_TTY", "/dev/pts/0").start();
    let page = Person::new("ada").open(&opened(), Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    let text = succeeds(login);
    assert!(text.contains("in your browser"), "{text}");
}

#[test]
fn a_command_listens_at_a_configured_address_that_is_not_the_service() {
    let Some(provider) = Provider::start() else { return };
    let port = free_port();
    let rest = service(&provider, &json!({"callbackPort": port}), |launch| launch);
    let refused = expect_error(409, "SIGN_IN_NOT_SUPPORTED", &rest.order(LOGIN));
    assert_eq!(refused["server_name"], SERVER);
    let visitor = Visitor::new(&rest);
    let page = visitor.submit("/servers/protected/sign-in", &[]);
    assert!(page.body.contains("mcp-aggregator login protected"), "{}", page.body);

    let login = command(&rest, &["login", SERVER, "--no-browser"]).start();
    let page = Person::new("ada").open(&printed_address(&login), Say::Yes);
    assert_eq!((page.status, page.url.path(), page.url.port()), (200, "/callback", Some(port)), "{page:?}");
    assert!(page.text.contains("You are signed in"), "{page:?}");
    assert!(succeeds(login).contains("whoami"));
    assert_eq!(provider.journal("registered").len(), 1);
}

#[test]
fn a_service_that_the_browser_cannot_reach_is_passed_the_redirect_by_the_command() {
    let Some(provider) = Provider::start() else { return };
    let rest = service(&provider, &json!({}), |launch| launch);
    // As through a forwarded port: loopback of the service is not that of the command.
    let url = format!("http://127.0.0.1:{}", forward_to(rest.serve.address()));
    let login = Launch::program(program("mcp-aggregator")).args(["login", SERVER, "--no-browser", "--url", &url]);
    let login = login.env("HOME", rest.folder.path()).env_remove("MCP_AGGREGATOR_TOKEN").start();
    let page = Person::new("ada").open(&printed_address(&login), Say::Yes);
    assert_eq!((page.status, page.url.path()), (200, "/callback"), "{page:?}");
    assert!(page.text.contains("You are signed in"), "{page:?}");
    assert!(succeeds(login).contains("whoami"));
    assert_eq!(provider.journal("registered").len(), 1, "it is begun once");
}

/// Forwards a port, until the test ends. Returns the port.
fn forward_to(target: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(target) else { continue };
            let pairs = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for (from, to) in pairs {
                let (Ok(mut from), Ok(mut to)) = (from, to) else { continue };
                std::thread::spawn(move || {
                    std::io::copy(&mut from, &mut to).ok();
                    to.shutdown(std::net::Shutdown::Write).ok();
                });
            }
        }
    });
    port
}

#[test]
fn a_missing_sign_in_needs_a_person_and_is_no_issue() {
    let Some(provider) = Provider::start() else { return };
    let rest = service(&provider, &json!({}), |launch| launch);
    let health = expect(200, &rest.get("/health"));
    assert_eq!(
        (&health["status"], health["issues"].as_array().map(Vec::len)),
        (&json!("healthy"), Some(0)),
        "{health}"
    );
    let action = &health["action_required"][0];
    assert_eq!(
        (&action["server_name"], &action["command"]),
        (&json!(SERVER), &json!("mcp-aggregator login protected"))
    );
    let status = succeeds(command(&rest, &["status"]).start());
    assert!(status.contains("needs you (1)") && status.contains("mcp-aggregator login protected"), "{status}");
    // What else it finds on this machine is not known.
    let mut doctor = command(&rest, &["doctor", "--json"]).start();
    let found = doctor.wait_stdout_end().concat();
    doctor.wait_exit();
    let found = String::from_utf8_lossy(&found);
    assert!(found.contains("protected: a person must sign in to it"), "{found}");
}

#[test]
fn a_public_address_is_where_the_browser_comes_back_to() {
    let Some(provider) = Provider::start() else { return };
    let public = ["--public-url", "https://mcp.example.test/tools/"];
    let rest = service(&provider, &json!({}), |launch| launch.args(public));
    let attempt = expect(200, &rest.order(LOGIN));
    let url = url::Url::parse(attempt["authorization_url"].as_str().expect("an address")).expect("an address");
    let redirect = url.query_pairs().find(|(name, _)| name == "redirect_uri").expect("it has one").1.into_owned();
    assert_eq!(redirect, "https://mcp.example.test/tools/oauth/callback");
    assert_eq!(provider.journal("registered")[0]["redirects"], json!([redirect]));
    let callback = |host: &str| {
        let request = HttpRequest::new("GET", "/oauth/callback?code=a&state=guessed").header("Host", host);
        rest.serve.fetch(&request)
    };
    let answer = callback("mcp.example.test");
    assert!(answer.status == 400 && answer.body.contains("Not accepted"), "{answer:?}");
    assert!(!callback("other.example.test").body.contains("Not accepted"), "only that host is ours");
}

#[test]
fn a_redirect_needs_no_token_where_everything_else_does() {
    let Some(provider) = Provider::start() else { return };
    let token = "a-token-that-is-long-enough";
    let rest = Rest::start_as(|launch| launch.env("MCP_AGGREGATOR_TOKEN", token));
    let ask = |method: &str, path: &str, body: &Value| {
        let request = HttpRequest::new(method, &format!("{PREFIX}{path}")).header("Content-Type", "application/json");
        rest.serve.fetch(&request.header("Authorization", &format!("Bearer {token}")).body(body.to_string()))
    };
    let config = json!({"url": provider.server});
    let registration = json!({"name": SERVER, "transport_type": "http", "connection_config": config});
    expect(201, &ask("POST", "/servers", &registration));
    let attempt = wait_until("a sign-in can be started", || {
        let answer = ask("POST", LOGIN, &json!({}));
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(rest.get(LOGIN).status, 401);
    let page = Person::new("ada").open(attempt["authorization_url"].as_str().expect("an address"), Say::Yes);
    assert_eq!((page.status, page.url.path()), (200, "/oauth/callback"), "{page:?}");
    assert!(!page.text.contains(token), "{page:?}");
    wait_until("it is connected", || {
        let server = ask("GET", "/servers/protected", &Value::Null).json();
        (server["status"] == "connected").then_some(())
    });
}

/// A server that refuses every request, and says that its metadata is at this address.
fn server_with_metadata_at(metadata: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let response = format!(
                "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"{metadata}\"\r\n\
                 Content-Length: 0\r\nConnection: close\r\n\r\n"
            );
            // One read is enough for requests of this size.
            let read = client.read(&mut [0; 65536]);
            drop(read.and_then(|_| client.write_all(response.as_bytes())));
        }
    });
    format!("http://{address}/mcp")
}

#[test]
fn a_sign_in_is_not_followed_to_a_private_network_where_that_is_denied() {
    let rest = Rest::start_as(|launch| launch.arg("--deny-private-networks"));
    let url = server_with_metadata_at("http://10.1.2.3/metadata");
    let registration = json!({"name": SERVER, "transport_type": "http", "connection_config": {"url": url}});
    expect(201, &rest.post("/servers", &registration));
    wait_until("it has been tried", || {
        let server = rest.get("/servers/protected").json();
        (server["status"] != "connecting").then_some(())
    });
    let refused = rest.order(LOGIN);
    assert_eq!(refused.status, 502, "{refused:?}");
    let why = refused.json()["detail"].to_string();
    assert!(why.contains("private network") && why.contains("10.1.2.3"), "{why}");
}

#[test]
fn the_console_signs_in_without_scripts() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let form = [("name", SERVER), ("kind", "http"), ("url", provider.server.as_str())];
    let tested = visitor.submit("/add", &[&form[..], &[("action", "test")]].concat());
    assert!(tested.status == 200 && tested.body.contains("requires a sign-in. Add it"), "{}", tested.body);
    let added = visitor.submit("/add", &[&form[..], &[("action", "save")]].concat());
    assert!(added.status == 200 && added.body.contains("It requires a sign-in"), "{}", added.body);
    rest.wait_for_status(SERVER, "sign_in_required");
    assert!(visitor.page("/servers/protected").contains("/servers/protected/sign-in"));

    let onward = visitor.submit("/servers/protected/sign-in", &[]);
    let to = onward.headers.get("refresh").expect("the page goes on by itself");
    let address = to.strip_prefix("0; url=").expect("at once");
    assert!(address.contains("response_type=code") && onward.body.contains(">Continue</a>"), "{onward:?}");
    let page = Person::new("ada").open(address, Say::Yes);
    assert!(page.status == 200 && page.text.contains("/servers/protected"), "{page:?}");
    rest.wait_for_status(SERVER, "connected");

    let server = visitor.page("/servers/protected");
    let was = server.split("name=\"was\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
    let config = json!({"url": provider.server, "timeout": 5000, "oauth": {}}).to_string();
    let fields = [("was", was), ("transport", "http"), ("config", config.as_str()), ("action", "save")];
    let saved = visitor.submit("/servers/protected/edit", &fields);
    assert!(saved.status == 200 && saved.body.contains("Saved."), "{}", saved.body);
    assert!(!saved.body.contains("is ignored"), "{}", saved.body);

    let pasted = json!({"mcpServers": {"second": {"url": provider.server}}}).to_string();
    let fields = [("action", "take"), ("from", "paste"), ("pick", "0"), ("pasted", pasted.as_str())];
    let taken = visitor.submit("/add", &fields);
    assert!(taken.body.contains("second: added; it requires a sign-in"), "{}", taken.body);
    rest.wait_for_status("second", "sign_in_required");
}

#[test]
fn add_asks_on_a_terminal_whether_to_sign_in() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    let (browser, opened) = browser(&rest);
    let data = rest.folder.path().join("data");
    for (name, answer) in [("first", "n"), ("second", "")] {
        let add = [program("mcp-aggregator").display().to_string(), "add".into(), name.into(), provider.server.clone()];
        let line = format!("{} --data-dir {}", add.join(" "), data.display());
        // Gives the command a terminal, and passes on what is typed and printed.
        let mut terminal = Launch::program("script")
            .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
            .env("HOME", rest.folder.path())
            .env("BROWSER", &browser)
            .env_remove("MCP_AGGREGATOR_TOKEN")
            .start();
        // The question has no line end, and what is typed is read whenever it is asked for.
        terminal.send_raw(format!("{answer}\n").as_bytes());
        if answer.is_empty() {
            let page = Person::new("ada").open(&opened(), Say::Yes);
            assert_eq!(page.status, 200, "{page:?}");
        }
        let text = succeeds(terminal);
        assert!(text.contains("requires a sign-in. Sign in now? [Y/n]"), "{text}");
        let expected = if answer.is_empty() { "whoami" } else { "signs in later" };
        assert!(text.contains(expected), "{text}");
    }
    rest.wait_for_status("first", "sign_in_required");
    rest.wait_for_status("second", "connected");
}

#[test]
fn no_secret_is_in_the_command_line_or_environment_of_a_process() {
    let Some(provider) = Provider::start() else { return };
    let client_secret = "machine: secret/with+signs%";
    let machine = json!({"grant": "client_credentials", "client_id": "machine", "client_secret": client_secret});
    let rest = service(&provider, &json!({}), |launch| launch);
    let config = json!({"url": provider.server, "oauth": machine});
    expect(
        201,
        &rest.post("/servers", &json!({"name": "machine", "transport_type": "http", "connection_config": config})),
    );
    rest.wait_for_status("machine", "connected");
    let attempt = expect(200, &rest.order(LOGIN));
    Person::new("ada").open(attempt["authorization_url"].as_str().expect("an address"), Say::Yes);
    rest.wait_for_status(SERVER, "connected");
    rest.register("local", &[]);

    let mut secrets = provider.secrets();
    assert!(secrets.len() >= 3, "{secrets:?}");
    secrets.push(client_secret.to_owned());
    let processes = descendants(rest.serve.pid());
    assert!(processes.len() >= 2, "a server and its watchdog run");
    for pid in processes.into_iter().chain([rest.serve.pid()]) {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(secrets.iter().all(|secret| !text.contains(secret.as_str())), "a secret is in {file} of {pid}");
        }
    }
}
