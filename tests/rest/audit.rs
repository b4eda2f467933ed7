//! The audit log: every acknowledged change has its row, however the service ends; and its retention.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};
use testkit::{Postgres, Signal, wait_until};

use super::{PREFIX, Rest, expect, fake};

const WRITERS: usize = 4;
/// The number of acknowledged changes before it is killed.
const CHANGES: usize = 60;

/// Sends requests until the service has ended. Returns the acknowledged changes: action and target.
fn write(
    address: std::net::SocketAddr,
    writer: usize,
    count: &AtomicUsize,
    acknowledged: &Mutex<Vec<(String, String)>>,
) {
    let Ok(mut connection) = Connection::try_open(address) else { return };
    for number in 0.. {
        let name = format!("s{writer}-{number}");
        let mut server = fake(&name, &[]);
        server["enabled"] = false.into();
        let rename = json!({"description": "changed"}).to_string();
        let path = format!("{PREFIX}/servers/{name}");
        let patch = HttpRequest::new("PATCH", &path).header("Content-Type", "application/json").body(rename);
        let steps = [
            ("server.register", 201, HttpRequest::post(&format!("{PREFIX}/servers"), server.to_string())),
            ("server.update", 200, patch),
            ("server.remove", 204, HttpRequest::new("DELETE", &path)),
        ];
        for (action, status, ask) in steps {
            let Some((answered, body)) = connection.try_fetch(&ask) else { return };
            assert_eq!(answered, status, "{action} {name}: {}", String::from_utf8_lossy(&body));
            acknowledged.lock().expect("no writer panicked").push((action.to_owned(), name.clone()));
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Everything in the audit log.
fn audited(rest: &Rest) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    loop {
        let page = expect(200, &rest.get(&format!("/audit?limit=100&offset={}", rows.len())));
        let page = page.as_array().expect("a list");
        if page.is_empty() {
            return rows;
        }
        rows.extend(page.iter().map(|row| (text(&row["action"]), text(&row["target"]))));
    }
}

fn kill_among_writers(mut rest: Rest) {
    for round in 0..2 {
        let (count, acknowledged) = (AtomicUsize::new(0), Mutex::default());
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (address, count, acknowledged) = (rest.serve.address(), &count, &acknowledged);
                scope.spawn(move || write(address, round * WRITERS + writer, count, acknowledged));
            }
            wait_until("there are changes enough", || (count.load(Ordering::SeqCst) >= CHANGES).then_some(()));
            rest.serve.signal(Signal::KILL);
        });
        rest = rest.restarted(true);
        let (rows, acknowledged) = (audited(&rest), acknowledged.into_inner().expect("no writer panicked"));
        let missing: Vec<_> = acknowledged.iter().filter(|change| !rows.contains(change)).collect();
        assert!(missing.is_empty(), "{} of {} acknowledged changes: {missing:?}", missing.len(), acknowledged.len());
    }
}

#[test]
fn killed_among_four_writers_every_acknowledged_change_has_its_audit_row() {
    kill_among_writers(Rest::start());
}

#[test]
fn killed_among_four_writers_every_acknowledged_change_has_its_audit_row_in_postgres() {
    let Some(postgres) = Postgres::shared() else { return };
    kill_among_writers(Rest::on_database(&postgres.database("audit-kill")));
}

#[test]
fn every_kind_of_change_is_in_the_audit_log_when_it_is_acknowledged() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "2"]);
    expect(200, &rest.patch("/servers/one", &json!({"description": "changed"})));
    expect(200, &rest.patch("/settings", &json!({"timeout_ms": 5000})));
    expect(200, &rest.order("/servers/one/disconnect"));
    expect(200, &rest.order("/servers/one/connect"));
    expect(200, &rest.order("/executions/stop"));
    expect(200, &rest.order("/executions/reset"));
    expect(200, &rest.order("/servers/one/disable"));
    expect(204, &rest.delete("/servers/one"));
    // Without waiting: the rows are already there.
    let actions: Vec<String> = audited(&rest).into_iter().rev().map(|(action, _)| action).collect();
    let expected = [
        "server.register",
        "server.update",
        "settings.change",
        "server.disconnect",
        "server.connect",
        "executions.stop",
        "executions.reset",
        "server.disable",
        "server.remove",
    ];
    assert_eq!(actions, expected);
}

