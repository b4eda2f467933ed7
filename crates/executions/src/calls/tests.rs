//! Calls at servers in our own process.

use std::sync::Arc;
use std::time::Duration;

use catalog::ServerState;
use registry::{ExecutionStatus, Source, Status};

use crate::fake::{CallFixture, call, until};
use crate::{Call, Error, Settings};

fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

/// Pauses the clock: it advances only when nothing else happens. The database is not used meanwhile.
fn pause() {
    tokio::time::pause();
}

#[tokio::test]
async fn a_result_is_returned_byte_for_byte_with_metadata() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("bytes").await;
    let outcome = fixture.executions.call(call("bytes.echo")).await.unwrap();
    assert_eq!(outcome.result.get(), r#"{"content":[{"type":"text","text":"{\"n\":100.0}"}],"isError":false}"#);
    let metadata = outcome.metadata;
    assert_eq!((metadata.routed_to.as_str(), metadata.routing_strategy), ("bytes", "namespace_resolved"));
    // Each of the three is rounded to the microsecond, so together they are off by 1.5 µs at most.
    let parts = metadata.routing_time_ms + metadata.execution_time_ms;
    assert!(metadata.total_time_ms >= parts - 0.002, "{metadata:?}");
    let record = fixture.executions.find(metadata.execution_id).await.unwrap();
    assert_eq!(
        (record.status, record.source, record.caller.as_deref()),
        (ExecutionStatus::Success, Source::Rest, Some("tester"))
    );
    assert!(record.arguments.is_none() && record.result.is_none(), "payloads are nobody's business");
    assert!(record.started_at.is_some() && record.completed_at.is_some() && record.duration.is_some());
}

#[tokio::test]
async fn without_a_database_a_tool_that_is_not_connected_is_not_called_unknown() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("near").await;
    let error = fixture.executions.call(call("elsewhere")).await.unwrap_err();
    assert_eq!(error.code(), "TOOL_NOT_FOUND");
    fixture.store.close().await;
    let error = fixture.executions.call(call("elsewhere")).await.unwrap_err();
    assert_eq!(error.code(), "DATABASE_UNAVAILABLE", "{error}");
}

#[tokio::test]
async fn a_tool_is_found_by_every_name_that_can_only_mean_it() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server_with("found-a", &["echo", "read.file"], None).await;
    fixture.server_with("found-b", &["echo", "only.here"], None).await;
    let id = fixture.server_table.find("found-b").unwrap().id.to_string();
    let found = async |name: &str, server: Option<&str>| {
        let call = Call { server: server.map(str::to_owned), ..call(name) };
        let metadata = fixture.executions.call(call).await.unwrap().metadata;
        (metadata.routed_to, metadata.routing_strategy)
    };
    let expected = |server: &str, strategy: &'static str| (server.to_owned(), strategy);
    assert_eq!(found("found-a.read.file", None).await, expected("found-a", "namespace_resolved"));
    assert_eq!(found("only.here", None).await, expected("found-b", "original_name"));
    assert_eq!(found("echo", Some("found-b")).await, expected("found-b", "server_specified"));
    assert_eq!(found("echo", Some(&id)).await, expected("found-b", "server_specified"));
    assert_eq!(found("found-b.echo", Some(&id)).await, expected("found-b", "server_specified"));

    let missed = async |name: &str, server: Option<&str>| {
        let call = Call { server: server.map(str::to_owned), ..call(name) };
        fixture.executions.call(call).await.unwrap_err()
    };
    let ambiguous = missed("echo", None).await;
    assert_eq!(ambiguous.to_string(), "several servers have a tool `echo`: found-a.echo, found-b.echo");
    assert_eq!(missed("found-a.nothing", None).await.code(), "TOOL_NOT_FOUND");
    assert_eq!(missed("nothing", None).await.code(), "TOOL_NOT_FOUND");
    assert_eq!(missed("only.here", Some("found-a")).await.code(), "TOOL_NOT_FOUND");
    assert_eq!(missed("echo", Some("nobody")).await.code(), "SERVER_NOT_FOUND");
}

