//! Names of many items are added and removed on a thread that serves no calls.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::Poll;

use catalog::{Hints, Item, Secrets, ServerName};
use protocol::bridge::meta::ClientMeta;
use upstream::transport::{HttpQueue, HttpSender, OutgoingMessage, UpstreamTransport};
use upstream::{ConnectionContext, Ending, UpstreamObserver, report_ended, report_offer_changed, report_running};

use super::*;
use crate::{MethodSet, NamePolicy};

pub(super) fn fleet() -> Arc<Fleet> {
    let options = Options {
        name: "test".into(),
        version: "1".into(),
        separator: ".".parse().unwrap(),
        names: NamePolicy::Canonical,
        start_timeout: Duration::from_secs(60),
        withheld: &[],
        servers_can_change: true,
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

pub(super) fn offer(tools: usize) -> Arc<Offer> {
    let item = |number| Item::read(Kind::Tool, Bytes::from(format!(r#"{{"name":"t{number}"}}"#))).unwrap();
    let mut offer = Offer::new(Lifecycle::Session);
    offer.set_items(Kind::Tool, (0..tools).map(item).collect(), Hints::NONE);
    Arc::new(offer)
}

pub(super) fn name(text: &str) -> ServerName {
    ServerName::new(text).unwrap()
}

fn listed(fleet: &Fleet, index: usize) -> (ServerState, usize) {
    let view = fleet.view();
    let server = &view.snapshot.servers()[index];
    (server.state.clone(), server.offer.items(Kind::Tool).len())
}

/// A transport that discards what is sent.
#[derive(Debug)]
struct Nowhere;

impl HttpSender for Nowhere {
    fn post(self: Arc<Self>, _: OutgoingMessage) {}
}

pub(super) fn connection(index: usize) -> Arc<Connection> {
    let connection_context = ConnectionContext {
        server: name("s"),
        index,
        audience: upstream::Audience::Everybody,
        observer: Weak::<Fleet>::new(),
        client_meta: ClientMeta { capabilities: Bytes::from_static(b"{}"), info: None, log_level: None },
        limit: None,
        limits: ServerLimits::from_settings(),
        secrets: Secrets::default(),
        liveness: Arc::default(),
    };
    Arc::new(Connection::new(connection_context, UpstreamTransport::Http(HttpQueue::new(Arc::new(Nowhere)))))
}

type Change = fn(Arc<Fleet>, usize) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// All that adds or removes the names of a server, the state afterwards, and the number of tools of `many` that are left.
fn changes(many: usize) -> [(&'static str, Change, ServerState, usize); 8] {
    [
        (
            "running",
            |fleet, index| {
                Box::pin(async move {
                    let observer = fleet as Arc<dyn UpstreamObserver>;
                    report_running(&observer, index, &connection(index), Arc::unwrap_or_clone(offer(1))).await;
                })
            },
            ServerState::Running,
            1,
        ),
        (
            "offer_changed",
            |fleet, index| {
                Box::pin(async move {
                    let connection = connection(index);
                    let listed = Arc::clone(&fleet.view().snapshot.servers()[index].offer);
                    fleet.on_running(index, &connection, Arc::unwrap_or_clone(listed));
                    let observer = fleet as Arc<dyn UpstreamObserver>;
                    report_offer_changed(&observer, &connection, offer(1)).await;
                })
            },
            ServerState::Running,
            1,
        ),
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
            |fleet, index| Box::pin(async move { drop(fleet.retire(index, ServerState::Asleep, None).await) }),
            ServerState::Asleep,
            0,
        ),
        (
            "set_disabled_tools",
            |fleet, index| {
                Box::pin(async move { fleet.set_disabled_tools(index, BTreeSet::from(["t1".to_owned()])).await })
            },
            ServerState::Asleep,
            many - 1,
        ),
        (
            "rename",
            |fleet, index| Box::pin(async move { fleet.rename(index, &name("renamed")).await }),
            ServerState::Asleep,
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
                let index = fleet.register(name(&format!("{what}{tools}")), ServerState::Asleep, offer(tools));
                // The only other thread is blocked until it is released, so nothing can run there yet.
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                let mut changing = change(Arc::clone(&fleet), index);
                let first = std::future::poll_fn(|context| Poll::Ready(changing.as_mut().poll(context))).await;
                assert_eq!(first.is_pending(), tools == 2_000, "{what} of {tools}");
                if first.is_pending() {
                    assert_eq!(listed(&fleet, index).1, tools, "{what}: nothing has changed yet");
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
        let index = fleet.register(name("s"), ServerState::Asleep, offer(2_000));
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

fn with_resources(uris: impl Iterator<Item = usize>) -> Arc<Offer> {
    let item = |number| Bytes::from(format!(r#"{{"uri":"u://{number}","name":"n"}}"#));
    let mut offer = Offer::new(Lifecycle::Session);
    let items = uris.map(|number| Item::read(Kind::Resource, item(number)).unwrap()).collect();
    offer.set_items(Kind::Resource, items, Hints::NONE);
    Arc::new(offer)
}

#[test]
fn a_small_server_is_changed_beside_calls_while_many_names_are_contested() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let fleet = fleet();
        let small = fleet.register(name("small"), ServerState::Asleep, with_resources(0..1));
        for other in ["one", "other"] {
            let index = fleet.register(name(other), ServerState::Stopped, offer(0));
            fleet.set_state(index, ServerState::Asleep, Some(with_resources(0..2_000))).await;
        }
        assert_eq!(fleet.view().snapshot.contested(), 2_000);
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || wait.recv());
        let mut changing = std::pin::pin!(fleet.set_state(small, ServerState::Stopped, None));
        let first = std::future::poll_fn(|context| Poll::Ready(changing.as_mut().poll(context))).await;
        assert!(first.is_pending());
        go_on.send(()).unwrap();
        changing.await;
        occupied.await.unwrap().unwrap();
        assert_eq!(fleet.view().snapshot.contested(), 2_000);
    });
}

#[tokio::test]
async fn conflicts_are_looked_at_again_only_if_they_change() {
    let fleet = fleet();
    let set = async |index, uris| fleet.set_state(index, ServerState::Asleep, Some(with_resources(uris))).await;
    let indexes = ["one", "other", "third"].map(|other| fleet.register(name(other), ServerState::Stopped, offer(0)));
    set(indexes[0], 0..300).await;
    set(indexes[1], 0..300).await;
    assert_eq!(fleet.name_conflicts.seen(), 300);
    set(indexes[2], 1_000..1_001).await;
    set(indexes[2], 1_000..1_002).await;
    assert_eq!(fleet.name_conflicts.seen(), 300, "the third server shares nothing with the others");
    set(indexes[2], 0..1).await;
    assert_eq!(fleet.name_conflicts.seen(), 601);
    // Nothing is looked at once as many are reported as are remembered.
    set(indexes[0], 10_000..30_000).await;
    set(indexes[1], 10_000..30_000).await;
    let seen = fleet.name_conflicts.seen();
    assert!(seen < 11_000, "{seen}");
    set(indexes[2], 10_000..10_001).await;
    assert_eq!(fleet.name_conflicts.seen(), seen);
}

#[tokio::test]
async fn removed_servers_are_limited_because_they_keep_their_slots() {
    let fleet = fleet();
    let nothing = offer(0);
    let entry = |state| ServerEntry { name: name("s"), state, offer: Arc::clone(&nothing) };
    fleet.register_as(vec![entry(ServerState::Removed); 9_999]);
    fleet.register_as(vec![entry(ServerState::Asleep); 100]);
    assert_eq!(fleet.refusal_of_registration(), None, "servers that are there do not count");
    fleet.remove(9_999).await;
    assert!(fleet.refusal_of_registration().is_some_and(|why| why.contains("restart it")));
}
