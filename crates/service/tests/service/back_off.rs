//! When a server is retried and when it is given up, on a paused clock with simulated servers.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Hints, Item, Kind, Offer, Transport};
use executions::Error as CallError;
use protocol::Lifecycle;
use registry::Status;
use serde_json::json;
use service::{Error, Event, Registration, ServerView};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use upstream::transport::{HttpQueue, HttpSender, OutgoingMessage, UpstreamTransport};
use upstream::{Cause, Connection, Ending, Phase, Stop, Upstream, UpstreamObserver};

use crate::fixture::{FixtureOptions, ServiceFixture, registration, somebody};

/// The result of one attempt to connect.
#[derive(Clone, Copy)]
enum Step {
    Refuse,
    Forbid,
    /// It is connected, and lost after this time.
    Live(Duration),
    /// It is connected after this time, and stays.
    Late(Duration),
    /// It is connected, and never responds.
    Mute,
}

/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The scenarios of all servers by their hosts, and when each step began.
static SCENARIOS: OnceLock<Mutex<HashMap<String, Scenario>>> = OnceLock::new();

struct Scenario {
    steps: Vec<Step>,
    begun: Vec<Instant>,
}

fn scenarios() -> std::sync::MutexGuard<'static, HashMap<String, Scenario>> {
    SCENARIOS.get_or_init(Mutex::default).lock().unwrap()
}

/// A server that runs these steps, the last one repeatedly. Its name is the name of its scenario.
fn server_with_steps(name: &str, steps: &[Step]) -> Registration {
    scenarios().insert(name.to_owned(), Scenario { steps: steps.to_vec(), begun: Vec::new() });
    let mut new = registration(name, "http", json!({ "url": format!("http://{name}/") }));
    new.auto_connect = false;
    new
}

/// When each attempt was made, after the first.
fn attempts(name: &str) -> Vec<Duration> {
    let begun = scenarios()[name].begun.clone();
    begun.iter().map(|moment| *moment - begun[0]).collect()
}

pub(crate) fn run_as_upstream(
    upstream: Upstream,
    observer: Arc<dyn UpstreamObserver>,
    stop: watch::Receiver<Stop>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(run_scenario(upstream, observer, stop))
}

