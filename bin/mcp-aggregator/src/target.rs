//! Selects what executes a command: a running service, or, if none runs, the registry itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use catalog::Role;
use clap::Args;
use registry::{Location, Store};
use tokio::time::sleep;

use crate::admission::TOKEN_VARIABLE;
use crate::client::{Client, RequestError, Token};
use crate::failure::Failure;
use crate::output::print_message;
use crate::service_file::{self, LocalSecret, LocalTokenUse, Running};
use crate::storage::StorageArguments;
use crate::{instance_lock, local_token, progress};

/// Help of `--url`, with commands that can use the registry, and with those that need a service.
const SERVICE_OR_REGISTRY_URL: &str =
    "The URL of the service [default: the service on this machine, or the registry if none runs]";
pub(crate) const SERVICE_URL: &str = "The URL of the service [default: the service on this machine]";

/// The hint about a service that runs but does not answer.
const UNRESPONSIVE_HINT: &str =
    "it may be starting or stopping: try again in a moment; otherwise stop it, or pass its URL with --url";

/// How long to wait for the address of a service that has the registry, and how often to check.
const SERVICE_START_WAIT: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The service or the registry, as options define it.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArguments {
    #[arg(long, value_name = "SERVICE", help = SERVICE_OR_REGISTRY_URL, conflicts_with_all = ["data_dir", "database"])]
    pub(crate) url: Option<String>,
    /// The file that contains the token for the service [default: the variable MCP_AGGREGATOR_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
}

/// What executes a command.
pub(crate) enum Target {
    Service(Client),
    Registry(Store),
}

/// What is known about a service on this machine.
enum ServiceState {
    Service(Client),
    /// A process has the registry, but does not answer, perhaps not yet or not any more.
    Unresponsive(Failure),
    NotRunning,
}

impl TargetArguments {
    /// The running service, or the registry.
    pub(crate) async fn find(&self) -> Result<Target, Failure> {
        loop {
            if let Some(service) = self.running().await? {
                return Ok(Target::Service(service));
            }
            if instance_lock::share_lock(&self.storage.location()?) {
                return Ok(Target::Registry(self.storage.open().await?));
            }
            // A service has started in the meantime.
        }
    }

