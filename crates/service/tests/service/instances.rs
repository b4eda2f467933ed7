//! Servers with an instance for each identity, or for each session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aggregator::client_sink::{NullSink, ResponseSink};
use aggregator::{Aggregator, Client, ClientSetup, FlushSet, Responder, Surface};
use catalog::{Principal, Role, Scope};
use protocol::Line;
use registry::{Actor, Status};
use serde_json::{Value, json};
use service::{InstanceView, Registration, Returned, ServerView, Update};
use testkit::http_server::{HttpServer, Script};

use crate::fixture::{FixtureOptions, ServiceFixture, fake, registration, somebody};
use crate::sign_in_flow::{Provider, TOKEN, redirect_of};

/// A connected client of one identity.
struct Person {
    aggregator: Arc<Aggregator>,
    client: Arc<Client>,
    last: AtomicU64,
}

impl Person {
    /// A client with a session.
    async fn new(fixture: &ServiceFixture, name: &str) -> Self {
        let aggregator = Arc::clone(fixture.service.aggregator());
        let setup = ClientSetup {
            sink: Arc::new(NullSink),
            names: aggregator.options.names,
            scope: Scope::All,
            profile: None,
            principal: Principal::of_token(name, Role::User, None),
            is_alone: false,
            surface: Surface::Full,
        };
        let person = Self { aggregator, client: Client::new(setup), last: AtomicU64::new(0) };
        let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": format!("client of {name}"), "version": "1"}});
        assert!(person.ask("initialize", initialize).await["result"].is_object());
        person.client.initialized();
        person
    }

