//! A sign-in to a server of a config, without a service.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::NamePolicy;
use aggregator::load::Loaded;
use catalog::{Config, GrantType, Kind, NameStyle, ServerSpec, Transport};
use oauth::{CallbackError, OAuth, Protected};
use tokio::time::timeout;

use super::{LoginArguments, expired, failed, print_signed_in, show_page};
use crate::cli::shared::usual_separator;
use crate::failure::Failure;
use crate::sign_in::callback::{CallbackListener, Page};
use crate::{config, progress, session, sign_in};

pub(super) fn run(arguments: &LoginArguments, path: &Path) -> Result<(), Failure> {
    let storage = &arguments.target.storage;
    let oauth = sign_in::of_config(path, storage.data_dir.as_deref());
    let options =
        session::options("mcp-aggregator", usual_separator(), NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    let (loaded, protected) = load(&arguments.server, path)?;
    // A client that authenticates itself needs no person.
    if protected.settings.grant != GrantType::ClientCredentials {
        // What the server demands of a sign-in is in its answer to a connection, sometimes only to its last step.
        session::with_oauth(loaded.clone(), options.clone(), &oauth, async |session| {
            session.all_decided().await?;
            Box::pin(session.unless_interrupted(sign_in(arguments, &oauth, &protected))).await?
        })?;
    }
    let tools = session::with_oauth(loaded, options, &oauth, async |session| {
        session.all_decided().await?;
        let view = session.fleet().view();
        if let Some(why) = view.snapshot.servers().first().and_then(|server| server.state.failure()) {
            let server = &arguments.server;
            return Err(Failure::new(format!("could not connect `{server}` after the sign-in: {why}")));
        }
        let names = view.snapshot.listed(Kind::Tool, NameStyle::Canonical);
        Ok(names.map(|route| view.snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical)).collect::<Vec<_>>())
    })?;
    print_signed_in(arguments, &tools)
}

/// Reads the config with this server alone, and what a sign-in to it needs.
fn load(server: &str, path: &Path) -> Result<(Loaded, Protected), Failure> {
    let mut loaded = config::load(path)?;
    let spec = take_server(&mut loaded.config, server, path)?;
    let protected = protected(&spec)?;
    loaded.config.servers.push(spec);
    Ok((loaded, protected))
}

/// Takes one server out of a config, which then has no other.
pub(in crate::commands) fn take_server(config: &mut Config, name: &str, path: &Path) -> Result<ServerSpec, Failure> {
    let servers = std::mem::take(&mut config.servers);
    let names: Vec<String> = servers.iter().map(|spec| format!("`{}`", spec.name)).collect();
    servers.into_iter().find(|spec| spec.name.as_str() == name).ok_or_else(|| {
        Failure::new(format!("there is no server `{name}` in {}", path.display()))
            .with_hint(format!("it has {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }))
    })
}

/// What a sign-in to a server needs.
pub(in crate::commands) fn protected(spec: &ServerSpec) -> Result<Protected, Failure> {
    Protected::of(spec).ok_or_else(|| {
        let name = &spec.name;
        let refused = |why: &str| Failure::new(format!("server `{name}` does not support sign-in: {why}"));
        match &spec.transport {
            Transport::Remote(remote) if remote.has_authorization_header() => {
                refused("its config has an `Authorization` header").with_hint("remove the header to sign in instead")
            }
            Transport::Remote(_) => refused("its config turns sign-ins off").with_hint("remove `\"oauth\": false`"),
            Transport::Stdio(_) | Transport::Container(_) => refused("it is not reached over HTTP"),
        }
        .of_kind("SIGN_IN_NOT_SUPPORTED")
    })
}

/// Sends the person to the authorization page, and waits for the redirect that completes the sign-in.
async fn sign_in(arguments: &LoginArguments, oauth: &Arc<OAuth>, protected: &Protected) -> Result<(), Failure> {
    let server = &arguments.server;
    let listener = listen(oauth, protected).await?;
    let begun = oauth.begin(protected, listener.redirect_uri());
    let begun = progress::with_spinner(&format!("asking `{server}` how to sign in"), begun).await;
    let attempt = begun.map_err(|error| failed(server, &error.to_string()))?;
    show_page(arguments, &attempt.authorization_url);
    let lasts = attempt.expires_at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO);
    let returned = timeout(lasts, wait_for_redirect(oauth, &listener, server));
    progress::with_spinner("waiting for the browser", returned).await.unwrap_or_else(|_| Err(expired(server)))
}

/// Where the redirect is to arrive: the configured address, else the one of the last sign-in, which is registered,
/// else any free port.
async fn listen(oauth: &Arc<OAuth>, protected: &Protected) -> Result<CallbackListener, Failure> {
    let settings = &protected.settings;
    let of_port = settings.callback_port.map(|port| format!("http://localhost:{port}/callback"));
    if let Some(configured) = settings.redirect_uri.clone().or(of_port) {
        return CallbackListener::at(&configured).await.map_err(|error| {
            Failure::new(format!("could not listen at the configured redirect address {configured}: {error}"))
                .with_hint(
                    "a redirect address elsewhere needs a service there: `mcp-aggregator serve --public-url URL`",
                )
        });
    }
    if let Some(last) = oauth.last_redirect_uri(&protected.key).await
        && let Ok(listener) = CallbackListener::at(&last).await
    {
        return Ok(listener);
    }
    let listener = CallbackListener::anywhere().await;
    listener.map_err(|error| Failure::new(format!("could not listen for the redirect of the browser: {error}")))
}

/// A redirect that belongs to another sign-in changes nothing. One of ours from another authorization server ends the
/// command, although the true one could still come: the person should know of it.
async fn wait_for_redirect(oauth: &Arc<OAuth>, listener: &CallbackListener, server: &str) -> Result<(), Failure> {
    loop {
        let redirect = listener.next().await;
        let redirect =
            redirect.map_err(|error| failed(server, &format!("the listener for the redirect failed: {error}")))?;
        match oauth.finish(&redirect.query).await {
            Ok(signed_in) => {
                redirect.answer(Page::SignedIn { server: &signed_in.server }).await;
                return Ok(());
            }
            Err(error) => {
                let why = error.to_string();
                redirect.answer(Page::Failed { why: &why }).await;
                if error != CallbackError::Unknown {
                    return Err(Failure::new(why).of_kind("SIGN_IN_FAILED"));
                }
                tracing::debug!(why, "ignored a redirect");
            }
        }
    }
}
