//! Reports where the service listens: on stdout, and in the data directory for commands.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use registry::Location;
use serde_json::json;

use crate::access::Access;
use crate::cli::shared::ListenAddress;
use crate::command_hint;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::service_file::{self, LocalTokenUse, ServiceFile, Written};
use crate::storage::StorageArguments;

/// Where the service is reached.
pub(crate) struct Addresses {
    /// What it listens on.
    pub(crate) listen: ListenAddress,
    /// Whether that is encrypted.
    pub(crate) is_tls: bool,
    /// Where commands on this machine connect, without TLS: the certificate is for a name that need not lead here.
    pub(crate) local: ListenAddress,
    /// What users call it, if that is another address.
    pub(crate) public_url: Option<String>,
}

impl Addresses {
    /// The address that it listens on, if that is no Unix socket.
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        match self.listen {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        }
    }

    /// The URL that it listens on.
    pub(crate) fn listening(&self) -> String {
        match &self.listen {
            ListenAddress::Tcp(address) => format!("{}://{address}", self.scheme()),
            socket @ ListenAddress::Unix(_) => socket.to_string(),
        }
    }

    /// The URL for clients on this machine.
    pub(crate) fn own_url(&self) -> String {
        reached_at(self.scheme(), &self.listen)
    }

    /// The URL for users and their clients.
    pub(crate) fn url(&self) -> String {
        self.public_url.clone().unwrap_or_else(|| self.own_url())
    }

    /// The URL for browsers. Those that reach a Unix socket do so through a proxy.
    pub(crate) fn web_url(&self) -> String {
        match (&self.public_url, &self.listen) {
            (None, ListenAddress::Unix(_)) => "http://localhost".to_owned(),
            _ => self.url(),
        }
    }

    /// The URL for browsers on this machine.
    pub(crate) fn local_web_url(&self) -> String {
        match self.listen {
            ListenAddress::Tcp(_) => self.own_url(),
            ListenAddress::Unix(_) => self.web_url(),
        }
    }

    /// The URL for commands on this machine.
    fn url_of_commands(&self) -> String {
        reached_at("http", &self.local)
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// The address for clients on this machine: nobody can connect to "all addresses".
fn reached_at(scheme: &str, address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
            format!("{scheme}://{}", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()))
        }
        ListenAddress::Tcp(address) => format!("{scheme}://{address}"),
        socket @ ListenAddress::Unix(_) => socket.to_string(),
    }
}

/// The address, and who can use the service, as JSON on one line.
pub(crate) fn print_location(addresses: &Addresses, access: &Access) {
    let url = addresses.own_url();
    let mcp = match (&addresses.listen, &addresses.public_url) {
        (ListenAddress::Tcp(_), _) => Some(format!("{url}/mcp")),
        // MCP clients have no addresses for sockets.
        (ListenAddress::Unix(_), public_url) => public_url.as_ref().map(|url| format!("{url}/mcp")),
    };
    let token_file = access.local_token.as_ref().filter(|_| access.needs_token()).map(|token| &token.file);
    let line = json!({
        "url": url,
        "mcp": mcp,
        "public_url": addresses.url(),
        "has_tokens": access.tokens.is_some(),
        "reachable_by": access.reachable_by(),
        "token_file": token_file,
        "pid": std::process::id(),
    });
    // Programs that do not listen to this output use the service, too.
    output::print(format!("{line}\n").as_bytes()).unwrap_or_else(print_message);
}

/// Prints the address, who can use the service, and what to configure in clients.
pub(super) fn announce(addresses: &Addresses, access: &Access) {
    let url = addresses.url();
    let has_other_ways = access.verifier.is_some() || access.client_certificates.is_some();
    let needs_header = access.needs_token() && !has_other_ways;
    let headers = if needs_header { r#", "headers": {"Authorization": "Bearer <token>"}"# } else { "" };
    print_message(format_args!("listening on {}", addresses.listening()));
    print_message(format_args!("reachable by: {}", access.reachable_by()));
    if let (ListenAddress::Unix(path), None) = (&addresses.listen, &addresses.public_url) {
        let socket = command_hint::quoted(&path.display().to_string());
        print_message(format_args!("hint: curl --unix-socket {socket} http://localhost/health"));
        return;
    }
    print_message(format_args!(
        r#"hint: in the config of your MCP client: {{"mcpServers": {{"all": {{"type": "http", "url": "{url}/mcp"{headers}}}}}}}"#
    ));
    print_message(format_args!("hint: for a single server: {url}/mcp/<server>; older clients (HTTP+SSE): {url}/sse"));
    print_message(format_args!("hint: console: {}; REST API: {url}/api/docs", access.console_address(&url)));
}

/// Commands must not use the address of a service that crashed.
pub(super) fn remove_stale_service_file(storage: &StorageArguments) -> Result<(), Failure> {
    let Ok(folder) = storage.folder() else { return Ok(()) };
    if let Err(error) = service_file::remove_stale(&folder, &whole_location(storage)?.to_string()) {
        tracing::warn!(%error, folder = %folder.display(), "could not remove the service file of an earlier service");
    }
    Ok(())
}

/// Writes the address to the data directory. If that fails, commands need `--url`.
pub(super) fn write_service_file(
    storage: &StorageArguments,
    addresses: &Addresses,
    access: &Access,
) -> Option<ServiceFile> {
    let folder = storage.folder().ok()?;
    let (url, public_url) = (addresses.url_of_commands(), addresses.url());
    let location = whole_location(storage).ok()?;
    let database = location.to_string();
    // The folder belongs to the registry in it: a service with another registry leaves the file alone.
    let is_its_own = location == Location::in_folder(&std::path::absolute(&folder).unwrap_or_else(|_| folder.clone()));
    if !is_its_own
        && let Some(other) = service_file::read(&folder)
        && other.database != database
        && other.lock_holder(&folder).is_some()
    {
        tracing::warn!(
            folder = %folder.display(),
            url = other.url,
            "the data directory belongs to another service; commands for this one need --url, or it needs a separate --data-dir"
        );
        return None;
    }
    let token = access
        .local_token
        .as_ref()
        .map(|token| LocalTokenUse { file: token.file.clone(), is_needed: access.needs_token() });
    let written = ServiceFile::write(
        &folder,
        &Written { url: &url, public_url: &public_url, database: &database },
        token.as_ref(),
    );
    let problem = |error: &io::Error| {
        tracing::warn!(%error, folder = %folder.display(), "could not write the service file; commands need --url");
    };
    written.inspect_err(problem).ok()
}

/// The location of the registry, for commands that are started in another folder.
fn whole_location(storage: &StorageArguments) -> Result<Location, Failure> {
    Ok(match storage.location()? {
        Location::File(file) => Location::File(std::path::absolute(&file).unwrap_or(file)),
        elsewhere @ Location::Postgres(_) => elsewhere,
    })
}
