//! Calls and their limits, at servers in our own process.

use std::sync::Arc;

use aggregator::LocalClient;
use bytes::Bytes;
use registry::{CallLimit, CallRate, LimitKind, LimitRecord};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Settings;
use crate::fake::{CallFixture, actor, call, until};
use crate::limits::{CallLimits, EACH};

/// Stores a limit, and applies it.
async fn put(fixture: &CallFixture, kind: LimitKind, name: &str, limit: CallLimit) -> LimitRecord {
    let mut change = fixture.store.transaction("set a limit").await.unwrap();
    let record = change.put_limit(kind, name, limit).await.unwrap();
    change.commit().await.unwrap();
    fixture.executions.limits().put(&record);
    record
}

fn concurrent(most: u32) -> CallLimit {
    CallLimit { concurrent: Some(most), ..CallLimit::default() }
}

/// One call, and then one in a thousand seconds.
fn rare() -> CallLimit {
    CallLimit { per_second: CallRate::per_second(0.001), ..CallLimit::default() }
}

fn per_day(most: u64) -> CallLimit {
    CallLimit { per_day: Some(most), ..CallLimit::default() }
}

/// A client that makes one call.
fn client_calls(fixture: &CallFixture, tool: &str) -> JoinHandle<Value> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}});
    let mut client = LocalClient::connect(&fixture.aggregator).unwrap();
    tokio::spawn(async move {
        let answer = client.request(Bytes::from(request.to_string()), |line| line.starts_with(b"{")).await.unwrap();
        serde_json::from_slice(&answer).unwrap()
    })
}

/// Calls in progress that count against the only limit.
fn running(fixture: &CallFixture) -> u32 {
    fixture.executions.limits().view()[0].uses.first().map_or(0, |one| one.running)
}

#[tokio::test]
async fn a_client_learns_which_limit_is_reached_and_when_to_try_again() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("rated").await;
    put(&fixture, LimitKind::Server, "rated", rare()).await;
    assert!(client_calls(&fixture, "rated.echo").await.unwrap()["result"].is_object());
    let answer = client_calls(&fixture, "rated.echo").await.unwrap();
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("rate_limited")), "{answer}");
    assert_eq!(error["data"]["safeToRetry"], true);
    let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=1_000_000).contains(&wait), "{wait}");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("Server `rated` has reached its limit of 0.001 calls per second"), "{message}");
    assert_eq!(server.calls(), 1, "the server is not asked");

    let error = fixture.executions.call(call("rated.echo")).await.unwrap_err();
    let context = error.context();
    assert_eq!((error.code(), &context["reason"]), ("LIMIT_REACHED", &json!("rate_limited")));
    assert_eq!((&context["limit"], &context["of"]), (&json!("per_second"), &json!("server")), "{context}");
    assert!(context["retry_after_ms"].as_u64() > Some(0), "{context}");
    let reading = fixture.executions.reading();
    assert_eq!(reading.refused_by_limit, 2);
    assert!(reading.limits.refused.contains(&(LimitKind::Server, "per_second", 2)), "{:?}", reading.limits);
    assert_eq!(fixture.executions.limits().view()[0].refused, 2);
}

#[tokio::test]
async fn each_identity_is_counted_apart_and_no_other_is_named() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("shared").await;
    put(&fixture, LimitKind::Identity, EACH, per_day(1)).await;
    assert!(client_calls(&fixture, "shared.echo").await.unwrap()["result"].is_object());
    assert!(fixture.executions.call(call("shared.echo")).await.is_ok(), "the actor of a call is another identity");
    let message = client_calls(&fixture, "shared.echo").await.unwrap()["error"]["message"].to_string();
    assert!(message.contains("This identity has reached its limit of 1 call per day"), "{message}");
    assert!(!message.contains("tester") && !message.contains("local"), "{message}");
    let view = &fixture.executions.limits().view()[0];
    let mut names: Vec<_> = view.uses.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [super::LOCAL_USER, "tester"]);
}

