//! When a server is tried again and when it is given up, on a clock that stands still: servers whose lives are played.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Hints, Item, Kind, Offer, Transport};
use protocol::Era;
use registry::Status;
use serde_json::json;
use service::servers::{Registration, ServerView};
use service::{Error, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use upstream::failure::Cause;
use upstream::wire::{Letter, Post, Postbox, Wire};
use upstream::{Connection, Ending, Phase, Stop, Upstream, Watcher};

use crate::setting::{Setting, Stage, registration, somebody};

/// What becomes of one attempt to connect.
#[derive(Clone, Copy)]
enum Act {
    Refuse,
    Forbid,
    /// It is up, and lost after so long.
    Live(Duration),
    /// It is up after so long, and stays.
    Late(Duration),
    /// It is up, and answers nothing.
    Mute,
}

/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The plays of all servers by their hosts, and when each act began.
static PLAYS: OnceLock<Mutex<HashMap<String, Play>>> = OnceLock::new();

struct Play {
    acts: Vec<Act>,
    begun: Vec<Instant>,
}

fn plays() -> std::sync::MutexGuard<'static, HashMap<String, Play>> {
    PLAYS.get_or_init(Mutex::default).lock().unwrap()
}

/// A server that plays these acts, the last one again and again. Its name is the name of its play.
fn playing(name: &str, acts: &[Act]) -> Registration {
    plays().insert(name.to_owned(), Play { acts: acts.to_vec(), begun: Vec::new() });
    let mut new = registration(name, "http", json!({ "url": format!("http://{name}/") }));
    new.auto_connect = false;
    new
}

/// When each attempt was made, after the first.
fn attempts(name: &str) -> Vec<Duration> {
    let begun = plays()[name].begun.clone();
    begun.iter().map(|moment| *moment - begun[0]).collect()
}

pub(crate) fn played(
    upstream: Upstream,
    watcher: Arc<dyn Watcher>,
    stop: watch::Receiver<Stop>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(play(upstream, watcher, stop))
}