#[test]
fn the_audit_log_and_histories_are_no_longer_than_the_settings_allow() {
    let rest = Rest::start();
    let settings = expect(200, &rest.get("/settings"));
    assert_eq!((&settings["keep_audit_days"], &settings["keep_audit"]), (&json!(365), &json!(100_000)));
    assert_eq!((&settings["keep_history_days"], &settings["keep_history"]), (&json!(90), &json!(5000)));
    rest.register("one", &[]);
    for _ in 0..3 {
        expect(200, &rest.order("/servers/one/disable"));
        expect(200, &rest.order("/servers/one/enable"));
    }
    assert!(audited(&rest).len() >= 7);
    expect(200, &rest.patch("/settings", &json!({"keep_audit": 2, "keep_history": 1})));
    wait_until("what is too much is deleted", || {
        let history = expect(200, &rest.get("/servers/one/history?limit=100"));
        (audited(&rest).len() == 2 && history.as_array().unwrap().len() == 1).then_some(())
    });
    assert_eq!(audited(&rest)[0].0, "settings.change", "the newest stays");
}

#[test]
fn the_stopped_state_survives_the_deletion_of_its_audit_row() {
    let rest = Rest::start();
    expect(200, &rest.order("/executions/stop"));
    expect(200, &rest.patch("/settings", &json!({"keep_audit": 0})));
    wait_until("the audit log is empty", || audited(&rest).is_empty().then_some(()));
    let rest = rest.restarted(true);
    assert_eq!(expect(200, &rest.get("/state"))["executions_stopped"], true);
}

#[test]
fn a_change_is_completed_and_audited_even_if_its_client_disconnects() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "2"]);
    rest.wait_for_status("one", "connected");
    let tool = expect(200, &rest.get("/servers/one/tools"))[0]["name"].as_str().expect("it has a name").to_owned();
    // Until this ends, nothing can be written.
    let file = rest.folder.path().join("data/registry.db");
    let database = rusqlite::Connection::open(file).expect("the registry is a file");
    database.execute_batch("BEGIN IMMEDIATE").expect("nobody writes for long");
    let json = |method: &str, path: &str, body: Value| {
        let ask = HttpRequest::new(method, &format!("{PREFIX}{path}"));
        ask.header("Content-Type", "application/json").body(body.to_string())
    };
    let binding = json!({"document": "a.md", "heading_text": "H", "server_id": "one"});
    let asks = [
        json("PATCH", "/settings", json!({"timeout_ms": 1234})),
        json("POST", "/tools/switch", json!({"names": [tool], "enabled": false})),
        json("POST", "/bindings", binding),
    ];
    // A request whose client disconnects before the service starts it is not executed, so each is sent several times;
    // while nothing can be written, none of them can complete.
    for ask in asks.iter().flat_map(|ask| [ask; 5]) {
        let mut connection = rest.serve.connect();
        connection.send(ask);
        expect(200, &rest.get("/settings"));
        connection.writer().shutdown(std::net::Shutdown::Write).expect("it is open");
        // The service has noticed that the clients disconnected.
        assert!(connection.wait_closed().is_empty(), "it could not be done yet");
    }
    database.execute_batch("ROLLBACK").expect("it was begun");
    for action in ["settings.change", "tool.disable", "binding.add"] {
        wait_until(action, || audited(&rest).iter().any(|(done, _)| done == action).then_some(()));
    }
    wait_until("the settings hold", || (expect(200, &rest.get("/settings"))["timeout_ms"] == 1234).then_some(()));
    wait_until("the tool is off", || {
        (expect(200, &rest.get("/servers/one/tools"))[0]["enabled"] == false).then_some(())
    });
}
