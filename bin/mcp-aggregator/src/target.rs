//! Where a command is carried out: by a running service, or, if none runs, on the registry itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use registry::{Location, Store};

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
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["data_dir", "database"])]
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

    /// The same for who only looks, or changes what is there: where there is no registry, none is made.
    pub(crate) async fn there(&self) -> Result<Option<Target>, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(Some(Target::Service(service)));
        }
        if !self.storage.is_there() {
            return Ok(None);
        }
        Ok(Some(Target::Registry(self.storage.open().await?)))
    }

    /// The same, for who can do with nothing, unless a place was named: that is a slip of the pen then.
    pub(crate) async fn there_or_new(&self) -> Result<Option<Target>, Failure> {
        let is_named = self.storage.data_dir.is_some() || self.storage.database.is_some();
        if is_named { self.existing().await.map(Some) } else { self.there().await }
    }

    /// The same, for who needs something that is there.
    pub(crate) async fn existing(&self) -> Result<Target, Failure> {
        match self.there().await? {
            Some(target) => Ok(target),
            None => Err(no_registry(&self.storage.location()?)),
        }
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

fn no_registry(location: &Location) -> Failure {
    let failure = Failure::new(format!("there is no registry at {location}")).of_kind("REGISTRY_NOT_FOUND");
    failure.with_hint("`mcp-aggregator serve` makes one, and so does `mcp-aggregator add NAME -- COMMAND`")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looking_makes_no_registry() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let typo = folder.path().join("typo");
        let storage = StorageArguments { data_dir: Some(typo.clone()), database: None };
        let target = TargetArguments { url: None, token_file: None, storage };
        assert!(target.there().await.is_ok_and(|there| there.is_none()));
        let Err(failure) = target.there_or_new().await else { panic!("a place that was named must be there") };
        assert_eq!(failure.message, format!("there is no registry at {}", typo.join("registry.db").display()));
        assert!(target.existing().await.is_err());
        assert!(!typo.exists(), "nothing was made");
    }
}
