//! Signing in to a server that requires it: one click in the console, the pages of a real identity provider, and back.

use serde_json::json;

use super::appearance::keep_picture;
use super::chromium::DESK;
use super::{at, with_browsers};
use crate::real::oauth::Provider;
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
