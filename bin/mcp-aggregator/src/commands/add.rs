//! `add`: registers a server; a running service connects it.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use catalog::login_command;
use clap::{Args, ValueEnum};
use registry::Transport;
use serde_json::{Map, Value, json};
use service::Registration;

use super::login::{self, LoginArguments};
use super::startup_progress::{POLL_INTERVAL, ProgressPrinter};
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::import::registration_of_entry;
use crate::output::{self, print_message};
use crate::server_view::status_text;
use crate::table::printable;
use crate::target::{Target, TargetArguments};
use crate::{command_hint, local_registry, progress, session};

/// Add a server.
///
/// A server is a program (after `--`), a URL, or an image that runs in a container. The registry stores `$VAR` and
/// `${VAR}` as written; the service replaces them when it connects the server, so secrets can stay in its environment.
/// Secrets that you write out are encrypted in the registry and displayed as ***. A running service connects the
/// server immediately.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator add memory -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator add notes --share user -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator add git --env 'TOKEN=${GIT_TOKEN}' --lazy -- uvx mcp-server-git
  mcp-aggregator add docs https://example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'
  mcp-aggregator add old https://example.org/sse --transport sse
  mcp-aggregator add time --docker mcp/time
  mcp-aggregator add notes --docker mcp/filesystem --volume ~/notes:/notes -- /notes
  mcp-aggregator add web --docker example/server:2 --port 8080 --memory 512m
  mcp-aggregator add time --json '{\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}'
  mcp-aggregator add --json - < registration.json     the body of POST /servers
  mcp-aggregator add git --replace --env 'TOKEN=${NEW_TOKEN}' -- uvx mcp-server-git"
)]
pub(crate) struct AddArguments {
    /// The name of the server: lower-case letters, digits, `_` and `-`
    #[arg(value_name = "NAME", required_unless_present = "json")]
    pub(crate) name: Option<String>,
    /// The URL of a server that is reachable over HTTP
    #[arg(value_name = "URL", conflicts_with_all = ["command", "docker"],
        required_unless_present_any = ["command", "json", "docker"])]
    pub(crate) address: Option<String>,
    /// The transport [default: stdio for a program, http for a URL or a --port]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportArgument>,
    /// Run this image in a container; words after `--` are arguments of its program
    #[arg(long, value_name = "IMAGE")]
    pub(crate) docker: Option<String>,
    /// The port on which the server listens in its container, for http and sse
    #[arg(long, value_name = "PORT", requires = "docker")]
    pub(crate) port: Option<u16>,
    /// Mount a folder or a volume into the container, SOURCE:/TARGET[:ro]; may be repeated
    #[arg(long, value_name = "VOLUME", requires = "docker")]
    pub(crate) volume: Vec<String>,
    /// The network of the container [default: none for stdio, the engine's default network for http and sse]
    #[arg(long, value_name = "NAME", requires = "docker")]
    pub(crate) network: Option<String>,
    /// The memory limit of the container, such as 512m [default: 1g]
    #[arg(long, value_name = "AMOUNT", requires = "docker")]
    pub(crate) memory: Option<String>,
    /// Set an environment variable for the program; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "address")]
    pub(crate) env: Vec<String>,
    /// Send a header with every request to the server, `NAME=VALUE` or `NAME: VALUE`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "command")]
    pub(crate) header: Vec<String>,
    /// A description of the server
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Start the server when one of its tools is called, and stop it when it is idle
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Who shares one process or session of the server
    #[arg(long, value_enum)]
    pub(crate) share: Option<ShareArgument>,
    /// How many instances may run at once, with --share user or session [default: 100]
    #[arg(long, value_name = "NUMBER", requires = "share", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) max_instances: Option<u16>,
    /// Check the health of the server with GET requests to this URL, instead of MCP pings
    #[arg(long, value_name = "URL")]
    pub(crate) health_url: Option<String>,
    /// Do not connect the server, neither now nor when the service starts
    #[arg(long)]
    pub(crate) no_connect: bool,
    /// Change the connection of an existing server, and keep its history, bindings and disabled tools. Needs a running
    /// service
    #[arg(long, verbatim_doc_comment)]
    pub(crate) replace: bool,
    /// Print the server as JSON. With OBJECT (`-` reads stdin), define it as JSON, too: an entry of a config, or the
    /// body of POST /servers
    #[arg(long, value_name = "OBJECT", num_args = 0..=1, value_parser = object, verbatim_doc_comment)]
    #[expect(clippy::option_option, reason = "as clap tells an option without its value from none")]
    pub(crate) json: Option<Option<String>>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// The program and its arguments; with --docker, only arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Parses the object of `--json`. The name of a server after `--json` is not an object.
