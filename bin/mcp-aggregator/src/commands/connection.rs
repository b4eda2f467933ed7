//! `connect` and `disconnect`: what only a running service can do.

use super::switch::tell;
use crate::arguments::servers::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::session;

pub(crate) fn connect(one: &OneServer) -> Result<(), Failure> {
    run(one, "connect", "connected")
}

pub(crate) fn disconnect(one: &OneServer, force: bool) -> Result<(), Failure> {
    run(one, &format!("disconnect?force={force}"), "disconnected")
}

fn run(one: &OneServer, verb: &str, done: &str) -> Result<(), Failure> {
    let server = session::block_on(async {
        let service = one.target.service().await?;
        Ok(service.post(&format!("/servers/{}/{verb}", encoded(&one.server)), None).await?)
    })?;
    tell(one, &server, done)
}