#[tokio::test]
async fn a_server_that_is_down_is_reported_with_its_state() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.slot_index("down", ServerState::Stopped, Status::Error);
    for (name, server) in [("down.echo", None), ("echo", Some("down".to_owned()))] {
        let error = fixture.executions.call(Call { server, ..call(name) }).await.unwrap_err();
        assert_eq!(error.code(), "SERVER_UNAVAILABLE");
        assert!(error.to_string().starts_with("Server `down` is not available: error since 20"), "{error}");
        let since = error.to_string().split("since ").nth(1).map(str::to_owned).unwrap_or_default();
        assert_eq!(since.chars().nth("2026-11-16T08:00:00".len()), Some('Z'), "to the second: {error}");
    }
    fixture.slot_index("lost", ServerState::Stopped, Status::Connected);
    let error = fixture.executions.call(call("lost.echo")).await.unwrap_err().to_string();
    assert!(error.contains("its connection was just lost") && !error.contains("connected since"), "{error}");
}

#[tokio::test]
async fn a_call_that_waits_for_its_server_to_start_can_be_seen_and_stopped() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.slot_index("soon", ServerState::Initializing, Status::Connecting);
    let executions = Arc::clone(&fixture.executions);
    let waiting = tokio::spawn(async move { executions.call(call("soon.echo")).await });
    let seen = || fixture.executions.live().into_iter().next();
    until("it is there", || seen().is_some()).await;
    let record = seen().unwrap().record();
    assert_eq!((record.status, &*record.tool_name), (ExecutionStatus::Pending, "echo"));
    assert_eq!(fixture.executions.reading().running, 0, "it is in nobody's way");
    fixture.executions.cancel_all_at(seen().unwrap().slot_index(), "somebody said so");
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "EXECUTION_CANCELLED");
    let kept = fixture.executions.find(record.id).await.unwrap();
    assert_eq!(kept.status, ExecutionStatus::Cancelled);
}

#[tokio::test]
async fn failures_at_the_server_are_reported_by_kind() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server("wrong").await;
    let outcome = fixture.executions.call(call("wrong.failing")).await.unwrap();
    assert!(outcome.result.get().contains("\"isError\":true"), "a tool that failed has answered");
    let record = fixture.executions.find(outcome.metadata.execution_id).await.unwrap();
    assert_eq!(record.status, ExecutionStatus::Error);
    let error = fixture.executions.call(call("wrong.refusing")).await.unwrap_err();
    assert_eq!((error.code(), error.context()["error"]["code"].as_i64()), ("EXECUTION_FAILED", Some(-32602)));
    let arguments = registry::RawJson::parse("[1]").unwrap();
    let error = fixture.executions.call(Call { arguments, ..call("wrong.echo") }).await.unwrap_err();
    assert_eq!(error.code(), "VALIDATION_ERROR");
}

#[tokio::test]
async fn a_call_is_made_again_only_where_that_does_no_harm() {
    let fixture = CallFixture::open(Settings::default()).await;
    let unreachable = fixture.server_with("again-a", &["unreachable"], None).await;
    let lost = fixture.server_with("again-b", &["lost"], None).await;
    let harmless = fixture.server_with("again-c", &["lost-twice"], None).await;
    pause();
    let began = tokio::time::Instant::now();
    let outcome = fixture.executions.call(call("unreachable")).await.unwrap();
    assert_eq!((unreachable.calls(), began.elapsed().as_secs()), (3, 6), "after 1 s, and after 5 s");
    let error = fixture.executions.call(call("lost")).await.unwrap_err();
    assert_eq!((error.code(), lost.calls()), ("EXECUTION_FAILED", 1));
    assert!(fixture.executions.call(call("lost-twice")).await.is_ok());
    assert_eq!(harmless.calls(), 3);
    tokio::time::resume();
    assert_eq!(fixture.executions.find(outcome.metadata.execution_id).await.unwrap().retries, 2);
}