async fn run_scenario(upstream: Upstream, observer: Arc<dyn UpstreamObserver>, mut stop: watch::Receiver<Stop>) {
    let Transport::Remote(remote) = &upstream.spec.transport else { panic!("only these are played") };
    let host = remote.url.value.trim_start_matches("http://").trim_end_matches('/');
    let step = {
        let mut scenarios = scenarios();
        let scenario = scenarios.get_mut(host).unwrap();
        scenario.begun.push(Instant::now());
        scenario.steps[(scenario.begun.len() - 1).min(scenario.steps.len() - 1)]
    };
    let failed = |phase, cause| Arc::new(Ending::Failed { phase, cause });
    let time = match step {
        Step::Refuse => {
            let ending = failed(Phase::Initialization, Cause::Remote("nobody is there".to_owned()));
            return upstream.ended(&observer, &ending).await;
        }
        Step::Forbid => {
            let ending = failed(Phase::Initialization, Cause::Unauthorized("HTTP 401".to_owned()));
            return upstream.ended(&observer, &ending).await;
        }
        Step::Live(time) => time,
        Step::Late(delay) => {
            sleep(delay).await;
            FOR_EVER
        }
        Step::Mute => FOR_EVER,
    };
    let fake_remote = Arc::new(FakeRemote { is_mute: matches!(step, Step::Mute), connection: OnceLock::new() });
    let connection = Arc::new(Connection::new(
        upstream.connection_context(&observer),
        UpstreamTransport::Http(HttpQueue::new(Arc::clone(&fake_remote) as _)),
    ));
    fake_remote.connection.set(Arc::downgrade(&connection)).unwrap();
    connection.set_lifecycle(Lifecycle::Session);
    let mut offer = Offer::new(Lifecycle::Session);
    let tool = Item::read(Kind::Tool, Bytes::from_static(br#"{"name":"t","inputSchema":{"type":"object"}}"#));
    offer.set_items(Kind::Tool, vec![tool.unwrap()], Hints::NONE);
    observer.on_running(upstream.index, &connection, offer);
    let ending = tokio::select! {
        () = sleep(time) => failed(Phase::Runtime, Cause::Remote("it hung up".to_owned())),
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Arc::new(Ending::Stopped),
    };
    observer.on_ended(upstream.index, &ending);
    connection.end(&ending);
    upstream.report(&*observer, &ending, Vec::new());
}

/// Responds to everything with an empty result, or not at all.
#[derive(Debug)]
struct FakeRemote {
    is_mute: bool,
    connection: OnceLock<Weak<Connection>>,
}

impl HttpSender for FakeRemote {
    fn post(self: Arc<Self>, outgoing: OutgoingMessage) {
        let Some(number) = outgoing.number.filter(|_| !self.is_mute) else { return };
        tokio::spawn(async move {
            let answer = json!({ "jsonrpc": "2.0", "id": number, "result": { "content": [] } });
            if let Some(connection) = self.connection.get().and_then(Weak::upgrade) {
                connection.take(answer.to_string().into(), Some(number)).await;
            }
        });
    }
}

/// A service whose clock is paused once everything is registered.
async fn paused_fixture(servers: Vec<Registration>) -> ServiceFixture {
    let fixture =
        ServiceFixture::with(FixtureOptions { remote: Arc::new(run_as_upstream), ..FixtureOptions::default() }).await;
    for server in servers {
        fixture.service.register(&somebody(), server).await.unwrap();
    }
    tokio::time::pause();
    fixture
}

#[track_caller]
fn assert_near(found: &[Duration], expected: &[u64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let mut before = (Duration::ZERO, 0);
    for (&found_at, &expected_at) in found.iter().zip(expected) {
        let (gap, wanted) = ((found_at - before.0).as_secs_f64(), (expected_at - before.1) as f64);
        assert!(gap >= wanted * 0.9 && gap <= wanted * 1.1 + 0.1, "{found:?} is not {expected:?}");
        before = (found_at, expected_at);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_tried_after_1_5_and_15_s_and_then_disabled() {
    let fixture = paused_fixture(vec![server_with_steps("gone", &[Step::Refuse])]).await;
    let mut events = fixture.service.events().listen();
    let error = fixture.service.connect(&somebody(), "gone").await.unwrap_err();
    assert!(
        matches!(&error, Error::Call(CallError::ConnectionFailed { why, .. }) if why == "nobody is there"),
        "{error}"
    );
    let view = fixture.until("gone", Status::Disabled).await;
    assert_near(&attempts("gone"), &[0, 1, 6, 21]);
    assert_eq!((view.record.enabled, view.record.auto_disabled, view.record.failure_count), (false, true, 4));
    assert_eq!((view.record.auto_disabled_at.is_some(), view.retry_count, view.next_retry_at), (true, 3, None));
    let health = fixture.service.server_health("gone").await.unwrap();
    assert_eq!((health.consecutive_failures, health.failure_count), (4, 4));
    let mut notice = None;
    while let Ok(event) = events.try_recv() {
        if let Event::Notice { message, .. } = event {
            notice = Some(message);
        }
    }
    assert!(notice.unwrap().contains("disabled after 4 failed attempts"));

    tokio::time::resume();
    let kept = fixture.history_until("gone", 1, "disabled").await;
    assert_eq!(kept.iter().filter(|to| *to == "connecting").count(), 4, "{kept:?}");
    let refused = fixture.service.connect(&somebody(), "gone").await;
    assert!(matches!(refused, Err(Error::Call(CallError::ServerUnavailable { .. }))), "{refused:?}");
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_is_enabled_again_begins_with_a_clean_slate() {
    let steps = [Step::Refuse, Step::Refuse, Step::Refuse, Step::Refuse, Step::Live(Duration::from_secs(1000))];
    let fixture = paused_fixture(vec![server_with_steps("back", &steps)]).await;
    fixture.service.connect(&somebody(), "back").await.unwrap_err();
    fixture.until("back", Status::Disabled).await;
    tokio::time::resume();
    fixture.service.enable(&somebody(), "back").await.unwrap();
    let view = fixture.until("back", Status::Connected).await;
    assert_eq!((view.record.enabled, view.record.auto_disabled, view.record.failure_count), (true, false, 0));
    assert_eq!(view.record.auto_disabled_at, None);
    let kept = fixture.store.find_server("back").await.unwrap();
    assert!(kept.enabled && !kept.auto_disabled);
    fixture.end().await;
}

#[tokio::test]
async fn credentials_that_never_worked_are_not_tried_again() {
    let fixture = paused_fixture(vec![server_with_steps("locked", &[Step::Forbid])]).await;
    fixture.service.connect(&somebody(), "locked").await.unwrap_err();
    let view = fixture.until("locked", Status::Error).await;
    assert_eq!(view.next_retry_at, None);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(attempts("locked").len(), 1);
    let answer = fixture.call("locked.t", json!({})).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("HTTP 401"), "{answer}");
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn a_good_connection_that_is_lost_is_made_again_at_once() {
    let steps = [Step::Live(Duration::from_secs(60)), Step::Live(Duration::from_secs(1_000_000))];
    let fixture = paused_fixture(vec![server_with_steps("loyal", &steps)]).await;
    fixture.service.connect(&somebody(), "loyal").await.unwrap();
    fixture.until_it("loyal", "one with two attempts", |_| attempts("loyal").len() == 2).await;
    assert_near(&attempts("loyal"), &[0, 60]);
    let view = fixture.until("loyal", Status::Connected).await;
    assert_eq!(view.record.failure_count, 0);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn connections_that_do_not_last_count_as_failures() {
    let fixture = paused_fixture(vec![server_with_steps("fickle", &[Step::Live(Duration::from_secs(2))])]).await;
    fixture.service.connect(&somebody(), "fickle").await.unwrap();
    fixture.until_it("fickle", "one with five attempts", |_| attempts("fickle").len() == 5).await;
    assert_near(&attempts("fickle"), &[0, 3, 10, 27, 59]);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn disabling_a_connected_server_brings_no_earlier_failures_back() {
    let steps = [Step::Live(Duration::from_secs(2)), Step::Live(FOR_EVER)];
    let fixture = paused_fixture(vec![server_with_steps("mended", &steps)]).await;
    fixture.service.connect(&somebody(), "mended").await.unwrap();
    let is_back = |view: &ServerView| attempts("mended").len() == 2 && view.record.status == Status::Connected;
    let view = fixture.until_it("mended", "one that is back", is_back).await;
    assert_eq!(view.record.failure_count, 0);
    // The connection is too young to be stable, so the failure before it still counts for the next delay.
    tokio::time::resume();
    let view = fixture.service.disable(&somebody(), "mended").await.unwrap();
    assert_eq!((view.record.status, view.record.failure_count), (Status::Disabled, 0));
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_has_worked_is_retried_without_end_and_recovers_by_itself() {
    let mut steps = vec![Step::Live(Duration::from_secs(60))];
    steps.extend([Step::Refuse; 7]);
    steps.push(Step::Live(FOR_EVER));
    let fixture = paused_fixture(vec![server_with_steps("remote", &steps)]).await;
    fixture.service.connect(&somebody(), "remote").await.unwrap();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = fixture.until_it("remote", "one that failed six times", failed(6)).await;
    assert_eq!((down.record.status, down.record.enabled, down.retry_count), (Status::Error, true, 5));
    assert!(down.next_retry_at.is_some() && down.record.auto_disabled_at.is_none(), "{down:?}");
    let health = fixture.service.server_health("remote").await.unwrap();
    assert_eq!((health.consecutive_failures, health.failure_count, health.retry_count), (6, 6, 5));
    fixture.until_it("remote", "one with all attempts", |_| attempts("remote").len() == steps.len()).await;
    let up = fixture.until("remote", Status::Connected).await;
    assert_eq!((up.record.failure_count, up.retry_count, up.next_retry_at), (0, 0, None));
    // At once when it is lost, and then with growing delays.
    assert_near(&attempts("remote"), &[0, 60, 61, 66, 81, 111, 171, 291, 531]);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_has_worked_is_retried_without_end_after_a_restart_too() {
    let steps = [Step::Live(Duration::from_secs(60)), Step::Refuse];
    let fixture = paused_fixture(vec![server_with_steps("reborn", &steps)]).await;
    fixture.service.connect(&somebody(), "reborn").await.unwrap();
    fixture.until_it("reborn", "one that was lost", |_| attempts("reborn").len() == 2).await;
    tokio::time::resume();
    let fixture = fixture.again().await;
    tokio::time::pause();
    fixture.service.connect(&somebody(), "reborn").await.unwrap_err();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = fixture.until_it("reborn", "one that failed eight times", failed(8)).await;
    assert_eq!((down.record.status, down.record.auto_disabled), (Status::Error, false));
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn an_edit_does_not_end_the_retries_of_a_server_that_has_worked() {
    let fixture =
        paused_fixture(vec![server_with_steps("moved", &[Step::Live(Duration::from_secs(60)), Step::Refuse])]).await;
    scenarios().insert("elsewhere".to_owned(), Scenario { steps: vec![Step::Refuse], begun: Vec::new() });
    fixture.service.connect(&somebody(), "moved").await.unwrap();
    tokio::time::resume();
    let update = json!({ "connection_config": { "url": "http://elsewhere/", "headers": { "X-Key": "k" } } });
    fixture.service.update(&somebody(), "moved", serde_json::from_value(update).unwrap()).await.unwrap();
    tokio::time::pause();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = fixture.until_it("moved", "one that failed six times", failed(6)).await;
    assert_eq!((down.record.status, down.record.enabled, down.retry_count), (Status::Error, true, 5));
    assert!(down.next_retry_at.is_some() && down.record.auto_disabled_at.is_none(), "{down:?}");
    assert_near(&attempts("elsewhere")[..6], &[0, 1, 6, 21, 51, 111]);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn one_refusal_in_between_does_not_end_the_retries_of_a_server_that_has_worked() {
    let steps = [Step::Live(Duration::from_secs(60)), Step::Refuse, Step::Forbid, Step::Forbid, Step::Live(FOR_EVER)];
    let fixture = paused_fixture(vec![server_with_steps("renewed", &steps)]).await;
    fixture.service.connect(&somebody(), "renewed").await.unwrap();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = fixture.until_it("renewed", "one that failed twice", failed(2)).await;
    assert!(down.record.error_message.as_deref().is_some_and(|why| why.contains("HTTP 401")), "{down:?}");
    assert!(down.next_retry_at.is_some(), "{down:?}");
    fixture.until_it("renewed", "one with all attempts", |_| attempts("renewed").len() == steps.len()).await;
    fixture.until("renewed", Status::Connected).await;
    assert_near(&attempts("renewed"), &[0, 60, 61, 66, 81]);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn to_disable_a_server_that_failed_and_came_back_is_no_failure() {
    let steps = [Step::Live(Duration::from_secs(2)), Step::Live(FOR_EVER)];
    let fixture = paused_fixture(vec![server_with_steps("killed", &steps)]).await;
    fixture.service.connect(&somebody(), "killed").await.unwrap();
    fixture.until_it("killed", "one that was lost", |_| attempts("killed").len() == 2).await;
    let up = fixture.until("killed", Status::Connected).await;
    assert_eq!(up.record.failure_count, 0);
    tokio::time::resume();
    let view = fixture.service.disable(&somebody(), "killed").await.unwrap();
    assert_eq!((view.record.status, view.record.failure_count), (Status::Disabled, 0));
    fixture.end().await;
}

#[tokio::test]
async fn a_call_waits_while_a_lost_connection_is_made_again() {
    let steps = [Step::Live(Duration::from_secs(60)), Step::Late(Duration::from_secs(5))];
    let fixture = paused_fixture(vec![server_with_steps("patient", &steps)]).await;
    fixture.service.connect(&somebody(), "patient").await.unwrap();
    fixture.until_it("patient", "one that is connected again", |_| attempts("patient").len() == 2).await;
    // Now, and not some time around it: a call that was running when the connection was lost has failed.
    let answer = fixture.call("patient.t", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(attempts("patient").len(), 2);
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_answers_no_pings_is_degraded_and_then_reconnected() {
    let fixture = paused_fixture(vec![server_with_steps("mute", &[Step::Mute])]).await;
    fixture.service.connect(&somebody(), "mute").await.unwrap();
    let view = fixture.until("mute", Status::Degraded).await;
    assert!(view.record.error_message.unwrap().contains("did not answer `ping` within 5 s"));
    fixture.until_it("mute", "one with two attempts", |_| attempts("mute").len() == 2).await;
    let waited = attempts("mute")[1];
    assert!(waited > Duration::from_secs(80) && waited < Duration::from_secs(110), "{waited:?}");
    tokio::time::resume();
    let kept = fixture.history_until("mute", 6, "connected").await;
    assert_eq!(kept[..4], ["connecting", "connected", "degraded", "error"], "{kept:?}");
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_is_never_well_is_reconnected_once_and_then_less_and_less_often() {
    let fixture = paused_fixture(vec![server_with_steps("ailing", &[Step::Mute])]).await;
    fixture.service.connect(&somebody(), "ailing").await.unwrap();
    let counted = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let waiting = fixture.until_it("ailing", "one that failed", counted(1)).await;
    assert_eq!((waiting.record.status, waiting.next_retry_at.is_some()), (Status::Error, true));
    assert_eq!(attempts("ailing").len(), 2, "the first illness is no failure");
    fixture.until_it("ailing", "one that failed five times", counted(5)).await;
    let gaps: Vec<_> = attempts("ailing").windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(gaps.len(), 5);
    assert!(gaps.iter().all(|&gap| gap > 80), "each connection is looked at three times: {gaps:?}");
    tokio::time::resume();
    let kept = fixture.history_until("ailing", 24, "error").await;
    let round = ["connecting", "connected", "degraded", "error"];
    assert!(kept.chunks(4).take(6).all(|steps| steps == round), "{kept:?}");
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_is_well_in_between_is_reconnected_at_once_each_time() {
    let well = Step::Live(Duration::from_secs(60));
    let fixture =
        paused_fixture(vec![server_with_steps("moody", &[Step::Mute, well, Step::Mute, well, Step::Mute, well])]).await;
    fixture.service.connect(&somebody(), "moody").await.unwrap();
    fixture.until_it("moody", "one with eight attempts", |_| attempts("moody").len() == 8).await;
    let view = fixture.service.server("moody").await.unwrap();
    assert_eq!((view.record.enabled, view.record.failure_count), (true, 0));
    tokio::time::resume();
    fixture.end().await;
}

#[tokio::test]
async fn a_server_that_answers_pings_stays_connected() {
    let fixture =
        paused_fixture(vec![server_with_steps("chatty", &[Step::Live(Duration::from_secs(1_000_000))])]).await;
    fixture.service.connect(&somebody(), "chatty").await.unwrap();
    sleep(Duration::from_secs(300)).await;
    let health = fixture.service.server_health("chatty").await.unwrap();
    assert!(health.is_healthy && health.last_check.is_some() && health.latency_ms.is_some(), "{health:?}");
    assert_eq!(attempts("chatty").len(), 1);
    tokio::time::resume();
    fixture.end().await;
}
