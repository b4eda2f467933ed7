//! Executions are recorded in batches, found, and deleted after their retention.

use std::time::Duration;

use registry::{
    Batch, Error, ExecutionFilter, ExecutionId, ExecutionRecord, ExecutionStatus, Page, RawJson, RetentionPolicy,
    ServerId, Source, Timestamp,
};

use crate::fixture::{RegistryFixture, on_both};

on_both! {
    a_call_is_recorded_as_far_as_it_got,
    what_is_over_stays_as_it_was,
    calls_are_found_by_what_they_were,
    calls_that_nobody_will_end_are_settled,
    old_calls_are_forgotten_by_age_and_by_number,
}

fn call(server: &str, tool: &str) -> ExecutionRecord {
    ExecutionRecord::submitted(server, tool, Source::Mcp)
}

async fn a_call_is_recorded_as_far_as_it_got(RegistryFixture { store, .. }: RegistryFixture) {
    let mut record = call("one", "echo");
    record.server_id = Some(ServerId::fresh());
    record.caller = Some("ops".into());
    record.document_path = Some("notes/a.md".to_owned());
    record.section_line = Some(7);
    record.arguments = Some(RawJson::parse(r#"{"b": 1.0,  "a":"\u0000"}"#).unwrap());
    store.record(&Batch::of([&record], [])).await.unwrap();
    assert_eq!(store.execution(record.id).await.unwrap(), record);

    record.status = ExecutionStatus::Success;
    record.started_at = Some(Timestamp::now());
    record.completed_at = Some(Timestamp::now());
    record.duration = Some(Duration::from_micros(1500));
    record.retries = 1;
    record.request_id = Some("\"a-7\"".into());
    (record.request_bytes, record.response_bytes) = (Some(120), Some(5_000_000_000));
    record.result = Some(RawJson::parse(r#"{"content":[]}"#).unwrap());
    // Both in one batch, as a writer that fell behind sends them; and twice, as one that is not sure.
    for _ in 0..2 {
        store.record(&Batch::of([&record, &call("two", "x"), &record], [])).await.unwrap();
        assert_eq!(store.execution(record.id).await.unwrap(), record);
    }
    let shown = serde_json::to_value(&record).unwrap();
    assert_eq!((&shown["status"], &shown["duration_ms"]), (&"success".into(), &1.5.into()));
    store.record(&Batch::of([], [])).await.unwrap();
    let unknown = store.execution(ExecutionId::fresh()).await;
    assert!(matches!(unknown, Err(Error::NotFound { what: "execution", .. })));
}

async fn what_is_over_stays_as_it_was(RegistryFixture { store, .. }: RegistryFixture) {
    let pending = call("one", "echo");
    let mut done = pending.clone();
    done.status = ExecutionStatus::Timeout;
    done.error_message = Some("too slow".to_owned());
    store.record(&Batch::of([&done, &pending], [&pending])).await.unwrap();
    let kept = store.execution(pending.id).await.unwrap();
    assert_eq!(kept.status, ExecutionStatus::Timeout);
    assert!(kept.completed_at.is_some(), "what is over has an end");
}

async fn calls_are_found_by_what_they_were(RegistryFixture { store, .. }: RegistryFixture) {
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    let server_id = ServerId::fresh();
    let statuses = ExecutionStatus::ALL;
    let records: Vec<ExecutionRecord> = (0..60_usize)
        .map(|number| {
            let mut record = call(if number % 2 == 0 { "even" } else { "odd" }, &format!("t{}", number % 3));
            record.submitted_at = start.later_by(Duration::from_secs(number as u64));
            record.status = statuses[number % statuses.len()];
            record.source = if number < 10 { Source::UserCodeblock } else { Source::Rest };
            record.server_id = (number % 2 == 0).then_some(server_id);
            record.document_path = (number == 5).then(|| "a.md".to_owned());
            record
        })
        .collect();
    store.record(&Batch::of([], &records)).await.unwrap();
    let total = |filter: ExecutionFilter| {
        let store = store.clone();
        async move { store.executions(&filter, Page::first(5)).await.unwrap().total }
    };
    let all = ExecutionFilter::default;
    assert_eq!(total(all()).await, 60);
    assert_eq!(total(ExecutionFilter { server_name: Some("odd".to_owned()), ..all() }).await, 30);
    assert_eq!(total(ExecutionFilter { server_id: Some(server_id), ..all() }).await, 30);
    assert_eq!(total(ExecutionFilter { tool_name: Some("t1".to_owned()), ..all() }).await, 20);
    assert_eq!(total(ExecutionFilter { source: Some(Source::UserCodeblock), ..all() }).await, 10);
    assert_eq!(total(ExecutionFilter { document_path: Some("a.md".to_owned()), ..all() }).await, 1);
    let over = vec![ExecutionStatus::Success, ExecutionStatus::Error];
    assert_eq!(total(ExecutionFilter { status: over, ..all() }).await, 20);
    let (since, until) = (start.later_by(Duration::from_secs(10)), start.later_by(Duration::from_secs(20)));
    let between = ExecutionFilter { since: Some(since), until: Some(until), ..all() };
    assert_eq!(total(between.clone()).await, 10);
    let both = ExecutionFilter { server_name: Some("odd".to_owned()), ..between };
    assert_eq!(total(both).await, 5);

    let newest = store.executions(&all(), Page { limit: 3, offset: 1 }).await.unwrap().items;
    let expected: Vec<ExecutionId> = records.iter().rev().skip(1).take(3).map(|record| record.id).collect();
    assert_eq!(newest.iter().map(|record| record.id).collect::<Vec<_>>(), expected);
}

async fn calls_that_nobody_will_end_are_settled(RegistryFixture { store, .. }: RegistryFixture) {
    let mut old = call("one", "echo");
    old.status = ExecutionStatus::Executing;
    store.record(&Batch::of([&old], [])).await.unwrap();
    let start = Timestamp::now();
    let mut new = call("one", "echo");
    new.submitted_at = start;
    store.record(&Batch::of([&new], [])).await.unwrap();
    assert_eq!(store.settle_executions(start, "the service ended").await.unwrap(), 1);
    let settled = store.execution(old.id).await.unwrap();
    assert_eq!((settled.status, settled.error_message.as_deref()), (ExecutionStatus::Error, Some("the service ended")));
    assert_eq!(store.execution(new.id).await.unwrap(), new);
    // Another service ran it, and it succeeded there.
    old.status = ExecutionStatus::Success;
    old.completed_at = Some(Timestamp::now());
    old.duration = Some(Duration::from_millis(5));
    store.record(&Batch::of([&old], [])).await.unwrap();
    assert_eq!(store.execution(old.id).await.unwrap(), old);
}

async fn old_calls_are_forgotten_by_age_and_by_number(RegistryFixture { store, .. }: RegistryFixture) {
    let now = Timestamp::now();
    let records: Vec<ExecutionRecord> = (0..12_000)
        .map(|age| {
            let mut record = call("one", "echo");
            record.submitted_at = now.earlier_by(Duration::from_secs(age));
            record
        })
        .collect();
    for some in records.chunks(3000) {
        store.record(&Batch::of([], some)).await.unwrap();
    }
    assert_eq!(store.prune_executions(RetentionPolicy::default()).await.unwrap(), 0);
    let keep = RetentionPolicy { since: Some(now.earlier_by(Duration::from_secs(11_000))), newest: Some(100) };
    assert_eq!(store.prune_executions(keep).await.unwrap(), 11_900);
    let left = store.executions(&ExecutionFilter::default(), Page::ALL).await.unwrap();
    assert_eq!(left.total, 100);
    assert_eq!(left.items[99].id, records[99].id);
}
