//! The door: a token of the API, shown once.

use http::StatusCode;

use crate::form;
use crate::frame;
use crate::html::html;
use crate::reply::Reply;
use crate::visit::Visit;

/// The door.
pub(crate) fn show(visit: &Visit<'_>, problem: Option<&str>) -> Reply {
    if visit.is_let_in {
        return Reply::Seen("/".to_owned());
    }
    let next = visit.query.get("next").or(visit.form.get("next")).unwrap_or("/");
    let body = html!(
        r#"<section class="card narrow door"><h1>mcp-aggregator</h1><p>Sign in with a token of this service: {place}.</p>
{problem}<form method="post" action="/login">{csrf}<input type="hidden" name="next" value="{next:#}">
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></section>"#,
        place = visit.console.outside.token_place,
        problem = problem.map(|why| html!(r#"<p class="flash bad" role="alert">{}</p>"#, why)),
        csrf = visit.csrf(),
        next = next,
    );
    let status = if problem.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    Reply::Bare(status, frame::bare("Sign in", &body))
}

/// Somebody shows a token. It is compared, and kept for as long as the session lives. Whoever let the request in counts wrong
/// ones: nothing here waits, so that no other is compared before this one counts.
pub(crate) fn enter(visit: &Visit<'_>) -> Reply {
    if visit.needs_no_token {
        return Reply::Seen("/".to_owned());
    }
    let token = visit.form.text("token").trim();
    let Some(principal) = (visit.console.outside.whose)(token) else {
        return show(visit, Some("This is no token of this service."));
    };
    let visitor = visit.console.sessions.open(principal, token);
    Reply::Cookie(visitor.id, ours(visit.form.text("next")))
}

/// Somebody follows a sign-in link, which opens once.
pub(crate) fn redeem(visit: &Visit<'_>, code: &str) -> Reply {
    let outside = &visit.console.outside;
    let token = (outside.redeem_code)(code);
    match token.as_ref().and_then(|token| Some((token, (outside.whose)(token)?))) {
        Some((token, principal)) => {
            Reply::Cookie(visit.console.sessions.open(principal, token).id, ours(visit.query.text("next")))
        }
        None if visit.is_let_in => Reply::Seen("/".to_owned()),
        None => show(visit, Some("This link has been used or is too old. Sign in with the token.")),
    }
}

/// Somebody goes.
pub(crate) fn leave(visit: &Visit<'_>) -> Reply {
    visit.console.sessions.end(&visit.visitor.id);
    visit.console.kept.forget(&visit.visitor.id);
    Reply::Seen("/login".to_owned())
}

/// Where to go on: only to a page of ours.
fn ours(next: &str) -> String {
    let is_ours = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t']);
    if !is_ours {
        return "/".to_owned();
    }
    let next = next.split('#').next().unwrap_or("/");
    let (path, query) = next.split_once('?').unwrap_or((next, ""));
    let parts: Vec<String> = path.split('/').map(|part| form::encoded(&form::segment(part))).collect();
    // What was searched for is searched for again.
    let is_plain = query.bytes().all(|byte| byte.is_ascii_graphic());
    let query = if query.is_empty() || !is_plain { String::new() } else { format!("?{query}") };
    parts.join("/") + &query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_on_leads_to_our_own_pages_only() {
        assert_eq!(ours("/servers/a b"), "/servers/a%20b");
        assert_eq!(ours("/tools?q=send%20mail&server=a#x"), "/tools?q=send%20mail&server=a");
        for elsewhere in ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", ""] {
            assert_eq!(ours(elsewhere), "/", "{elsewhere}");
        }
    }
}
