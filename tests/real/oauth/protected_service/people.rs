//! People that sign in: with a client of MCP, and to the console.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{Protected, REST};
use crate::real::oauth::home::Home;
use crate::real::oauth::person::{Page, Person, Say};

#[test]
fn a_client_finds_the_provider_signs_in_and_calls() {
    for format in ["jwt", "opaque"] {
        let Some(service) = Protected::start_with(json!({"format": format}), |launch| launch) else { return };
        for path in ["/mcp", "/mcp/fake"] {
            let home = Home::with(&json!({"url": format!("{}{path}", service.url)}));
            home.login(&mut Person::new("bob"));
            let tool = if path == "/mcp" { "protected.fake.echo" } else { "protected.echo" };
            let called = home.run(&["call", tool, "text=hello"]);
            assert!(called.status.success() && called.stdout.contains("hello"), "{format} {path}: {called:?}");
        }
        let asked = service.requests("/token/introspection");
        assert_eq!(asked > 0, format == "opaque", "{format}: asked {asked} times");
    }
}

#[test]
fn a_person_signs_in_to_the_console_and_is_signed_out_by_the_provider() {
    let Some(service) = Protected::start_with(json!({"access_ttl": 20}), |launch| launch) else { return };
    let mut person = Person::new("olga");
    let page = person.open(&format!("{}/login?next=/executions", service.url), Say::Yes);
    let host = service.issuer.strip_prefix("http://").unwrap();
    assert!(page.text.contains(&format!("Sign in with {host}")), "{page:?}");
    let begin = format!("{}/login/identity?issuer={}&next=/executions", service.url, service.issuer);
    let page = person.open(&begin, Say::Yes);
    assert!(page.status == 200 && page.text.contains("Signed in") && page.text.contains("/executions"), "{page:?}");
    let page = person.open(&format!("{}/executions", service.url), Say::Yes);
    assert!(page.status == 200 && page.text.contains("olga") && page.text.contains("role operator"), "{page:?}");
    assert_eq!(person.open(&format!("{}/settings", service.url), Say::Yes).status, 403);
    // REST accepts the session of the console.
    assert_eq!(person.open(&format!("{}{REST}/servers", service.url), Say::Yes).status, 200);
    assert_eq!(person.open(&format!("{}{REST}/audit", service.url), Say::Yes).status, 403);
    // The token is renewed, and the session ends as soon as the provider refuses that.
    service.wait_for_tokens("refresh_token", 2);
    service.ask("/forget", &Value::Null);
    wait_until("the session is over", || {
        let page = person.open(&format!("{}/executions", service.url), Say::Yes);
        page.url.path().starts_with("/login").then_some(())
    });
}

#[test]
fn a_sign_in_of_somebody_else_is_not_completed() {
    let Some(service) = Protected::start() else { return };
    let callback = |query: &str| format!("{}/login/callback?{query}", service.url);
    let refused = |page: Page| assert!(page.status == 400 && page.text.contains("Not signed in"), "{page:?}");
    refused(Person::new("eve").open(&callback("code=1&state=2"), Say::Yes));
    // The redirect of one browser, opened in another.
    let mut ann = Person::new("ann");
    let (mut eve, begin) = (Person::new("eve"), format!("{}/login/identity?issuer={}", service.url, service.issuer));
    let redirect = eve.open_until(&begin, "/login/callback");
    refused(ann.open(&redirect, Say::Yes));
    assert!(ann.open(&format!("{}/executions", service.url), Say::Yes).url.path().starts_with("/login"));
    // A person who says no.
    let page = Person::new("bob").open(&begin, Say::No);
    assert!(page.status == 400 && page.text.contains("refused the sign-in"), "{page:?}");
}
