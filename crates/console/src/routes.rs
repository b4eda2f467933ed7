//! Finds the page or action of a request.

use ::executions::Error as CallError;
use http::{Method, Response, StatusCode};
use service::Error;

use crate::pages::{
    add, audit, clients, documents, executions, identity, limits, login, overview, playground, profiles, prompts,
    resources, server, settings, system, tools,
};
use crate::request::PageRequest;
use crate::response::{self, Body, PageResponse};
use crate::{assets, form, layout, roles, session};

/// The first segments of our paths.
const OURS: &[&str] = &[
    "login",
    "logout",
    "connect",
    "servers",
    "add",
    "tools",
    "playground",
    "prompts",
    "resources",
    "executions",
    "clients",
    "profiles",
    "documents",
    "limits",
    "settings",
    "audit",
    "system",
    "export",
    "import",
    "assets",
    "oauth",
];

/// Whether a path is ours.
pub(crate) fn is_known(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    path == "/" || OURS.contains(&first)
}

/// Whether a request carries a token in its body.
pub(crate) fn is_sign_in(method: &Method, path: &str) -> bool {
    *method == Method::POST && matches!(parts_of(path).as_slice(), ["login"])
}

/// Whether a request changes something. Changes run to their end; other requests end when the client disconnects.
pub(crate) fn is_change(method: &Method, path: &str) -> bool {
    let ends_with_client =
        matches!(parts_of(path).as_slice(), ["login" | "connect" | "playground"] | ["documents", "run"]);
    *method == Method::POST && !ends_with_client
}

