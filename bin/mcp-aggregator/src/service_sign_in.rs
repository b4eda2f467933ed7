//! Signing in to a server through a running service, and out of it.
//!
//! The redirect of the browser goes to the service itself. Commands only start the sign-in, show the address, and watch.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::progress;
use crate::table::printable;

/// How often the service is asked whether the user has signed in.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a server may take to connect after the sign-in.
const CONNECT_WAIT: Duration = Duration::from_secs(30);

/// A sign-in that a service has started.
pub(crate) struct StartedSignIn {
    /// The page at which the user continues.
    pub(crate) authorization_url: String,
    path: String,
    name: String,
}

/// Has the service start a sign-in. `redirect_uri` is that of a command that waits for the browser itself.
pub(crate) async fn start(service: &Client, name: &str, redirect_uri: Option<&str>) -> Result<StartedSignIn, Failure> {
    let path = path_of(name);
    let body = redirect_uri.map(|address| json!({ "redirect_uri": address }));
    let started = service.post(&path, body.as_ref()).await?;
    let authorization_url = started["authorization_url"].as_str().unwrap_or_default().to_owned();
    if authorization_url.is_empty() {
        return Err(crate::api_error::not_this_service(service.url(), "its response has no authorization_url"));
    }
    Ok(StartedSignIn { authorization_url, path, name: name.to_owned() })
}

/// The path of the sign-in of a server.
pub(crate) fn path_of(name: &str) -> String {
    format!("/servers/{}/login", encoded(name))
}

/// How far the sign-in is.
pub(crate) async fn state(service: &Client, started: &StartedSignIn) -> Result<Value, Failure> {
    Ok(service.get(&started.path).await?)
}

/// Waits until the user has signed in, or the attempt has failed or expired.
pub(crate) async fn finished(service: &Client, started: &StartedSignIn) -> Result<(), Failure> {
    let failed = |why: &str| {
        Failure::new(format!("could not sign in to `{}`: {why}", printable(&started.name)))
            .with_hint(format!("`{}` tries again", catalog::login_command(&started.name)))
    };
    let waiting = async {
        loop {
            let state = service.get(&started.path).await?;
            match state["state"].as_str() {
                Some("pending") => sleep(POLL_INTERVAL).await,
                Some("signed_in") => return Ok(()),
                Some("failed") => {
                    return Err(failed(&printable(state["error"].as_str().unwrap_or("no reason was given"))));
                }
                _ => return Err(failed("the attempt expired, or somebody signed out meanwhile")),
            }
        }
    };
    progress::with_spinner("waiting for the browser", waiting).await
}

/// The server after the sign-in: connected, or why not.
pub(crate) async fn connected(service: &Client, name: &str) -> Result<Value, Failure> {
    let path = format!("/servers/{}", encoded(name));
    let began = Instant::now();
    loop {
        let server = service.get(&path).await?;
        let status = server["status"].as_str();
        // The service connects it as soon as it learns of the sign-in.
        let is_connecting = matches!(status, Some("connecting" | "sign_in_required"));
        if !is_connecting || began.elapsed() > CONNECT_WAIT {
            return Ok(server);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Has the service sign out. Returns why the tokens could not be revoked, if so.
pub(crate) async fn sign_out(service: &Client, name: &str) -> Result<Option<String>, Failure> {
    let done = service.delete(&path_of(name)).await?;
    Ok(done["warning"].as_str().map(printable))
}