fn object(text: &str) -> Result<String, String> {
    match text.trim_start().starts_with(['{', '[', '"', '-']) {
        true => Ok(text.to_owned()),
        false => Err("expected a JSON object, or `-`; to print the result as JSON, write --json last".to_owned()),
    }
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArgument {
    /// A program that mcp-aggregator starts
    Stdio,
    /// Streamable HTTP
    Http,
    /// HTTP+SSE, the deprecated transport
    Sse,
}

/// Who shares one process or session of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareArgument {
    /// All clients
    All,
    /// The clients of one identity: each token or person has its own
    User,
    /// One session: each has its own
    Session,
}

/// How long to wait for the first start of a server, which may include a download.
const CONNECT_WAIT: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &AddArguments) -> Result<(), Failure> {
    let new = registration(arguments)?;
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    if arguments.replace {
        return replace(arguments, &name, new);
    }
    let (server, runs) = session::block_on(async {
        match arguments.target.find().await? {
            Target::Service(service) => Ok((added_by(&service, &name, &new).await?, true)),
            Target::Registry(store) => {
                let new: Registration =
                    serde_json::from_value(new).map_err(|error| Failure::usage(error.to_string()))?;
                Ok((local_registry::add(&store, new).await?, false))
            }
        }
    })?;
    if arguments.json.is_some() {
        output::print_json(&server)?;
    }
    if runs && is_sign_in_missing(&server) {
        return offer_sign_in(arguments, &name, "added");
    }
    print_outcome(&name, &server, runs)
}

/// Changes the connection of an existing server.
fn replace(arguments: &AddArguments, name: &str, mut new: Value) -> Result<(), Failure> {
    if let Value::Object(members) = &mut new {
        members.shift_remove("name");
    }
    let server = session::block_on(async {
        let service = arguments.target.service().await?;
        let path = format!("/servers/{}", encoded(name));
        let changed = progress::with_spinner("connecting the server", service.patch(&path, &new)).await?;
        decided(&service, changed).await
    })?;
    if arguments.json.is_some() {
        output::print_json(&server)?;
    }
    if server["status"] == "disabled" {
        print_message(format_args!("changed `{name}`; it is disabled, `mcp-aggregator enable {name}` enables it"));
        return Ok(());
    }
    if is_sign_in_missing(&server) {
        return offer_sign_in(arguments, name, "changed");
    }
    match server["error_message"].as_str() {
        Some(why) => {
            let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
            Err(Failure::new(format!("changed `{name}`, but it could not be connected: {why}"))
                .with_hint(format!("`mcp-aggregator test {name}` tests it again")))
        }
        None => {
            print_message(format_args!("changed `{name}`: {}", status_text(&server)));
            Ok(())
        }
    }
}

/// Adds it through a service, and waits until it is connected or failed. After Ctrl-C, reports that it is registered.
async fn added_by(service: &Client, name: &str, new: &Value) -> Result<Value, Failure> {
    let mut signals = session::signals()?;
    let adding = async {
        match progress::with_spinner("connecting the server", service.post("/servers", Some(new))).await {
            Ok(added) => decided(service, added).await,
            Err(denial) => Err(explain_existing(service, name, denial.into()).await),
        }
    };
    tokio::select! {
        server = adding => server,
        () = signals.next() => Err(Failure {
            message: format!("interrupted, but `{name}` was added"),
            ..Failure::interrupted().with_hint(format!(
                "`mcp-aggregator show {name}` shows its status, `mcp-aggregator remove {name}` removes it"
            ))
        }),
    }
}

