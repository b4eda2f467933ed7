//! `enable` and `disable`: whether a server may be connected.

use serde_json::Value;

use crate::arguments::servers::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::shown::standing;
use crate::target::Target;
use crate::{local, session};

pub(crate) fn enable(one: &OneServer) -> Result<(), Failure> {
    run(one, true)
}

pub(crate) fn disable(one: &OneServer) -> Result<(), Failure> {
    run(one, false)
}

fn run(one: &OneServer, on: bool) -> Result<(), Failure> {
    let server = session::block_on(async {
        match one.target.existing().await? {
            Target::Service(service) => {
                let verb = if on { "enable" } else { "disable" };
                Ok(service.post(&format!("/servers/{}/{verb}", encoded(&one.server)), None).await?)
            }
            Target::Registry(store) => local::switch(&store, &one.server, on).await,
        }
    })?;
    tell(one, &server, if on { "enabled" } else { "disabled" })
}

/// What became of a server.
pub(super) fn tell(one: &OneServer, server: &Value, done: &str) -> Result<(), Failure> {
    if one.json {
        return output::print_json(server);
    }
    let standing = standing(server);
    let more = standing.strip_prefix(done).map_or_else(|| format!(": {standing}"), str::to_owned);
    say(format_args!("{done} `{}`{more}", one.server));
    Ok(())
}
