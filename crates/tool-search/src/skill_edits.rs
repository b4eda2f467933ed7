//! Skills as an administrator sees and changes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use registry::{Actor, AuditNote, SkillRecord};
use search::Skill;
use serde::Serialize;
use serde_json::json;
use tokio::sync::MutexGuard;

use super::Finder;
use super::skills::{KnownSkill, SkillOrigin, SkillSet};
use crate::{Error, SkillProblem};

/// The maximum number of skills: each is embedded, and compared with every tool.
const MAX_SKILLS: usize = 500;
const MAX_EXAMPLES: usize = 50;
const MAX_NAME_LEN: usize = 100;
const MAX_DESCRIPTION_LEN: usize = 2000;
const MAX_EXAMPLE_LEN: usize = 500;

/// A skill for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillView {
    /// Its id.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// What its tools do.
    pub description: String,
    /// Examples of requests that its tools fulfil.
    pub examples: Vec<String>,
    /// Whether tools may have it.
    pub enabled: bool,
    /// Where it comes from.
    pub origin: SkillOrigin,
    /// Whether an administrator changed or created it.
    pub is_changed: bool,
    /// The number of tools that have it and can be called now.
    pub tool_count: usize,
    /// How many of them have it as their best skill.
    pub primary_tool_count: usize,
}

/// A change to a skill. Absent members stay as they are; a new skill needs a name and a description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillChange {
    /// Its name, for people.
    pub name: Option<String>,
    /// What its tools do.
    pub description: Option<String>,
    /// Examples of requests that its tools fulfil.
    pub examples: Option<Vec<String>>,
    /// Whether tools may have it.
    pub enabled: Option<bool>,
}

/// What happens to a suggestion when a skill with its id is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suggestion {
    /// The suggestion stays, if there is one.
    Stays,
    /// The suggestion became the skill, and is removed.
    Accepted,
}

impl Finder {
    /// All skills, built-in ones first.
    pub fn all_skills(&self) -> Vec<SkillView> {
        let counts = self.skill_counts();
        self.skills().all().iter().map(|known| view(known, &counts)).collect()
    }

    /// The skill with this id.
    pub fn skill(&self, id: &str) -> Result<SkillView, Error> {
        let skills = self.skills();
        let known = skills.get(id).ok_or_else(|| not_found(id))?;
        Ok(view(known, &self.skill_counts()))
    }

    /// Changes or creates a skill. Returns it, and whether it is new. Tools are classified again in the background.
    pub async fn put_skill(&self, by: &Actor, id: &str, change: SkillChange) -> Result<(SkillView, bool), Error> {
        self.put_skill_and(by, id, change, Suggestion::Stays).await
    }

    /// The same, with the fate of the suggestion with that id in the same transaction.
    pub(super) async fn put_skill_and(
        &self,
        by: &Actor,
        id: &str,
        change: SkillChange,
        suggestion: Suggestion,
    ) -> Result<(SkillView, bool), Error> {
        let _turn = self.changing().await;
        let skills = self.skills();
        let is_new = skills.get(id).is_none();
        let record = changed(&skills, id, change).map_err(|problems| Error::InvalidSkill { problems })?;
        let mut change = self.store.transaction("store a skill").await?;
        change.put_skill(&record).await?;
        if suggestion == Suggestion::Accepted {
            change.delete_suggestion(id).await?;
        }
        let details = json!({ "enabled": record.enabled });
        change.commit_audited(AuditNote::new(by, "skill.put", Some(id), Some(details))).await?;
        self.read_skills().await?;
        Ok((self.skill(id)?, is_new))
    }

    /// Reverts the changes to a skill; a skill that an administrator created is removed.
    pub async fn delete_skill(&self, by: &Actor, id: &str) -> Result<(), Error> {
        let _turn = self.changing().await;
        if self.skills().get(id).is_none() {
            return Err(not_found(id));
        }
        // What remains: nothing, or the built-in skill.
        let others = self.store.skills().await?.into_iter().filter(|kept| kept.id != id).collect();
        let left = SkillSet::new(&self.skills_of_file, others);
        let mut change = self.store.transaction("delete a skill").await?;
        if !change.delete_skill(id).await? {
            return Ok(());
        }
        let details = left.get(id).map(|known| json!({ "enabled": known.is_enabled }));
        change.commit_audited(AuditNote::new(by, "skill.delete", Some(id), details)).await?;
        self.read_skills().await
    }

