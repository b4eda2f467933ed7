//! Connects the servers of a config again when somebody signs in to them, in whichever process.

use std::collections::HashMap;
use std::sync::Arc;

use aggregator::{Fleet, ServerState};
use catalog::{Config, SIGN_IN_REQUIRED, ServerSpec};
use oauth::{Change, ChangeKind, OAuth};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// The servers of a config that may wait for a sign-in.
pub(crate) struct Reconnection {
    changes: Receiver<Change>,
    /// Their place in the config, which is their slot in the fleet, by the key of their sign-in.
    servers: HashMap<String, (usize, ServerSpec)>,
}

impl Reconnection {
    /// Those of this config. Sign-ins count from now on.
    pub(crate) fn of(config: &Config, oauth: &Arc<OAuth>) -> Self {
        let servers = config.servers.iter().enumerate();
        let servers = servers.filter_map(|(index, spec)| Some((spec.grant_key.clone()?, (index, spec.clone()))));
        Self { changes: oauth.subscribe(), servers: servers.collect() }
    }

    /// Connects them, until the task is aborted.
    pub(crate) async fn run(mut self, fleet: Arc<Fleet>) {
        loop {
            match self.changes.recv().await {
                Ok(Change { key, kind: ChangeKind::SignedIn }) => {
                    if let Some((index, spec)) = self.servers.get(&key) {
                        connect(&fleet, *index, spec).await;
                    }
                }
                Ok(_) => {}
                // Who signed in meanwhile is found out by connecting.
                Err(RecvError::Lagged(_)) => {
                    for (index, spec) in self.servers.values() {
                        connect(&fleet, *index, spec).await;
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// Connects a server, if it waits for a sign-in.
async fn connect(fleet: &Arc<Fleet>, index: usize, spec: &ServerSpec) {
    // It may be connecting, and not know yet that it needs a sign-in.
    fleet.settled(index).await;
    let waits = matches!(
        &fleet.view().snapshot.servers()[index].state,
        ServerState::Unavailable(unavailable) if unavailable.status == SIGN_IN_REQUIRED
    );
    if waits {
        fleet.restart(index, spec.clone()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aggregator::NamePolicy;
    use aggregator::cycle::Chain;
    use catalog::{Remote, Secrets, ServerName, Transport};
    use tokio::sync::{broadcast, mpsc};
    use upstream::{Cause, Connector, Ending, Phase};

    use super::*;
    use crate::session;

    /// Refuses every connection until somebody signs in, and reports each attempt.
    fn connector(attempts: mpsc::UnboundedSender<usize>) -> Connector {
        let number = Arc::new(AtomicUsize::default());
        Arc::new(move |upstream, observer, _| {
            attempts.send(number.fetch_add(1, Ordering::SeqCst)).ok();
            Box::pin(async move {
                let (why, command) = ("nobody has".to_owned(), "mcp-aggregator login notes".to_owned());
                let ending = Ending::Failed { phase: Phase::Startup, cause: Cause::SignInRequired { why, command } };
                upstream.ended(&observer, &Arc::new(ending)).await;
            })
        })
    }

    #[tokio::test]
    async fn a_sign_in_connects_its_server_again_and_no_other() {
        let spec = ServerSpec {
            name: ServerName::new("notes").unwrap(),
            transport: Transport::Remote(Remote::at("http://127.0.0.1:1/mcp", Vec::new())),
            lifecycle: None,
            timeout: None,
            start_timeout: None,
            sharing: catalog::Sharing::default(),
            secrets: Secrets::default(),
            grant_key: Some("key".to_owned()),
        };
        let options = session::options(
            "test",
            crate::cli::shared::usual_separator(),
            NamePolicy::Canonical,
            session::NO_CAPABILITIES,
        );
        let (tried, mut attempts) = mpsc::unbounded_channel();
        let config = Config { servers: vec![spec.clone()], ..Config::default() };
        let chain = Chain::enter(None, std::path::Path::new("mcp.json")).unwrap();
        let fleet = Fleet::start(config, options.unwrap(), &chain, Some(connector(tried)));
        assert_eq!(attempts.recv().await, Some(0));
        let (sender, changes) = broadcast::channel(4);
        let servers = HashMap::from([("key".to_owned(), (0, spec))]);
        let reconnecting = tokio::spawn(Reconnection { changes, servers }.run(Arc::clone(&fleet)));
        for (key, kind) in
            [("other", ChangeKind::SignedIn), ("key", ChangeKind::SignedOut), ("key", ChangeKind::SignedIn)]
        {
            sender.send(Change { key: key.to_owned(), kind }).unwrap();
        }
        assert_eq!(attempts.recv().await, Some(1));
        fleet.settled(0).await;
        assert!(attempts.try_recv().is_err(), "only the last of the changes was a sign-in to it");
        reconnecting.abort();
        fleet.stop(upstream::Stop::Now);
        fleet.ended().await;
    }
}
