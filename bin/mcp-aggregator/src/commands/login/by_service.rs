//! A sign-in to a server of a running service.
//!
//! The browser is usually sent back to the service. If the service has no address that the browser of this machine can
//! reach, it is sent back to this command, which passes the redirect on.

use std::time::Duration;

use http::Uri;
use percent_encoding::percent_decode_str;

use super::{LoginArguments, failed, print_signed_in, show_page};
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::service_sign_in::{self, StartedSignIn};
use crate::session;
use crate::sign_in::callback::{CallbackListener, Page};
use crate::table::printable;

/// How long the service may take to complete a sign-in.
const FINISH_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) fn run(arguments: &LoginArguments) -> Result<(), Failure> {
    let tools = session::block_on(async {
        let mut signals = session::signals()?;
        tokio::select! {
            done = sign_in(arguments) => done,
            () = signals.next() => Err(Failure::interrupted()),
        }
    })?;
    print_signed_in(arguments, &tools)
}

/// Signs in, waits until the server is connected, and returns the names of its tools.
async fn sign_in(arguments: &LoginArguments) -> Result<Vec<String>, Failure> {
    let service = arguments.target.service().await?;
    let server = &arguments.server;
    let mut started = service_sign_in::start(&service, server, None).await?;
    let mut listener = None;
    if !is_reachable(&service, &started.authorization_url) {
        let own = CallbackListener::anywhere().await;
        let own =
            own.map_err(|error| Failure::new(format!("could not listen for the redirect of the browser: {error}")))?;
        started = service_sign_in::start(&service, server, Some(own.redirect_uri())).await?;
        listener = Some(own);
    }
    show_page(arguments, &started.authorization_url, listener.as_ref().and_then(|listener| listener.port().ok()));
    // The service knows when the attempt expires.
    tokio::select! {
        finished = service_sign_in::finished(&service, &started) => finished?,
        failed = pass_redirects_on(&service, listener.as_ref(), &started, server) => return Err(failed),
    }
    let connected = service_sign_in::connected(&service, server).await?;
    if connected["status"] != "connected" {
        let why = connected["error_message"].as_str().or(connected["status"].as_str()).unwrap_or_default();
        return Err(Failure::new(format!("could not connect `{server}` after the sign-in: {}", printable(why))));
    }
    let id = connected["id"].as_str().unwrap_or(server);
    let tools = service.list(&format!("/tools?server_id={}", encoded(id))).await.map_err(Failure::from)?;
    Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
}

/// Whether a browser on this machine can reach the address that it will be sent back to.
fn is_reachable(service: &Client, authorization_url: &str) -> bool {
    let is_loopback = |address: &str| {
        let address: Option<Uri> = address.parse().ok();
        address.is_some_and(|address| matches!(address.host(), Some("127.0.0.1" | "localhost" | "[::1]")))
    };
    // Loopback of the service is this machine's only if the service is on it.
    redirect_uri(authorization_url).is_none_or(|redirect| !is_loopback(&redirect) || is_loopback(service.url()))
}

/// The redirect address in the address of an authorization page.
fn redirect_uri(authorization_url: &str) -> Option<String> {
    let (_, query) = authorization_url.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("redirect_uri="))?;
    Some(percent_decode_str(value).decode_utf8().ok()?.into_owned())
}

/// Passes the redirects that arrive here on to the service, which decides about them. Ends only if that fails.
async fn pass_redirects_on(
    service: &Client,
    listener: Option<&CallbackListener>,
    started: &StartedSignIn,
    server: &str,
) -> Failure {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        let redirect = match listener.next().await {
            Ok(redirect) => redirect,
            Err(error) => return failed(server, &format!("the listener for the redirect failed: {error}")),
        };
        let callback = format!("/oauth/callback?{}", redirect.query);
        let passed_on = service.get_outside_api(&callback, FINISH_TIMEOUT).await.map_err(Failure::from);
        let state = match passed_on {
            Ok(_) => service_sign_in::state(service, started).await,
            Err(failure) => Err(failure),
        };
        match state {
            Err(failure) => {
                redirect.answer(Page::Failed { why: "The service cannot be reached." }).await;
                return failure;
            }
            Ok(state) if state["state"] == "signed_in" => redirect.answer(Page::SignedIn { server }).await,
            Ok(state) => {
                let why = state["error"].as_str().unwrap_or("This redirect belongs to no sign-in that is pending.");
                redirect.answer(Page::Failed { why }).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_redirect_is_reachable_only_where_the_service_is() {
        let page = |redirect: &str| format!("https://as.example/authorize?state=x&redirect_uri={redirect}&a=b");
        let loopback = page("http%3A%2F%2F127.0.0.1%3A8808%2Foauth%2Fcallback");
        assert!(is_reachable(&Client::new("http://127.0.0.1:8808", None), &loopback));
        assert!(!is_reachable(&Client::new("http://team.example:8808", None), &loopback));
        let public = page("https%3A%2F%2Fteam.example%2Foauth%2Fcallback");
        assert!(is_reachable(&Client::new("http://team.example:8808", None), &public));
    }
}
