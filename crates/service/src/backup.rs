//! The whole registry in one piece: given out, and taken in while everything runs.

use std::sync::Arc;

use registry::{Existing, ImportReport, Secrets};
use serde_json::{Map, Value, json};

use crate::servers::{Registration, to_the_end};
use crate::{Actor, Error, Problem, Service, audit};

/// What the audit log calls it.
const TARGET: &str = "registry";

impl Service {
    /// Registered servers, settings and bindings; credentials only where they are asked for.
    pub async fn export(&self, by: &Actor, secrets: Secrets) -> Result<Value, Error> {
        let exported = self.store.export(secrets).await?;
        let details = json!({ "secrets": secrets == Secrets::Revealed });
        // Also while nothing can be written: an export may be all that can be rescued then.
        self.house.audit(audit::note(by, "registry.export", Some(TARGET), Some(details))).await?;
        Ok(exported)
    }

    /// Takes in what was exported, all or nothing. Servers that are there stay as they are; new ones are connected.
    pub async fn import(self: Arc<Self>, by: &Actor, backup: Value) -> Result<ImportReport, Error> {
        let by = by.clone();
        to_the_end(async move { self.take_in(&by, &backup).await }).await
    }

    async fn take_in(&self, by: &Actor, backup: &Value) -> Result<ImportReport, Error> {
        let _turn = self.settings.changing().await;
        let settings = match &backup["settings"] {
            Value::Object(settings) => settings.clone(),
            _ => Map::new(),
        };
        let changed = self.settings.now().changed(&settings).map_err(|problems| Error::Validation { problems })?;
        let problems = problems_with(backup);
        if !problems.is_empty() {
            return Err(Error::Validation { problems });
        }
        let mut change = self.store.transaction("import a registry").await?;
        let report = change.import(backup, Existing::Kept).await?;
        let details = json!({ "added": report.added });
        audit::commit(change, audit::note(by, "registry.import", Some(TARGET), Some(details))).await?;
        self.settings.put(changed);
        self.executions.heed_settings();
        if report.skills > 0 {
            self.finder.read_skills().await?;
        }
        for name in &report.added {
            let record = self.store.find_server(name).await?;
            self.house.admit_new(record).await?;
        }
        Ok(report)
    }
}

/// Everything that is wrong with an exported registry, so that it can be kept but not be used. Whether it is one at all
/// is for the registry to say. Masked secrets are no problem here: such servers are switched off.
pub fn problems_with(backup: &Value) -> Vec<Problem> {
    let place = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>();
    let mut problems = Vec::new();
    if has_nul(backup) {
        let msg = "a text must not contain NUL".to_owned();
        problems.push(Problem { loc: place(&["body"]), msg, kind: "value_error" });
    }
    for (index, server) in backup["servers"].as_array().into_iter().flatten().enumerate() {
        let Ok(new) = serde_json::from_value::<Registration>(server.clone()) else { continue };
        let index = index.to_string();
        problems.extend(new.problems_but_masks().into_iter().map(|problem| {
            let inner = problem.loc.into_iter().skip(1);
            Problem { loc: place(&["body", "servers", &index]).into_iter().chain(inner).collect(), ..problem }
        }));
    }
    problems
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_used_is_told_with_its_place_and_masks_are_fine() {
        let backup = json!({"servers": [
            {"name": "fine", "transport_type": "stdio", "connection_config": {"command": "x", "env": {"TOKEN": "***"}}},
            {"name": "Not Fine", "transport_type": "http", "connection_config": {}},
        ]});
        let places: Vec<String> = problems_with(&backup).iter().map(|problem| problem.loc.join(".")).collect();
        assert_eq!(places, ["body.servers.1.name", "body.servers.1.connection_config.url"]);
        assert_eq!(problems_with(&json!({"x": "\0"})).len(), 1);
    }
}
