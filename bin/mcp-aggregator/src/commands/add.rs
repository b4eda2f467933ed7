//! `add`: a server is registered and, where a service runs, connected.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use registry::Transport;
use serde_json::{Map, Value, json};
use service::servers::Registration;

use super::startup_progress::{POLL_INTERVAL, ProgressPrinter};
use crate::arguments::servers::{AddArguments, TransportArgument};
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::import::registration_of_entry;
use crate::output::{self, print_message};
use crate::server_view::status_text;
use crate::session::Signals;
use crate::table::printable;
use crate::target::Target;
use crate::{command_hint, local_registry, progress, session};

/// How long the first start of a server is watched. Some are downloaded then.
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
    print_outcome(&name, &server, runs)
}

/// Changes how a server is reached that is there.
fn replace(arguments: &AddArguments, name: &str, mut new: Value) -> Result<(), Failure> {
    if let Value::Object(members) = &mut new {
        members.shift_remove("name");
    }
    let server = session::block_on(async {
        let service = arguments.target.service().await?;
        let path = format!("/servers/{}", encoded(name));
        let changed = progress::with_spinner("connecting it", service.patch(&path, &new)).await?;
        decided(&service, changed).await
    })?;
    if arguments.json.is_some() {
        output::print_json(&server)?;
    }
    if server["status"] == "disabled" {
        print_message(format_args!(
            "changed `{name}`; it is switched off, `mcp-aggregator enable {name}` switches it on"
        ));
        return Ok(());
    }
    match server["error_message"].as_str() {
        Some(why) => {
            let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
            Err(Failure::new(format!("changed `{name}`, but it could not be connected: {why}"))
                .with_hint(format!("`mcp-aggregator test {name}` tries it again")))
        }
        None => {
            print_message(format_args!("changed `{name}`: {}", status_text(&server)));
            Ok(())
        }
    }
}

/// Has a service add it, and waits until it is connected or not. Who interrupts that is told that it is there.
async fn added_by(service: &Client, name: &str, new: &Value) -> Result<Value, Failure> {
    let mut signals = Signals::new().map_err(|error| Failure::new(format!("could not start: {error}")))?;
    let adding = async {
        match progress::with_spinner("connecting it", service.post("/servers", Some(new))).await {
            Ok(added) => decided(service, added).await,
            Err(denial) => Err(explain_existing(service, name, denial.into()).await),
        }
    };
    tokio::select! {
        server = adding => server,
        () = signals.next() => Err(Failure {
            message: format!("interrupted; `{name}` is added all the same"),
            ..Failure::interrupted().with_hint(format!(
                "`mcp-aggregator show {name}` tells how it is, `mcp-aggregator remove {name}` removes it"
            ))
        }),
    }
}

/// The same failure, with a hint that helps: what is in the config file cannot be removed from here.
async fn explain_existing(service: &Client, name: &str, failure: Failure) -> Failure {
    if failure.kind.as_deref() != Some("SERVER_ALREADY_EXISTS") {
        return failure;
    }
    match service.get(&format!("/servers/{}", encoded(name))).await {
        Ok(server) if server["origin"] == "config" => failure.with_hint(format!(
            "it comes from the config file of the service: change it there, or choose another name; \
             `mcp-aggregator show {name}` shows it"
        )),
        _ => failure,
    }
}

/// Waits until a server that is being connected is, or is not.
pub(super) async fn decided(service: &Client, added: Value) -> Result<Value, Failure> {
    let path = format!("/servers/{}", encoded(added["id"].as_str().unwrap_or_default()));
    let (mut server, mut began) = (added, Instant::now());
    let mut told = ProgressPrinter::default();
    while server["status"] == "connecting" && began.elapsed() < CONNECT_WAIT {
        tokio::time::sleep(POLL_INTERVAL).await;
        server = service.get(&path).await?;
        // An image may be large.
        if told.print_progress(&server) {
            began = Instant::now();
        }
    }
    Ok(server)
}

