//! Signing in to a server that requires it: one click in the console, the pages of a real identity provider, and back. And
//! signing in to the console itself.

use serde_json::json;

use super::appearance::keep_picture;
use super::chromium::DESK;
use super::{at, with_browsers};
use crate::real::oauth::{Protected, Provider};
use crate::rest::{Rest, expect};

#[test]
fn one_click_a_sign_in_and_the_tools_are_there() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    let registration =
        json!({"name": "protected", "transport_type": "http", "connection_config": {"url": provider.server}});
    expect(201, &rest.post("/servers", &registration));
    rest.wait_for_status("protected", "sign_in_required");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&at(&rest.serve, "/")).await;
        browser.wait_for_text("sign in").await;
        keep_picture(&browser, "sign-in-overview", DESK).await;
        browser.goto(&at(&rest.serve, "/servers/protected")).await;
        browser.wait_for_text("A sign-in is required").await;
        keep_picture(&browser, "sign-in-server", DESK).await;
        browser.goto(&at(&rest.serve, "/")).await;
        browser.wait_for_text("sign in").await;
        browser.click("main form[action='/servers/protected/sign-in'] button").await;

        browser.wait("document.title === 'Sign in' && document.getElementById('name')").await;
        browser.fill("#name", "ada").await;
        browser.click("#yes").await;
        browser.wait("document.title === 'Allow access?'").await;
        browser.click("#yes").await;
        browser.wait("location.pathname === '/oauth/callback'").await;
        browser.wait_for_text("signed in to protected").await;
        assert!(provider.secrets().len() >= 2, "there are tokens");

        browser.goto(&at(&rest.serve, "/servers/protected")).await;
        browser.wait_for_text("whoami").await;
        assert_eq!(browser.log().await, Vec::<String>::new());

        browser.click("button[formaction$=sign-out]").await;
        browser.wait_for_text("Signed out").await;
        browser.wait("document.querySelector('button[formaction$=sign-in]').innerText === 'Sign in'").await;
        browser.close().await;
    });
    rest.wait_for_status("protected", "sign_in_required");
    assert_eq!(provider.secrets(), Vec::<String>::new(), "signing out revokes");
    provider.expect_no_reuse();
}

/// The provider is another site for the browser, which then sends no cookie of the console along when it comes back.
#[test]
fn a_person_signs_in_to_the_console_at_another_site() {
    let Some(service) = Protected::start_with(json!({"host": "localhost"}), |launch| launch) else { return };
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(&format!("{}/executions?status=error", service.url)).await;
        browser.wait("location.pathname === '/login'").await;
        browser.click("a.button[href^='/login/identity']").await;
        browser.wait("document.title === 'login' && document.getElementById('name')").await;
        assert!(browser.run("return location.origin").await == service.issuer.as_str());
        browser.fill("#name", "ann").await;
        browser.click("#yes").await;
        browser.wait("document.title === 'consent'").await;
        browser.click("#yes").await;
        browser.wait("location.pathname === '/executions' && location.search === '?status=error'").await;
        browser.wait("document.querySelector('.principal').innerText === 'ann'").await;
        browser.goto(&format!("{}/settings", service.url)).await;
        browser.wait_for_text("Settings").await;
        browser.wait("document.getElementById('live').innerText === 'live'").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.click("form[action='/logout'] button").await;
        browser.wait("location.pathname === '/login'").await;
        browser.goto(&format!("{}/settings", service.url)).await;
        browser.wait("location.pathname === '/login'").await;
        browser.close().await;
    });
}
