//! The layout around every page: menu, user, and messages.

use http::Method;
use registry::{Principal, Role};

use crate::assets::{EVENTS, ICON, SCRIPT, STYLE};
use crate::html::{Html, html};
use crate::roles;

/// A page without its layout.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The title.
    pub(crate) title: String,
    /// The menu entry it belongs to.
    pub(crate) place: &'static str,
    /// The content.
    pub(crate) body: Html,
    /// A script of its own.
    pub(crate) script: Option<&'static str>,
}

/// What the layout shows beside the page.
#[derive(Debug)]
pub(crate) struct LayoutContext<'a> {
    pub(crate) csrf: &'a str,
    /// Who is signed in, if anybody has to.
    pub(crate) principal: Option<&'a Principal>,
    /// What the user may do.
    pub(crate) role: Role,
    /// A message about the last action.
    pub(crate) flash: Option<Flash>,
    pub(crate) executions_stopped: bool,
}

/// The outcome of the last action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flash {
    pub(crate) is_good: bool,
    pub(crate) message: String,
}

/// The menu: path, name and icon.
const MENU: &[(&str, &str, &str)] = &[
    ("/", "Overview", "M3 11l9-7 9 7v9h-6v-6H9v6H3z"),
    ("/tools", "Tools", "M14 6a4 4 0 0 1 5-4l-3 3 3 3 3-3a4 4 0 0 1-5 5L8 19a2 2 0 0 1-3-3z"),
    ("/playground", "Playground", "M6 4l14 8-14 8z"),
    ("/prompts", "Prompts", "M4 5h16v11H9l-5 4z"),
    ("/resources", "Resources", "M4 6h6l2 2h8v11H4z"),
    ("/executions", "Executions", "M3 12h4l3-8 4 16 3-8h4"),
    (
        "/clients",
        "Clients",
        "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 20a6 6 0 0 1 12 0M16 11a3 3 0 0 0 0-6M17 14a6 6 0 0 1 4 6",
    ),
    (
        "/profiles",
        "Profiles",
        "M12 5c5 0 9 4 10 7-1 3-5 7-10 7S3 15 2 12c1-3 5-7 10-7zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
    ),
    ("/documents", "Documents", "M4 4h7a1 1 0 0 1 1 1v15a2 2 0 0 0-2-2H4zM20 4h-7a1 1 0 0 0-1 1v15a2 2 0 0 1 2-2h6z"),
    ("/add", "Add server", "M12 4v16M4 12h16"),
    (
        "/settings",
        "Settings",
        "M4 7h10M18 7h2M4 17h4M12 17h8M14 7a2 2 0 1 0 4 0 2 2 0 0 0-4 0zM8 17a2 2 0 1 0 4 0 2 2 0 0 0-4 0z",
    ),
    ("/limits", "Limits", "M4 18a8 8 0 1 1 16 0M12 18l4-6M4 18h2M18 18h2"),
    ("/audit", "Audit log", "M6 3h9l4 4v14H6zM9 11h7M9 15h7"),
    ("/system", "Health", "M12 21C5 15 3 12 3 8.5a4.5 4.5 0 0 1 9-1 4.5 4.5 0 0 1 9 1c0 3.5-2 6.5-9 12.5z"),
];

/// The whole page.
pub(crate) fn render_page(page: &Page, layout_context: &LayoutContext<'_>) -> Html {
    html!(
        r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} · mcp-aggregator</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<meta name="csrf" content="{csrf}"><link rel="icon" href="{icon}" type="image/svg+xml"><link rel="stylesheet" href="{style}">
<script src="{script}" defer></script>{own_script}</head>
<body><a class="skip" href="#main">Skip to content</a>
<header class="side"><a class="brand" href="/"><img src="{icon}" alt="" width="24" height="24">mcp-aggregator</a>
<nav aria-label="Pages"><ul>{menu}</ul></nav>
<div class="who">{live}{who}</div></header>
<main id="main" tabindex="-1">{flash}<div id="stopped" data-live="notice">{stopped}</div>{body}</main></body></html>
"##,
        title = page.title,
        csrf = layout_context.csrf,
        icon = ICON.path,
        style = STYLE.path,
        script = SCRIPT.path,
        live = (layout_context.role >= Role::Operator).then(live),
        own_script = page.script.map(|path| html!(r#"<script src="{}" defer></script>"#, path)),
        menu = menu(page.place, layout_context.role),
        who = who(layout_context),
        flash = layout_context.flash.as_ref().map(flash),
        stopped = layout_context.executions_stopped.then(|| stopped(layout_context)),
        body = page.body,
    )
}

/// A page before sign-in.
pub(crate) fn bare(title: &str, body: &Html) -> Html {
    html!(
        r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} · mcp-aggregator</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="{icon}" type="image/svg+xml"><link rel="stylesheet" href="{style}"></head>
<body class="bare"><main id="main">{body}</main></body></html>
"##,
        title = title,
        icon = ICON.path,
        style = STYLE.path,
        body = body,
    )
}

/// Events are for operators, so the pages of others are not updated by them.
fn live() -> Html {
    html!(r#"<span id="live" class="live" role="status" data-events="{events}">not live</span>"#, events = EVENTS.path)
}

fn menu(here: &str, role: Role) -> Html {
    MENU
        .iter()
        .filter(|(path, _, _)| role >= roles::required(&Method::GET, path))
        .map(|(path, name, sign)| {
            html!(
                r#"<li><a href="{path}"{current}><svg viewBox="0 0 24 24" aria-hidden="true"><path d="{sign}"/></svg>{name}</a></li>"#,
                path = *path,
                current = (*path == here).then(|| html!(r#" aria-current="page""#)),
                sign = *sign,
                name = *name,
            )
        })
        .collect()
}

fn who(layout_context: &LayoutContext<'_>) -> Html {
    let Some(principal) = layout_context.principal else { return Html::default() };
    html!(
        r#"<form method="post" action="/logout">{csrf}<span class="principal" title="signed in with the role {role:#}">{name}</span>
<button class="quiet small">Sign out</button></form>"#,
        csrf = csrf_field(layout_context.csrf),
        role = principal.role().as_str(),
        name = &**principal.name(),
    )
}

/// The hidden field that every form must have.
pub(crate) fn csrf_field(csrf: &str) -> Html {
    html!(r#"<input type="hidden" name="csrf" value="{:#}">"#, csrf)
}

fn flash(flash: &Flash) -> Html {
    let (tone, role) = if flash.is_good { ("ok", "status") } else { ("bad", "alert") };
    html!(
        r#"<div class="flash {tone}" role="{role}"><pre>{message}</pre></div>"#,
        tone = tone,
        role = role,
        message = flash.message,
    )
}

fn stopped(layout_context: &LayoutContext<'_>) -> Html {
    let form = (layout_context.role >= roles::required(&Method::POST, "/executions/reset")).then(|| {
        html!(
            r#"
<form method="post" action="/executions/reset">{csrf}<button class="small">Allow calls again</button></form>"#,
            csrf = csrf_field(layout_context.csrf)
        )
    });
    html!(
        r#"<div class="flash bad" role="alert"><p><strong>All calls are stopped.</strong> New ones are refused until you allow them again.</p>{form}</div>"#,
        form = form,
    )
}