#[tokio::test]
async fn a_call_that_never_got_to_its_server_is_reported_with_its_state() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("remote").await;
    let id = fixture.server_table.find("remote").unwrap().id;
    pause();
    for (tool, code, reason) in [
        ("remote.away", "SERVER_CONNECTION_FAILED", "server_unreachable"),
        ("remote.forgetful", "SESSION_NOT_FOUND", "session_lost"),
    ] {
        let error = fixture.executions.call(call(tool)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        let expected = serde_json::json!({"server_id": id, "server_name": "remote", "status": "connected",
            "reason": reason, "safeToRetry": true});
        assert_eq!(error.context(), expected);
    }
    assert_eq!(server.calls(), 5, "one was made four times; a session that could not be renewed is not tried again");
}

#[tokio::test]
async fn calls_that_wait_to_be_made_again_keep_no_others_waiting() {
    let fixture = CallFixture::open(with(|settings| settings.concurrent_limit = 2)).await;
    let gone = fixture.server_with("gone", &["away"], None).await;
    fixture.server("well").await;
    let start = |name: &'static str| {
        let executions = Arc::clone(&fixture.executions);
        tokio::spawn(async move { executions.call(call(name)).await })
    };
    let waiting = [start("gone.away"), start("gone.away"), start("gone.away")];
    until("each was made once", || gone.calls() >= 3).await;
    until("none of them is in the way", || fixture.executions.reading().running == 0).await;
    // From here on time advances only while nothing else happens, so a call outside the queue spends none there.
    pause();
    let metadata = start("well.echo").await.unwrap().unwrap().metadata;
    assert!(metadata.queue_time_ms < 500.0, "{metadata:?}");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap_err().code(), "SERVER_CONNECTION_FAILED");
    }
    let reading = fixture.executions.reading();
    assert_eq!((reading.running, reading.queued), (0, 0));
}

#[tokio::test]
async fn a_call_that_times_out_is_cancelled_at_its_server() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("late").await;
    pause();
    let began = tokio::time::Instant::now();
    let error = fixture.executions.call(call("late.stuck")).await.unwrap_err();
    assert_eq!((error.code(), began.elapsed().as_secs()), ("EXECUTION_TIMEOUT", 30));
    assert_eq!(error.context()["timeout_ms"], 30_000);
    assert_eq!(server.cancelled(), 1);
    let began = tokio::time::Instant::now();
    let hasty = Call { timeout_ms: Some(1000), ..call("late.stuck") };
    assert_eq!(fixture.executions.call(hasty).await.unwrap_err().code(), "EXECUTION_TIMEOUT");
    assert_eq!(began.elapsed().as_secs(), 1);
    assert_eq!(fixture.executions.reading().running, 0);
}

#[tokio::test]
async fn the_time_in_the_queue_counts_and_is_distinguished() {
    let fixture = CallFixture::open(with(|settings| settings.concurrent_limit = 1)).await;
    let server = fixture.server("turns").await;
    let start = |call: Call| {
        let executions = Arc::clone(&fixture.executions);
        tokio::spawn(async move { executions.call(call).await })
    };
    let running = start(call("turns.stuck"));
    until("it runs", || server.running() == 1).await;
    // The patient one comes first, so that it has waited longer than the whole time of the hasty one.
    let patient = start(call("turns.echo"));
    let hasty = start(Call { timeout_ms: Some(1000), ..call("turns.echo") });
    until("two wait", || fixture.executions.reading().queued == 2).await;
    pause();
    let began = tokio::time::Instant::now();
    let error = hasty.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "EXECUTION_TIMEOUT");
    // Timers are rounded up to whole milliseconds.
    assert!(began.elapsed() < Duration::from_millis(1_010), "it waited longer than it may take: {:?}", began.elapsed());
    assert_eq!(server.calls(), 1, "it never got there");
    server.let_go.notify_waiters();
    running.await.unwrap().unwrap();
    let metadata = patient.await.unwrap().unwrap().metadata;
    // Time was paused but for the second in the queue, which is counted once.
    assert!(metadata.queue_time_ms > 900.0, "{metadata:?}");
    let parts = metadata.queue_time_ms + metadata.routing_time_ms + metadata.execution_time_ms;
    assert!(parts <= metadata.total_time_ms + 0.002, "{metadata:?}");
    let reading = fixture.executions.reading();
    assert_eq!((reading.running, reading.queued), (0, 0));
}

