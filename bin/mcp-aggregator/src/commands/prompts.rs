//! `prompts`: lists prompts, or gets one.

use std::io::{self, IsTerminal};

use catalog::Kind;
use clap::{Args, Subcommand};
use protocol::{escape, reply};
use serde_json::{Map, Value, json};

use super::items::{self, ItemsSource, first_line};
use crate::cli::shared::REST_JSON;
use crate::client::encoded;
use crate::commands::{call, tools};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::{session, stderr_log};

/// List the prompts of all servers or of one, or get one.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator prompts
  mcp-aggregator prompts github
  mcp-aggregator prompts get github.review pull_request=12
  mcp-aggregator prompts --config mcp.json --json | jq -r '.[].name'"
)]
pub(crate) struct PromptsArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<PromptsVerb>,
    /// Only the prompts of this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsVerb {
    /// Get a prompt with arguments, and print its messages
    #[command(after_help = "\
Examples:
  mcp-aggregator prompts get github.review pull_request=12
  mcp-aggregator prompts get github.review '{\"pull_request\": \"12\"}' --json")]
    Get(PromptsGetArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PromptsGetArguments {
    /// The prompt: `server.prompt`, or its own name if only one server has it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The arguments of the prompt, which are text; or one JSON object
    #[arg(value_name = "KEY=VALUE | JSON")]
    pub(crate) arguments: Vec<String>,
    /// Print the result as the server sent it
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

pub(crate) fn run(arguments: &PromptsArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Some(PromptsVerb::Get(arguments)) => get(arguments),
        None => list(arguments),
    }
}

fn list(arguments: &PromptsArguments) -> Result<(), Failure> {
    let (source, server) = (&arguments.source, arguments.server.as_deref());
    stderr_log::init(source.debug);
    let prompts = match &source.config {
        Some(config) => items::with_config(
            source,
            config,
            |loaded| items::keep_only(loaded, server),
            async |session| Ok(items::listed(session, Kind::Prompt)),
        )?,
        None => session::block_on(async {
            let service = source.target.service().await?;
            let wanted = server.map(|server| format!("?server_id={}", encoded(server))).unwrap_or_default();
            Ok(service.list(&format!("/prompts{wanted}")).await?)
        })?,
    };
    if arguments.json {
        return output::print_json(&Value::Array(prompts));
    }
    let row = |prompt: &Value| [text(prompt, "name"), arguments_of(prompt), first_line(prompt)];
    if !prompts.is_empty() {
        output::print_lines(&table(["PROMPT", "ARGUMENTS", "DESCRIPTION"], prompts.iter().map(row).collect()))?;
    }
    print_message(tools::counted(prompts.len(), "prompt"));
    Ok(())
}

/// `topic [depth]`: optional arguments are in brackets.
fn arguments_of(prompt: &Value) -> String {
    let name = |argument: &Value| {
        let name = text(argument, "name");
        if argument["required"] == true { name } else { format!("[{name}]") }
    };
    let names: Vec<String> = prompt["arguments"].as_array().into_iter().flatten().map(name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(" ") }
}

fn get(arguments: &PromptsGetArguments) -> Result<(), Failure> {
    let PromptsGetArguments { name, arguments: typed, json: as_json, source } = arguments;
    stderr_log::init(source.debug);
    let given = read(typed)?;
    let result = match &source.config {
        Some(config) => {
            let separator = &source.separator.separator;
            let narrow = |loaded: &mut _| call::keep_only_needed(loaded, name, separator);
            items::with_config(source, config, narrow, async |session| {
                let known = items::listed(session, Kind::Prompt);
                let Some(full) = full_name(name, &known) else {
                    let failure = Failure::new(format!("there is no prompt `{name}`")).of_kind("PROMPT_NOT_FOUND");
                    return Err(items::with_similar(failure, name, &known, "name", "mcp-aggregator prompts"));
                };
                let given = Value::Object(given).to_string().into_bytes();
                let params = reply::object([("name", reply::string(&full)), ("arguments", given)]);
                items::ask(session, "prompts/get", params).await
            })?
        }
        None => session::block_on(async {
            let service = source.target.service().await?;
            let body = json!({"name": name, "arguments": given});
            match service.ask_bytes("/prompts/get", &body).await.map_err(Failure::from) {
                Err(refused) if refused.kind.as_deref() == Some("PROMPT_NOT_FOUND") => {
                    // Failures are ignored: that the prompt is missing is already known.
                    let known = service.get("/prompts").await.ok().unwrap_or_default();
                    let known = known.as_array().map(Vec::as_slice).unwrap_or_default();
                    Err(items::with_similar(refused, name, known, "name", "mcp-aggregator prompts"))
                }
                answered => Ok(answered?.to_vec()),
            }
        })?,
    };
    if *as_json { output::print(&[&result[..], b"\n"].concat()) } else { output::print(messages(&result)?.as_bytes()) }
}

/// The full name of a prompt, given its full name, or its own name if only one server has it.
fn full_name(name: &str, known: &[Value]) -> Option<String> {
    let is_it = |prompt: &&Value| prompt["name"] == name;
    let mut own = known.iter().filter(|prompt| prompt["original_name"] == name);
    let only = own.next().filter(|_| own.next().is_none());
    known.iter().find(is_it).or(only).and_then(|prompt| prompt["name"].as_str().map(str::to_owned))
}

/// The arguments of a prompt are strings, whatever they look like.
fn read(typed: &[String]) -> Result<Map<String, Value>, Failure> {
    if let [only] = typed
        && only.trim_start().starts_with('{')
    {
        return serde_json::from_str(only)
            .map_err(|error| Failure::usage(format!("the argument is not a JSON object: {error}")));
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), json!(value))),
        _ => {
            Err(Failure::usage(format!("`{word}` is not an argument")).with_hint("write KEY=VALUE, or one JSON object"))
        }
    };
    typed.iter().map(pair).collect()
}

