//! Limits of calls: by identity, profile, server and tool.

use executions::limits::LimitUse;
use http::StatusCode;
use registry::LimitKind;
use serde_json::{Map, Value, json};
use service::{Error, LIMIT_MEMBERS, ShownLimit};

use crate::display;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{Confirmation, ask, error_text, is_confirmed, options, server_names};
use crate::request::PageRequest;
use crate::response::PageResponse;

const PATH: &str = "/limits";

/// How many of the names that a default counts are shown.
const MAX_SHOWN_USES: usize = 10;

/// The fields of the form: member, title and hint.
const FIELDS: [(&str, &str, &str); 4] = [
    ("per_second", "Calls per second", "such as 5 or 0.1"),
    ("burst", "Burst", "how many may begin at once after a pause; by default the calls of a second"),
    ("concurrent", "Calls at once", "in progress, including those that wait"),
    ("per_day", "Calls per day", "in UTC"),
];

/// The page.
pub(crate) fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    Ok(page(request, None))
}

/// The page; after an error with the input and the problem.
fn page(request: &PageRequest<'_>, problem: Option<&str>) -> PageResponse {
    let limits = request.service().limits();
    let table = match limits.is_empty() {
        true => html!(
            r#"<div class="empty"><h3>No limits</h3><p>Without limits, everybody may make any number of calls.</p></div>"#
        ),
        false => html!(
            r#"<div class="scroll"><table class="cards"><thead><tr><th>For</th><th class="n">Per second</th><th class="n">Burst</th><th class="n">At once</th><th class="n">Per day</th><th>Running and today</th><th class="n">Refused</th><th></th></tr></thead><tbody>{}</tbody></table></div>"#,
            limits.iter().map(|limit| row(request, limit)).collect::<Html>()
        ),
    };
    let body = html!(
        r#"<h1>Limits</h1><p class="muted">How many calls an identity, a profile, a server or a tool may have. Calls beyond a limit are refused. The name <code>*</code> is the default for each that has no limit of its own; each is counted apart.</p>
<div id="limits" data-live="execution. notice">{table}</div><section aria-labelledby="set"><h2 id="set">Set a limit</h2>{form}</section>"#,
        table = table,
        form = form(request, problem),
    );
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    PageResponse::Page(status, Page { title: "Limits".into(), place: PATH, body, script: None })
}