fn print_outcome(name: &str, server: &Value, runs: bool) -> Result<(), Failure> {
    if !runs {
        print_message(format_args!("added `{name}`; no service runs here, `mcp-aggregator serve` starts one"));
        return Ok(());
    }
    if let Some(why) = server["error_message"].as_str() {
        let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
        return Err(Failure::new(format!("added `{name}`, but it could not be connected: {why}")).with_hint(format!(
            "`mcp-aggregator test {name}` tries it again, `mcp-aggregator remove {name}` removes it"
        )));
    }
    match server["status"].as_str() {
        Some("connecting") => {
            print_message(format_args!(
                "added `{name}`; it is still connecting, `mcp-aggregator show {name}` tells how that goes"
            ));
        }
        _ => print_message(format_args!("added `{name}`: {}", status_text(server))),
    }
    Ok(())
}

/// What is sent to a service.
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
    refuse_joined_words(&new, arguments.json.as_ref().is_some_and(Option::is_some))?;
    Ok(Value::Object(new))
}

/// A program and its arguments in one word is what a shell would take apart, but no shell reads it.
fn refuse_joined_words(new: &Map<String, Value>, is_json: bool) -> Result<(), Failure> {
    let Some(Value::Object(config)) = new.get("connection_config") else { return Ok(()) };
    let Some(Value::String(command)) = config.get("command") else { return Ok(()) };
    let words: Vec<&str> = command.split_whitespace().collect();
    let [first, rest @ ..] = words.as_slice() else { return Ok(()) };
    // A path may have blanks in it, and may be one on another machine.
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
    let message = format!("`{}` is one word: the program and its arguments must be separate", printable(command));
    Err(Failure::usage(message).with_hint(format!("write {apart}")))
}

/// Who gives an object says everything in it.
fn refuse_both(arguments: &AddArguments) -> Result<(), Failure> {
    let AddArguments { address, transport, docker, env, header, command, .. } = arguments;
    let given = [
        (address.is_some(), "an address"),
        (transport.is_some(), "--transport"),
        (docker.is_some(), "--docker"),
        (!env.is_empty(), "--env"),
        (!header.is_empty(), "--header"),
        (!command.is_empty(), "a program"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => {
            Err(Failure::usage(format!("{what} cannot stand beside an object for --json; say it there")))
        }
        None => Ok(()),
    }
}

/// An entry of a config, or a whole registration.
fn of_json(name: Option<&str>, text: &str) -> Result<Map<String, Value>, Failure> {
    let read = if text == "-" { io::read_to_string(io::stdin()) } else { Ok(text.to_owned()) };
    let text = read.map_err(|error| Failure::new(format!("could not read stdin: {error}")))?;
    let mut given: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("--json wants a JSON object: {error}")))?;
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
                return Err(Failure::usage("a program that is started is reached by stdio; leave --transport out"));
            }
            (Transport::Stdio, with("env", env, json!({"command": command, "args": args})))
        }
        (None, Some(program)) if !program.contains("://") && !program.starts_with("${") => {
            return Err(Failure::usage(format!("`{program}` is no address; a program stands after `--`"))
                .with_hint(format!("`mcp-aggregator add {name} -- {program}`")));
        }
        (None, Some(url)) => {
            let transport = match arguments.transport {
                Some(TransportArgument::Stdio) => {
                    return Err(Failure::usage("an address is reached by http or sse; a program stands after `--`")
                        .with_hint(format!(
                            "`mcp-aggregator add {name} {url}`, or `mcp-aggregator add {name} -- PROGRAM`"
                        )));
                }
                Some(TransportArgument::Sse) => Transport::Sse,
                Some(TransportArgument::Http) | None => Transport::Http,
            };
            (transport, with("headers", headers, json!({"url": url})))
        }
        (None, None) => return Err(Failure::usage("neither a program nor an address is given")),
    };
    let new = json!({"name": name, "transport_type": transport, "connection_config": config});
    let Value::Object(new) = new else { unreachable!("an object was written") };
    Ok(new)
}

/// Names with their values. What is wrong with one is told without it: it may be a secret.
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
        Failure::usage(format!("a value of {option} has no name, or no value")).with_hint(forms.join(" or "))
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
            return Err(Failure::usage("a server that is reached by stdio needs no --port; leave one of them out"));
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

/// The config with these texts, if there are some.
fn with(key: &str, texts: Map<String, Value>, mut config: Value) -> Value {
    if !texts.is_empty() {
        config[key] = Value::Object(texts);
    }
    config
}