#[tokio::test]
async fn a_call_is_in_progress_until_it_ends_in_whatever_way() {
    let fixture = CallFixture::open(Settings { retry_backoff_ms: vec![], ..Settings::default() }).await;
    let server = fixture.server("ends").await;
    put(&fixture, LimitKind::Identity, EACH, concurrent(1)).await;
    let executions = &fixture.executions;
    for tool in ["ends.echo", "ends.failing"] {
        assert!(executions.call(call(tool)).await.is_ok());
        assert!(client_calls(&fixture, tool).await.unwrap()["result"].is_object());
    }
    for tool in ["ends.refusing", "ends.away", "ends.forgetful"] {
        assert!(executions.call(call(tool)).await.is_err());
        let answer = client_calls(&fixture, tool).await.unwrap();
        assert_ne!(answer["error"]["data"]["reason"], "rate_limited", "{answer}");
    }
    assert!(executions.call(crate::Call { timeout_ms: Some(1), ..call("ends.stuck") }).await.is_err());
    until("the call that timed out has ended", || running(&fixture) == 0).await;

    let stuck = client_calls(&fixture, "ends.stuck");
    until("it runs", || server.running() == 1).await;
    let error = client_calls(&fixture, "ends.echo").await.unwrap()["error"].clone();
    assert!(error["message"].to_string().contains("1 call at once"), "{error}");
    let id = executions.live()[0].id;
    executions.cancel(&actor(), id).await.unwrap();
    stuck.await.unwrap();
    assert_eq!(running(&fixture), 0, "an operator cancelled it");

    let stuck = client_calls(&fixture, "ends.stuck");
    until("it runs", || server.running() == 1).await;
    let (client, _) = executions.live()[0].request().unwrap();
    fixture.aggregator.abandon(&client);
    until("its client has left", || running(&fixture) == 0).await;
    stuck.abort();

    let calls = Arc::clone(executions);
    let dropped = tokio::spawn(async move { calls.call(call("ends.stuck")).await });
    until("it runs", || server.running() == 1).await;
    dropped.abort();
    until("nobody waits for it", || running(&fixture) == 0).await;
    assert!(executions.call(call("ends.echo")).await.is_ok());
}

#[tokio::test]
async fn a_call_that_waits_counts_and_one_that_is_refused_otherwise_does_not() {
    let fixture = CallFixture::open(Settings { session_limit: 1, ..Settings::default() }).await;
    fixture.server("other").await;
    put(&fixture, LimitKind::Identity, EACH, CallLimit { concurrent: Some(1), ..per_day(10) }).await;
    fixture.slot_index("soon", catalog::ServerState::Initializing, registry::Status::Connecting);
    let executions = Arc::clone(&fixture.executions);
    let waiting = tokio::spawn(async move { executions.call(call("soon.echo")).await });
    until("it waits", || running(&fixture) == 1).await;
    let refused = fixture.executions.call(call("other.echo")).await.unwrap_err();
    assert_eq!(refused.context()["limit"], "concurrent");
    waiting.abort();
    until("it is given up", || running(&fixture) == 0).await;

    let of_session = || crate::Call { source: registry::Source::UserCodeblock, ..call("other.echo") };
    assert!(fixture.executions.call(of_session()).await.is_ok());
    let refused = fixture.executions.call(of_session()).await.unwrap_err();
    assert_eq!(refused.context()["limit"], "session_limit");
    fixture.executions.stop(&actor()).await;
    assert_eq!(fixture.executions.call(call("other.echo")).await.unwrap_err().code(), "EXECUTION_STOPPED");
    let uses = &fixture.executions.limits().view()[0].uses;
    assert_eq!((uses[0].today, uses[0].running), (2, 0), "the one that waited and the first of the session");
}

#[tokio::test]
async fn the_calls_of_the_day_are_stored_beside_calls_and_at_the_end() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("daily").await;
    let identity = put(&fixture, LimitKind::Identity, EACH, per_day(3)).await;
    put(&fixture, LimitKind::Tool, "daily.echo", per_day(9)).await;
    assert!(fixture.executions.call(call("daily.echo")).await.is_ok());
    let today = fixture.executions.limits().now().day();
    while fixture.store.limit_counts(today).await.unwrap().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(fixture.executions.call(call("daily.echo")).await.is_ok());
    fixture.executions.close().await;
    let after = CallLimits::default();
    after.load(&fixture.store).await.unwrap();
    let view = after.view();
    assert_eq!(view[0].record, identity);
    assert_eq!(view.iter().map(|view| view.uses[0].today).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn counts_that_cannot_be_stored_are_stored_with_the_next_attempt() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("unstored").await;
    put(&fixture, LimitKind::Identity, EACH, per_day(9)).await;
    fixture.store.close().await;
    for _ in 0..2 {
        let limits = fixture.executions.limits();
        assert!(fixture.executions.call(call("unstored.echo")).await.is_ok(), "no call waits for the database");
        assert!(limits.store_counts(&fixture.store).await.is_err());
        assert!(limits.lock().has_unsaved());
    }
    assert_eq!(fixture.executions.limits().view()[0].uses[0].today, 2);
}
