//! `remove`: a server goes, with all that is known of it.

use serde_json::json;

use crate::arguments::servers::RemoveArguments;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::target::Target;
use crate::{local_registry, session};

pub(crate) fn run(arguments: &RemoveArguments) -> Result<(), Failure> {
    session::block_on(async {
        match arguments.target.find_for_change().await? {
            Target::Service(service) => {
                let path = format!("/servers/{}?force={}", encoded(&arguments.server), arguments.force);
                service.delete(&path).await?;
            }
            Target::Registry(store) => local_registry::remove(&store, &arguments.server).await?,
        }
        if arguments.json {
            return output::print_json(&json!({"removed": arguments.server}));
        }
        print_message(format_args!("removed `{}`", arguments.server));
        Ok(())
    })
}
