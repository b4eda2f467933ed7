//! Calls of MCP clients and their executions, at servers in our own process.

use std::sync::Arc;
use std::time::Duration;

use aggregator::LocalClient;
use bytes::Bytes;
use registry::{Batch, ExecutionFilter, ExecutionRecord, ExecutionStatus, Page, Source, Timestamp};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Settings;
use crate::fake::{CallFixture, actor, call, until};

/// A client that makes one call and disconnects.
fn client_calls(fixture: &CallFixture, tool: &str) -> JoinHandle<Value> {
    let params = json!({"name": tool, "arguments": {"n": 1}});
    let request = json!({"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params});
    let mut client = LocalClient::connect(&fixture.aggregator).unwrap();
    tokio::spawn(async move {
        let answer = client.request(Bytes::from(request.to_string()), |line| line.starts_with(b"{")).await.unwrap();
        serde_json::from_slice(&answer).unwrap()
    })
}

async fn listed(fixture: &CallFixture, status: ExecutionStatus) -> Vec<ExecutionRecord> {
    let filter = ExecutionFilter { status: vec![status], ..ExecutionFilter::default() };
    fixture.executions.list(&filter, Page::default()).await.unwrap().items
}

#[tokio::test]
async fn a_call_of_a_client_is_listed_while_it_runs_and_recorded_when_it_ended() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("seen").await;
    let calling = client_calls(&fixture, "seen.stuck");
    until("it runs", || server.running() == 1).await;
    let running = listed(&fixture, ExecutionStatus::Executing).await;
    assert_eq!(running.len(), 1);
    assert_eq!((running[0].source, &*running[0].tool_name), (Source::Mcp, "stuck"));
    assert_eq!(running[0].server_id, Some(fixture.server_table.find("seen").unwrap().id));
    server.let_go.notify_waiters();
    let answer = calling.await.unwrap();
    assert_eq!(answer["id"], "mine");
    assert!(answer.get("result").is_some() && answer.as_object().unwrap().len() == 3, "nothing is added: {answer}");
    fixture.executions.close().await;
    let kept = fixture.store.executions(&ExecutionFilter::default(), Page::default()).await.unwrap();
    assert_eq!((kept.total, kept.items[0].id, kept.items[0].status), (1, running[0].id, ExecutionStatus::Success));
    let statuses = [ExecutionStatus::Pending, ExecutionStatus::Executing, ExecutionStatus::Success];
    assert_eq!(fixture.observer.statuses(), statuses);
}

#[tokio::test]
async fn a_client_learns_that_an_operator_cancelled_its_call() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("taken").await;
    let calling = client_calls(&fixture, "taken.stuck");
    until("it runs", || server.running() == 1).await;
    let id = listed(&fixture, ExecutionStatus::Executing).await[0].id;
    let record = fixture.executions.cancel(&actor(), id).await.unwrap();
    assert_eq!(record.status, ExecutionStatus::Cancelled);
    let error = calling.await.unwrap()["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("execution_cancelled")));
    assert_eq!(server.cancelled(), 1, "the server is told");
    let audit = fixture.store.audit(&Default::default(), Page::default()).await.unwrap().items;
    assert_eq!(
        (audit[0].action.as_str(), audit[0].target.as_deref()),
        ("execution.cancel", Some(id.to_string().as_str()))
    );
}

#[tokio::test]
async fn calls_of_clients_wait_for_their_turn_where_that_is_set_and_can_be_cancelled_there() {
    let fixture = CallFixture::open(Settings { mcp_concurrent_limit: 1, ..Settings::default() }).await;
    let server = fixture.server("queue").await;
    let running = client_calls(&fixture, "queue.stuck");
    until("it runs", || server.running() == 1).await;
    let (cancelled, waiting) = (client_calls(&fixture, "queue.echo"), client_calls(&fixture, "queue.echo"));
    until("two wait", || fixture.executions.reading().mcp_queued == 2).await;
    let pending = listed(&fixture, ExecutionStatus::Pending).await;
    assert_eq!(pending.len(), 2);
    fixture.executions.cancel(&actor(), pending[1].id).await.unwrap();
    assert_eq!(cancelled.await.unwrap()["error"]["data"]["reason"], "execution_cancelled");
    assert_eq!(server.calls(), 1);
    assert!(fixture.executions.call(call("queue.echo")).await.is_ok(), "others have a limit of their own");
    server.let_go.notify_waiters();
    assert!(running.await.unwrap().get("result").is_some());
    assert!(waiting.await.unwrap().get("result").is_some());
    let reading = fixture.executions.reading();
    assert_eq!((reading.mcp_running, reading.mcp_queued), (0, 0));
}

#[tokio::test]
async fn calls_of_clients_are_timed_where_that_is_set() {
    let fixture = CallFixture::open(Settings { mcp_timeout_ms: Some(100), ..Settings::default() }).await;
    let server = fixture.server("timed").await;
    let error = client_calls(&fixture, "timed.stuck").await.unwrap()["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32001), &json!("execution_timeout")));
    assert_eq!(server.cancelled(), 1);
    assert_eq!(listed(&fixture, ExecutionStatus::Timeout).await.len(), 1);
}

#[tokio::test]
async fn clients_are_refused_while_executions_are_stopped() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("halted").await;
    let calling = client_calls(&fixture, "halted.stuck");
    until("it runs", || server.running() == 1).await;
    assert_eq!(fixture.executions.stop(&actor()).await.cancelled, 1);
    assert_eq!(calling.await.unwrap()["error"]["data"]["reason"], "execution_cancelled");
    let error = client_calls(&fixture, "halted.echo").await.unwrap()["error"].clone();
    assert_eq!((&error["data"]["reason"], &error["data"]["safeToRetry"]), (&json!("executions_stopped"), &json!(true)));
    fixture.executions.reset(&actor()).await;
    assert!(client_calls(&fixture, "halted.echo").await.unwrap().get("result").is_some());
    assert_eq!(fixture.executions.reading().refused_by_stop, 1);
}

#[tokio::test]
async fn a_client_that_leaves_has_cancelled_its_calls() {
    let fixture = CallFixture::open(Settings { mcp_concurrent_limit: 1, ..Settings::default() }).await;
    let server = fixture.server("leaving").await;
    let (running, waiting) = (client_calls(&fixture, "leaving.stuck"), client_calls(&fixture, "leaving.echo"));
    until("one runs, one waits", || server.running() == 1 && fixture.executions.reading().mcp_queued == 1).await;
    for execution in fixture.executions.live.all() {
        let (client, _) = execution.request().unwrap();
        fixture.aggregator.abandon(&client);
    }
    until("nothing is left", || fixture.executions.live.is_empty()).await;
    assert_eq!(listed(&fixture, ExecutionStatus::Cancelled).await.len(), 2);
    let reading = fixture.executions.reading();
    assert_eq!((reading.mcp_running, reading.mcp_queued), (0, 0));
    running.abort();
    waiting.abort();
}

#[tokio::test]
async fn everything_at_one_server_can_be_cancelled() {
    let fixture = CallFixture::open(Settings::default()).await;
    let (here, there) = (fixture.server("here").await, fixture.server("there").await);
    let (mine, other) = (client_calls(&fixture, "here.stuck"), client_calls(&fixture, "there.stuck"));
    until("both run", || here.running() + there.running() == 2).await;
    assert_eq!(fixture.executions.cancel_all_at(0, "server `here` is being disconnected"), 1);
    let message = mine.await.unwrap()["error"]["message"].clone();
    assert_eq!(message, "The call was cancelled: server `here` is being disconnected");
    there.let_go.notify_waiters();
    assert!(other.await.unwrap().get("result").is_some());
}

#[tokio::test]
async fn what_a_crash_left_open_is_ended_and_what_takes_long_is_known_before_its_end() {
    let fixture = CallFixture::open(Settings::default()).await;
    let mut left = ExecutionRecord::submitted("old", "t", Source::Mcp);
    left.submitted_at = Timestamp::now().earlier_by(Duration::from_secs(3600));
    left.status = ExecutionStatus::Executing;
    fixture.store.record(&Batch::of([&left], [])).await.unwrap();
    let recorder = Arc::new(crate::recorder::Recorder::default());
    tokio::spawn(Arc::clone(&recorder).run(fixture.store.clone(), fixture.executions.settings.clone()));
    let mut settled = left.clone();
    while !settled.status.is_final() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        settled = fixture.store.execution(left.id).await.unwrap();
    }
    recorder.close().await;
    assert_eq!(settled.error_message.as_deref(), Some("the service ended before the call did"));

    let server = fixture.server("long").await;
    let calling = client_calls(&fixture, "long.stuck");
    until("it runs", || server.running() == 1).await;
    let id = listed(&fixture, ExecutionStatus::Executing).await[0].id;
    let mut kept = None;
    while kept.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        kept = fixture.store.execution(id).await.ok();
    }
    assert_eq!(kept.unwrap().status, ExecutionStatus::Executing);
    assert_eq!(fixture.executions.list(&ExecutionFilter::default(), Page::default()).await.unwrap().total, 2);
    server.let_go.notify_waiters();
    calling.await.unwrap();
    fixture.executions.close().await;
    assert_eq!(fixture.store.execution(id).await.unwrap().status, ExecutionStatus::Success);
}