/// The same failure with a better hint: a server of the config file cannot be removed by a command.
async fn explain_existing(service: &Client, name: &str, failure: Failure) -> Failure {
    if failure.kind.as_deref() != Some("SERVER_ALREADY_EXISTS") {
        return failure;
    }
    match service.get(&format!("/servers/{}", encoded(name))).await {
        Ok(server) if server["origin"] == "config" => failure.with_hint(format!(
            "it is in the config file of the service: edit that file, or choose another name; \
             `mcp-aggregator show {name}` shows it"
        )),
        _ => failure,
    }
}

/// Waits until the server is connected or failed.
pub(super) async fn decided(service: &Client, added: Value) -> Result<Value, Failure> {
    let path = format!("/servers/{}", encoded(added["id"].as_str().unwrap_or_default()));
    let (mut server, mut began) = (added, Instant::now());
    let mut printer = ProgressPrinter::default();
    while server["status"] == "connecting" && began.elapsed() < CONNECT_WAIT {
        tokio::time::sleep(POLL_INTERVAL).await;
        server = service.get(&path).await?;
        // An image may be large.
        if printer.print_progress(&server) {
            began = Instant::now();
        }
    }
    Ok(server)
}

/// Whether the server only waits for a person to sign in, which is no failure.
fn is_sign_in_missing(server: &Value) -> bool {
    server["status"] == "sign_in_required"
}

/// On a terminal, asks whether to sign in at once; elsewhere, says how.
fn offer_sign_in(arguments: &AddArguments, name: &str, done: &str) -> Result<(), Failure> {
    let command = login_command(name);
    let can_ask = arguments.json.is_none() && io::stdin().is_terminal() && io::stderr().is_terminal();
    if !can_ask {
        print_message(format_args!("{done} `{name}`; it requires a sign-in, `{command}` signs in"));
        return Ok(());
    }
    // Without a line end, because the answer is typed after it. If it cannot be written, nobody can answer.
    io::stderr().write_all(format!("{done} `{name}`; it requires a sign-in. Sign in now? [Y/n] ").as_bytes()).ok();
    let mut answer = String::new();
    // The end of the input is no consent.
    let is_answered = io::stdin().read_line(&mut answer).is_ok_and(|length| length > 0);
    if !is_answered || !matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes") {
        print_message(format_args!("`{command}` signs in later"));
        return Ok(());
    }
    login::run(&LoginArguments {
        server: name.to_owned(),
        config: None,
        no_browser: false,
        target: arguments.target.clone(),
        json: false,
        debug: false,
    })
}

fn print_outcome(name: &str, server: &Value, runs: bool) -> Result<(), Failure> {
    if !runs {
        print_message(format_args!("added `{name}`; no service is running, `mcp-aggregator serve` starts one"));
        return Ok(());
    }
    if let Some(why) = server["error_message"].as_str() {
        let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
        return Err(Failure::new(format!("added `{name}`, but it could not be connected: {why}")).with_hint(format!(
            "`mcp-aggregator test {name}` tests it again, `mcp-aggregator remove {name}` removes it"
        )));
    }
    match server["status"].as_str() {
        Some("connecting") => {
            print_message(format_args!(
                "added `{name}`; it is still connecting, `mcp-aggregator show {name}` shows its status"
            ));
        }
        _ => print_message(format_args!("added `{name}`: {}", status_text(server))),
    }
    Ok(())
}