    #[expect(clippy::needless_pass_by_value, reason = "a value is written where it is used")]
    fn begin(&self, method: &str, params: Value) -> (u64, impl Future<Output = Option<Value>> + use<>) {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sink, answer) = ResponseSink::new();
        let to = Responder::to(&self.client, sink);
        self.send(&to, json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = async {
            let answer = tokio::time::timeout(testkit::DEADLINE, answer).await.expect("it is answered");
            answer.ok().map(|line| serde_json::from_slice(&line).unwrap())
        };
        (id, answer)
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).1.await.expect("it is not cancelled")
    }

    #[expect(clippy::needless_pass_by_value, reason = "a value is written where it is used")]
    fn send(&self, to: &Arc<Responder>, message: Value) {
        let mut flush_set = FlushSet::default();
        self.aggregator.take(&self.client, to, &Line::Whole(message.to_string().into()), &mut flush_set);
        flush_set.flush();
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The process that answers its calls.
    async fn pid(&self) -> u32 {
        let answer = self.call("one.pid", json!({})).await;
        pid_in(&answer).unwrap_or_else(|| panic!("{answer}"))
    }

    /// The same, as soon as its instance may start again.
    async fn pid_at_last(&self) -> u32 {
        let waiting = async {
            loop {
                let answer = self.call("one.pid", json!({})).await;
                match pid_in(&answer) {
                    Some(pid) => return pid,
                    None => assert_eq!(answer["error"]["data"]["safeToRetry"], true, "{answer}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(testkit::DEADLINE, waiting).await.expect("its instance starts again")
    }

    /// Ends its session.
    fn leave(&self) {
        self.aggregator.abandon(&self.client);
    }
}

fn pid_in(answer: &Value) -> Option<u32> {
    u32::try_from(answer["result"]["structuredContent"]["pid"].as_u64()?).ok()
}

fn shared(share: &str, members: Value) -> Registration {
    let mut new = fake("one", &[]);
    new.connection_config.insert("share".to_owned(), json!(share));
    let Value::Object(members) = members else { panic!("members are an object") };
    new.connection_config.extend(members);
    new
}

async fn fixture(share: &str, members: Value) -> ServiceFixture {
    fixture_with(share, members, json!({})).await
}

async fn fixture_with(share: &str, members: Value, settings: Value) -> ServiceFixture {
    let fixture = ServiceFixture::with(FixtureOptions { settings, ..FixtureOptions::default() }).await;
    fixture.register(shared(share, members)).await;
    fixture
}

/// The instances, as people see them.
async fn instances(fixture: &ServiceFixture) -> Vec<InstanceView> {
    fixture.service.server("one").await.unwrap().instances
}

/// Waits until it has that many instances.
async fn until_instances(fixture: &ServiceFixture, count: usize) {
    fixture.until_it("one", &format!("one with {count} instances"), |view| view.instances.len() == count).await;
}

/// Waits until an instance has a call.
async fn until_busy(fixture: &ServiceFixture) {
    let is_busy = |view: &ServerView| view.instances.iter().any(|instance| instance.running_calls > 0);
    fixture.until_it("one", "one with a call at an instance", is_busy).await;
}

/// Waits for the end of a process on a thread that runs nothing else.
async fn wait_gone(pid: u32) {
    tokio::task::spawn_blocking(move || testkit::wait_gone(pid)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_identity_has_its_own_process_and_a_list_starts_none() {
    let fixture = fixture("user", json!({})).await;
    let [ann, ann_again, ben] =
        [Person::new(&fixture, "ann").await, Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await];
    let listed = ann.ask("tools/list", json!({})).await;
    assert!(listed["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "one__pid"), "{listed}");
    assert_eq!(instances(&fixture).await, []);

    let (of_ann, of_ben) = tokio::join!(ann.pid(), ben.pid());
    assert_ne!(of_ann, of_ben);
    assert_eq!(ann_again.pid().await, of_ann, "all sessions of an identity share its instance");
    // Without a session: a call over REST.
    let alone = fixture.call("one.pid", json!({})).await;
    let of_local_user = pid_in(&alone).unwrap_or_else(|| panic!("{alone}"));
    assert!(![of_ann, of_ben].contains(&of_local_user));

    let shown: Vec<_> = instances(&fixture).await.into_iter().map(|it| (it.identity, it.client, it.pid)).collect();
    let expected = [(None, of_local_user), (Some("ann"), of_ann), (Some("ben"), of_ben)];
    assert_eq!(shown, expected.map(|(name, pid)| (name.map(str::to_owned), None, Some(pid))));
    let health = fixture.service.server_health("one").await.unwrap();
    assert_eq!((health.is_healthy, health.instances.len()), (true, 3));

    fixture.end().await;
    for pid in [of_ann, of_ben, of_local_user] {
        assert!(!testkit::process_exists(pid), "no process survives the service");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_a_session_ends_with_it() {
    let fixture = fixture("session", json!({})).await;
    let (first, second) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ann").await);
    let (of_first, of_second) = (first.pid().await, second.pid().await);
    assert_ne!(of_first, of_second);
    let clients: Vec<_> = instances(&fixture).await.into_iter().map(|it| (it.identity, it.client)).collect();
    let expected = (Some("ann".to_owned()), Some("client of ann".to_owned()));
    assert_eq!(clients, [expected.clone(), expected]);
    first.leave();
    wait_gone(of_first).await;
    until_instances(&fixture, 1).await;
    assert_eq!(second.pid().await, of_second);
    let late = first.call("one.pid", json!({})).await;
    assert_eq!(late["error"]["data"]["reason"], "client_gone", "{late}");
    assert_eq!(instances(&fixture).await.len(), 1, "none starts for a session that has ended");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_a_call_fails_and_nobody_loses_an_instance() {
    let fixture = fixture("session", json!({"max_instances": 2})).await;
    let [ann, ben, cid] =
        [Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await, Person::new(&fixture, "cid").await];
    let pids = [ann.pid().await, ben.pid().await];
    let refused = cid.call("one.pid", json!({})).await;
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("server `one` already has 2 instances, the `max_instances`"), "{refused}");
    let data = &refused["error"]["data"];
    assert_eq!((&data["reason"], &data["safeToRetry"]), (&json!("too_many_instances"), &json!(true)), "{refused}");
    assert_eq!([ann.pid().await, ben.pid().await], pids);
    ann.leave();
    wait_gone(pids[0]).await;
    assert!(!pids.contains(&cid.pid_at_last().await));
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_instance_ends_and_starts_again_for_a_call() {
    let fixture = fixture_with("user", json!({}), json!({"idle_timeout_s": 1})).await;
    let ann = Person::new(&fixture, "ann").await;
    // A call in progress is no idleness.
    let slept = ann.call("one.sleep", json!({"ms": 2500})).await;
    assert_eq!(slept["result"]["content"][0]["text"], "slept", "{slept}");
    let pid = ann.pid().await;
    wait_gone(pid).await;
    until_instances(&fixture, 0).await;
    assert_eq!(fixture.service.server("one").await.unwrap().record.status, Status::Connected, "its catalog stays");
    assert_ne!(ann.pid().await, pid);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_concerns_only_the_owner_of_the_instance() {
    let fixture = fixture("user", json!({})).await;
    let (ann, ben) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await);
    let (of_ann, of_ben) = (ann.pid().await, ben.pid().await);
    let (_, sleeping) = ben.begin("tools/call", json!({"name": "one.sleep", "arguments": {"ms": 500}}));
    let crashed = ann.call("one.crash", json!({"code": 3})).await;
    assert_eq!(crashed["error"]["data"]["reason"], "server_ended", "{crashed}");
    // It had not lasted, so it is not started again at once.
    let refused = ann.call("one.pid", json!({})).await;
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("exited with status 3") && message.contains("next attempt in"), "{refused}");
    assert_eq!(refused["error"]["data"]["reason"], "instance_failed", "{refused}");
    let failed = instances(&fixture).await.into_iter().find(|it| it.identity.as_deref() == Some("ann")).unwrap();
    assert_eq!((failed.status, failed.pid), ("failed", None));
    assert!(failed.error.is_some_and(|why| why.contains("exited with status 3")));

    assert_eq!(sleeping.await.unwrap()["result"]["content"][0]["text"], "slept");
    assert_eq!(ben.pid().await, of_ben);
    assert_ne!(ann.pid_at_last().await, of_ann);
    assert_eq!(fixture.history("one").await, ["connecting", "connected"], "the server itself did not notice");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_instances_end_with_their_server() {
    let fixture = fixture("user", json!({})).await;
    let (ann, ben) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await);
    let service = &fixture.service;
    for round in 0..3 {
        let pids = [ann.pid().await, ben.pid().await];
        let actor = somebody();
        match round {
            0 => drop(service.disconnect(&actor, "one", false).await.unwrap()),
            1 => drop(service.disable(&actor, "one").await.unwrap()),
            _ => service.remove(&actor, "one", false).await.unwrap(),
        }
        assert!(!pids.iter().any(|&pid| testkit::process_exists(pid)), "in round {round}");
        let refused = ann.call("one.pid", json!({})).await;
        assert!(refused["error"].is_object(), "{refused}");
        if round == 0 {
            service.connect(&actor, "one").await.unwrap();
        } else if round == 1 {
            service.enable(&actor, "one").await.unwrap();
            fixture.until("one", Status::Connected).await;
        }
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_instances_may_finish_before_their_server_is_disconnected_unless_that_is_forced() {
    let fixture = fixture("user", json!({})).await;
    let ann = Person::new(&fixture, "ann").await;
    ann.pid().await;
    let (_, sleeping) = ann.begin("tools/call", json!({"name": "one.sleep", "arguments": {"ms": 1000}}));
    until_busy(&fixture).await;
    fixture.service.disconnect(&somebody(), "one", false).await.unwrap();
    assert_eq!(sleeping.await.unwrap()["result"]["content"][0]["text"], "slept");
    fixture.service.connect(&somebody(), "one").await.unwrap();
    ann.pid().await;
    let (_, hanging) = ann.begin("tools/call", json!({"name": "one.hang", "arguments": {}}));
    until_busy(&fixture).await;
    fixture.service.disconnect(&somebody(), "one", true).await.unwrap();
    let cancelled = hanging.await.unwrap();
    assert!(cancelled["error"].is_object(), "{cancelled}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_config_replaces_the_instances() {
    let fixture = fixture("user", json!({})).await;
    let ann = Person::new(&fixture, "ann").await;
    let pid = ann.pid().await;
    let Registration { connection_config, .. } = shared("user", json!({"env": {"NEW": "yes"}}));
    let update = Update { connection_config: Some(connection_config), ..Update::default() };
    fixture.service.update(&somebody(), "one", update).await.unwrap();
    wait_gone(pid).await;
    let value = ann.call("one.env", json!({"name": "NEW"})).await;
    assert_eq!(value["result"]["structuredContent"]["value"], "yes", "{value}");

    // From now on everybody shares it.
    let Registration { connection_config, .. } = shared("all", json!({}));
    let update = Update { connection_config: Some(connection_config), ..Update::default() };
    fixture.service.update(&somebody(), "one", update).await.unwrap();
    let ben = Person::new(&fixture, "ben").await;
    until_instances(&fixture, 0).await;
    assert_eq!(ann.pid_at_last().await, ben.pid_at_last().await);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_reaches_the_instance_of_its_client_and_calls_that_wait_for_it() {
    let fixture = fixture("user", json!({"args": ["--start-delay-ms", "700"]})).await;
    let (ann, ben) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await);
    let nowhere = Responder::to(&ann.client, Arc::new(NullSink));
    let cancel = |person: &Person, id: u64| {
        person.send(
            &nowhere,
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}),
        );
    };
    let hang = || json!({"name": "one.hang", "arguments": {}});
    // Its instance is still starting.
    let (waiting, never) = ann.begin("tools/call", hang());
    cancel(&ann, waiting);
    assert_eq!(never.await, None, "a cancelled call gets no response");
    let pending = ann.call("one.pending", json!({})).await;
    assert_eq!(pending["result"]["structuredContent"]["ids"], json!([]), "{pending}");

    let (same_id, never) = ann.begin("tools/call", hang());
    let (_, of_ben) = ben.begin("tools/call", hang());
    ben.call("one.pid", json!({})).await;
    cancel(&ann, same_id);
    assert_eq!(never.await, None);
    let open = async |person: &Person| {
        let pending = person.call("one.pending", json!({})).await;
        pending["result"]["structuredContent"]["ids"].as_array().map(Vec::len)
    };
    assert_eq!((open(&ann).await, open(&ben).await), (Some(0), Some(1)));
    drop(of_ben);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_server_with_instances_sleeps_while_they_run() {
    let fixture = fixture_with("user", json!({"lazy": true}), json!({"idle_timeout_s": 1})).await;
    fixture.until("one", Status::Disconnected).await;
    let ann = Person::new(&fixture, "ann").await;
    let pid = ann.pid().await;
    let view = fixture.service.server("one").await.unwrap();
    assert_eq!((view.asleep, view.instances.len()), (true, 1));
    wait_gone(pid).await;
    // Only its tools are stored, so after a restart the first call starts the run that lists everything else.
    let fixture = fixture.again().await;
    assert!(fixture.listed().await.contains(&"one.echo".to_owned()));
    assert!(fixture.service.server("one").await.unwrap().asleep);
    let answer = fixture.call("one.echo", json!({"text": "awake"})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "awake", "{answer}");
    fixture.until("one", Status::Connected).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_has_a_name_of_its_own_that_stays_the_same() {
    let config = json!({"env": {"FILE": "/data/{instance}.json"}});
    let fixture = fixture_with("user", config, json!({"idle_timeout_s": 1})).await;
    let (ann, ben) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await);
    let file = async |person: &Person| {
        let value = person.call("one.env", json!({"name": "FILE"})).await;
        value["result"]["structuredContent"]["value"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
    };
    let (of_ann, of_ben) = (file(&ann).await, file(&ben).await);
    assert!(of_ann != of_ben && of_ann.len() == "/data/.json".len() + 32 && !of_ann.contains("ann"), "{of_ann}");
    let local = fixture.call("one.env", json!({"name": "FILE"})).await;
    assert_eq!(local["result"]["structuredContent"]["value"], "/data/local.json", "{local}");
    until_instances(&fixture, 0).await;
    assert_eq!(file(&ann).await, of_ann);
    let fixture = fixture.again().await;
    fixture.until("one", Status::Connected).await;
    assert_eq!(file(&Person::new(&fixture, "ann").await).await, of_ann);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_cannot_start_fails_the_calls_that_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("broken");
    // The first run lists the tools; later ones fail while the file exists.
    let script = r#"if [ -e "$0" ]; then echo "the disk is full" >&2; exit 4; fi; exec "$@""#;
    let server = testkit::program("fake-server");
    let config = json!({"command": "sh", "args": ["-c", script, marker, server]});
    let fixture = fixture("user", config).await;
    std::fs::write(&marker, "").unwrap();
    let ann = Person::new(&fixture, "ann").await;
    let failed = ann.call("one.pid", json!({})).await;
    let message = failed["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("exited with status 4") && message.contains("the disk is full"), "{failed}");
    assert_eq!(failed["error"]["data"]["reason"], "instance_failed", "{failed}");
    std::fs::remove_file(&marker).unwrap();
    ann.pid_at_last().await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_identity_has_its_own_http_session() {
    let server = HttpServer::start(Script::default().with_session());
    let fixture = ServiceFixture::new().await;
    fixture.register(registration("one", "http", json!({"url": server.url(), "share": "user"}))).await;
    let [ann, ann_again, ben] =
        [Person::new(&fixture, "ann").await, Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await];
    for person in [&ann, &ben, &ann_again] {
        let answer = person.call("one.echo", json!({"text": "hello"})).await;
        assert!(answer["result"]["content"].is_array(), "{answer}");
    }
    let calls = server.requests().into_iter().filter(|request| request.is("tools/call"));
    let sessions: Vec<String> =
        calls.map(|call| call.header("mcp-session-id").unwrap_or_default().to_owned()).collect();
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    assert!(sessions[0] == sessions[2] && sessions[0] != sessions[1], "{sessions:?}");
    assert_eq!(server.sessions().len(), 3, "that of the catalog, too");
    fixture.service.disconnect(&somebody(), "one", false).await.unwrap();
    assert_eq!(server.sessions(), [""; 0], "all end with their server");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_identity_has_its_own_sign_in() {
    let server = HttpServer::start(Script::default().require_header("Authorization", &format!("Bearer {TOKEN}")));
    let provider = Arc::new(Provider::of(&server));
    let options = FixtureOptions { provider: Some(provider as _), ..FixtureOptions::default() };
    let fixture = ServiceFixture::with(options).await;
    let new = registration("one", "http", json!({"url": server.url(), "share": "user"}));
    fixture.service.register(&somebody(), new).await.unwrap();
    fixture.until("one", Status::SignInRequired).await;
    let sign_in = async |by: &Actor| {
        let attempt = fixture.service.begin_sign_in(by, "one", None).await.unwrap();
        let done = fixture.service.finish_sign_in(&redirect_of(&attempt.authorization_url)).await;
        assert_eq!(done, Returned::SignedIn { server: "one".into() });
    };
    // The first one signs in to the server itself, which is listed from then on.
    sign_in(&somebody()).await;
    let id = fixture.until("one", Status::Connected).await.record.id.to_string();
    let (ann, ben) = (Person::new(&fixture, "ann").await, Person::new(&fixture, "ben").await);
    let needs_sign_in = async |person: &Person| {
        let answer = person.call("one.echo", json!({"text": "hello"})).await;
        answer["error"]["data"]["reason"] == "sign_in_required"
    };
    assert!(needs_sign_in(&ann).await && needs_sign_in(&ben).await, "that sign-in is nobody's");
    let by_ann = Actor::new(ann.client.principal(), "ann");
    sign_in(&by_ann).await;
    assert!(!needs_sign_in(&ann).await);
    assert!(needs_sign_in(&ben).await, "nobody uses the sign-in of another");
    let key_of_ann = aggregator::grant_key_of(&id, ann.client.principal());
    assert!(fixture.store.oauth_grant(&key_of_ann).await.unwrap().is_some());

    fixture.service.sign_out(&by_ann, "one").await.unwrap();
    assert_eq!(fixture.store.oauth_grant(&key_of_ann).await.unwrap(), None);
    assert_eq!(fixture.service.server("one").await.unwrap().record.status, Status::Connected);
    fixture.until_it("one", "without her instance", |view| view.instances.is_empty()).await;
    assert!(needs_sign_in(&ann).await);
    // They are removed with the server.
    sign_in(&by_ann).await;
    fixture.service.remove(&somebody(), "one", true).await.unwrap();
    assert_eq!(fixture.store.oauth_grant(&key_of_ann).await.unwrap(), None);
    fixture.end().await;
}
