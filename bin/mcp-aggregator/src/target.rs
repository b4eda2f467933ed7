//! Where a command is carried out: by a running service, or, if none runs, on the registry itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use registry::Store;

use crate::admission::TOKEN_VARIABLE;
use crate::client::{Client, Denial};
use crate::failure::Failure;
use crate::output::say;
use crate::service_file;
use crate::storage::StorageArguments;

/// Which service, or which registry, as a user says it.
#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// The service to talk to [default: the one that runs on this machine, else the registry itself]
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "database"])]
    pub(crate) url: Option<String>,
    /// The file with the token for it [default: the variable MCP_AGGREGATOR_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
}

/// Who carries out a command.
pub(crate) enum Target {
    Service(Client),
    Registry(Store),
}

impl TargetArguments {
    /// The running service, or the registry.
    pub(crate) async fn find(&self) -> Result<Target, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(Target::Service(service));
        }
        Ok(Target::Registry(self.storage.open().await?))
    }

    /// The same for who only looks, or looks for something: a registry that was named must be there, and none is made.
    pub(crate) async fn find_existing(&self) -> Result<Target, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(Target::Service(service));
        }
        if self.storage.data_dir.is_some() && !self.storage.is_there() {
            let place = self.storage.location()?;
            return Err(Failure::new(format!("there is no registry at {place}"))
                .with_hint("look how the folder is written; `mcp-aggregator serve` makes a registry"));
        }
        Ok(Target::Registry(self.storage.open().await?))
    }

    /// The running service, for what only it can do.
    pub(crate) async fn service(&self) -> Result<Client, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(service);
        }
        let serve = self.storage.as_typed("mcp-aggregator serve");
        Err(Failure::new("no service runs here, and only a running one can do that")
            .with_hint(format!("start one with `{serve}`, or name one that runs elsewhere with --url")))
    }

    /// The service that is named, or the one that runs here. One that is named must be there; one that only a file
    /// tells of may be gone.
    pub(crate) async fn running(&self) -> Result<Option<Client>, Failure> {
        if let Some(url) = &self.url {
            return Ok(Some(Client::new(url, self.token()?)));
        }
        let Ok(folder) = self.storage.folder() else { return Ok(None) };
        let Some(running) = service_file::read(&folder) else { return Ok(None) };
        if self.storage.database.is_some() && self.storage.location()?.to_string() != running.database {
            return Ok(None);
        }
        let client = Client::new(&running.url, self.token()?);
        let is_there = running.is_alive() && !matches!(client.get("/state").await, Err(Denial::Absent(_)));
        if !is_there {
            say(format_args!(
                "warning: {} says that a service runs at {}, but it does not any more",
                folder.join("service.json").display(),
                running.url
            ));
        }
        Ok(is_there.then_some(client))
    }

    /// What opens its door, if anything is needed.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        match &self.token_file {
            Some(file) => token_in(file).map(Some),
            None => Ok(env::var(TOKEN_VARIABLE).ok().map(|token| token.trim().to_owned())),
        }
    }
}

/// The first token of a file: alone on its line, or as `name:token`, so that the file of `serve` will do.
fn token_in(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("could not read the token file {shown}: {error}")))?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let line = line.ok_or_else(|| Failure::new(format!("there is no token in {shown}")))?;
    Ok(line.split_once(':').map_or(line, |(_, token)| token.trim()).to_owned())
}
