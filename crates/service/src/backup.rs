//! Export and import of the whole registry while the service runs.

use std::sync::Arc;

use registry::{Actor, AuditNote, Existing, ImportReport, Secrets, SkillRecord};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::limits::read_limit;
use crate::profiles::problems_with_profile;
use crate::servers::{Registration, to_the_end};
use crate::settings::Settings;
use crate::{Error, Problem, Service};

/// The target in the audit log.
const TARGET: &str = "registry";

impl Service {
    /// Registered servers, settings and bindings; credentials only on request.
    pub async fn export(&self, by: &Actor, secrets: Secrets) -> Result<Value, Error> {
        let exported = self.store.export(secrets).await?;
        let details = json!({ "secrets": secrets == Secrets::Revealed });
        // Also while nothing can be written: an export may be all that can be rescued then.
        self.context.audit(AuditNote::new(by, "registry.export", Some(TARGET), Some(details))).await?;
        Ok(exported)
    }

    /// Imports an export, all or nothing. Existing servers stay as they are; new ones are connected.
    pub async fn import(self: Arc<Self>, by: &Actor, backup: Value) -> Result<ImportReport, Error> {
        let by = by.clone();
        to_the_end(async move { self.take_in(&by, &backup).await }).await
    }

    async fn take_in(&self, by: &Actor, backup: &Value) -> Result<ImportReport, Error> {
        self.context.check_slots()?;
        let _turn = self.settings.changing().await;
        let settings = match &backup["settings"] {
            Value::Object(settings) => settings.clone(),
            _ => Map::new(),
        };
        // No skill may be added meanwhile: their number is limited.
        let _skills_turn = self.finder.changing().await;
        let problems = problems_with_backup(backup, &self.store.skills().await?);
        if !problems.is_empty() {
            return Err(Error::Validation { problems });
        }
        let before = self.settings.now();
        let changed = before.changed(&settings).map_err(|problems| Error::Validation { problems })?;
        let mut change = self.store.transaction("import a registry").await?;
        let report = change.import(backup, Existing::Kept).await?;
        let details = json!({ "added": report.added });
        change.commit_audited(AuditNote::new(by, "registry.import", Some(TARGET), Some(details))).await?;
        self.apply_settings(&before, &changed);
        if report.limits > 0 {
            self.store.limits().await?.iter().for_each(|limit| self.executions.limits().put(limit));
        }
        if report.skills > 0 {
            self.finder.read_skills().await?;
        }
        if report.profiles > 0 {
            self.reload_profiles().await?;
        }
        for name in &report.added {
            let record = self.store.find_server(name).await?;
            self.context.add_new_server(record).await?;
        }
        Ok(report)
    }
}

/// Everything in an export that the registry could store but not use: the same checks as for each of its parts if it
/// were added alone. Whether it is an export at all is checked by the registry. Masked secrets are no problem here:
/// such servers are disabled. `kept` are the skills that the registry has already.
pub fn problems_with_backup(backup: &Value, kept: &[SkillRecord]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if has_nul(backup) {
        let msg = "a text must not contain NUL".to_owned();
        problems.push(Problem { loc: vec!["body".to_owned()], msg, kind: "value_error" });
    }
    for (index, server) in backup["servers"].as_array().into_iter().flatten().enumerate() {
        let Ok(new) = serde_json::from_value::<Registration>(server.clone()) else { continue };
        problems.extend(within(&["servers", &index.to_string()], new.problems_but_masks()));
    }
    if let Value::Object(settings) = &backup["settings"]
        && let Err(wrong) = Settings::default().changed(settings)
    {
        problems.extend(within(&["settings"], wrong));
    }
    for (name, spec) in backup["profiles"].as_object().into_iter().flatten() {
        let problems_of_one = problems_with_profile(name, spec);
        problems.extend(within(&["profiles", name], problems_of_one));
    }
    let skills = backup["skills"].as_array().into_iter().flatten().map(SkillRecord::deserialize);
    let skills: Vec<SkillRecord> = skills.filter_map(Result::ok).collect();
    for (index, problem) in tool_search::problems_with(&skills, kept) {
        let index = index.map(|index| index.to_string());
        let place: Vec<&str> = ["skills"].into_iter().chain(index.as_deref()).collect();
        problems.extend(within(&place, vec![problem.into()]));
    }
    for (index, limit) in backup["limits"].as_array().into_iter().flatten().enumerate() {
        // What is no limit at all is reported by the registry.
        let (Some(Ok(kind)), Some(name), Value::Object(members)) =
            (limit["kind"].as_str().map(str::parse), limit["name"].as_str(), limit)
        else {
            continue;
        };
        let bounds = members.iter().filter(|(member, _)| !matches!(member.as_str(), "kind" | "name"));
        let bounds = bounds.map(|(member, value)| (member.clone(), value.clone())).collect();
        let wrong = read_limit(kind, name, &bounds).err().unwrap_or_default();
        problems.extend(within(&["limits", &index.to_string()], wrong));
    }
    problems
}