/// The messages of a prompt for people: the role and the content. Content other than text is printed as JSON.
fn messages(result: &[u8]) -> Result<String, Failure> {
    let result = items::readable(result)?;
    let is_terminal = io::stdout().is_terminal();
    let mut shown = String::new();
    for message in items::list_in(&result, "messages")? {
        let content = match (message["content"]["type"].as_str(), message["content"]["text"].as_str()) {
            (Some("text"), Some(text)) => text.to_owned(),
            _ => message["content"].to_string(),
        };
        let content = if is_terminal { escape::multi_line(&content).into_owned() } else { content };
        let blank = if shown.is_empty() { "" } else { "\n" };
        shown += &format!("{blank}{}:\n{}\n", text(message, "role"), content.trim_end());
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_strings_and_messages_have_their_role() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(Value::Object(read(&words(&["n=5", "t=a=b"])).unwrap()), json!({"n": "5", "t": "a=b"}));
        assert_eq!(Value::Object(read(&words(&[r#"{"n": "5"}"#])).unwrap()), json!({"n": "5"}));
        assert!(read(&words(&["n"])).is_err() && read(&words(&["{"])).is_err());
        let result = json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": "Hello\n"}},
            {"role": "assistant", "content": {"type": "image", "data": "AA=="}},
        ]});
        let shown = messages(result.to_string().as_bytes()).unwrap();
        assert_eq!(shown, "user:\nHello\n\nassistant:\n{\"type\":\"image\",\"data\":\"AA==\"}\n");
        for odd in ["{}", "", &format!("{{\"messages\": {}{}}}", "[".repeat(200), "]".repeat(200))] {
            let hint = messages(odd.as_bytes()).unwrap_err().hint;
            assert_eq!(hint.as_deref(), Some("--json prints it"), "nothing is shown as if it were all: {odd}");
        }
    }

    #[test]
    fn a_prompt_is_found_by_its_own_name_where_only_one_server_has_it() {
        let prompt = |server: &str, name: &str| json!({"name": format!("{server}.{name}"), "original_name": name});
        let known = [prompt("a", "review"), prompt("b", "review"), prompt("b", "plan")];
        assert_eq!(full_name("plan", &known).as_deref(), Some("b.plan"));
        assert_eq!(full_name("a.review", &known).as_deref(), Some("a.review"));
        assert_eq!(full_name("review", &known), None);
    }
}
