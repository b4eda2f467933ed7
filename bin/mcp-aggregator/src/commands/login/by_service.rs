//! A sign-in to a server of a running service.
//!
//! The browser is usually sent back to the service. If the service has no address that the browser of this machine can
//! reach, or another loopback address is configured for the server, it is sent back to this command, which passes the
//! redirect on.

use std::pin::pin;
use std::time::Duration;

use catalog::LoopbackRedirect;
use tokio::sync::watch;

use super::{LoginArguments, failed, print_signed_in, redirect_uri, show_page};
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::service_sign_in::{self, StartedSignIn};
use crate::session;
use crate::sign_in::callback::{CallbackListener, Page};
use crate::table::printable;

/// The path of the service that completes sign-ins.
const CALLBACK: &str = console::OAUTH_CALLBACK;
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
    let listener = listen(&service, server).await?;
    let own_address = listener.as_ref().map(CallbackListener::redirect_uri);
    let started = service_sign_in::start(&service, server, own_address).await?;
    // The provider compares it, so there is no choice.
    let wanted = redirect_uri(&started.authorization_url);
    if let (Some(own), Some(wanted)) = (own_address, wanted.filter(|wanted| Some(wanted.as_str()) != own_address)) {
        return Err(failed(
            server,
            &format!("the browser would be sent back to {wanted}, and this command listens at {own}"),
        )
        .with_hint("free that port, and try again"));
    }
    show_page(arguments, &started.authorization_url);
    let (is_answering, mut answering) = watch::channel(false);
    let mut passing_on = pin!(pass_redirects_on(&service, listener.as_ref(), &started, server, &is_answering));
    // The service knows when the attempt expires.
    tokio::select! {
        passed_on = &mut passing_on => passed_on?,
        finished = service_sign_in::finished(&service, &started) => {
            // A browser that waits for its page gets it.
            tokio::select! {
                passed_on = &mut passing_on => passed_on?,
                _ = answering.wait_for(|&is_answering| !is_answering) => {}
            }
            finished?;
        }
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

/// Listens for the redirect where the service does not, or not for a browser on this machine.
async fn listen(service: &Client, server: &str) -> Result<Option<CallbackListener>, Failure> {
    let sign_in = service.get(&service_sign_in::path_of(server)).await?;
    let Some(redirect_uri) = sign_in["redirect_uri"].as_str() else { return Ok(None) };
    let is_only_here = sign_in["needs_listener"] == true;
    if !is_only_here && is_reachable(service.url(), redirect_uri) {
        return Ok(None);
    }
    // The same address needs no new registration at the provider.
    match CallbackListener::at(redirect_uri).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if is_only_here => {
            Err(Failure::new(format!("could not listen at the configured redirect address {redirect_uri}: {error}")))
        }
        Err(_) => {
            let own = CallbackListener::anywhere().await;
            let own = own
                .map_err(|error| Failure::new(format!("could not listen for the redirect of the browser: {error}")))?;
            Ok(Some(own))
        }
    }
}

/// Whether a browser on this machine can reach the address of the service that it will be sent back to.
fn is_reachable(service_url: &str, redirect_uri: &str) -> bool {
    let Some(redirect) = LoopbackRedirect::parse(redirect_uri) else { return true };
    // Loopback of the service is this machine's only if the service is on it.
    let callback = format!("{service_url}{CALLBACK}");
    LoopbackRedirect::parse(&callback).is_some_and(|service| redirect.leads_to(&service))
}

/// Passes the redirects that arrive here on to the service, which decides about them, until one completes the sign-in.
async fn pass_redirects_on(
    service: &Client,
    listener: Option<&CallbackListener>,
    started: &StartedSignIn,
    server: &str,
    is_answering: &watch::Sender<bool>,
) -> Result<(), Failure> {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        let redirect = listener.next().await;
        let redirect =
            redirect.map_err(|error| failed(server, &format!("the listener for the redirect failed: {error}")))?;
        is_answering.send_replace(true);
        let callback = format!("{CALLBACK}?{}", redirect.query);
        let passed_on = service.get_outside_api(&callback, FINISH_TIMEOUT).await.map_err(Failure::from);
        let state = match passed_on {
            Ok(response) if response.status.is_success() => {
                redirect.answer(Page::SignedIn { server }).await;
                return Ok(());
            }
            Ok(_) => service_sign_in::state(service, started).await,
            Err(failure) => Err(failure),
        };
        match state {
            Err(failure) => {
                redirect.answer(Page::Failed { why: "The service cannot be reached." }).await;
                return Err(failure);
            }
            Ok(state) => {
                let why = state["error"].as_str().unwrap_or("This redirect belongs to no sign-in that is pending.");
                redirect.answer(Page::Failed { why }).await;
            }
        }
        is_answering.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_redirect_is_reachable_only_where_the_service_is() {
        let loopback = "http://127.0.0.1:8808/oauth/callback";
        assert!(is_reachable("http://localhost:8808", loopback));
        assert!(!is_reachable("http://team.example:8808", loopback));
        assert!(!is_reachable("http://127.0.0.1:9000", loopback), "a forwarded port is another one");
        assert!(is_reachable("http://team.example:8808", "https://team.example/oauth/callback"));
    }
}
