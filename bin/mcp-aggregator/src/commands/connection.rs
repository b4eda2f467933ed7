//! `connect` and `disconnect`: what only a running service can do. Clients are connected by `connect_client`.

use super::switch::tell;
use super::{connect_client, list, preparing};
use crate::arguments::servers::{ConnectArguments, OneServer};
use crate::client::encoded;
use crate::failure::Failure;
use crate::import::clients::Client;
use crate::{progress, session};

/// The programs that can be connected to us. Windsurf is none: where it keeps what is known to change.
pub(super) const CLIENTS: [Client; 4] = [Client::ClaudeDesktop, Client::ClaudeCode, Client::Cursor, Client::VsCode];

pub(crate) fn connect(arguments: &ConnectArguments) -> Result<(), Failure> {
    let one = &arguments.one;
    let client = CLIENTS.into_iter().find(|client| client.word() == one.server);
    match client {
        Some(client) if arguments.is_about_a_client() || !is_registered(one)? => connect_client::run(arguments, client),
        Some(_) | None if arguments.is_about_a_client() => {
            let known = CLIENTS.map(Client::word).join(", ");
            Err(Failure::usage(format!("`{}` is no client that we know: {known}", one.server)))
        }
        Some(_) | None => run(one, "connect", "connected"),
    }
}

/// Whether a server has that name. Where there is no registry, none is made for the question.
fn is_registered(one: &OneServer) -> Result<bool, Failure> {
    session::block_on(async {
        let Some(target) = one.target.there().await? else { return Ok(false) };
        let servers = list::servers(&target).await?;
        Ok(servers.iter().any(|server| server["name"] == one.server.as_str()))
    })
}

pub(crate) fn disconnect(one: &OneServer, force: bool) -> Result<(), Failure> {
    run(one, &format!("disconnect?force={force}"), "disconnected")
}

fn run(one: &OneServer, verb: &str, done: &str) -> Result<(), Failure> {
    let server = session::block_on(async {
        let service = one.target.service().await?;
        let path = format!("/servers/{}", encoded(&one.server));
        let order_path = format!("{path}/{verb}");
        let order = service.post_at_length(&order_path);
        let watching = preparing::tell(&service, &path);
        let decided = async {
            tokio::select! {
                answer = order => Ok(answer?),
                silent = watching => Err(silent),
            }
        };
        let verb = if done == "connected" { "connecting" } else { "disconnecting" };
        progress::shown(&format!("{verb} `{}`", one.server), Box::pin(decided)).await
    })?;
    tell(one, &server, done)
}