/// The request to the service.
fn registration(arguments: &AddArguments) -> Result<Value, Failure> {
    let mut new = match &arguments.json {
        Some(Some(text)) => {
            refuse_both(arguments)?;
            of_json(arguments.name.as_deref(), text)?
        }
        Some(None) | None => of_options(arguments)?,
    };
    if let Some(description) = &arguments.description {
        new.insert("description".to_owned(), json!(description));
    }
    if let Some(url) = &arguments.health_url {
        new.insert("health_check_url".to_owned(), json!(url));
    }
    if arguments.no_connect {
        new.insert("auto_connect".to_owned(), json!(false));
    }
    if arguments.lazy
        && let Some(Value::Object(config)) = new.get_mut("connection_config")
    {
        config.insert("lazy".to_owned(), json!(true));
    }
    if let Some(Value::Object(config)) = new.get_mut("connection_config") {
        let share = arguments.share.and_then(|share| share.to_possible_value());
        config.extend(share.map(|share| ("share".to_owned(), json!(share.get_name()))));
        config.extend(arguments.max_instances.map(|most| ("max_instances".to_owned(), json!(most))));
    }
    refuse_joined_words(&new, arguments.json.as_ref().is_some_and(Option::is_some))?;
    Ok(Value::Object(new))
}

/// A shell would split a program and its arguments in one word, but no shell reads it.
fn refuse_joined_words(new: &Map<String, Value>, is_json: bool) -> Result<(), Failure> {
    let Some(Value::Object(config)) = new.get("connection_config") else { return Ok(()) };
    let Some(Value::String(command)) = config.get("command") else { return Ok(()) };
    let words: Vec<&str> = command.split_whitespace().collect();
    let [first, rest @ ..] = words.as_slice() else { return Ok(()) };
    // A path may contain spaces, and may be on another machine.
    let is_program = |path: &str| Path::new(path).is_file();
    if rest.is_empty() || is_program(command) || (first.contains('/') && !is_program(first)) {
        return Ok(());
    }
    let given = config.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let args: Vec<&str> = rest.iter().copied().chain(given).collect();
    let apart = match is_json {
        true => format!("`{}`", json!({"command": first, "args": args})),
        false => {
            let words = std::iter::once(*first).chain(args).map(command_hint::quoted).collect::<Vec<_>>().join(" ");
            format!("`-- {words}`")
        }
    };
    let message =
        format!("`{}` is one word: write the program and its arguments as separate words", printable(command));
    Err(Failure::usage(message).with_hint(format!("write {apart}")))
}

/// The object defines everything, so other options are refused.
fn refuse_both(arguments: &AddArguments) -> Result<(), Failure> {
    let AddArguments { address, transport, docker, env, header, command, .. } = arguments;
    let given = [
        (address.is_some(), "a URL"),
        (transport.is_some(), "--transport"),
        (docker.is_some(), "--docker"),
        (!env.is_empty(), "--env"),
        (!header.is_empty(), "--header"),
        (!command.is_empty(), "a program"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => {
            Err(Failure::usage(format!("{what} cannot be combined with an object for --json; put it into the object")))
        }
        None => Ok(()),
    }
}

/// An entry of a config, or a whole registration.
fn of_json(name: Option<&str>, text: &str) -> Result<Map<String, Value>, Failure> {
    let read = if text == "-" { io::read_to_string(io::stdin()) } else { Ok(text.to_owned()) };
    let text = read.map_err(|error| Failure::new(format!("could not read stdin: {error}")))?;
    let mut given: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("--json expects a JSON object: {error}")))?;
    if let Some(name) = name {
        given.insert("name".to_owned(), json!(name));
    }
    if given.contains_key("connection_config") {
        return Ok(given);
    }
    let Some(Value::String(name)) = given.shift_remove("name") else {
        return Err(Failure::usage("the server has no name").with_hint("`mcp-aggregator add NAME --json OBJECT`"));
    };
    Ok(registration_of_entry(&name, &given))
}

