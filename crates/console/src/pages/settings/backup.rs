//! Export and import of the registry.

use std::sync::Arc;

use registry::{ImportReport, Secrets};
use serde_json::Value;
use service::Error;

use crate::display;
use crate::html::{Html, html};
use crate::pages::{Confirmation, ask, error_text, is_confirmed};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The confirmation before secrets are exported.
const WITH_SECRETS: &str = "Anyone who has the file can read all credentials. Continue?";

/// The section; after a refusal with the input and the problem.
pub(super) fn section(request: &PageRequest<'_>, refused: Option<&str>) -> Html {
    let problem = refused.map(|why| html!(r#"<pre class="error" role="alert" id="refused">{}</pre>"#, why));
    html!(
        r#"<form class="card" method="post" action="/export"><p>All servers, settings, skills, bindings, limits and disabled tools, in one file.</p>{csrf}<div class="actions"><button class="quiet" name="secrets" value="masked">Export without secrets</button>
<button class="quiet" name="secrets" value="revealed" data-confirm="{ask}">Export with secrets</button></div></form>
<form class="card" method="post" action="/import">{csrf}{problem}<div class="field"><label for="backup-file" data-script hidden>File</label><input type="file" id="backup-file" data-into="backup-text" accept="application/json" data-script hidden></div>
<div class="field"><label for="backup-text">Exported registry</label><textarea id="backup-text" name="backup" rows="5" required{sign}>{pasted:#}</textarea></div>
<p class="hint">Everything is imported, or nothing. Existing servers stay as they are; servers with masked secrets stay disabled until you enter the secrets.</p><button class="quiet">Import</button></form>"#,
        csrf = request.csrf(),
        ask = WITH_SECRETS,
        problem = problem,
        sign = refused.map(|_| html!(r#" aria-invalid="true" aria-describedby="refused" autofocus"#)),
        pasted = refused.and(request.form.get("backup")),
    )
}

/// Exports the registry as a file.
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

/// Imports a registry.
pub(crate) async fn import(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let refused = |why: &str| Ok(super::page(request, None, Some(why)));
    let backup: Value = match serde_json::from_str(request.form.text("backup")) {
        Ok(backup) => backup,
        Err(error) => return refused(&format!("Invalid JSON: {error}")),
    };
    if ["mcpServers", "servers"].iter().any(|member| backup[*member].is_object()) {
        return refused("This is the config of a client, not an export. Paste it under Add server.");
    }
    match Arc::clone(request.service()).import(&request.actor, backup.clone()).await {
        Ok(report) => Ok(request.done(in_words(&report, &backup), "/settings")),
        Err(error) => refused(&error_text(&error)),
    }
}

/// The result of an import as text.
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
        [] => format!("Imported: {new}."),
        names => format!("Imported: {new}: {}", listed(names)),
    }];
    let mut line = |names: &[String], what: &str| {
        if !names.is_empty() {
            lines.push(format!("{what}: {}", listed(names)));
        }
    };
    line(&report.kept, "Already present, not changed");
    line(&report.without_secrets, "Disabled until you enter their secrets");
    let off = backup["switched_off"].as_array().into_iter().flatten();
    let off = off.filter(|off| report.added.iter().any(|name| off["server"] == name.as_str())).count();
    let counts = [
        (report.settings, "setting"),
        (report.skills, "skill"),
        (report.bindings, "binding"),
        (report.limits, "limit"),
    ];
    let counts = counts.into_iter().chain([(off, "disabled tool")]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| display::several(count as u64, what)).collect();
    if !counts.is_empty() {
        lines.push(format!("Also {}.", counts.join(", ")));
    }
    if report.bindings_left_out > 0 {
        let left_out = display::several(report.bindings_left_out as u64, "binding");
        lines.push(format!("Skipped: {left_out}, whose server does not exist."));
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
        let said = "Imported: 1 new server: a\nAlready present, not changed: b\n\
            Disabled until you enter their secrets: a\n\
            Also 2 settings, 1 disabled tool.\nSkipped: 1 binding, whose server does not exist.";
        assert_eq!(in_words(&report, &backup), said);
        assert_eq!(in_words(&ImportReport::default(), &json!({})), "Imported: 0 new servers.");
    }
}
