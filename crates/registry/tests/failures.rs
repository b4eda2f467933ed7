//! What a killed program, a second program and an unreachable database leave behind.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use registry::{
    Batch, CredentialKey, Error, ExecutionFilter, ExecutionRecord, Location, Page, PostgresLocation, ServerFilter,
    Source, Status, StatusChange, Store, ToolFilter,
};
use testkit::Postgres;

use crate::fixture::{RegistryFixture, on_both, registered, server, tool};

on_both! {
    a_killed_program_keeps_every_acknowledged_write_and_no_partial_one,
    two_programs_share_a_registry,
    an_operation_that_is_given_up_leaves_nothing,
}

/// A database that does not respond fails after five seconds; a busy machine takes longer to notice.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Tells the child of a test where the registry is, and how to name its servers.
const CHILD_VARIABLE: &str = "REGISTRY_TEST_CHILD";

const TOOLS: u32 = 7;

/// Not a test by itself: the program that the tests below start and kill.
#[tokio::test]
async fn child() {
    let Ok(task) = std::env::var(CHILD_VARIABLE) else { return };
    let [place, key, prefix, count] = task.splitn(4, '\n').collect::<Vec<_>>().try_into().unwrap();
    let key = CredentialKey::parse(key).unwrap();
    let store = Store::open(&Location::parse(place).unwrap(), &key).await.unwrap();
    for number in 0..count.parse().unwrap() {
        let name = format!("{prefix}{number}");
        let id = registered(&store, &name).await.id;
        println!("\nregistered {name}");
        let tools: Vec<_> = (0..TOOLS).map(|at| tool(&format!("t{at}"), "x")).collect();
        store.replace_tools(id, &tools[..]).await.unwrap();
        println!("\ntools {name}");
        store.set_status(id, StatusChange::to(Status::Connected)).await.unwrap();
        println!("\nconnected {name}");
    }
    println!("\ndone");
}

