//! Signs in to the console at an identity provider: the page of the provider, and the way back.

use http::StatusCode;

use crate::form;
use crate::html::{Html, html};
use crate::layout;
use crate::pages::login;
use crate::request::PageRequest;
use crate::response::PageResponse;
use crate::session::{self, SignedIn};

/// Where the browser comes back to.
pub const CALLBACK: &str = "/login/callback";

/// A button for each identity provider, above the form for tokens.
pub(crate) fn buttons(request: &PageRequest<'_>, next: &str) -> Html {
    let Some(providers) = &request.console.dependencies.identity_providers else { return Html::default() };
    let issuers = providers.issuers();
    let button = |issuer: &String| {
        html!(
            r#"<p><a class="button" href="{to}">Sign in with {name}</a></p>"#,
            to = form::address("/login/identity", &[("issuer", issuer), ("next", next)]),
            name = host_of(issuer),
        )
    };
    issuers.iter().map(button).collect()
}

/// What people call an issuer.
fn host_of(issuer: &str) -> &str {
    let rest = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// Sends the browser to the identity provider, with a cookie by which it is known when it comes back.
pub(crate) async fn begin(request: &PageRequest<'_>) -> PageResponse {
    let Some(providers) = &request.console.dependencies.identity_providers else {
        return PageResponse::Seen("/login".to_owned());
    };
    let (issuer, next) = (request.query.text("issuer").to_owned(), login::ours(request.query.text("next")));
    match providers.begin(issuer, next).await {
        Ok(begun) => PageResponse::Elsewhere(session::set_attempt(&request.headers, &begun.state), begun.url),
        Err(why) => failed(&why),
    }
}

/// Completes a sign-in that this browser began. Anybody can lead a browser here, with a sign-in of his own.
pub(crate) async fn finish(request: &PageRequest<'_>) -> PageResponse {
    let Some(providers) = &request.console.dependencies.identity_providers else {
        return PageResponse::Seen("/login".to_owned());
    };
    let is_own = request.query.get("state").is_some_and(|state| session::has_attempt(&request.headers, state));
    if !is_own {
        return failed("this browser has no pending sign-in; begin again on the sign-in page");
    }
    let query = request.asked_for.split_once('?').map_or("", |(_, query)| query).to_owned();
    let (person, next) = match providers.finish(query).await {
        Ok(finished) => finished,
        Err(why) => return failed(&why),
    };
    let Some(principal) = person.principal() else { return failed("the token has expired already") };
    let visitor = request.console.sessions.open_for(principal, SignedIn::Person(person));
    // A redirect would still come from the provider, and the browser would send no cookie with it.
    let body = html!(
        r#"<section class="card narrow door"><h1>Signed in</h1><p><a href="{next}">Go on</a></p></section>"#,
        next = next
    );
    PageResponse::Entered(visitor.id, layout::bare("Signed in", &body), next)
}

fn failed(why: &str) -> PageResponse {
    let body = html!(
        r#"<section class="card narrow door"><h1>Not signed in</h1><p>{why}.</p><p><a class="button" href="/login">Back to the sign-in page</a></p></section>"#,
        why = why.trim_end_matches('.'),
    );
    PageResponse::Bare(StatusCode::BAD_REQUEST, layout::bare("Not signed in", &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_called_by_its_host() {
        assert_eq!(host_of("https://id.example:8443/realms/team"), "id.example:8443");
    }
}