fn row(request: &PageRequest<'_>, limit: &ShownLimit) -> Html {
    let (view, bounds) = (&limit.view, &limit.view.record.limit);
    let (kind, name) = (view.record.kind.as_str(), view.record.name.as_str());
    let number = |number: Option<u64>| number.map(display::count);
    html!(
        r#"<tr><th scope="row">{name} <span class="tag">{kind}</span>{missing}</th><td class="n" data-name="Per second">{per_second}</td><td class="n" data-name="Burst">{burst}</td><td class="n" data-name="At once">{concurrent}</td><td class="n" data-name="Per day">{per_day}</td><td data-name="Running and today">{uses}</td><td class="n" data-name="Refused">{refused}</td>
<td><form method="post" action="/limits/remove">{csrf}<input type="hidden" name="kind" value="{kind:#}"><input type="hidden" name="name" value="{name:#}"><button class="quiet small" data-confirm="{question}">Remove</button></form></td></tr>"#,
        name = clip(name, 120),
        kind = kind,
        missing = (limit.exists == Some(false))
            .then(|| html!(r#" <span class="sub">there is no {kind} of this name now</span>"#, kind = kind)),
        per_second = bounds.per_second.map(|rate| rate.to_string()),
        burst = number(bounds.burst.map(u64::from)),
        concurrent = number(bounds.concurrent.map(u64::from)),
        per_day = number(bounds.per_day),
        uses = uses(limit),
        refused = display::count(view.refused),
        csrf = request.csrf(),
        question = question(kind, name),
    )
}

/// What counts against a limit.
fn uses(limit: &ShownLimit) -> Html {
    let view = &limit.view;
    let numbers = |one: &LimitUse| format!("{} · {}", display::count(one.running.into()), display::count(one.today));
    if view.record.name != "*" {
        return view.uses.iter().map(|one| html!("{}", numbers(one))).collect();
    }
    let shown =
        view.uses.iter().take(MAX_SHOWN_USES).map(|one| {
            html!("<li><code>{name}</code> {numbers}</li>", name = clip(&one.name, 80), numbers = numbers(one))
        });
    let others = view.counted.saturating_sub(MAX_SHOWN_USES as u64);
    let others = (others > 0).then(|| html!("<li>and {} more</li>", display::count(others)));
    html!(r"<ul>{shown}{others}</ul>", shown = shown.collect::<Html>(), others = others)
}

fn form(request: &PageRequest<'_>, problem: Option<&str>) -> Html {
    // The input stays until it is saved.
    let typed = |name: &str| problem.and(request.form.get(name)).unwrap_or_default().to_owned();
    let fields = FIELDS.iter().map(|(name, title, hint)| {
        html!(
            r#"<div class="field"><label for="{name}">{title} <span class="hint">{hint}</span></label><input id="{name}" name="{name}" inputmode="decimal" autocomplete="off" value="{value:#}"></div>"#,
            name = *name,
            title = *title,
            hint = *hint,
            value = typed(name),
        )
    });
    let kinds = LimitKind::ALL.iter().map(|kind| (kind.as_str(), kind.to_string()));
    let names = (request.console.dependencies.token_names)();
    let names = names.iter().map(ToString::to_string).chain(server_names(request));
    html!(
        r#"<form class="card" method="post" action="/limits">{csrf}{problem}
<div class="field"><label for="kind">For</label><select id="kind" name="kind">{kinds}</select></div>
<div class="field"><label for="name">Name <span class="hint">of a token, a person, a profile or a server, or the full name of a tool; * for each; local is the user of a service without tokens</span></label><input id="name" name="name" value="{name:#}" list="limit-names" autocomplete="off" spellcheck="false"><datalist id="limit-names">{names}</datalist></div>
{fields}<p class="hint">An empty field is not limited. Setting a limit replaces the earlier one; calls that were counted still count.</p><button>Set</button></form>"#,
        csrf = request.csrf(),
        problem = problem.map(|why| html!(r#"<p class="flash bad" role="alert">{}</p>"#, why)),
        kinds = options(kinds, &typed("kind")),
        name = typed("name"),
        names = names.map(|name| html!(r#"<option value="{:#}">"#, name)).collect::<Html>(),
        fields = fields.collect::<Html>(),
    )
}

/// Sets a limit.
pub(crate) async fn set(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let text = |name: &str| request.form.get(name).unwrap_or_default().trim();
    let kind = match text("kind").parse::<LimitKind>() {
        Ok(kind) => kind,
        Err(error) => return Ok(page(request, Some(&error.to_string()))),
    };
    // What is no number stays text, which the service refuses by name.
    let value = |text: &str| serde_json::from_str(text).ok().filter(Value::is_number).unwrap_or_else(|| json!(text));
    let given = LIMIT_MEMBERS.iter().filter(|member| !text(member).is_empty());
    let members: Map<String, Value> = given.map(|member| ((*member).to_owned(), value(text(member)))).collect();
    let name = text("name");
    match request.service().put_limit(&request.actor, kind, name, &members).await {
        Ok(limit) => {
            let about = format!("Set: {} {}.", in_words(kind.as_str(), name), limit.view.record.limit);
            Ok(request.done(about, PATH))
        }
        Err(error @ (Error::Validation { .. } | Error::Registry(registry::Error::Invalid { .. }))) => {
            Ok(page(request, Some(&error_text(&error))))
        }
        Err(error) => Err(error),
    }
}

/// Removes a limit.
pub(crate) async fn remove(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let text = |name: &str| request.form.get(name).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let Ok(parsed) = kind.parse::<LimitKind>() else { return Ok(request.failed("Unknown kind of limit.", PATH)) };
    if !is_confirmed(request) {
        let fields = [("kind", kind), ("name", name)];
        let question = Confirmation { about: &question(kind, name), action: "Remove", fields: &fields, back: PATH };
        return Ok(ask(request, &question));
    }
    Ok(match request.service().remove_limit(&request.actor, parsed, name).await {
        Ok(()) => request.done(format!("Removed the limit of {}.", in_words(kind, name)), PATH),
        Err(error) => request.failed(error_text(&error), PATH),
    })
}

fn question(kind: &str, name: &str) -> String {
    format!("Remove the limit of {}, and what was counted against it?", in_words(kind, name))
}

fn in_words(kind: &str, name: &str) -> String {
    if name == "*" { format!("each {kind} by default") } else { format!("{kind} {name}") }
}