fn start_child(fixture: &RegistryFixture, prefix: &str, count: u32) -> (Child, BufReader<ChildStdout>) {
    let place = match &fixture.location {
        Location::File(path) => path.display().to_string(),
        Location::Postgres(place) => place.url.clone(),
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["failures::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_VARIABLE, [&place, KEY, prefix, &count.to_string()].join("\n"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// The key, which the children need, too.
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

async fn with_known_key(fixture: &RegistryFixture) -> Store {
    let key = CredentialKey::parse(KEY).unwrap();
    fixture.store.rekey(&key).await.unwrap();
    fixture.store.clone()
}

async fn a_killed_program_keeps_every_acknowledged_write_and_no_partial_one(fixture: RegistryFixture) {
    let store = with_known_key(&fixture).await;
    let mut kept: Vec<String> = Vec::new();
    for round in 0..15 {
        let (mut child, lines) = start_child(&fixture, &format!("r{round}-"), 10_000);
        // At a different point of the work each time.
        let records = lines.lines().map(Result::unwrap).filter(|line| line.contains(&format!(" r{round}-")));
        kept.extend(records.take(3 + round * 2));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for line in &kept {
        let (operation, name) = line.split_once(' ').unwrap();
        let server = store.find_server(name).await.unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(operation == "registered" || server.tool_count == TOOLS, "{line}: {server:?}");
        assert!(operation != "connected" || server.status == Status::Connected, "{line}: {server:?}");
    }
    for server in store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().items {
        let filter = ToolFilter { server: Some(server.id), ..ToolFilter::default() };
        let tools = store.tools(&filter, Page::ALL).await.unwrap().total;
        assert_eq!(tools, u64::from(server.tool_count), "{server:?}");
        assert!(tools == 0 || tools == u64::from(TOOLS));
        let events = store.history(server.id, Page::ALL).await.unwrap().total;
        assert_eq!(events, u64::from(server.status == Status::Connected), "{server:?}");
    }
}

async fn two_programs_share_a_registry(fixture: RegistryFixture) {
    let store = with_known_key(&fixture).await;
    let (mut child, lines) = start_child(&fixture, "theirs-", 30);
    let mut lines = lines.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("registered ")));
    for number in 0..30 {
        registered(&store, &format!("ours-{number}")).await;
    }
    assert!(lines.any(|line| line == "done"));
    child.wait().unwrap();
    assert_eq!(store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 60);
}

async fn an_operation_that_is_given_up_leaves_nothing(fixture: RegistryFixture) {
    let store = fixture.store.clone();
    let id = registered(&store, "one").await.id;
    let tools: Vec<_> = (0..TOOLS).map(|at| tool(&format!("t{at}"), "x")).collect();
    // Dropped a little later each time, so at some point between its first statement and its end.
    for patience in 0..60_u64 {
        let limit = Duration::from_micros(patience * 40);
        let replaced = tokio::time::timeout(limit, store.replace_tools(id, &tools[..])).await;
        let kept = store.tools(&ToolFilter::default(), Page::ALL).await.unwrap().total;
        let counted = store.server(id).await.unwrap().tool_count;
        assert!(kept == 0 || kept == u64::from(TOOLS), "{kept} of {TOOLS} after {limit:?}");
        assert!(replaced.is_err() || kept == u64::from(TOOLS));
        // The last one may have been committed between the two queries, but not partially.
        assert!(u64::from(counted) == kept || kept == 0);
        store.replace_tools(id, []).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_that_comes_back_is_used_again() {
    let Some(mut postgres) = tokio::task::spawn_blocking(Postgres::start).await.unwrap() else { return };
    let location = Location::postgres(postgres.database("registry"));
    let store = Store::open(&location, &CredentialKey::generate().unwrap()).await.unwrap();
    registered(&store, "before").await;

    for round in 0..3 {
        // Some pooled connections are idle when the server stops, others are in use.
        let all = ServerFilter::default();
        let before = store.servers(&all, Page::first(1)).await.unwrap().total;
        let writers: Vec<_> =
            (0..6).map(|writer| tokio::spawn(write_until_it_fails(store.clone(), round, writer))).collect();
        while store.servers(&all, Page::first(1)).await.unwrap().total < before + 50 {}
        postgres = tokio::task::spawn_blocking(move || {
            if round == 1 {
                postgres.crash();
            } else {
                postgres.stop();
            }
            postgres
        })
        .await
        .unwrap();
        let mut written = Vec::new();
        for writer in writers {
            written.extend(writer.await.unwrap());
        }
        let asked = Instant::now();
        let error = store.find_server("before").await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert!(asked.elapsed() < MAX_WAIT, "it took {:?}", asked.elapsed());

        postgres = tokio::task::spawn_blocking(move || {
            postgres.start_again();
            postgres
        })
        .await
        .unwrap();
        // At once, and for everybody: no dead connection is left in the pool.
        for _ in 0..20 {
            store.find_server("before").await.unwrap();
        }
        registered(&store, &format!("after {round}")).await;
        for name in written {
            store.find_server(&name).await.unwrap_or_else(|error| panic!("{name} was kept: {error}"));
        }
    }
}

async fn write_until_it_fails(store: Store, round: usize, writer: usize) -> Vec<String> {
    let mut written = Vec::new();
    loop {
        let name = format!("r{round}-w{writer}-{}", written.len());
        match store.insert_server(server(&name)).await {
            Ok(_) => written.push(name),
            Err(Error::Unavailable { .. }) => return written,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_file_is_temporarily_unavailable() {
    let fixture = RegistryFixture::sqlite().await.unwrap();
    let Location::File(path) = &fixture.location else { unreachable!("it is a file") };
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asked = Instant::now();
    let error = fixture.store.insert_server(server("one")).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(asked.elapsed() < MAX_WAIT, "it took {:?}", asked.elapsed());
    assert_eq!(fixture.store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 0, "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    registered(&fixture.store, "one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_table_is_temporarily_unavailable() {
    let Some(fixture) = RegistryFixture::postgres().await else { return };
    let Location::Postgres(PostgresLocation { url, .. }) = &fixture.location else { unreachable!("it is PostgreSQL") };
    let (other, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    other.batch_execute("BEGIN; LOCK TABLE mcp.external_servers").await.unwrap();
    // More than there are connections: none may be left in an unusable state.
    let asked = Instant::now();
    let tries: Vec<_> = (0..12)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.insert_server(server(&format!("s{number}"))).await })
        })
        .collect();
    for attempt in tries {
        let error = attempt.await.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    assert!(asked.elapsed() < MAX_WAIT, "it took {:?}", asked.elapsed());
    fixture.store.settings().await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
    registered(&fixture.store, "one").await;
    assert_eq!(fixture.store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 1);
    drop(other);
    driver.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_does_not_keep_others_from_reading() {
    let fixture = RegistryFixture::sqlite().await.unwrap();
    let store = fixture.store.clone();
    let recording = tokio::spawn(async move {
        for _ in 0..10 {
            let some: Vec<_> = (0..2000).map(|_| ExecutionRecord::submitted("one", "echo", Source::Mcp)).collect();
            store.record(&Batch::of([], &some)).await.unwrap();
        }
    });
    while !recording.is_finished() {
        let seen = fixture.store.executions(&ExecutionFilter::default(), Page::first(1)).await.unwrap().total;
        assert_eq!(seen % 2000, 0, "a batch is seen whole or not at all");
    }
    recording.await.unwrap();
}
