//! Profiles: which part of everything some clients see.

use std::sync::Arc;

use http::StatusCode;
use registry::Origin;
use serde_json::Value;
use service::{Error, ProfileView};

use crate::display;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::{Confirmation, ask, error_text, is_confirmed};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// What a new profile is shown with.
const EXAMPLE: &str = "{\n  \"servers\": [\"*\"],\n  \"classes\": [\"read_only\"]\n}";

/// The page.
pub(crate) fn show(request: &PageRequest<'_>) -> PageResponse {
    page(request, None)
}

fn page(request: &PageRequest<'_>, problem: Option<&str>) -> PageResponse {
    let profiles = request.service().profiles();
    let rows: Html = profiles.iter().map(|profile| row(request, profile)).collect();
    let table = match profiles.is_empty() {
        true => html!(
            r#"<div class="empty"><h3>There are no profiles</h3><p>All clients see everything. Clients at <code>/mcp/@NAME</code>, and tokens that are bound to a profile, see only what it admits.</p></div>"#
        ),
        false => html!(
            r#"<div class="scroll"><table class="cards"><thead><tr><th>Profile</th><th>Definition</th><th class="n">Servers</th><th class="n">Tools</th><th class="n">Prompts</th><th class="n">Resources</th><th>Tokens</th><th></th></tr></thead><tbody>{}</tbody></table></div>"#,
            rows
        ),
    };
    let body = html!(
        r#"<h1>Profiles</h1><div id="profiles" data-live="profile. server. tools. notice">{table}</div><h2>Set a profile</h2>{form}"#,
        table = table,
        form = form(request, &profiles, problem),
    );
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    PageResponse::Page(status, Page { title: "Profiles".into(), place: "/profiles", body, script: None })
}

fn row(request: &PageRequest<'_>, profile: &ProfileView) -> Html {
    let is_registered = profile.origin == Origin::Registered;
    let actions = is_registered.then(|| {
        html!(
            r#"<a href="/profiles?name={name}">Edit</a> <form method="post" action="/profiles">{csrf}<input type="hidden" name="name" value="{name:#}"><button class="quiet small" name="action" value="remove" data-confirm="{ask}">Remove</button></form>"#,
            csrf = request.csrf(),
            ask = removal(&profile.name),
            name = profile.name,
        )
    });
    let warnings: Html =
        profile.warnings.iter().map(|warning| html!(r#"<span class="sub">{}</span>"#, warning)).collect();
    html!(
        r#"<tr><th scope="row">{name}<span class="sub">/mcp/@{name}</span></th><td data-name="Definition"><code>{spec}</code>{warnings}</td><td class="n" data-name="Servers">{servers}</td><td class="n" data-name="Tools">{tools}</td><td class="n" data-name="Prompts">{prompts}</td><td class="n" data-name="Resources">{resources}</td><td data-name="Tokens">{bound}</td><td>{actions}</td></tr>"#,
        name = profile.name,
        spec = profile.spec.to_string(),
        warnings = warnings,
        servers = display::count(profile.sees.servers as u64),
        tools = display::count(profile.sees.tools as u64),
        prompts = display::count(profile.sees.prompts as u64),
        resources = display::count(profile.sees.resources as u64),
        bound = profile.bound.join(", "),
        actions = match actions {
            Some(actions) => actions,
            None => html!(r#"<span class="muted">config file</span>"#),
        },
    )
}

/// The question before a profile is removed.
fn removal(name: &str) -> String {
    format!("Remove the profile {name}? Its clients see nothing from then on.")
}

fn form(request: &PageRequest<'_>, profiles: &[ProfileView], problem: Option<&str>) -> Html {
    let name = request.form.get("name").or_else(|| request.query.get("name")).unwrap_or_default();
    let known = profiles.iter().find(|profile| profile.name == name);
    let known = known.and_then(|profile| serde_json::to_string_pretty(&profile.spec).ok());
    let spec = request.form.get("spec").map(str::to_owned).or(known).unwrap_or_else(|| EXAMPLE.to_owned());
    html!(
        r#"<form class="card" method="post" action="/profiles">{csrf}{problem}
<div class="field"><label for="name">Name <span class="hint">letters, digits, <code>_</code>, <code>-</code> and <code>.</code></span></label><input id="name" name="name" value="{name:#}" required autocomplete="off"></div>
<div class="field"><label for="spec">Definition <span class="hint">JSON with <code>servers</code>, <code>tools</code>, <code>prompts</code>, <code>resources</code>, <code>classes</code>, <code>surface</code> and <code>pinned</code>; what is left out is not restricted</span></label><textarea id="spec" name="spec" rows="8">{spec:#}</textarea></div>
<button name="action" value="set">Set</button></form>"#,
        csrf = request.csrf(),
        problem = problem.map(|problem| html!(r#"<p class="flash bad" role="alert">{}</p>"#, problem)),
        name = name,
        spec = spec,
    )
}

/// Sets or removes a profile.
pub(crate) async fn act(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let (name, service) = (request.form.text("name"), Arc::clone(request.service()));
    if request.form.get("action") == Some("remove") {
        if !is_confirmed(request) {
            let about = removal(name);
            let fields = [("name", name), ("action", "remove")];
            let confirmation = Confirmation { about: &about, action: "Remove", fields: &fields, back: "/profiles" };
            return Ok(ask(request, &confirmation));
        }
        return Ok(match service.remove_profile(&request.actor, name).await {
            Ok(()) => request.done(format!("The profile {name} is removed."), "/profiles"),
            Err(error) => request.failed(error_text(&error), "/profiles"),
        });
    }
    let spec: Value = match serde_json::from_str(request.form.text("spec")) {
        Ok(spec) => spec,
        Err(error) => return Ok(page(request, Some(&format!("The definition is not valid JSON: {error}")))),
    };
    Ok(match service.put_profile(&request.actor, name, spec).await {
        Ok((profile, _)) => {
            let warnings = profile.warnings.join("\n");
            let message = format!("The profile {name} is in effect: {} tools.\n{warnings}", profile.sees.tools);
            request.done(message.trim_end(), "/profiles")
        }
        Err(error) => page(request, Some(&error_text(&error))),
    })
}
