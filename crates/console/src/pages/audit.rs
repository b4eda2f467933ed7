//! The audit log: who changed what.

use registry::{AuditFilter, AuditRecord, Page as Part};
use service::Error;

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::{options, pager, server_names};
use crate::request::PageRequest;
use crate::response::PageResponse;

const PAGE: u32 = 50;

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let said = |name: &str| request.query.value_of(name).unwrap_or_default();
    let (who, action, target) = (said("who"), said("action"), said("target"));
    let offset: u64 = said("offset").parse().unwrap_or(0);
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let filter = AuditFilter { who: text(who), action: text(action), target: text(target), since: None };
    let listed = request.service().audit(&filter, Part { limit: PAGE, offset }).await?;
    let address = |offset: u64| {
        form::address(
            "/audit",
            &[("who", who), ("action", action), ("target", target), ("offset", &offset.to_string())],
        )
    };
    let rows: Html = listed.items.iter().map(row).collect();
    let table = match listed.items.is_empty() {
        true => html!(
            r#"<div class="empty"><h3>No entries</h3><p>Every change made in the console, over REST or on the command line is recorded here.</p></div>"#
        ),
        false => html!(
            r#"<div class="scroll"><table class="cards audit"><thead><tr><th>When</th><th>Who</th><th>Action</th><th>Target</th></tr></thead><tbody>{}</tbody></table></div>"#,
            rows
        ),
    };
    let body = html!(
        r#"<h1>Audit log</h1><form class="filters" method="get" action="/audit"><label>Who<input name="who" value="{who:#}" list="who-names" autocomplete="off"></label><datalist id="who-names">{everybody}</datalist><label>Action<select name="action" data-submit>{actions}</select></label>
<label>Target<input name="target" value="{target:#}" list="target-names" autocomplete="off"></label><datalist id="target-names">{targets}</datalist><button class="quiet">Filter</button></form><div id="log-list" data-live="server. tools. notice">{table}{pager}</div>"#,
        who = who,
        everybody = (request.console.dependencies.token_names)()
            .iter()
            .map(|name| html!(r#"<option value="{:#}">"#, name))
            .collect::<Html>(),
        actions = actions(action),
        targets = server_names(request).iter().map(|name| html!(r#"<option value="{:#}">"#, name)).collect::<Html>(),
        target = target,
        table = table,
        pager = pager(listed.items.len(), offset, PAGE, listed.total, address),
    );
    Ok(PageResponse::page(Page { title: "Audit log".into(), place: "/audit", body, script: None }))
}

/// All known actions, and the selected one: it may be older than this program.
fn actions(chosen: &str) -> Html {
    let is_known = chosen.is_empty() || ACTIONS.iter().any(|(action, _)| *action == chosen);
    let other = (!is_known).then(|| (chosen, in_words(chosen)));
    let known = ACTIONS.iter().map(|(action, words)| (*action, (*words).to_owned()));
    options([("", "anything".to_owned())].into_iter().chain(known).chain(other), chosen)
}

fn row(note: &AuditRecord) -> Html {
    let details = note.details.as_ref().map(|details| {
        html!(
            r#"<details id="audit-{id}"><summary>Details</summary><pre>{text}</pre></details>"#,
            id = note.id,
            text = format!("{details:#}")
        )
    });
    html!(
        r#"<tr><td class="nowrap" data-name="When">{when}</td><td data-name="Who">{who}</td><th scope="row">{description}<span class="sub">{action}</span></th><td data-name="Target">{target}{details}</td></tr>"#,
        when =
            html!(r#"{} <span class="sub">{}</span>"#, display::exact(note.timestamp), display::moment(note.timestamp)),
        description = in_words(&note.action),
        who = note.who.as_deref(),
        action = note.action,
        target = note.target.as_deref(),
        details = details,
    )
}

/// Actions and their descriptions.
const ACTIONS: &[(&str, &str)] = &[
    ("server.register", "added a server"),
    ("server.update", "changed a server"),
    ("server.remove", "removed a server"),
    ("server.connect", "connected a server"),
    ("server.disconnect", "disconnected a server"),
    ("server.restart", "restarted a server"),
    ("server.enable", "enabled a server"),
    ("server.disable", "disabled a server"),
    ("server.refresh_tools", "refreshed a server's tools"),
    ("tool.enable", "enabled tools"),
    ("tool.disable", "disabled tools"),
    ("settings.change", "changed settings"),
    ("limit.put", "set a limit"),
    ("limit.remove", "removed a limit"),
    ("execution.cancel", "cancelled a call"),
    ("executions.stop", "stopped all calls"),
    ("executions.reset", "allowed calls again"),
    ("skill.put", "changed a skill"),
    ("skill.delete", "removed a skill"),
    ("skill.reject", "rejected a suggested skill"),
    ("profile.set", "set a profile"),
    ("profile.remove", "removed a profile"),
    ("binding.add", "bound a section"),
    ("binding.remove", "unbound a section"),
    ("registry.export", "exported the registry"),
    ("registry.import", "imported a registry"),
];

/// The description of an action: `skill.try_out` is "skill: try out".
fn in_words(action: &str) -> String {
    let known = ACTIONS.iter().find(|(known, _)| *known == action);
    known.map_or_else(|| action.replacen('.', ": ", 1).replace('_', " "), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_reported_in_words_including_unknown_ones() {
        assert_eq!(in_words("server.register"), "added a server");
        assert_eq!(in_words("skill.try_out"), "skill: try out");
    }
}
