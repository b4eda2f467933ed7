//! Resources are read from the server that has them: by the list, by a template, or by asking all.

use serde_json::json;
use testkit::{ClientSession, Driver, Launch, Puppet, Spec};

use super::{at, code_of, config, connected};

/// Values that a parser would change, and a URI that must not be rewritten.
const CONTENTS: &str =
    r#"{ "contents":[{"uri":"x://1","text":"\u0041\ud800","_meta":{"n":1.0}}],"_meta":{"big":1e400} }"#;
const NOT_FOUND: &str = r#"{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}"#;

#[track_caller]
fn assert_read_from(client: &mut Driver, puppet: &Puppet, uri: &str) {
    let id = client.begin("resources/read", json!({"uri": uri, "x-more": [1.5]}));
    let read = puppet.expect("resources/read");
    assert_eq!(read.text_param(&["uri"]).as_deref(), Some(uri));
    assert_eq!(read.param(&["x-more"]), Some("[1.5]"));
    read.answer(CONTENTS);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), CONTENTS);
}

#[test]
fn a_listed_resource_is_read_from_its_server() {
    let (first, second) =
        (Puppet::new(Spec::legacy().resource("x://1")), Puppet::new(Spec::legacy().resource("y://1")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    assert_read_from(&mut client, &second, "y://1");
    assert_read_from(&mut client, &first, "x://1");
    assert_eq!((first.count("resources/read"), second.count("resources/read")), (1, 1));
}

#[test]
fn a_resource_that_matches_a_template_is_read_from_the_servers_that_has_the_template() {
    let first = Puppet::new(Spec::legacy().template("x://{a}/b{?q,r}"));
    let second = Puppet::new(Spec::legacy().template("y://{+path}").resource("x://listed/b"));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    assert_read_from(&mut client, &second, "y://a/b/c");
    assert_read_from(&mut client, &first, "x://any/b?q=1");
    // A listed URI takes precedence over a matching template.
    assert_read_from(&mut client, &second, "x://listed/b");
    assert_eq!((first.count("resources/read"), second.count("resources/read")), (1, 2));
}

#[test]
fn for_an_unlisted_resource_the_servers_are_tried_in_order() {
    let puppets = [(); 3].map(|()| Puppet::new(Spec::legacy()));
    let [first, second, third] = &puppets;
    let mut client = connected(&[("first", first), ("second", second), ("third", third)]);
    let id = client.begin("resources/read", json!({"uri": "z://link"}));
    first.expect("resources/read").fail(NOT_FOUND);
    second.expect("resources/read").answer(CONTENTS);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), CONTENTS);

    let id = client.begin("resources/read", json!({"uri": "z://nowhere"}));
    for puppet in [first, second, third] {
        puppet.expect("resources/read").fail(NOT_FOUND);
    }
    assert_eq!(code_of(&client.answer_to(id)), -32002);
}

#[test]
fn a_server_that_hangs_does_not_stop_the_search() {
    let (hung, well) = (Puppet::new(Spec::legacy()), Puppet::new(Spec::legacy()));
    let mut client = connected(&[("hung", &hung), ("well", &well)]);
    let id = client.begin("resources/read", json!({"uri": "z://1"}));
    let unanswered = hung.expect("resources/read");
    well.expect("resources/read").answer(CONTENTS);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), CONTENTS);
    drop(unanswered);
}

#[test]
fn a_server_that_dies_does_not_stop_the_search() {
    let (dying, well) = (Puppet::new(Spec::legacy()), Puppet::new(Spec::legacy()));
    let mut client = connected(&[("dying", &dying), ("well", &well)]);
    let id = client.begin("resources/read", json!({"uri": "z://1"}));
    dying.expect("resources/read");
    dying.die();
    well.expect("resources/read").answer(CONTENTS);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), CONTENTS);
}

#[test]
fn the_error_of_the_server_that_has_a_resource_is_passed_on_whole() {
    let puppet = Puppet::new(Spec::legacy().resource("x://1"));
    let other = Puppet::new(Spec::legacy());
    let mut client = connected(&[("s", &puppet), ("other", &other)]);
    let id = client.begin("resources/read", json!({"uri": "x://1"}));
    let error = r#"{"code":-32050, "message":"disk \u0041","data":{"n":1.0}}"#;
    puppet.expect("resources/read").fail(error);
    assert_eq!(at(&client.line_to(&id.to_string()), &["error"]), error);
    assert_eq!(other.count("resources/read"), 0);
}

#[test]
fn name_conflicts_are_reported_after_startup_with_the_winning_server() {
    let [a, b] = [(); 2].map(|()| Puppet::new(Spec::legacy().resource("r://shared")));
    let m = Puppet::new(Spec::legacy().resource("r://shared").leaves("initialize"));
    let mut client = Launch::service(&config(&[("a", &a), ("b", &b), ("m", &m)])).start();
    for early in [&a, &b] {
        // The last request to each before it counts as connected.
        early.wait_for_count("resources/templates/list", 1);
    }
    m.expect("initialize").answer(
        r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"m","version":"1"}}"#,
    );
    for hidden in ["b", "m"] {
        client.wait_for_stderr(&format!("uri=r://shared owner=a hidden={hidden}"));
    }
    client.close_stdin();
    client.wait_exit();
    let stderr = client.stderr_text().matches("listed by two servers").count();
    assert_eq!(stderr, 2, "{}", client.stderr_text());
}