#[tokio::test]
async fn a_database_that_is_unreachable_delays_no_call_and_loses_the_oldest_records_last() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("away").await;
    fixture.store.close().await;
    for _ in 0..10 {
        assert!(client_calls(&fixture, "away.echo").await.unwrap().get("result").is_some());
        assert!(fixture.executions.call(call("away.echo")).await.is_ok());
    }
    assert_eq!(fixture.executions.reading().history_waiting, 20);
    until("it is told", || fixture.executions.write_error().is_some()).await;
}

#[tokio::test]
async fn what_is_too_much_is_forgotten_at_the_start_and_when_the_limit_changes() {
    let fixture = CallFixture::open(Settings { keep_executions: 8, ..Settings::default() }).await;
    let records = (0..9).map(|_| ExecutionRecord::submitted("old", "t", Source::Rest)).collect::<Vec<_>>();
    let ended = records.into_iter().map(|record| ExecutionRecord { status: ExecutionStatus::Success, ..record });
    fixture.store.record(&Batch::of([], &ended.collect::<Vec<_>>())).await.unwrap();
    let kept = async |count: u64| {
        while fixture.store.executions(&ExecutionFilter::default(), Page::default()).await.unwrap().total != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let is_so_in_time = async |count| tokio::time::timeout(Duration::from_secs(120), kept(count)).await.is_ok();
    let recorder = Arc::new(crate::recorder::Recorder::default());
    tokio::spawn(Arc::clone(&recorder).run(fixture.store.clone(), fixture.executions.settings.clone()));
    assert!(is_so_in_time(8).await);
    recorder.close().await;
    fixture.set(Settings { keep_executions: 5, ..Settings::default() });
    assert!(is_so_in_time(5).await);
}

#[tokio::test]
async fn a_call_of_half_a_second_is_noted_before_its_end() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("noted").await;
    let calling = client_calls(&fixture, "noted.stuck");
    until("it runs", || server.running() == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(500)).await;
    fixture.executions.check_long_calls();
    assert!(fixture.executions.live.all()[0].is_noted());
    tokio::time::resume();
    calling.abort();
}