/// The same problems, with the location of the part.
fn within(place: &[&str], problems: Vec<Problem>) -> impl Iterator<Item = Problem> {
    let place: Vec<String> = ["body"].iter().chain(place).map(|&part| part.to_owned()).collect();
    problems.into_iter().map(move |problem| {
        let inner = problem.loc.into_iter().skip(1);
        Problem { loc: place.iter().cloned().chain(inner).collect(), ..problem }
    })
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
    fn what_could_not_be_used_is_reported_with_its_place_and_masks_are_fine() {
        let backup = json!({"servers": [
            {"name": "fine", "transport_type": "stdio", "connection_config": {"command": "x", "env": {"TOKEN": "***"}}},
            {"name": "Not Fine", "transport_type": "http", "connection_config": {}},
        ]});
        assert_eq!(places(&backup), ["body.servers.1.name", "body.servers.1.connection_config.url"]);
        assert_eq!(places(&json!({"x": "\0"})), ["body"]);
    }

    fn places(backup: &Value) -> Vec<String> {
        problems_with_backup(backup, &[]).iter().map(|problem| problem.loc.join(".")).collect()
    }

    fn skill(id: &str, name: &str) -> SkillRecord {
        let examples = Vec::new();
        SkillRecord { id: id.to_owned(), name: name.to_owned(), description: "x".to_owned(), examples, enabled: true }
    }

    #[test]
    fn what_could_not_be_added_alone_is_not_taken_in() {
        let server = |description: &str| json!({"name": "a", "description": description, "transport_type": "stdio", "connection_config": {"command": "x"}});
        let backup = json!({
            "servers": [server("fine"), server(&"x".repeat(10_001))],
            "settings": {"timeout_ms": 5, "queue_limit": -1},
            "skills": [skill("fine", "Fine"), skill("not fine", "Not fine"), skill("long", &"x".repeat(101))],
            "limits": [
                {"kind": "server", "name": "a", "per_second": 0.5, "burst": 2},
                {"kind": "tool", "name": "a", "per_day": 1},
                {"kind": "identity", "name": "*", "per_second": null, "concurrent": 0},
            ],
        });
        let expected = [
            "body.servers.1.description",
            "body.settings.queue_limit",
            "body.skills.1.skill",
            "body.skills.2.name",
            "body.limits.1.name",
            "body.limits.2.concurrent",
        ];
        assert_eq!(places(&backup), expected);
    }

    #[test]
    fn an_import_makes_no_more_skills_than_there_may_be() {
        let skills =
            |from: usize, to: usize| (from..to).map(|number| skill(&format!("s{number}"), "S")).collect::<Vec<_>>();
        let (kept, backup) = (skills(0, 300), |from, to| json!({"skills": skills(from, to)}));
        assert!(problems_with_backup(&backup(0, 300), &kept).is_empty(), "they are there already");
        let problems = problems_with_backup(&backup(300, 600), &kept);
        assert!(matches!(problems.as_slice(), [Problem { loc, .. }] if *loc == ["body", "skills"]), "{problems:?}");
    }
}