    /// The same for a command that only reads: it creates and writes nothing.
    pub(crate) async fn find_existing(&self) -> Result<Option<Target>, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(Some(Target::Service(service)));
        }
        Ok(self.storage.open_existing().await?.map(Target::Registry))
    }

    /// The same for a command that works without a registry, unless the user named one that does not exist.
    pub(crate) async fn find_existing_or_none(&self) -> Result<Option<Target>, Failure> {
        let is_named = self.storage.data_dir.is_some() || self.storage.database.is_some();
        if is_named { self.require_existing().await.map(Some) } else { self.find_existing().await }
    }

    /// The same for a command that needs an existing registry.
    pub(crate) async fn require_existing(&self) -> Result<Target, Failure> {
        match self.find_existing().await? {
            Some(target) => Ok(target),
            None => Err(no_registry(&self.storage.location()?)),
        }
    }

    /// For a command that changes existing data: it creates no registry.
    pub(crate) async fn find_for_change(&self) -> Result<Target, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(Target::Service(service));
        }
        if !self.storage.exists().await? {
            return Err(no_registry(&self.storage.location()?));
        }
        self.find().await
    }

    /// The running service, for commands that need one.
    pub(crate) async fn service(&self) -> Result<Client, Failure> {
        if let Some(service) = self.running().await? {
            return Ok(service);
        }
        let serve = self.storage.as_typed("mcp-aggregator serve");
        Err(Failure::new("no service is running, and this command needs one")
            .of_kind("NO_SERVICE")
            .with_hint(format!("start one with `{serve}`, or pass the URL of another one with --url")))
    }

    /// The named service, or the one that runs here. A named service must be reachable; one from the service file may
    /// have ended.
    pub(crate) async fn running(&self) -> Result<Option<Client>, Failure> {
        if let Some(url) = &self.url {
            let token = match self.token()? {
                Some(token) => Some(Token::Given(token)),
                None => self.local_token_of(url)?.map(Token::Local),
            };
            return Ok(Some(Client::new(url, token)));
        }
        let began = Instant::now();
        loop {
            let unheard = match self.service_state().await? {
                ServiceState::Service(service) => return Ok(Some(service)),
                ServiceState::Unresponsive(failure) => failure,
                ServiceState::NotRunning => match self.lock_holder_error() {
                    Some(failure) => failure,
                    None => return Ok(None),
                },
            };
            if began.elapsed() > SERVICE_START_WAIT {
                return Err(unheard);
            }
            progress::with_spinner("waiting for the service that has the registry", sleep(POLL_INTERVAL)).await;
        }
    }

    /// The service in the service file, if it has the selected registry.
    async fn service_state(&self) -> Result<ServiceState, Failure> {
        let Ok(folder) = self.storage.folder() else { return Ok(ServiceState::NotRunning) };
        if let Some(file) = service_file::of_another_user(&folder) {
            return Err(Failure::new(format!("{} belongs to another user, and cannot be read", file.display()))
                .with_hint("use --url to reach the service, with a token if it needs one"));
        }
        match service_file::read(&folder) {
            Some(running) if self.is_meant(&running)? => self.answering(&running, &folder).await,
            _ => Ok(ServiceState::NotRunning),
        }
    }

    /// Whether that service has the selected registry.
    fn is_meant(&self, running: &Running) -> Result<bool, Failure> {
        if self.storage.database.is_none() {
            return Ok(true);
        }
        let named = self.storage.location()?;
        Ok(match (&named, Location::parse(&running.database)) {
            // Paths are compared in normalised form.
            (Location::File(one), Ok(Location::File(other))) => whole(one) == whole(&other),
            _ => named.to_string() == running.database,
        })
    }

    /// The service in the file in `folder`, unless it ended. A service that has its registry but does not answer has
    /// not ended: it would miss changes that are made without it.
    async fn answering(&self, running: &Running, folder: &Path) -> Result<ServiceState, Failure> {
        let lock_holder = running.lock_holder(folder);
        let token = match self.token()? {
            Some(token) => Some(Token::Given(token)),
            None => read_local_token(running, folder)?.map(Token::Local),
        };
        let client = Client::new(&running.url, token);
        let asked = if lock_holder.is_some() || running.is_alive() { Some(client.get("/state").await) } else { None };
        match (asked, lock_holder) {
            (Some(Err(RequestError::Absent(failure))), Some(lock_holder)) => Ok(ServiceState::Unresponsive(Failure {
                message: format!("{}; {lock_holder} still uses the registry {}", failure.message, running.database),
                ..failure.with_hint(UNRESPONSIVE_HINT)
            })),
            (None | Some(Err(RequestError::Absent(_))), _) => {
                print_message(format_args!(
                    "warning: {} names a service at {}, which no longer runs",
                    folder.join("service.json").display(),
                    running.url
                ));
                Ok(ServiceState::NotRunning)
            }
            (Some(Err(RequestError::Lost(failure))), _) => Err(failure),
            (Some(Ok(_) | Err(RequestError::Other(_))), _) => Ok(ServiceState::Service(client)),
        }
    }

    /// A registry that another process has is not opened: neither would see the changes of the other.
    fn lock_holder_error(&self) -> Option<Failure> {
        let Ok(location @ Location::File(_)) = self.storage.location() else { return None };
        instance_lock::lock_holder(&location, None).map(|lock_holder| {
            Failure::new(format!("{lock_holder} uses the registry at {location}, and its URL is unknown"))
                .with_hint(UNRESPONSIVE_HINT)
        })
    }

    /// The local token of the service that wrote `url` to the data directory. It is sent to no other service.
    fn local_token_of(&self, url: &str) -> Result<Option<LocalSecret>, Failure> {
        let Ok(folder) = self.storage.folder() else { return Ok(None) };
        let is_there = |running: &Running| Client::new(&running.url, None).url() == Client::new(url, None).url();
        match service_file::read(&folder).filter(is_there) {
            Some(running) => read_local_token(&running, &folder),
            None => Ok(None),
        }
    }

    /// What clients call the service at `url`: its public URL, if the data directory says that this is it.
    pub(crate) fn url_for_clients(&self, url: &str) -> String {
        let running = self.storage.folder().ok().and_then(|folder| service_file::read(&folder));
        let is_there = |running: &Running| Client::new(&running.url, None).url() == url;
        running.filter(is_there).map_or_else(|| url.to_owned(), |running| running.public_url)
    }

    /// The token that a client needs for the service at `url`, if it needs one.
    pub(crate) fn token_for_clients(&self, url: &str) -> Result<Option<(String, TokenFrom)>, Failure> {
        if let Some(token) = self.token()? {
            return Ok(Some((token, TokenFrom::User)));
        }
        let running = self.storage.folder().ok().and_then(|folder| service_file::read(&folder));
        let needed = running.and_then(|running| running.local_token).filter(|token| token.is_needed);
        let Some(LocalTokenUse { file, .. }) = needed else { return Ok(None) };
        let token = self.local_token_of(url)?;
        Ok(token.and_then(|token| token.to_send().map(|token| (token.to_owned(), TokenFrom::File(file)))))
    }

    /// The credential for the service, if it needs one.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        match &self.token_file {
            Some(file) => token_in(file).and_then(|token| sendable(token, &file.display().to_string())),
            None => {
                let token = env::var_os(TOKEN_VARIABLE).unwrap_or_default();
                let unfit = |_| Failure::usage(format!("{TOKEN_VARIABLE} cannot be sent: it is not valid UTF-8"));
                sendable(token.into_string().map_err(unfit)?.trim().to_owned(), TOKEN_VARIABLE)
            }
        }
    }
}

