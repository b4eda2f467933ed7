//! `connect`, `disconnect` and `restart`: what only a running service can do.

use super::client::{CLIENTS, Request};
use super::enable::print_outcome;
use super::{client_setup, list, startup_progress};
use crate::arguments::servers::{ConnectArguments, OneServer};
use crate::client::encoded;
use crate::failure::Failure;
use crate::import::clients::Client;
use crate::output::print_message;
use crate::{progress, session};

pub(crate) fn connect(arguments: &ConnectArguments) -> Result<(), Failure> {
    let one = &arguments.one;
    let client = CLIENTS.into_iter().find(|client| client.word() == one.server);
    match client {
        Some(client) if arguments.options.are_given() || !is_registered(one)? => {
            client_setup::run(&Request::of_connect(arguments, client))?;
            let verb = if arguments.options.undo { "remove" } else { "add" };
            let word = client.word();
            print_message(format_args!(
                "hint: `mcp-aggregator client {verb} {word}` is the command for that; `connect` is for servers"
            ));
            Ok(())
        }
        Some(_) | None if arguments.options.are_given() => {
            let known = CLIENTS.map(Client::word).join(", ");
            Err(Failure::usage(format!("`{}` is no client that we know: {known}", one.server)))
        }
        Some(_) | None => run(one, "connect", "connecting", "connected"),
    }
}

/// Whether a server has that name. Where there is no registry, none is made for the question.
fn is_registered(one: &OneServer) -> Result<bool, Failure> {
    session::block_on(async {
        let Some(target) = one.target.find_existing().await? else { return Ok(false) };
        let servers = list::servers(&target).await?;
        Ok(servers.iter().any(|server| server["name"] == one.server.as_str()))
    })
}

pub(crate) fn disconnect(one: &OneServer, force: bool) -> Result<(), Failure> {
    run(one, &format!("disconnect?force={force}"), "disconnecting", "disconnected")
}

pub(crate) fn restart(one: &OneServer, force: bool) -> Result<(), Failure> {
    run(one, &format!("restart?force={force}"), "restarting", "restarted")
}

fn run(one: &OneServer, verb: &str, doing: &str, done: &str) -> Result<(), Failure> {
    let server = session::block_on(async {
        let service = one.target.service().await?;
        let path = format!("/servers/{}", encoded(&one.server));
        let order_path = format!("{path}/{verb}");
        let order = service.post_long(&order_path);
        let watching = startup_progress::print_progress(&service, &path);
        let decided = async {
            tokio::select! {
                answer = order => Ok(answer?),
                silent = watching => Err(silent),
            }
        };
        progress::with_spinner(&format!("{doing} `{}`", one.server), Box::pin(decided)).await
    })?;
    print_outcome(one, &server, done)
}
