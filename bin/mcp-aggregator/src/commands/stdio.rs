//! `stdio`: the tools of all servers, served as one MCP server.

use aggregator::{Aggregator, Fleet, Options, logging, stdio};

use crate::arguments::serve::StdioArguments;
use crate::failure::Failure;
use crate::{config, connectors, session};

pub(crate) fn run(arguments: StdioArguments) -> Result<(), Failure> {
    let StdioArguments { config, names, name, debug, log_file } = arguments;
    logging::init(debug, log_file.as_deref()).map_err(|error| {
        let path = log_file.as_deref().unwrap_or("-".as_ref()).display();
        Failure::new(format!("could not open log file {path}: {error}"))
    })?;
    let options = session::options(&name, names.separator.separator, names.names, session::OF_ONE)?;
    let options = Options { awaits_client: true, ..options };
    let loaded = config::load_each(&config.path)?;
    session::block_on(async {
        let listening = stdio::Signals::new();
        let signals = listening.map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
        let life = connectors::of_config(&loaded.chain);
        let fleet = Fleet::start(loaded.config, options.clone(), &loaded.chain, Some(life));
        let served = stdio::serve(Aggregator::new(fleet, options), signals).await;
        served.map_err(|error| Failure::new(format!("could not serve: {error}")))
    })
}
