//! Signing in to a server that requires it, and out of it.

use http::StatusCode;
use service::{Error, ServerView};

use super::{error_text, server_path};
use crate::html::{Html, html};
use crate::layout;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The form with the button that starts a sign-in.
pub(crate) fn button(request: &PageRequest<'_>, server: &str) -> Html {
    html!(
        r#"<form method="post" action="{path}/sign-in">{csrf}<button class="small" data-busy="Signing in …">Sign in</button></form>"#,
        path = server_path(server),
        csrf = request.csrf(),
    )
}

/// Starts a sign-in, and sends the browser to the authorization page.
///
/// A redirect in response to the form would be blocked: the pages of the console allow forms to be sent to this
/// service only, and that includes where they are redirected to. So the response is a page that goes on by itself.
pub(crate) async fn start(request: &PageRequest<'_>, server: &str) -> Result<PageResponse, Error> {
    let attempt = match request.service().begin_sign_in(&request.actor, server, None).await {
        Ok(attempt) => attempt,
        Err(error) => return Ok(request.failed(error_text(&error), server_path(server))),
    };
    let address = attempt.authorization_url;
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    if !is_web {
        let why = "The authorization server has no web page to sign in at.";
        return Ok(request.failed(why, server_path(server)));
    }
    let body = html!(
        r#"<section class="card narrow door"><h1>Sign in to {name}</h1><p>You continue at <strong>{host}</strong>, and come back here.</p>
<p><a class="button" id="continue" href="{address:#}" rel="noreferrer">Continue</a> <a class="button quiet" href="{back}">Cancel</a></p></section>"#,
        name = server,
        host = host_of(&address),
        address = address,
        back = server_path(server),
    );
    Ok(PageResponse::Onward(StatusCode::OK, layout::bare("Sign in", &body), address))
}

/// Signs out.
pub(crate) async fn end(request: &PageRequest<'_>, server: &str) -> PageResponse {
    let here = server_path(server);
    match request.service().sign_out(&request.actor, server).await {
        Ok(None) => request.done("Signed out.", here),
        Ok(Some(warning)) => {
            request.done(format!("Signed out here, but the tokens could not be revoked: {warning}"), here)
        }
        Err(error) => request.failed(error_text(&error), here),
    }
}

/// Whether somebody is signed in to a server.
pub(crate) async fn is_signed_in(request: &PageRequest<'_>, server: &ServerView) -> bool {
    if server.record.transport == registry::Transport::Stdio {
        return false;
    }
    let state = request.service().sign_in_state(&server.record.id.to_string()).await;
    state.is_ok_and(|state| state.state == "signed_in")
}

fn host_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_that_the_browser_goes_to() {
        assert_eq!(host_of("https://auth.example:444/authorize?x=1"), "auth.example:444");
        assert_eq!(host_of("https://notion.so@evil.example/a"), "evil.example");
    }
}