    /// Holds the lock for changes to skills.
    pub async fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// The current skills.
    pub(super) fn skills(&self) -> Arc<SkillSet> {
        Arc::clone(&self.skills.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies the skills in the registry, and classifies tools by them.
    pub async fn read_skills(&self) -> Result<(), Error> {
        let set = SkillSet::new(&self.skills_of_file, self.store.skills().await?);
        let skill_count = set.enabled().len();
        *self.skills.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
        self.host.on_skills_changed(skill_count);
        Ok(())
    }

    /// For each skill, the number of tools that have it and can be called now, and how many have it as their best one.
    fn skill_counts(&self) -> HashMap<String, (usize, usize)> {
        let callable_servers = self.callable_servers(None);
        let tool_index = self.tool_index.read().unwrap_or_else(PoisonError::into_inner);
        tool_index.skill_counts(&|entry| callable_servers.contains_key(&entry.server))
    }
}

fn view(known: &KnownSkill, counts: &HashMap<String, (usize, usize)>) -> SkillView {
    let KnownSkill { skill: Skill { id, name, description, examples }, is_enabled, origin, is_kept } = known.clone();
    let (tool_count, primary_tool_count) = counts.get(&id).copied().unwrap_or_default();
    SkillView {
        id,
        name,
        description,
        examples,
        enabled: is_enabled,
        origin,
        is_changed: is_kept,
        tool_count,
        primary_tool_count,
    }
}

pub(super) fn not_found(key: &str) -> Error {
    Error::SkillNotFound { key: key.to_owned() }
}

/// A skill with the changes applied, or all problems with it.
fn changed(skills: &SkillSet, id: &str, change: SkillChange) -> Result<SkillRecord, Vec<SkillProblem>> {
    let known = skills.get(id);
    let mut problems = Vec::new();
    let mut wrong = |field: &'static str, kind, msg: &str| {
        problems.push(SkillProblem { field: Some(field), msg: msg.to_owned(), kind });
    };
    if !is_id(id) {
        let says = "an id starts with a letter and contains only lowercase letters, digits, `_` and `-`, at most 64";
        wrong("id", "string_pattern_mismatch", says);
    }
    if known.is_none() && skills.all().len() >= MAX_SKILLS {
        wrong("id", "value_error", "there are too many skills; remove one first");
    }
    let mut text = |name: &'static str, given: Option<String>, known: Option<&String>, longest: usize| {
        let Some(text) = given.or_else(|| known.cloned()) else {
            wrong(name, "missing", "a new skill requires this member");
            return String::new();
        };
        if text.trim().is_empty() || text.chars().count() > longest {
            wrong(name, "value_error", &format!("expected a text of 1 to {longest} characters"));
        }
        text
    };
    let name = text("name", change.name, known.map(|known| &known.skill.name), MAX_NAME_LEN);
    let description =
        text("description", change.description, known.map(|known| &known.skill.description), MAX_DESCRIPTION_LEN);
    let examples = change.examples.or_else(|| known.map(|known| known.skill.examples.clone())).unwrap_or_default();
    let is_fine = |example: &String| !example.trim().is_empty() && example.chars().count() <= MAX_EXAMPLE_LEN;
    if examples.len() > MAX_EXAMPLES || !examples.iter().all(is_fine) {
        let says = format!("expected at most {MAX_EXAMPLES} texts of 1 to {MAX_EXAMPLE_LEN} characters");
        wrong("examples", "value_error", &says);
    }
    let enabled = change.enabled.or_else(|| known.map(|known| known.is_enabled)).unwrap_or(true);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(SkillRecord { id: id.to_owned(), name, description, examples, enabled })
}

/// All problems with skills that are to be stored next to existing ones: the index of the skill, and the problem.
pub fn problems_with(more: &[SkillRecord], kept: &[SkillRecord]) -> Vec<(Option<usize>, SkillProblem)> {
    let builtin = SkillSet::new(&[], Vec::new());
    let mut ids: HashSet<&str> = builtin.all().iter().map(|known| known.skill.id.as_str()).collect();
    ids.extend(kept.iter().map(|skill| skill.id.as_str()));
    let before = ids.len();
    ids.extend(more.iter().map(|skill| skill.id.as_str()));
    if ids.len() > before.max(MAX_SKILLS) {
        let msg = format!("there would be {} skills; the limit is {MAX_SKILLS}", ids.len());
        return vec![(None, SkillProblem { field: None, msg, kind: "value_error" })];
    }
    let wrong = |(index, skill): (usize, &SkillRecord)| {
        let SkillRecord { id, name, description, examples, enabled } = skill.clone();
        let change = SkillChange {
            name: Some(name),
            description: Some(description),
            examples: Some(examples),
            enabled: Some(enabled),
        };
        let problems = changed(&builtin, &id, change).err().unwrap_or_default();
        problems.into_iter().map(move |problem| (Some(index), problem))
    };
    more.iter().enumerate().flat_map(wrong).collect()
}

pub(super) fn is_id(id: &str) -> bool {
    id.len() <= 64
        && id.starts_with(|first: char| first.is_ascii_lowercase())
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_fields(id: &str, change: SkillChange) -> Vec<&'static str> {
        let problems = changed(&SkillSet::new(&[], Vec::new()), id, change).unwrap_err();
        problems.iter().filter_map(|problem| problem.field).collect()
    }

    #[test]
    fn a_built_in_skill_is_disabled_without_repeating_its_text() {
        let skills = SkillSet::new(&[], Vec::new());
        let off = SkillChange { enabled: Some(false), ..SkillChange::default() };
        let record = changed(&skills, "files", off).unwrap();
        assert!(!record.enabled && record.examples.len() >= 5);
        assert_eq!(record.name, skills.name_of("files"));
    }

    #[test]
    fn everything_that_is_wrong_is_reported_at_once() {
        assert_eq!(wrong_fields("Not an id", SkillChange::default()), ["id", "name", "description"]);
        let change = SkillChange {
            name: Some(" ".to_owned()),
            description: Some("x".repeat(2001)),
            examples: Some(vec![String::new()]),
            enabled: None,
        };
        assert_eq!(wrong_fields("files", change), ["name", "description", "examples"]);
    }
}
