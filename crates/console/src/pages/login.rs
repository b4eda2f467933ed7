//! Signs in to the console with a token of the API.

use http::StatusCode;

use crate::form;
use crate::html::html;
use crate::layout;
use crate::pages::identity;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The sign-in page, with what was wrong with the last attempt.
pub(crate) fn show(request: &PageRequest<'_>, problem: Option<&str>) -> PageResponse {
    // A wrong token is refused even in a valid session, or one token would allow guessing others.
    if request.is_let_in && problem.is_none() {
        return PageResponse::Seen("/".to_owned());
    }
    let next = request.query.get("next").or(request.form.get("next")).unwrap_or("/");
    let body = html!(
        r#"<section class="card narrow door"><h1>mcp-aggregator</h1>{problem}{providers}<p>Sign in with a token of this service: {place}.</p>
<form method="post" action="/login">{csrf}<input type="hidden" name="next" value="{next:#}">
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" required{focus}>
<button>Sign in</button></form></section>"#,
        providers = identity::buttons(request, next),
        place = request.console.dependencies.token_place,
        problem = problem.map(|why| html!(r#"<p class="flash bad" role="alert">{}</p>"#, why)),
        csrf = request.csrf(),
        next = next,
        focus = request.console.dependencies.identity_providers.is_none().then(|| html!(" autofocus")),
    );
    let status = if problem.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    PageResponse::Bare(status, layout::bare("Sign in", &body))
}

/// Signs in with a token, which is stored with the session. The HTTP server counts wrong ones: nothing here waits, so
/// that no other token is compared before this one counts.
pub(crate) fn enter(request: &PageRequest<'_>) -> PageResponse {
    if request.needs_no_token {
        return PageResponse::Seen("/".to_owned());
    }
    let token = request.form.text("token").trim();
    let Some(principal) = (request.console.dependencies.resolve_principal)(token) else {
        return show(request, Some("This token is not valid for this service."));
    };
    let visitor = request.console.sessions.open(principal, token);
    PageResponse::Cookie(visitor.id, ours(request.form.text("next")))
}

/// Signs in with a link, which works once.
pub(crate) fn redeem(request: &PageRequest<'_>, code: &str) -> PageResponse {
    let dependencies = &request.console.dependencies;
    let token = (dependencies.redeem_code)(code);
    match token.as_ref().and_then(|token| Some((token, (dependencies.resolve_principal)(token)?))) {
        Some((token, principal)) => {
            PageResponse::Cookie(request.console.sessions.open(principal, token).id, ours(request.query.text("next")))
        }
        None if request.is_let_in => PageResponse::Seen("/".to_owned()),
        None => show(request, Some("This link was already used or has expired. Sign in with the token.")),
    }
}

/// Signs out.
pub(crate) fn leave(request: &PageRequest<'_>) -> PageResponse {
    request.console.sessions.end(&request.visitor.id);
    request.console.result_cache.forget(&request.visitor.id);
    PageResponse::Seen("/login".to_owned())
}

/// The page after sign-in: only one of the console.
pub(crate) fn ours(next: &str) -> String {
    let is_ours = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t']);
    if !is_ours {
        return "/".to_owned();
    }
    let next = next.split('#').next().unwrap_or("/");
    let (path, query) = next.split_once('?').unwrap_or((next, ""));
    let parts: Vec<String> = path.split('/').map(|part| form::encoded(&form::segment(part))).collect();
    // A search is repeated.
    let is_plain = query.bytes().all(|byte| byte.is_ascii_graphic());
    let query = if query.is_empty() || !is_plain { String::new() } else { format!("?{query}") };
    parts.join("/") + &query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_go_to_our_own_pages_only() {
        assert_eq!(ours("/servers/a b"), "/servers/a%20b");
        assert_eq!(ours("/tools?q=send%20mail&server=a#x"), "/tools?q=send%20mail&server=a");
        for elsewhere in ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", ""] {
            assert_eq!(ours(elsewhere), "/", "{elsewhere}");
        }
    }
}