/// Where a token comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenFrom {
    /// The user.
    User,
    /// The service.
    File(PathBuf),
}

/// The local token of a service, which needs no input from the user.
fn read_local_token(running: &Running, folder: &Path) -> Result<Option<LocalSecret>, Failure> {
    let Some(token) = &running.local_token else { return Ok(None) };
    match local_token::read(&token.file) {
        // The service recognises the user of our connection.
        Err(_) if !token.is_needed => Ok(None),
        read => read.map(|secret| Some(LocalSecret::new(secret, running, folder))),
    }
}

/// A token that fits into a header; `None` if it is empty, like a cleared variable.
fn sendable(token: String, from: &str) -> Result<Option<String>, Failure> {
    let Some(letter) = token.chars().find(|letter| letter.is_control()) else {
        return Ok(Some(token).filter(|token| !token.is_empty()));
    };
    let what = if "\r\n".contains(letter) { "a line break" } else { "a control character" };
    Err(Failure::usage(format!("{from} cannot be sent: it contains {what}"))
        .with_hint("it must be one token; from a file with several, --token-file FILE uses the first"))
}

/// The normalised path of a file.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

fn no_registry(location: &Location) -> Failure {
    let failure = Failure::new(format!("there is no registry at {location}")).of_kind("REGISTRY_NOT_FOUND");
    failure.with_hint("`mcp-aggregator serve` or `mcp-aggregator add NAME -- COMMAND` creates one")
}