#[tokio::test]
async fn the_limit_of_a_server_counts_more_than_that_of_all() {
    let fixture = CallFixture::open(Settings::default()).await;
    fixture.server_with("patient", &["stuck"], Some(Duration::from_secs(100))).await;
    pause();
    let began = tokio::time::Instant::now();
    let error = fixture.executions.call(call("patient.stuck")).await.unwrap_err();
    assert_eq!(error.code(), "EXECUTION_TIMEOUT");
    assert!((100..103).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn five_hundred_calls_at_once_keep_to_the_limit_and_none_is_lost() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("busy").await;
    pause();
    let calls: Vec<_> = (0..500)
        .map(|_| {
            let executions = Arc::clone(&fixture.executions);
            tokio::spawn(async move { executions.call(call("busy.slow")).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((server.calls(), server.most_running()), (500, 25));
    let reading = fixture.executions.reading();
    assert_eq!((reading.running, reading.queued, reading.servers[0].calls), (0, 0, [500, 0, 0, 0]));
}

#[tokio::test]
async fn some_of_five_hundred_that_are_given_up_cost_the_others_nothing() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("given-up").await;
    pause();
    let calls: Vec<_> = (0..500)
        .map(|_| {
            let executions = Arc::clone(&fixture.executions);
            tokio::spawn(async move { executions.call(call("given-up.slow")).await })
        })
        .collect();
    until("the queue is long", || fixture.executions.reading().queued > 400).await;
    for call in calls.iter().step_by(3) {
        call.abort();
    }
    let mut done = 0;
    for call in calls {
        done += usize::from(call.await.is_ok_and(|outcome| outcome.is_ok()));
    }
    assert!(done >= 333, "{done} were done");
    assert_eq!(server.most_running(), 25);
    let reading = fixture.executions.reading();
    assert_eq!((reading.running, reading.queued), (0, 0));
    assert_eq!(reading.servers[0].calls.iter().sum::<u64>(), 500, "each has one end");
}

#[tokio::test]
async fn calls_beyond_the_queue_limit_are_refused_with_a_message() {
    let fixture = CallFixture::open(with(|settings| (settings.concurrent_limit, settings.queue_limit) = (1, 1))).await;
    let server = fixture.server("full").await;
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let executions = Arc::clone(&fixture.executions);
            tokio::spawn(async move { executions.call(call("full.stuck")).await })
        })
        .collect();
    until("one runs and one waits", || {
        let reading = fixture.executions.reading();
        (reading.running, reading.queued) == (1, 1)
    })
    .await;
    let error = fixture.executions.call(call("full.echo")).await.unwrap_err();
    assert_eq!(error.code(), "LIMIT_REACHED");
    assert!(error.to_string().contains("1 may run, and 1 already wait"), "{error}");
    // A higher limit takes effect at once.
    fixture.set(with(|settings| settings.concurrent_limit = 2));
    until("both run", || server.running() == 2).await;
    server.let_go.notify_waiters();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fixture.executions.reading().refused_by_limit, 1);
}

#[tokio::test]
async fn a_session_of_a_document_or_an_assistant_ends_and_can_start_over() {
    let fixture = CallFixture::open(with(|settings| settings.session_limit = 2)).await;
    fixture.server("session").await;
    let from = |source: Source, session: &str| Call { source, session: Some(session.into()), ..call("session.echo") };
    let make = async |call| fixture.executions.call(call).await.map(drop).map_err(|error| error.code());
    for source in [Source::UserCodeblock, Source::AiAutonomous] {
        assert_eq!(make(from(source, "a")).await, Ok(()));
        assert_eq!(make(from(source, "a")).await, Ok(()));
        assert_eq!(make(from(source, "a")).await, Err("LIMIT_REACHED"));
        assert_eq!(make(from(source, "b")).await, Ok(()));
    }
    for _ in 0..5 {
        assert_eq!(make(from(Source::Rest, "a")).await, Ok(()), "others have no limit");
    }
    fixture.executions.reset(&crate::fake::actor()).await;
    assert_eq!(make(from(Source::AiAutonomous, "a")).await, Ok(()));
}

#[tokio::test]
async fn a_call_can_be_cancelled_while_it_waits_while_it_runs_and_before_it_is_made_again() {
    let fixture = CallFixture::open(with(|settings| settings.concurrent_limit = 1)).await;
    let server = fixture.server("cancel").await;
    let start = |tool: &str| {
        let (executions, call) = (Arc::clone(&fixture.executions), call(tool));
        tokio::spawn(async move { executions.call(call).await })
    };
    let running = start("cancel.stuck");
    until("it runs", || server.running() == 1).await;
    let waiting = start("cancel.echo");
    until("one waits", || fixture.executions.reading().queued == 1).await;
    let id_of = async |status| {
        let filter = registry::ExecutionFilter { status: vec![status], ..Default::default() };
        let listed = fixture.executions.list(&filter, registry::Page::default()).await.unwrap();
        assert_eq!(listed.items.len(), 1);
        listed.items[0].id
    };
    let pending = id_of(ExecutionStatus::Pending).await;
    let record = fixture.executions.cancel(&crate::fake::actor(), pending).await.unwrap();
    assert_eq!(record.status, ExecutionStatus::Cancelled);
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "EXECUTION_CANCELLED");
    assert_eq!(server.calls(), 1, "it never got there");

    let executing = id_of(ExecutionStatus::Executing).await;
    fixture.executions.cancel(&crate::fake::actor(), executing).await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "The call was cancelled: an operator ended it");
    assert_eq!(server.cancelled(), 1, "the server was told");
    let again = fixture.executions.cancel(&crate::fake::actor(), executing).await.unwrap();
    assert_eq!(again.status, ExecutionStatus::Cancelled, "what is over stays as it is");

    fixture.server_with("cancel-later", &["unreachable"], None).await;
    let trying = start("cancel-later.unreachable");
    until("it waits to be made again", || {
        fixture.executions.reading().servers.get(1).is_some_and(|server| server.retries == 1)
    })
    .await;
    let pending = id_of(ExecutionStatus::Pending).await;
    fixture.executions.cancel(&crate::fake::actor(), pending).await.unwrap();
    assert_eq!(trying.await.unwrap().unwrap_err().code(), "EXECUTION_CANCELLED");
    assert_eq!(fixture.executions.reading().running, 0);
}