fn parts_of(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Answers a request.
pub(crate) async fn answer(request: PageRequest<'_>) -> Response<Body> {
    if let Some(asset) = assets::at(&request.path) {
        return response::asset(asset);
    }
    let is_change = request.method == Method::POST;
    if !request.is_let_in && !request.path.starts_with("/login") {
        if is_change {
            return response::signed_out(&request.came_from());
        }
        let to = form::address("/login", &[("next", &request.asked_for)]);
        return response::redirect(&to);
    }
    if is_change && !request.has_valid_csrf() {
        let why = "The request did not come from a page of the console, or the page is too old. Reload the page.";
        return response::refused(StatusCode::FORBIDDEN, why);
    }
    if request.is_let_in && !request.may(&request.method, &request.path) {
        return not_for_role(&request);
    }
    let profile = request.actor.principal.profile().filter(|_| !is_for_everybody(&request.path));
    let done = match profile {
        // The pages show the whole service.
        Some(profile) => Err(Error::BoundToProfile { profile: profile.to_string() }),
        None => Box::pin(run(&request)).await,
    };
    let response = match done {
        Ok(done) => sent(&request, done),
        Err(error) => failed(&request, &error),
    };
    if request.visitor.is_new && !response.headers().contains_key(http::header::SET_COOKIE) {
        return response::with_cookie(response, &session::set_cookie(&request.headers, &request.visitor.id));
    }
    response
}

/// The response to a request that the role of the user does not allow. The first page is another one for users.
fn not_for_role(request: &PageRequest<'_>) -> Response<Body> {
    if request.path == "/" && request.method == Method::GET {
        return response::redirect("/tools");
    }
    let (role, needed) = (request.role(), roles::required(&request.method, &request.path));
    let why = format!("This needs the role `{needed}`; yours is `{role}`.");
    let mut refused = response::refused(StatusCode::FORBIDDEN, &why);
    refused.extensions_mut().insert(needed);
    refused
}

/// Whether a path is also for principals that are bound to a profile: to sign in and out.
fn is_for_everybody(path: &str) -> bool {
    matches!(parts_of(path).as_slice(), ["login" | "logout", ..])
}

async fn run(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let segments = request.segments();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (&request.method, segments.as_slice()) {
        (&Method::GET, []) => overview::show(request).await,
        (&Method::GET, ["connect"]) => Ok(PageResponse::Seen("/".to_owned())),
        (&Method::POST, ["connect"]) => overview::show_with_token(request).await,
        (&Method::GET, ["login"]) => Ok(match request.query.get("code") {
            Some(code) => login::redeem(request, code),
            None => login::show(request, None),
        }),
        (&Method::POST, ["login"]) => Ok(login::enter(request)),
        (&Method::GET, ["login", "identity"]) => Ok(identity::begin(request).await),
        (&Method::GET, ["login", "callback"]) => Ok(identity::finish(request).await),
        (&Method::POST, ["logout"]) => Ok(login::leave(request)),
        (&Method::GET, ["servers", name]) => server::show(request, name).await,
        // A refused form leaves its address in the browser.
        (&Method::GET, ["servers", name, _]) => Ok(PageResponse::Seen(crate::pages::server_path(name))),
        (&Method::POST, ["servers", name, action]) => server::act(request, name, action).await,
        (&Method::GET, ["add"]) => add::show(request).await,
        (&Method::POST, ["add"]) => add::act(request).await,
        (&Method::GET, ["tools"]) => tools::list(request).await,
        (&Method::POST, ["tools"]) => tools::switch(request).await,
        (&Method::GET, ["tools", server, tool]) => tools::show(request, server, tool).await,
        (&Method::GET, ["playground"]) => playground::show(request).await,
        (&Method::GET, ["playground", "tools"]) => Ok(playground::suggest(request)),
        (&Method::GET, ["playground", "result"]) => Ok(playground::whole(request)),
        (&Method::POST, ["playground"]) => playground::run(request).await,
        (&Method::GET, ["executions"]) => executions::list(request).await,
        (&Method::POST, ["executions", "stop"]) => executions::stop(request).await,
        (&Method::POST, ["executions", "reset"]) => executions::reset(request).await,
        (&Method::GET, ["executions", "export.json"]) => executions::export_json(request).await,
        (&Method::GET, ["executions", "export.csv"]) => executions::export_csv(request).await,
        (&Method::GET, ["executions", id]) => executions::show(request, id).await,
        (&Method::POST, ["executions", id, "cancel"]) => executions::cancel(request, id).await,
        (&Method::GET, ["clients"]) => clients::show(request),
        (&Method::GET, ["profiles"]) => Ok(profiles::show(request)),
        (&Method::POST, ["profiles"]) => profiles::act(request).await,
        (&Method::GET, ["prompts"]) => prompts::list(request).await,
        (&Method::GET, ["prompts", "get"]) => prompts::get(request).await,
        (&Method::GET, ["resources"]) => resources::list(request).await,
        (&Method::GET, ["resources", "read"]) => resources::read(request).await,
        (&Method::GET, ["documents"]) => documents::show(request).await,
        (&Method::GET, ["documents", "picture"]) => documents::picture(request).await,
        (&Method::GET, ["documents", "file"]) => documents::file(request).await,
        (&Method::POST, ["documents", "run"]) => documents::run(request).await,
        (&Method::GET, ["limits"]) => limits::show(request),
        (&Method::POST, ["limits"]) => limits::set(request).await,
        (&Method::POST, ["limits", "remove"]) => limits::remove(request).await,
        (&Method::GET, ["settings"]) => settings::show(request).await,
        (&Method::POST, ["settings"]) => settings::change(request).await,
        (&Method::POST, ["export"]) => settings::export(request).await,
        (&Method::POST, ["import"]) => settings::import(request).await,
        (&Method::GET, ["audit"]) => audit::show(request).await,
        (&Method::GET, ["system"]) => system::show(request).await,
        _ => Ok(nothing_here()),
    }
}

fn nothing_here() -> PageResponse {
    let body = crate::html::html!(
        r#"<section class="card narrow"><h1>Page not found</h1><p>The address may be mistyped, or the object was removed.</p>
<p><a href="/">Go to the overview</a></p></section>"#
    );
    PageResponse::Page(
        StatusCode::NOT_FOUND,
        layout::Page { title: "Not found".into(), body, ..layout::Page::default() },
    )
}

fn sent(request: &PageRequest<'_>, done: PageResponse) -> Response<Body> {
    match done {
        PageResponse::Page(status, page) => {
            response::whole(status, layout::render_page(&page, &request.layout_context()))
        }
        PageResponse::Bare(status, page) => response::whole(status, page),
        PageResponse::Onward(status, page, to) => response::onward(status, page, &to),
        PageResponse::Seen(to) => response::redirect(&to),
        PageResponse::Cookie(id, to) => {
            response::with_cookie(response::redirect(&to), &session::set_cookie(&request.headers, &id))
        }
        PageResponse::Elsewhere(cookie, to) => response::with_cookie(response::redirect(&to), &cookie),
        PageResponse::Entered(id, page, to) => {
            let page = response::onward(StatusCode::OK, page, &to);
            let page = response::with_cookie(page, &session::set_cookie(&request.headers, &id));
            response::with_cookie(page, &session::forget_attempt(&request.headers))
        }
        PageResponse::Picture { content_type, content } => response::picture(content_type, content),
        PageResponse::File { name, content_type, content } => response::file(&name, content_type, content),
    }
}

fn failed(request: &PageRequest<'_>, error: &Error) -> Response<Body> {
    let status = match error {
        Error::Call(
            CallError::ServerNotFound { .. } | CallError::ToolNotFound { .. } | CallError::ExecutionNotFound { .. },
        )
        | Error::PromptNotFound { .. }
        | Error::ResourceNotFound { .. }
        | Error::DocumentNotFound { .. } => StatusCode::NOT_FOUND,
        Error::Validation { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::BoundToProfile { .. } => StatusCode::FORBIDDEN,
        Error::Registry(_) => {
            tracing::error!(%error, "failed to render a page");
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::CONFLICT,
    };
    let title = if status == StatusCode::NOT_FOUND { "Not found" } else { "Request failed" };
    let body = crate::html::html!(
        r#"<section class="card narrow"><h1>{title}</h1><pre class="error">{why}</pre><p><a href="/">Go to the overview</a></p></section>"#,
        title = title,
        why = crate::pages::error_text(error),
    );
    let page = layout::Page { title: title.into(), body, ..layout::Page::default() };
    response::whole(status, layout::render_page(&page, &request.layout_context()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_nothing_of_ours_is_given_up_with_its_client() {
        for path in ["/settings", "/import", "/servers/a/remove", "/tools", "/executions/stop", "/add", "/logout"] {
            assert!(is_change(&Method::POST, path) && !is_change(&Method::GET, path), "{path}");
        }
        for path in ["/playground", "/documents/run", "/login", "//login/"] {
            assert!(!is_change(&Method::POST, path), "{path}");
        }
        assert!(is_sign_in(&Method::POST, "//login/") && !is_sign_in(&Method::GET, "/login"));
    }
}
