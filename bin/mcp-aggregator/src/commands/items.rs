//! The shared code of `prompts` and `resources`: lists items of the servers of a config, and sends requests to them.

use std::path::{Path, PathBuf};

use aggregator::NamePolicy;
use aggregator::load::Loaded;
use catalog::{Kind, NameStyle};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::shared::{CONFIG_INSTEAD_OF_SERVICE, DEBUG, SeparatorArgument};
use crate::failure::Failure;
use crate::in_process_client::InProcessClient;
use crate::session::{self, Session};
use crate::table::printable;
use crate::target::TargetArguments;
use crate::{config, output, progress, result_text, suggestion};

/// Where prompts and resources come from, and the output format.
#[derive(Debug, Args)]
pub(crate) struct ItemsSource {
    #[arg(long, value_name = "FILE", help = CONFIG_INSTEAD_OF_SERVICE, conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

/// Runs `work` with the servers of a config, and stops them afterwards.
pub(super) fn with_config<T>(
    source: &ItemsSource,
    path: &Path,
    narrow: impl FnOnce(&mut Loaded) -> Result<(), Failure>,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let separator = source.separator.separator.clone();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    let mut loaded = config::load(path)?;
    narrow(&mut loaded)?;
    session::with(loaded, options, async |session| {
        session.all_decided().await?;
        for server in session.fleet().view().snapshot.servers() {
            if let Some(how) = server.state.failure() {
                output::print_message(format_args!("warning: server `{}` failed: {how}", server.name));
            }
        }
        work(session).await
    })
}

/// Keeps only the named server, if there is one.
pub(super) fn keep_only(loaded: &mut Loaded, server: Option<&str>) -> Result<(), Failure> {
    let Some(server) = server else { return Ok(()) };
    let servers = &mut loaded.config.servers;
    if !servers.iter().any(|spec| spec.name.as_str() == server) {
        let failure = Failure::new(format!("there is no server `{server}` in the config")).of_kind("SERVER_NOT_FOUND");
        let question = suggestion::among(server, servers.iter().map(|spec| spec.name.as_str()));
        return Err(match question {
            Some(question) => failure.with_hint(question),
            None => failure,
        });
    }
    servers.retain(|spec| spec.name.as_str() == server);
    Ok(())
}

/// The result of a server, parsed for display.
pub(super) fn readable(result: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(result)
        .map_err(|error| Failure::new(format!("the result cannot be read: {error}")).with_hint("--json prints it"))
}

/// A list that a result must have.
pub(super) fn list_in<'r>(result: &'r Value, member: &str) -> Result<&'r [Value], Failure> {
    let missing = || Failure::new(format!("the result has no `{member}`")).with_hint("--json prints it");
    result[member].as_array().map(Vec::as_slice).ok_or_else(missing)
}

/// The lists of the servers, in the format of REST.
pub(super) fn listed(session: &Session, kind: Kind) -> Vec<Value> {
    let view = session.fleet().view();
    let snapshot = &view.snapshot;
    let routes = snapshot.listed(kind, NameStyle::Canonical);
    let described = routes.map(|route| {
        let owner = snapshot.servers()[route.server].name.as_str();
        let item = snapshot.item(kind, route);
        let definition = |key: &str| result_text::member_tree(&item.definition, key);
        let name = snapshot.listed_name(kind, route, NameStyle::Canonical);
        match kind {
            Kind::Resource | Kind::Template => json!({
                "uri": name,
                "name": definition("name"),
                "title": definition("title"),
                "description": definition("description"),
                "mime_type": definition("mimeType"),
                "size": definition("size"),
                "server_name": owner,
            }),
            Kind::Prompt | Kind::Tool => json!({
                "name": name,
                "original_name": item.id.to_string(),
                "server_name": owner,
                "title": definition("title"),
                "description": definition("description"),
                "arguments": Some(definition("arguments")).filter(Value::is_array).unwrap_or_else(|| json!([])),
            }),
        }
    });
    described.collect()
}

/// Sends a request to the servers of a config; returns the unchanged result.
pub(super) async fn ask(session: &mut Session, method: &str, params: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let mut conversation = InProcessClient::new(&session.aggregator)?;
    let asking = progress::with_spinner("waiting for the server", conversation.ask(method, Some(&params), |_| {}));
    let answered = match session.unless_interrupted(asking).await {
        Ok(answer) => answer?,
        Err(interrupted) => {
            conversation.cancel("interrupted by the user");
            return Err(interrupted);
        }
    };
    answered.bytes().map(<[u8]>::to_vec).map_err(|error| {
        let failure = Failure::new(format!("the server returned an error: {}", result_text::refusal(error)));
        let reported = result_text::tree(error);
        Failure { data: Some(Box::new(json!({ "error": reported }))), ..failure.of_kind("EXECUTION_FAILED") }
    })
}

/// A failure with suggestions for `typed`.
pub(super) fn with_similar(failure: Failure, typed: &str, known: &[Value], key: &str, all: &str) -> Failure {
    let names = known.iter().filter_map(|item| item[key].as_str());
    failure.with_hint(suggestion::among(typed, names).unwrap_or_else(|| format!("`{all}` lists all")))
}

/// The first line of a description.
pub(super) fn first_line(item: &Value) -> String {
    let text = ["description", "title"].iter().find_map(|key| item[*key].as_str()).unwrap_or_default();
    printable(text.trim().lines().next().unwrap_or_default())
}