#[tokio::test]
async fn nothing_is_called_while_executions_are_stopped() {
    let fixture = CallFixture::open(Settings::default()).await;
    let server = fixture.server("stopped").await;
    let executions = Arc::clone(&fixture.executions);
    let running = tokio::spawn(async move { executions.call(call("stopped.stuck")).await });
    until("it runs", || server.running() == 1).await;
    let stopped = fixture.executions.stop(&crate::fake::actor()).await;
    assert_eq!((stopped.stopped, stopped.cancelled), (true, 1));
    assert_eq!(running.await.unwrap().unwrap_err().code(), "EXECUTION_CANCELLED");
    let error = fixture.executions.call(call("stopped.echo")).await.unwrap_err();
    assert!(matches!(error, Error::ExecutionStopped));
    assert!(!fixture.executions.reset(&crate::fake::actor()).await.stopped);
    assert!(fixture.executions.call(call("stopped.echo")).await.is_ok());
    let actions: Vec<_> = fixture.store.audit(&Default::default(), Default::default()).await.unwrap().items;
    let actions: Vec<_> = actions.iter().map(|note| (note.action.as_str(), note.who.as_deref())).collect();
    assert_eq!(actions, [("executions.reset", Some("tester")), ("executions.stop", Some("tester"))]);
}

#[tokio::test]
async fn payloads_are_kept_only_where_that_is_enabled() {
    let fixture = CallFixture::open(with(|settings| settings.store_payloads = true)).await;
    fixture.server("payloads").await;
    let outcome = fixture.executions.call(call("payloads.echo")).await.unwrap();
    fixture.executions.close().await;
    let record = fixture.store.execution(outcome.metadata.execution_id).await.unwrap();
    assert_eq!(record.arguments.unwrap().get(), r#"{ "n": 1.0e2 }"#);
    assert_eq!(record.result, Some(outcome.result));
}
