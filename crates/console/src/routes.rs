//! From a request to the page or the deed it is for.

use http::{Method, Response, StatusCode};
use service::Error;

use crate::pages::{
    add, audit, clients, documents, executions, login, overview, playground, prompts, resources, server, settings,
    system, tools,
};
use crate::reply::{self, Body, Reply};
use crate::visit::Visit;
use crate::{assets, form, frame, session};

/// The first part of every path that is ours.
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
    "documents",
    "settings",
    "audit",
    "system",
    "export",
    "import",
    "assets",
];

/// Whether a path is ours.
pub(crate) fn is_known(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    path == "/" || OURS.contains(&first)
}

/// Whether a request shows a token in its body.
pub(crate) fn is_sign_in(method: &Method, path: &str) -> bool {
    *method == Method::POST && matches!(parts_of(path).as_slice(), ["login"])
}

/// Whether a request changes something of ours. That is done to its end; others are given up when whoever asked is gone.
pub(crate) fn is_change(method: &Method, path: &str) -> bool {
    let ends_with_client =
        matches!(parts_of(path).as_slice(), ["login" | "connect" | "playground"] | ["documents", "run"]);
    *method == Method::POST && !ends_with_client
}

fn parts_of(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Answers a request.
pub(crate) async fn answer(visit: Visit<'_>) -> Response<Body> {
    if let Some(asset) = assets::at(&visit.path) {
        return reply::asset(asset);
    }
    let is_change = visit.method == Method::POST;
    if !visit.is_let_in && !visit.path.starts_with("/login") {
        if is_change {
            return reply::signed_out(&visit.came_from());
        }
        let to = form::address("/login", &[("next", &visit.asked_for)]);
        return reply::elsewhere(&to);
    }
    if is_change && !visit.is_meant() {
        let why = "This did not come from a page of the console, or from one that is too old. Load it again.";
        return reply::refused(StatusCode::FORBIDDEN, why);
    }
    let response = match Box::pin(run(&visit)).await {
        Ok(done) => sent(&visit, done),
        Err(error) => failed(&visit, &error),
    };
    if visit.visitor.is_new && !response.headers().contains_key(http::header::SET_COOKIE) {
        return reply::with_cookie(response, &session::set_cookie(&visit.headers, &visit.visitor.id));
    }
    response
}

async fn run(visit: &Visit<'_>) -> Result<Reply, Error> {
    let segments = visit.segments();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (&visit.method, segments.as_slice()) {
        (&Method::GET, []) => overview::show(visit).await,
        (&Method::GET, ["connect"]) => Ok(Reply::Seen("/".to_owned())),
        (&Method::POST, ["connect"]) => overview::show_with_token(visit).await,
        (&Method::GET, ["login"]) => Ok(match visit.query.get("code") {
            Some(code) => login::redeem(visit, code),
            None => login::show(visit, None),
        }),
        (&Method::POST, ["login"]) => Ok(login::enter(visit)),
        (&Method::POST, ["logout"]) => Ok(login::leave(visit)),
        (&Method::GET, ["servers", name]) => server::show(visit, name).await,
        // What was sent there and refused left this address behind.
        (&Method::GET, ["servers", name, _]) => Ok(Reply::Seen(crate::pages::server_path(name))),
        (&Method::POST, ["servers", name, deed]) => server::act(visit, name, deed).await,
        (&Method::GET, ["add"]) => add::show(visit).await,
        (&Method::POST, ["add"]) => add::act(visit).await,
        (&Method::GET, ["tools"]) => tools::list(visit).await,
        (&Method::POST, ["tools"]) => tools::switch(visit).await,
        (&Method::GET, ["tools", server, tool]) => tools::show(visit, server, tool).await,
        (&Method::GET, ["playground"]) => playground::show(visit).await,
        (&Method::GET, ["playground", "tools"]) => Ok(playground::suggest(visit)),
        (&Method::GET, ["playground", "result"]) => Ok(playground::whole(visit)),
        (&Method::POST, ["playground"]) => playground::run(visit).await,
        (&Method::GET, ["executions"]) => executions::list(visit).await,
        (&Method::POST, ["executions", "stop"]) => executions::stop(visit).await,
        (&Method::POST, ["executions", "reset"]) => executions::reset(visit).await,
        (&Method::GET, ["executions", "export.json"]) => executions::export_json(visit).await,
        (&Method::GET, ["executions", "export.csv"]) => executions::export_csv(visit).await,
        (&Method::GET, ["executions", id]) => executions::show(visit, id).await,
        (&Method::POST, ["executions", id, "cancel"]) => executions::cancel(visit, id).await,
        (&Method::GET, ["clients"]) => clients::show(visit),
        (&Method::GET, ["prompts"]) => prompts::list(visit),
        (&Method::GET, ["prompts", "get"]) => prompts::get(visit).await,
        (&Method::GET, ["resources"]) => resources::list(visit),
        (&Method::GET, ["resources", "read"]) => resources::read(visit).await,
        (&Method::GET, ["documents"]) => documents::show(visit).await,
        (&Method::GET, ["documents", "picture"]) => documents::picture(visit).await,
        (&Method::GET, ["documents", "file"]) => documents::file(visit).await,
        (&Method::POST, ["documents", "run"]) => documents::run(visit).await,
        (&Method::GET, ["settings"]) => settings::show(visit).await,
        (&Method::POST, ["settings"]) => settings::change(visit).await,
        (&Method::POST, ["export"]) => settings::export(visit).await,
        (&Method::POST, ["import"]) => settings::import(visit).await,
        (&Method::GET, ["audit"]) => audit::show(visit).await,
        (&Method::GET, ["system"]) => system::show(visit).await,
        _ => Ok(nothing_here()),
    }
}

fn nothing_here() -> Reply {
    let body = crate::html::html!(
        r#"<section class="card narrow"><h1>Nothing is here</h1><p>The address may be mistyped, or what it named is gone.</p>
<p><a href="/">To the overview</a></p></section>"#
    );
    Reply::Page(StatusCode::NOT_FOUND, frame::Page { title: "Not found".into(), body, ..frame::Page::default() })
}

fn sent(visit: &Visit<'_>, done: Reply) -> Response<Body> {
    match done {
        Reply::Page(status, page) => reply::whole(status, frame::framed(&page, &visit.around())),
        Reply::Bare(status, page) => reply::whole(status, page),
        Reply::Seen(to) => reply::elsewhere(&to),
        Reply::Cookie(id, to) => reply::with_cookie(reply::elsewhere(&to), &session::set_cookie(&visit.headers, &id)),
        Reply::Picture { content_type, content } => reply::picture(content_type, content),
        Reply::File { name, content_type, content } => reply::file(&name, content_type, content),
    }
}

fn failed(visit: &Visit<'_>, error: &Error) -> Response<Body> {
    let status = match error {
        Error::ServerNotFound { .. }
        | Error::ToolNotFound { .. }
        | Error::PromptNotFound { .. }
        | Error::ResourceNotFound { .. }
        | Error::ExecutionNotFound { .. }
        | Error::DocumentNotFound { .. } => StatusCode::NOT_FOUND,
        Error::Validation { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Registry(_) => {
            tracing::error!(%error, "a page could not be made");
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::CONFLICT,
    };
    let title = if status == StatusCode::NOT_FOUND { "It is not here" } else { "That did not work" };
    let body = crate::html::html!(
        r#"<section class="card narrow"><h1>{title}</h1><pre class="error">{why}</pre><p><a href="/">To the overview</a></p></section>"#,
        title = title,
        why = crate::pages::told(error),
    );
    let page = frame::Page { title: title.into(), body, ..frame::Page::default() };
    reply::whole(status, frame::framed(&page, &visit.around()))
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