fn of_options(arguments: &AddArguments) -> Result<Map<String, Value>, Failure> {
    let Some(name) = arguments.name.as_deref() else {
        return Err(Failure::usage("the server has no name").with_hint("`mcp-aggregator add --help` shows examples"));
    };
    let env = named(&arguments.env, "--env", &["="])?;
    let headers = named(&arguments.header, "--header", &["=", ":"])?;
    if let Some(image) = &arguments.docker {
        return in_container(name, image, arguments, env);
    }
    let (transport, config) = match (arguments.command.split_first(), &arguments.address) {
        (Some((command, args)), _) => {
            if matches!(arguments.transport, Some(TransportArgument::Http | TransportArgument::Sse)) {
                return Err(Failure::usage("a program uses the transport stdio; omit --transport"));
            }
            (Transport::Stdio, with("env", env, json!({"command": command, "args": args})))
        }
        (None, Some(program)) if !program.contains("://") && !program.starts_with("${") => {
            return Err(Failure::usage(format!("`{program}` is not a URL; write a program after `--`"))
                .with_hint(format!("`mcp-aggregator add {name} -- {program}`")));
        }
        (None, Some(url)) => {
            let transport = match arguments.transport {
                Some(TransportArgument::Stdio) => {
                    return Err(Failure::usage("a URL needs the transport http or sse; write a program after `--`")
                        .with_hint(format!(
                            "`mcp-aggregator add {name} {url}`, or `mcp-aggregator add {name} -- PROGRAM`"
                        )));
                }
                Some(TransportArgument::Sse) => Transport::Sse,
                Some(TransportArgument::Http) | None => Transport::Http,
            };
            (transport, with("headers", headers, json!({"url": url})))
        }
        (None, None) => return Err(Failure::usage("there is neither a program nor a URL")),
    };
    let new = json!({"name": name, "transport_type": transport, "connection_config": config});
    let Value::Object(new) = new else { unreachable!("an object was written") };
    Ok(new)
}

/// Names with their values. An error does not contain the value, because it may be a secret.
fn named(texts: &[String], option: &str, separators: &[&str]) -> Result<Map<String, Value>, Failure> {
    let pair = |text: &String| {
        let at = separators.iter().filter_map(|separator| text.find(separator)).min();
        let (name, value) = at.map(|at| (text[..at].trim_end(), text[at + 1..].trim_start()))?;
        (!name.is_empty()).then(|| (name.to_owned(), json!(value)))
    };
    let pairs: Option<Map<String, Value>> = texts.iter().map(pair).collect();
    pairs.ok_or_else(|| {
        let forms: Vec<String> =
            separators.iter().map(|separator| format!("{option} 'NAME{separator}VALUE'")).collect();
        Failure::usage(format!("a value of {option} is not a name with a value")).with_hint(forms.join(" or "))
    })
}

fn in_container(
    name: &str,
    image: &str,
    arguments: &AddArguments,
    env: Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    let transport = match (arguments.transport, arguments.port) {
        (Some(TransportArgument::Http), _) | (None, Some(_)) => Transport::Http,
        (Some(TransportArgument::Sse), _) => Transport::Sse,
        (Some(TransportArgument::Stdio), Some(_)) => {
            return Err(Failure::usage("the transport stdio does not use --port; omit one of them"));
        }
        (Some(TransportArgument::Stdio) | None, None) => Transport::Stdio,
    };
    let mut docker = with("env", env, json!({ "image": image }));
    if !arguments.command.is_empty() {
        docker["args"] = json!(arguments.command);
    }
    if let Some(port) = arguments.port {
        docker["ports"] = json!([port]);
    }
    if !arguments.volume.is_empty() {
        docker["volumes"] = json!(arguments.volume);
    }
    if let Some(network) = &arguments.network {
        docker["network"] = json!(network);
    }
    if let Some(memory) = &arguments.memory {
        docker["memory"] = json!(memory);
    }
    let new = json!({"name": name, "transport_type": transport, "connection_config": {"docker": docker}});
    let Value::Object(new) = new else { unreachable!("an object was written") };
    Ok(new)
}

/// The config with these texts, if there are any.
fn with(key: &str, texts: Map<String, Value>, mut config: Value) -> Value {
    if !texts.is_empty() {
        config[key] = Value::Object(texts);
    }
    config
}