async fn play(upstream: Upstream, watcher: Arc<dyn Watcher>, mut stop: watch::Receiver<Stop>) {
    let Transport::Remote(remote) = &upstream.spec.transport else { panic!("only these are played") };
    let host = remote.url.value.trim_start_matches("http://").trim_end_matches('/');
    let act = {
        let mut plays = plays();
        let play = plays.get_mut(host).unwrap();
        play.begun.push(Instant::now());
        play.acts[(play.begun.len() - 1).min(play.acts.len() - 1)]
    };
    let failed = |phase, cause| Arc::new(Ending::Failed { phase, cause });
    let time = match act {
        Act::Refuse => {
            let ending = failed(Phase::Initialization, Cause::Remote("nobody is there".to_owned()));
            return upstream.ended(&*watcher, &ending);
        }
        Act::Forbid => {
            let ending = failed(Phase::Initialization, Cause::Unauthorized("HTTP 401".to_owned()));
            return upstream.ended(&*watcher, &ending);
        }
        Act::Live(time) => time,
        Act::Late(delay) => {
            sleep(delay).await;
            FOR_EVER
        }
        Act::Mute => FOR_EVER,
    };
    let actor = Arc::new(Actor { is_mute: matches!(act, Act::Mute), connection: OnceLock::new() });
    let connection =
        Arc::new(Connection::new(upstream.surroundings(&watcher), Wire::Post(Postbox::new(Arc::clone(&actor) as _))));
    actor.connection.set(Arc::downgrade(&connection)).unwrap();
    connection.settle_era(Era::Legacy);
    let mut offer = Offer::new(Era::Legacy);
    let tool = Item::read(Kind::Tool, Bytes::from_static(br#"{"name":"t","inputSchema":{"type":"object"}}"#));
    offer.set_items(Kind::Tool, vec![tool.unwrap()], Hints::NONE);
    watcher.running(upstream.index, &connection, offer);
    let ending = tokio::select! {
        () = sleep(time) => failed(Phase::Runtime, Cause::Remote("it hung up".to_owned())),
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Arc::new(Ending::Stopped),
    };
    watcher.ended(upstream.index, &ending);
    connection.end(&ending);
    upstream.report(&*watcher, &ending, Vec::new());
}

/// Answers everything with an empty result, or nothing at all.
#[derive(Debug)]
struct Actor {
    is_mute: bool,
    connection: OnceLock<Weak<Connection>>,
}

impl Post for Actor {
    fn post(self: Arc<Self>, letter: Letter) {
        let Some(number) = letter.number.filter(|_| !self.is_mute) else { return };
        tokio::spawn(async move {
            let answer = json!({ "jsonrpc": "2.0", "id": number, "result": { "content": [] } });
            if let Some(connection) = self.connection.get().and_then(Weak::upgrade) {
                connection.take(answer.to_string().into(), Some(number)).await;
            }
        });
    }
}

/// A service whose clock stands still once everything is registered.
async fn theatre(servers: Vec<Registration>) -> Setting {
    let setting = Setting::with(Stage { remote: Arc::new(played), ..Stage::default() }).await;
    for server in servers {
        setting.service.register(&somebody(), server).await.unwrap();
    }
    tokio::time::pause();
    setting
}

#[track_caller]
fn are_near(found: &[Duration], expected: &[u64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let mut before = (Duration::ZERO, 0);
    for (&found_at, &expected_at) in found.iter().zip(expected) {
        let (gap, wanted) = ((found_at - before.0).as_secs_f64(), (expected_at - before.1) as f64);
        assert!(gap >= wanted * 0.9 && gap <= wanted * 1.1 + 0.1, "{found:?} is not {expected:?}");
        before = (found_at, expected_at);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_tried_after_1_5_and_15_s_and_then_switched_off() {
    let setting = theatre(vec![playing("gone", &[Act::Refuse])]).await;
    let mut events = setting.service.events().listen();
    let error = setting.service.connect(&somebody(), "gone").await.unwrap_err();
    assert!(matches!(&error, Error::ConnectionFailed { why, .. } if why == "nobody is there"), "{error}");
    let view = setting.until("gone", Status::Disabled).await;
    are_near(&attempts("gone"), &[0, 1, 6, 21]);
    assert_eq!((view.record.enabled, view.record.auto_disabled, view.record.failure_count), (false, true, 4));
    assert_eq!((view.record.auto_disabled_at.is_some(), view.retry_count, view.next_retry_at), (true, 3, None));
    let health = setting.service.server_health("gone").await.unwrap();
    assert_eq!((health.consecutive_failures, health.failure_count), (4, 4));
    let mut notice = None;
    while let Ok(event) = events.try_recv() {
        if let Event::Notice { message, .. } = event {
            notice = Some(message);
        }
    }
    assert!(notice.unwrap().contains("switched off after 4 failed attempts"));

    tokio::time::resume();
    let kept = setting.history_until("gone", 1, "disabled").await;
    assert_eq!(kept.iter().filter(|to| *to == "connecting").count(), 4, "{kept:?}");
    let refused = setting.service.connect(&somebody(), "gone").await;
    assert!(matches!(refused, Err(Error::ServerUnavailable { .. })), "{refused:?}");
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_is_enabled_again_begins_with_a_clean_slate() {
    let acts = [Act::Refuse, Act::Refuse, Act::Refuse, Act::Refuse, Act::Live(Duration::from_secs(1000))];
    let setting = theatre(vec![playing("back", &acts)]).await;
    setting.service.connect(&somebody(), "back").await.unwrap_err();
    setting.until("back", Status::Disabled).await;
    tokio::time::resume();
    let view = setting.service.enable(&somebody(), "back").await.unwrap();
    assert_eq!(view.record.status, Status::Connected);
    assert_eq!((view.record.enabled, view.record.auto_disabled, view.record.failure_count), (true, false, 0));
    assert_eq!(view.record.auto_disabled_at, None);
    let kept = setting.store.find_server("back").await.unwrap();
    assert!(kept.enabled && !kept.auto_disabled);
    setting.end().await;
}

#[tokio::test]
async fn credentials_that_never_worked_are_not_tried_again() {
    let setting = theatre(vec![playing("locked", &[Act::Forbid])]).await;
    setting.service.connect(&somebody(), "locked").await.unwrap_err();
    let view = setting.until("locked", Status::Error).await;
    assert_eq!(view.next_retry_at, None);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(attempts("locked").len(), 1);
    let answer = setting.call("locked.t", json!({})).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("HTTP 401"), "{answer}");
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn a_good_connection_that_is_lost_is_made_again_at_once() {
    let acts = [Act::Live(Duration::from_secs(60)), Act::Live(Duration::from_secs(1_000_000))];
    let setting = theatre(vec![playing("loyal", &acts)]).await;
    setting.service.connect(&somebody(), "loyal").await.unwrap();
    setting.until_it("loyal", "one with two attempts", |_| attempts("loyal").len() == 2).await;
    are_near(&attempts("loyal"), &[0, 60]);
    let view = setting.until("loyal", Status::Connected).await;
    assert_eq!(view.record.failure_count, 0);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn connections_that_do_not_last_count_as_failures() {
    let setting = theatre(vec![playing("fickle", &[Act::Live(Duration::from_secs(2))])]).await;
    setting.service.connect(&somebody(), "fickle").await.unwrap();
    setting.until_it("fickle", "one with five attempts", |_| attempts("fickle").len() == 5).await;
    are_near(&attempts("fickle"), &[0, 3, 10, 27, 59]);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_has_worked_is_retried_without_end_and_recovers_by_itself() {
    let mut acts = vec![Act::Live(Duration::from_secs(60))];
    acts.extend([Act::Refuse; 7]);
    acts.push(Act::Live(FOR_EVER));
    let setting = theatre(vec![playing("remote", &acts)]).await;
    setting.service.connect(&somebody(), "remote").await.unwrap();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = setting.until_it("remote", "one that failed six times", failed(6)).await;
    assert_eq!((down.record.status, down.record.enabled, down.retry_count), (Status::Error, true, 5));
    assert!(down.next_retry_at.is_some() && down.record.auto_disabled_at.is_none(), "{down:?}");
    let health = setting.service.server_health("remote").await.unwrap();
    assert_eq!((health.consecutive_failures, health.failure_count, health.retry_count), (6, 6, 5));
    setting.until_it("remote", "one with all attempts", |_| attempts("remote").len() == acts.len()).await;
    let up = setting.until("remote", Status::Connected).await;
    assert_eq!((up.record.failure_count, up.retry_count, up.next_retry_at), (0, 0, None));
    // At once when it is lost, and then later and later.
    are_near(&attempts("remote"), &[0, 60, 61, 66, 81, 111, 171, 291, 531]);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_has_worked_is_retried_without_end_after_a_restart_too() {
    let acts = [Act::Live(Duration::from_secs(60)), Act::Refuse];
    let setting = theatre(vec![playing("reborn", &acts)]).await;
    setting.service.connect(&somebody(), "reborn").await.unwrap();
    setting.until_it("reborn", "one that was lost", |_| attempts("reborn").len() == 2).await;
    tokio::time::resume();
    let setting = setting.again().await;
    tokio::time::pause();
    setting.service.connect(&somebody(), "reborn").await.unwrap_err();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = setting.until_it("reborn", "one that failed eight times", failed(8)).await;
    assert_eq!((down.record.status, down.record.auto_disabled), (Status::Error, false));
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn an_edit_does_not_end_the_retries_of_a_server_that_has_worked() {
    let setting = theatre(vec![playing("moved", &[Act::Live(Duration::from_secs(60)), Act::Refuse])]).await;
    plays().insert("elsewhere".to_owned(), Play { acts: vec![Act::Refuse], begun: Vec::new() });
    setting.service.connect(&somebody(), "moved").await.unwrap();
    tokio::time::resume();
    let update = json!({ "connection_config": { "url": "http://elsewhere/", "headers": { "X-Key": "k" } } });
    setting.service.update(&somebody(), "moved", serde_json::from_value(update).unwrap()).await.unwrap();
    tokio::time::pause();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = setting.until_it("moved", "one that failed six times", failed(6)).await;
    assert_eq!((down.record.status, down.record.enabled, down.retry_count), (Status::Error, true, 5));
    assert!(down.next_retry_at.is_some() && down.record.auto_disabled_at.is_none(), "{down:?}");
    are_near(&attempts("elsewhere")[..6], &[0, 1, 6, 21, 51, 111]);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn one_refusal_in_between_does_not_end_the_retries_of_a_server_that_has_worked() {
    let acts = [Act::Live(Duration::from_secs(60)), Act::Refuse, Act::Forbid, Act::Forbid, Act::Live(FOR_EVER)];
    let setting = theatre(vec![playing("renewed", &acts)]).await;
    setting.service.connect(&somebody(), "renewed").await.unwrap();
    let failed = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let down = setting.until_it("renewed", "one that failed twice", failed(2)).await;
    assert!(down.record.error_message.as_deref().is_some_and(|why| why.contains("HTTP 401")), "{down:?}");
    assert!(down.next_retry_at.is_some(), "{down:?}");
    setting.until_it("renewed", "one with all attempts", |_| attempts("renewed").len() == acts.len()).await;
    setting.until("renewed", Status::Connected).await;
    are_near(&attempts("renewed"), &[0, 60, 61, 66, 81]);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn to_disable_a_server_that_failed_and_came_back_is_no_failure() {
    let acts = [Act::Live(Duration::from_secs(2)), Act::Live(FOR_EVER)];
    let setting = theatre(vec![playing("killed", &acts)]).await;
    setting.service.connect(&somebody(), "killed").await.unwrap();
    setting.until_it("killed", "one that was lost", |_| attempts("killed").len() == 2).await;
    let up = setting.until("killed", Status::Connected).await;
    assert_eq!(up.record.failure_count, 0);
    tokio::time::resume();
    let view = setting.service.disable(&somebody(), "killed").await.unwrap();
    assert_eq!((view.record.status, view.record.failure_count), (Status::Disabled, 0));
    setting.end().await;
}

#[tokio::test]
async fn a_call_waits_while_a_lost_connection_is_made_again() {
    let acts = [Act::Live(Duration::from_secs(60)), Act::Late(Duration::from_secs(5))];
    let setting = theatre(vec![playing("patient", &acts)]).await;
    setting.service.connect(&somebody(), "patient").await.unwrap();
    setting.until_it("patient", "one that is connected again", |_| attempts("patient").len() == 2).await;
    // Now, and not at some moment around it: a call that was under way when the connection was lost has failed.
    let answer = setting.call("patient.t", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(attempts("patient").len(), 2);
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_answers_no_pings_is_degraded_and_then_connected_anew() {
    let setting = theatre(vec![playing("mute", &[Act::Mute])]).await;
    setting.service.connect(&somebody(), "mute").await.unwrap();
    let view = setting.until("mute", Status::Degraded).await;
    assert!(view.record.error_message.unwrap().contains("did not answer `ping` within 5 s"));
    setting.until_it("mute", "one with two attempts", |_| attempts("mute").len() == 2).await;
    let waited = attempts("mute")[1];
    assert!(waited > Duration::from_secs(80) && waited < Duration::from_secs(110), "{waited:?}");
    tokio::time::resume();
    let kept = setting.history_until("mute", 6, "connected").await;
    assert_eq!(kept[..4], ["connecting", "connected", "degraded", "error"], "{kept:?}");
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_is_never_well_is_connected_anew_once_and_then_less_and_less_often() {
    let setting = theatre(vec![playing("ailing", &[Act::Mute])]).await;
    setting.service.connect(&somebody(), "ailing").await.unwrap();
    let counted = |failures| move |view: &ServerView| view.record.failure_count == failures;
    let waiting = setting.until_it("ailing", "one that failed", counted(1)).await;
    assert_eq!((waiting.record.status, waiting.next_retry_at.is_some()), (Status::Error, true));
    assert_eq!(attempts("ailing").len(), 2, "the first illness is no failure");
    setting.until_it("ailing", "one that failed five times", counted(5)).await;
    let gaps: Vec<_> = attempts("ailing").windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(gaps.len(), 5);
    assert!(gaps.iter().all(|&gap| gap > 80), "each connection is looked at three times: {gaps:?}");
    tokio::time::resume();
    let kept = setting.history_until("ailing", 24, "error").await;
    let round = ["connecting", "connected", "degraded", "error"];
    assert!(kept.chunks(4).take(6).all(|steps| steps == round), "{kept:?}");
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_is_well_in_between_is_connected_anew_at_once_each_time() {
    let well = Act::Live(Duration::from_secs(60));
    let setting = theatre(vec![playing("moody", &[Act::Mute, well, Act::Mute, well, Act::Mute, well])]).await;
    setting.service.connect(&somebody(), "moody").await.unwrap();
    setting.until_it("moody", "one with eight attempts", |_| attempts("moody").len() == 8).await;
    let view = setting.service.server("moody").await.unwrap();
    assert_eq!((view.record.enabled, view.record.failure_count), (true, 0));
    tokio::time::resume();
    setting.end().await;
}

#[tokio::test]
async fn a_server_that_answers_pings_stays_connected() {
    let setting = theatre(vec![playing("chatty", &[Act::Live(Duration::from_secs(1_000_000))])]).await;
    setting.service.connect(&somebody(), "chatty").await.unwrap();
    sleep(Duration::from_secs(300)).await;
    let health = setting.service.server_health("chatty").await.unwrap();
    assert!(health.is_healthy && health.last_check.is_some() && health.latency_ms.is_some(), "{health:?}");
    assert_eq!(attempts("chatty").len(), 1);
    tokio::time::resume();
    setting.end().await;
}