/// The first token of a file: alone on its line, or as in the file of `serve`, `name:token[:role[:profile]]`.
fn token_in(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("could not read the token file {shown}: {error}")))?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let line = line.ok_or_else(|| Failure::new(format!("there is no token in {shown}")))?;
    let rest = line.split_once(':').map_or(line, |(_, rest)| rest.trim());
    let is_grant = |text: &str| text.split(':').next().is_some_and(|role| Role::named(role.trim()).is_some());
    Ok(match rest.split_once(':') {
        Some((token, grant)) if is_grant(grant) => token.trim().to_owned(),
        _ => rest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn written<'w>(url: &'w str, database: &'w str) -> service_file::Written<'w> {
        service_file::Written { url, public_url: url, database }
    }

    #[test]
    fn the_token_of_a_file_comes_without_name_and_role() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (line, token) in [("s1", "s1"), ("ann: s1", "s1"), ("ann:s1:user", "s1"), ("ann:s1 : admin:dev", "s1")] {
            fs::write(file.path(), format!("# tokens\n{line}\n")).unwrap();
            assert_eq!(token_in(file.path()).ok().as_deref(), Some(token), "{line}");
        }
    }

    #[test]
    fn an_unusable_token_is_reported_and_an_empty_one_counts_as_none() {
        let sent = |token: &str| sendable(token.to_owned(), "HERE").map_err(|failure| failure.message);
        assert_eq!(sent("token"), Ok(Some("token".to_owned())));
        assert_eq!(sent(""), Ok(None));
        assert_eq!(sent("one\ntwo"), Err("HERE cannot be sent: it contains a line break".to_owned()));
        assert_eq!(sent("one\0"), Err("HERE cannot be sent: it contains a control character".to_owned()));
    }

    #[tokio::test]
    async fn a_registry_that_another_process_has_locked_is_not_opened() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let storage =
            StorageArguments { data_dir: Some(folder.path().to_owned()), database: None, database_schema: None };
        let target = TargetArguments { url: None, token_file: None, storage };
        let location = Location::in_folder(folder.path());
        let instance_lock = instance_lock::InstanceLock::take(&location, Some(folder.path())).expect("nobody has it");
        // It has not written its address yet, or nothing listens there.
        assert!(target.find().await.is_err());
        let service_state = service_file::ServiceFile::write(
            folder.path(),
            &written("http://127.0.0.1:1", &location.to_string()),
            None,
        );
        assert!(target.find().await.is_err_and(|failure| failure.message.contains("still uses the registry")));
        assert!(!folder.path().join("registry.db").exists(), "nothing was made");
        let spelled =
            folder.path().join("..").join(folder.path().file_name().expect("it has a name")).join("registry.db");
        let storage = StorageArguments {
            data_dir: Some(folder.path().join("other")),
            database: Some(Location::File(spelled)),
            database_schema: None,
        };
        let other = TargetArguments { url: None, token_file: None, storage };
        assert!(other.find().await.is_err(), "whatever it is called");
        drop((instance_lock, service_state));
        assert!(target.find().await.is_ok());
    }

    /// A listener at a port, and the requests it receives.
    fn listener() -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (heard, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("somebody connects");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a request comes whole");
                    head.extend(byte);
                }
                if heard.send(String::from_utf8(head).expect("a head is text")).is_err() {
                    return;
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(answer).expect("the client reads");
            }
        });
        (url, hears)
    }

    #[tokio::test]
    async fn only_the_process_that_has_the_registry_is_sent_the_local_token() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let storage =
            || StorageArguments { data_dir: Some(folder.path().to_owned()), database: None, database_schema: None };
        let target = TargetArguments { url: None, token_file: None, storage: storage() };
        let location = Location::in_folder(folder.path());
        let token = local_token::LocalToken::find_or_create(folder.path()).unwrap_or_else(|error| panic!("{error}"));
        let (url, hears) = listener();
        let named = TargetArguments { url: Some(url.clone()), token_file: None, storage: storage() };
        let is_sent = || hears.recv().expect("it was asked").contains(&*token.secret);
        // As after a crash: the process id is in use again, and another program listens at the port.
        let token_use = LocalTokenUse { file: token.file.clone(), is_needed: true };
        let database = location.to_string();
        let _word = service_file::ServiceFile::write(folder.path(), &written(&url, &database), Some(&token_use));
        let asked = target.running().await.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(asked.is_some() && !is_sent(), "nobody has the registry");
        let by_url = named.running().await.unwrap_or_else(|failure| panic!("{failure}")).expect("it is named");
        assert!(by_url.get("/state").await.is_ok() && !is_sent());
        assert_eq!(target.token_for_clients(&url).unwrap_or_else(|failure| panic!("{failure}")), None);

        let instance_lock = instance_lock::InstanceLock::take(&location, Some(folder.path())).expect("nobody has it");
        let client = target.running().await.unwrap_or_else(|failure| panic!("{failure}")).expect("it answers");
        assert!(is_sent(), "the service itself");
        assert!(by_url.get("/state").await.is_ok() && is_sent());
        assert!(target.token_for_clients(&url).is_ok_and(|token| token.is_some()));
        // Another service has the registry now, and has not written its address yet.
        fs::write(folder.path().join("registry.db.lock"), "1").expect("the lock can be written");
        assert!(client.get("/state").await.is_ok() && !is_sent());
        drop(instance_lock);
        assert!(client.get("/state").await.is_ok() && !is_sent(), "also by a command that goes on");
    }

    #[tokio::test]
    async fn read_only_commands_make_no_registry() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let typo = folder.path().join("typo");
        let storage = StorageArguments { data_dir: Some(typo.clone()), database: None, database_schema: None };
        let target = TargetArguments { url: None, token_file: None, storage };
        assert!(target.find_existing().await.is_ok_and(|there| there.is_none()));
        let Err(failure) = target.find_existing_or_none().await else { panic!("a place that was named must be there") };
        assert_eq!(failure.message, format!("there is no registry at {}", typo.join("registry.db").display()));
        assert!(target.find_for_change().await.is_err());
        assert!(!typo.exists(), "nothing was made");
    }
}
