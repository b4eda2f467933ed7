//! Names of many items are added and removed on a thread that serves no calls.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::Poll;

use catalog::{Hints, Item, ServerName};
use upstream::{Ending, UpstreamObserver, report_ended};

use super::*;
use crate::{MethodSet, NamePolicy};

fn fleet() -> Arc<Fleet> {
    let options = Options {
        name: "test".into(),
        version: "1".into(),
        separator: ".".parse().unwrap(),
        names: NamePolicy::Canonical,
        start_timeout: Duration::from_secs(60),
        withheld: &[],
        is_growing: true,
        method_set: MethodSet::EVERYTHING,
        answer_timeout: Duration::from_secs(60),
        surface: Surface::Full,
        capabilities: "{}",
        server_limits: ServerLimits::from_settings(),
        client_limits: ClientLimits::default(),
        awaits_client: false,
    };
    let folder = tempfile::tempdir().unwrap();
    Fleet::empty(options, &Chain::enter(None, folder.path()).unwrap(), None)
}

fn offer(tools: usize) -> Arc<Offer> {
    let item = |number| Item::read(Kind::Tool, Bytes::from(format!(r#"{{"name":"t{number}"}}"#))).unwrap();
    let mut offer = Offer::new(Lifecycle::Session);
    offer.set_items(Kind::Tool, (0..tools).map(item).collect(), Hints::NONE);
    Arc::new(offer)
}

fn name(text: &str) -> ServerName {
    ServerName::new(text).unwrap()
}

fn listed(fleet: &Fleet, index: usize) -> (ServerState, usize) {
    let view = fleet.view();
    let server = &view.snapshot.servers()[index];
    (server.state.clone(), server.offer.items(Kind::Tool).len())
}

type Change = fn(Arc<Fleet>, usize) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// All that adds or removes the names of a server, the state afterwards, and the number of tools of `many` that are left.
fn changes(many: usize) -> [(&'static str, Change, ServerState, usize); 6] {
    [
        (
            "ended",
            |fleet, index| {
                Box::pin(async move {
                    let observer = fleet as Arc<dyn UpstreamObserver>;
                    report_ended(&observer, index, &Arc::new(Ending::Stopped)).await;
                })
            },
            ServerState::Stopped,
            0,
        ),
        (
            "set_state",
            |fleet, index| Box::pin(async move { fleet.set_state(index, ServerState::Initializing, None).await }),
            ServerState::Initializing,
            0,
        ),
        (
            "retire",
            |fleet, index| Box::pin(async move { drop(fleet.retire(index, ServerState::Dormant, None).await) }),
            ServerState::Dormant,
            0,
        ),
        (
            "set_disabled_tools",
            |fleet, index| {
                Box::pin(async move { fleet.set_disabled_tools(index, BTreeSet::from(["t1".to_owned()])).await })
            },
            ServerState::Dormant,
            many - 1,
        ),
        (
            "rename",
            |fleet, index| Box::pin(async move { fleet.rename(index, &name("renamed")).await }),
            ServerState::Dormant,
            many,
        ),
        ("remove", |fleet, index| Box::pin(async move { fleet.remove(index).await }), ServerState::Removed, 0),
    ]
}

#[test]
fn names_of_a_large_offer_are_changed_beside_calls() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let fleet = fleet();
        for tools in [3, 2_000] {
            for (what, change, state, left) in changes(tools) {
                let index = fleet.register(name(&format!("{what}{tools}")), ServerState::Dormant, offer(tools));
                // The only other thread is blocked until it is released, so nothing can run there yet.
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                let mut changing = change(Arc::clone(&fleet), index);
                let first = std::future::poll_fn(|context| Poll::Ready(changing.as_mut().poll(context))).await;
                assert_eq!(first.is_pending(), tools == 2_000, "{what} of {tools}");
                if first.is_pending() {
                    assert_eq!(listed(&fleet, index), (ServerState::Dormant, tools), "{what}: nothing has changed yet");
                }
                go_on.send(()).unwrap();
                if first.is_pending() {
                    changing.await;
                }
                occupied.await.unwrap().unwrap();
                assert_eq!(listed(&fleet, index), (state, left), "{what} of {tools}");
            }
        }
    });
}

#[test]
fn tools_of_a_large_offer_are_enabled_again_beside_calls() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let fleet = fleet();
        let index = fleet.register(name("s"), ServerState::Dormant, offer(2_000));
        // So few remain that what is listed is small.
        fleet.set_disabled_tools(index, (1..2_000).map(|number| format!("t{number}")).collect()).await;
        assert_eq!(listed(&fleet, index).1, 1);
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || wait.recv());
        let mut enabling = std::pin::pin!(fleet.set_disabled_tools(index, BTreeSet::new()));
        let first = std::future::poll_fn(|context| Poll::Ready(enabling.as_mut().poll(context))).await;
        assert!(first.is_pending());
        go_on.send(()).unwrap();
        enabling.await;
        occupied.await.unwrap().unwrap();
        assert_eq!(listed(&fleet, index).1, 2_000);
    });
}
