//! The whole registry as a file, out and in.

use std::sync::Arc;

use registry::{ImportReport, Secrets};
use serde_json::Value;
use service::Error;

use crate::display;
use crate::html::{Html, html};
use crate::pages::{Confirmation, ask, is_confirmed, told};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// What is asked before secrets leave.
const WITH_SECRETS: &str = "Whoever has the file has all credentials in it. Go on?";

/// The part of the page; with what was pasted and what is wrong with it, if it was refused.
pub(super) fn section(request: &PageRequest<'_>, refused: Option<&str>) -> Html {
    let problem = refused.map(|why| html!(r#"<pre class="error" role="alert" id="refused">{}</pre>"#, why));
    html!(
        r#"<form class="card" method="post" action="/export"><p>All servers, settings, skills, bindings and which tools are switched off, in one file.</p>{csrf}<div class="actions"><button class="quiet" name="secrets" value="masked">Export without secrets</button>
<button class="quiet" name="secrets" value="revealed" data-confirm="{ask}">Export with secrets</button></div></form>
<form class="card" method="post" action="/import">{csrf}{problem}<div class="field"><label for="backup-file" data-script hidden>File</label><input type="file" id="backup-file" data-into="backup-text" accept="application/json" data-script hidden></div>
<div class="field"><label for="backup-text">What was exported</label><textarea id="backup-text" name="backup" rows="5" required{sign}>{pasted:#}</textarea></div>
<p class="hint">All or nothing. Servers that are there stay as they are; those with masked secrets are switched off until they have them again.</p><button class="quiet">Import</button></form>"#,
        csrf = request.csrf(),
        ask = WITH_SECRETS,
        problem = problem,
        sign = refused.map(|_| html!(r#" aria-invalid="true" aria-describedby="refused" autofocus"#)),
        pasted = refused.and(request.form.get("backup")),
    )
}

/// The registry is wanted as a file.
pub(crate) async fn export(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let secrets = if request.form.text("secrets") == "revealed" { Secrets::Revealed } else { Secrets::Masked };
    if secrets == Secrets::Revealed && !is_confirmed(request) {
        let fields = &[("secrets", "revealed")];
        let question = Confirmation { about: WITH_SECRETS, action: "Export with secrets", fields, back: "/settings" };
        return Ok(ask(request, &question));
    }
    let exported = request.service().export(&request.actor, secrets).await?;
    let content = serde_json::to_vec_pretty(&exported).expect("JSON can be written");
    Ok(PageResponse::File { name: "mcp-aggregator.json".into(), content_type: "application/json", content })
}

/// A registry is to be taken in.
pub(crate) async fn import(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let refused = |why: &str| Ok(super::page(request, None, Some(why)));
    let backup: Value = match serde_json::from_str(request.form.text("backup")) {
        Ok(backup) => backup,
        Err(error) => return refused(&format!("This is no JSON: {error}")),
    };
    if ["mcpServers", "servers"].iter().any(|member| backup[*member].is_object()) {
        return refused("This is the config of a client, not an export. Paste it under Add server.");
    }
    match Arc::clone(request.service()).import(&request.actor, backup.clone()).await {
        Ok(report) => Ok(request.done(in_words(&report, &backup), "/settings")),
        Err(error) => refused(&told(&error)),
    }
}

/// What became of everything that was in a file.
fn in_words(report: &ImportReport, backup: &Value) -> String {
    let listed = |names: &[String]| {
        let mut shown: Vec<&str> = names.iter().take(12).map(String::as_str).collect();
        if names.len() > shown.len() {
            shown.push("…");
        }
        shown.join(", ")
    };
    let new = display::several(report.added.len() as u64, "new server");
    let mut lines = vec![match report.added.as_slice() {
        [] => format!("Taken in: {new}."),
        names => format!("Taken in: {new}: {}", listed(names)),
    }];
    let mut line = |names: &[String], what: &str| {
        if !names.is_empty() {
            lines.push(format!("{what}: {}", listed(names)));
        }
    };
    line(&report.kept, "Here already, and as they were");
    line(&report.without_secrets, "Switched off until their secrets are written into their config again");
    let off = backup["switched_off"].as_array().into_iter().flatten();
    let off = off.filter(|off| report.added.iter().any(|name| off["server"] == name.as_str())).count();
    let counts = [(report.settings, "setting"), (report.skills, "skill"), (report.bindings, "binding")];
    let counts = counts.into_iter().chain([(off, "switched-off tool")]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| display::several(count as u64, what)).collect();
    if !counts.is_empty() {
        lines.push(format!("Also {}.", counts.join(", ")));
    }
    if report.bindings_left_out > 0 {
        let left_out = display::several(report.bindings_left_out as u64, "binding");
        lines.push(format!("Left out: {left_out}, whose server is not here."));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_became_of_everything_is_reported() {
        let name = |name: &str| vec![name.to_owned()];
        let report = ImportReport {
            added: name("a"),
            kept: name("b"),
            without_secrets: name("a"),
            settings: 2,
            bindings_left_out: 1,
            ..ImportReport::default()
        };
        let backup = json!({"switched_off": [{"server": "a", "tool": "x"}, {"server": "b", "tool": "y"}]});
        let said = "Taken in: 1 new server: a\nHere already, and as they were: b\n\
            Switched off until their secrets are written into their config again: a\n\
            Also 2 settings, 1 switched-off tool.\nLeft out: 1 binding, whose server is not here.";
        assert_eq!(in_words(&report, &backup), said);
        assert_eq!(in_words(&ImportReport::default(), &json!({})), "Taken in: 0 new servers.");
    }
}
