//! Servers with an instance for each identity or session, as clients over HTTP see them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{
    ClientSession, Config, HttpSession, ModernHttp, Serve, ServerEntry, descendants, fake, open_fds, rss_kb, wait_gone,
    wait_until,
};

use crate::fixture::pid_in;

const ANN: &str = "secret-of-ann-is-long";
const BEN: &str = "secret-of-ben-is-long";

/// A service with two identities in front of these servers.
pub(crate) fn with_tokens(config: &Config) -> (Serve, NamedTempFile) {
    let tokens = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), format!("ann:{ANN}\nben:{BEN}\n")).expect("it can be written");
    (Serve::start_as(config, |launch| launch.arg("--token-file").arg(tokens.path())), tokens)
}

/// A session of each.
pub(crate) fn ann_and_ben(serve: &Serve) -> [HttpSession; 2] {
    [ANN, BEN].map(|secret| HttpSession::introduce(serve.address(), "/mcp", &Hello::default().with_token(secret)))
}

fn rest(serve: &Serve, path: &str) -> Value {
    let ask = HttpRequest::new("GET", &format!("/api/v1/aggregator{path}"));
    serve.fetch(&ask.header("Authorization", &format!("Bearer {ANN}"))).json()
}

fn shared(share: &str) -> ServerEntry {
    fake().field("share", share)
}

fn pid(client: &mut impl ClientSession) -> u32 {
    pid_in(&client.ask("tools/call", json!({"name": "s.pid", "arguments": {}})))
}

#[test]
fn each_identity_has_an_instance_whichever_way_its_clients_connect() {
    let (serve, _tokens) = with_tokens(&Config::new().server("s", shared("user")));
    let [mut ann, mut ben] = ann_and_ben(&serve);
    let [mut ann_again, _] = ann_and_ben(&serve);
    let mut modern = ModernHttp::new(serve.address(), "/mcp").with_token(BEN);
    let (of_ann, of_ben) = (pid(&mut ann), pid(&mut ben));
    assert_ne!(of_ann, of_ben);
    assert_eq!((pid(&mut ann_again), pid(&mut modern)), (of_ann, of_ben));

    // Both sessions of ann get the log messages of her instance, and ben does not.
    ann_again.listen();
    ben.listen();
    ann.ask("tools/call", json!({"name": "s.logs", "arguments": {}}));
    ann_again.notice("notifications/message");
    pid(&mut ben);
    assert!(!ben.take_all().iter().any(|line| String::from_utf8_lossy(line).contains("notifications/message")));

    let instances = rest(&serve, "/servers/s")["instances"].clone();
    let shown = |instance: &Value| (instance["identity"].clone(), instance["pid"].clone(), instance["status"].clone());
    let shown: Vec<_> = instances.as_array().expect("a list").iter().map(shown).collect();
    let expected = [("ann", of_ann), ("ben", of_ben)];
    assert_eq!(shown, expected.map(|(name, pid)| (json!(name), json!(pid), json!("running"))), "{instances}");
    let health = rest(&serve, "/servers/s/health");
    assert_eq!(health["instances"].as_array().map(Vec::len), Some(2), "{health}");
    let callers = wait_until("the calls are recorded", || {
        let executions = rest(&serve, "/executions?tool_name=pid");
        let items = executions.as_array()?;
        let callers: BTreeSet<String> = items.iter().filter_map(|it| Some(it["caller"].as_str()?.to_owned())).collect();
        (items.len() >= 4).then_some(callers)
    });
    assert_eq!(callers, BTreeSet::from(["ann".to_owned(), "ben".to_owned()]));
}

#[test]
fn a_client_without_a_session_shares_the_instance_of_its_identity() {
    let (serve, _tokens) = with_tokens(&Config::new().server("s", shared("session")));
    let [mut ann, _] = ann_and_ben(&serve);
    let [mut first, mut second, mut ben] =
        [ANN, ANN, BEN].map(|secret| ModernHttp::new(serve.address(), "/mcp").with_token(secret));
    let of_identity = pid(&mut first);
    assert_eq!(pid(&mut second), of_identity);
    let of_session = pid(&mut ann);
    assert!(of_session != of_identity && pid(&mut ben) != of_identity);
    assert!([200, 204].contains(&ann.delete()));
    wait_gone(of_session);
    assert_eq!(pid(&mut second), of_identity);
}

#[test]
fn two_hundred_sessions_come_and_go_without_a_leak() {
    const SESSIONS: usize = 200;
    let serve = Serve::start(&Config::new().server("s", shared("session").field("max_instances", SESSIONS)));
    let round = || {
        let mut sessions: Vec<HttpSession> = (0..SESSIONS).map(|_| serve.session("/mcp")).collect();
        let calls: Vec<u64> = sessions.iter_mut().map(|session| session.begin_call("s.pid", json!({}))).collect();
        let pids: BTreeSet<u32> =
            sessions.iter_mut().zip(calls).map(|(session, id)| pid_in(&session.answer_to(id))).collect();
        assert_eq!(pids.len(), SESSIONS);
        let refused = serve.session("/mcp").ask("tools/call", json!({"name": "s.pid", "arguments": {}}));
        assert_eq!(refused["error"]["data"]["reason"], "too_many_instances", "{refused}");
        for session in &sessions {
            session.delete();
        }
        pids.into_iter().for_each(wait_gone);
    };
    // The first round fills what is kept for later ones.
    round();
    let counted = || (descendants(serve.pid()).len(), open_fds(serve.pid()));
    let before = (counted(), rss_kb(serve.pid()));
    round();
    wait_until("processes and files are as many as before", || {
        let (now, before) = (counted(), before.0);
        (now.0 <= before.0 && now.1 <= before.1).then_some(())
    });
    let grown = rss_kb(serve.pid()).saturating_sub(before.1);
    assert!(grown < 8 << 10, "it occupies {grown} kB more after 200 further instances");
}

#[test]
fn no_instance_survives_the_service() {
    let (mut serve, _tokens) = with_tokens(&Config::new().server("s", shared("user")));
    let pids = ann_and_ben(&serve).map(|mut session| pid(&mut session));
    serve.signal(testkit::Signal::TERM);
    assert!(serve.wait_exit().success());
    assert!(!pids.iter().any(|&pid| testkit::process_exists(pid)));
}

#[test]
fn a_wrong_value_is_refused_with_the_key_and_the_values() {
    let serve = Serve::start(&Config::new().server("s", shared("all")));
    let register = |members: Value| {
        let mut config = json!({"command": testkit::program("fake-server")});
        config.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
        let body = json!({"name": "new", "transport_type": "stdio", "connection_config": config});
        serve.fetch(&HttpRequest::post("/api/v1/aggregator/servers", body.to_string()))
    };
    for (members, expected) in [
        (json!({"share": "users"}), ["share", "all", "user", "session"]),
        (json!({"share": "user", "max_instances": 0}), ["max_instances", "1", "10000", ""]),
    ] {
        let refused = register(members);
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(expected.iter().all(|word| refused.body.contains(word)), "{refused:?}");
    }
}
