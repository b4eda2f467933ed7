//! `stdio`: serves the tools of all servers as one MCP server over stdio.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aggregator::{Aggregator, Fleet, Options, Signals, stdio};
use clap::Args;

use crate::cli::shared::{ConfigArgument, LogArguments, NameArguments};
use crate::failure::Failure;
use crate::sign_in::reconnect::Reconnection;
use crate::{config, config_profile, connectors, session, sign_in};

/// Serve all servers as one MCP server over stdio, for one client.
///
/// MCP clients start this command. It relays tools, prompts, resources and requests of servers, and supports clients
/// of every protocol revision. It exits when the client closes stdin, or on a signal.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
In the config of your MCP client:
  {\"mcpServers\": {\"all\": {\"command\": \"mcp-aggregator\", \"args\": [\"stdio\", \"--config\", \"/path/to/mcp.json\"]}}}

Examples:
  mcp-aggregator stdio --config mcp.json
  mcp-aggregator stdio --config mcp.json --names safe --log-file aggregator.log
  mcp-aggregator client add claude-desktop --stdio --config mcp.json  writes this config"
)]
pub(crate) struct StdioArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// Serve only what this profile of the config file shows
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// The data directory, which contains the sign-ins to servers [default: mcp-aggregator in the data directory of
    /// the user]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The name reported to the client
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

pub(crate) fn run(arguments: StdioArguments) -> Result<(), Failure> {
    let StdioArguments { config, names, profile, data_dir, name, log } = arguments;
    log.init()?;
    let options = session::options(&name, names.separator.separator, names.names, session::OF_ONE)?;
    let options = Options { awaits_client: true, ..options };
    let mut loaded = config::load_each(&config.path)?;
    let profile = profile.map(|profile| config_profile::apply(&profile, &mut loaded, &config.path)).transpose()?;
    session::block_on(async {
        let listening = Signals::new();
        let signals = listening.map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
        let oauth = sign_in::of_config(Path::new(&connectors::config_file(&loaded.chain)), data_dir.as_deref());
        let connector = connectors::of_config(&loaded.chain, &oauth);
        let reconnection = Reconnection::of(&loaded.config, &oauth);
        let fleet = Fleet::start(loaded.config, options.clone(), &loaded.chain, Some(connector));
        let reconnecting = tokio::spawn(reconnection.run(Arc::clone(&fleet)));
        let aggregator = Aggregator::new(Arc::clone(&fleet), options);
        if let Some(profile) = &profile {
            fleet.set_profile(profile.name(), Some(Arc::clone(profile))).await;
            aggregator.set_local_profile(profile.name());
            tokio::spawn(config_profile::report_unmatched(Arc::clone(&fleet), Arc::clone(profile)));
        }
        let served = stdio::serve(aggregator, signals).await;
        reconnecting.abort();
        oauth.drain().await;
        served.map_err(|error| Failure::new(format!("could not serve: {error}")))
    })
}
