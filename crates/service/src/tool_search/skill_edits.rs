//! Skills as an administrator sees and changes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use registry::SkillRecord;
use search::Skill;
use serde::Serialize;
use serde_json::json;

use super::Finder;
use super::skills::{KnownSkill, SkillOrigin, SkillSet};
use crate::servers::to_the_end;
use crate::{Actor, Error, Event, Problem, Service, audit};

/// Each is embedded, and compared with every tool.
const MAX_SKILLS: usize = 500;
const MAX_EXAMPLES: usize = 50;
const MAX_NAME_LEN: usize = 100;
const MAX_DESCRIPTION_LEN: usize = 2000;
const MAX_EXAMPLE_LEN: usize = 500;

/// A skill as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillView {
    /// By which it is referred to.
    pub id: String,
    /// For people.
    pub name: String,
    /// What its tools do.
    pub description: String,
    /// Things one would ask its tools for.
    pub examples: Vec<String>,
    /// Whether tools may have it.
    pub enabled: bool,
    /// Where it comes from.
    pub origin: SkillOrigin,
    /// Whether an administrator changed or made it.
    pub is_changed: bool,
    /// How many tools that can be called now are good for it.
    pub tool_count: usize,
    /// How many of them are best at it.
    pub primary_tool_count: usize,
}

/// What a skill is to be. What is not said stays as it is; a new one needs a name and a description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillChange {
    /// For people.
    pub name: Option<String>,
    /// What its tools do.
    pub description: Option<String>,
    /// Things one would ask its tools for.
    pub examples: Option<Vec<String>>,
    /// Whether tools may have it.
    pub enabled: Option<bool>,
}

/// What becomes of a suggestion when a skill of its id is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suggestion {
    /// It stays, if there is one.
    Stays,
    /// It became the skill, and is gone.
    Accepted,
}

impl Service {
    /// All skills, those that come with the program first.
    pub fn skills(&self) -> Vec<SkillView> {
        let counts = self.finder.skill_counts();
        self.finder.skills().all().iter().map(|known| view(known, &counts)).collect()
    }

    /// One skill, by its id.
    pub fn skill(&self, id: &str) -> Result<SkillView, Error> {
        let skills = self.finder.skills();
        let known = skills.get(id).ok_or_else(|| not_found(id))?;
        Ok(view(known, &self.finder.skill_counts()))
    }

    /// Changes a skill, or makes one; and whether it is new. Tools are classified anew in the background.
    pub async fn put_skill(
        self: Arc<Self>,
        by: &Actor,
        id: &str,
        change: SkillChange,
    ) -> Result<(SkillView, bool), Error> {
        self.put_skill_and(by, id, change, Suggestion::Stays).await
    }

    /// The same, and what becomes of the suggestion of that id in the same transaction.
    pub(super) async fn put_skill_and(
        self: Arc<Self>,
        by: &Actor,
        id: &str,
        change: SkillChange,
        suggestion: Suggestion,
    ) -> Result<(SkillView, bool), Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move {
            let _turn = self.finder.changing.lock().await;
            let skills = self.finder.skills();
            let is_new = skills.get(&id).is_none();
            let record = changed(&skills, &id, change).map_err(|problems| Error::Validation { problems })?;
            let mut change = self.store.transaction("keep a skill").await?;
            change.put_skill(&record).await?;
            if suggestion == Suggestion::Accepted {
                change.delete_suggestion(&id).await?;
            }
            let details = json!({ "enabled": record.enabled });
            audit::commit(change, audit::note(&by, "skill.put", Some(&id), Some(details))).await?;
            self.finder.read_skills().await?;
            Ok((self.skill(&id)?, is_new))
        })
        .await
    }

    /// Takes back what was changed about a skill; one that was made is gone.
    pub async fn delete_skill(self: Arc<Self>, by: &Actor, id: &str) -> Result<(), Error> {
        let (by, id) = (by.clone(), id.to_owned());
        to_the_end(async move {
            let _turn = self.finder.changing.lock().await;
            if self.finder.skills().get(&id).is_none() {
                return Err(not_found(&id));
            }
            // What it is from then on: nothing, or as it comes with the program.
            let others = self.store.skills().await?.into_iter().filter(|kept| kept.id != id).collect();
            let left = SkillSet::new(&self.finder.skills_of_file, others);
            let mut change = self.store.transaction("forget a skill").await?;
            if !change.delete_skill(&id).await? {
                return Ok(());
            }
            let details = left.get(&id).map(|known| json!({ "enabled": known.is_enabled }));
            audit::commit(change, audit::note(&by, "skill.delete", Some(&id), details)).await?;
            self.finder.read_skills().await
        })
        .await
    }
}

impl Finder {
    /// The skills as they are now.
    pub(super) fn skills(&self) -> Arc<SkillSet> {
        Arc::clone(&self.skills.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the skills as they are kept now, and lets tools be classified by them.
    pub(crate) async fn read_skills(&self) -> Result<(), Error> {
        let set = SkillSet::new(&self.skills_of_file, self.context.store.skills().await?);
        let skill_count = set.enabled().len();
        *self.skills.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
        self.context.events.emit(Event::SkillsChanged { skill_count });
        Ok(())
    }

    /// How many tools that can be called now have each skill, and are best at it.
    fn skill_counts(&self) -> HashMap<String, (usize, usize)> {
        let callable_servers = self.callable_servers();
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

/// A skill with what is to be different about it, or everything that is wrong with that.
fn changed(skills: &SkillSet, id: &str, change: SkillChange) -> Result<SkillRecord, Vec<Problem>> {
    let known = skills.get(id);
    let mut problems = Vec::new();
    let mut wrong = |place: &[&str], kind, msg: &str| {
        let loc = place.iter().map(|&part| part.to_owned()).collect();
        problems.push(Problem { loc, msg: msg.to_owned(), kind });
    };
    if !is_id(id) {
        let says = "an id begins with a letter and has only lower-case letters, digits, `_` and `-`, 64 at most";
        wrong(&["path", "skill"], "string_pattern_mismatch", says);
    }
    if known.is_none() && skills.all().len() >= MAX_SKILLS {
        wrong(&["path", "skill"], "value_error", "there are too many skills; remove one first");
    }
    let mut text = |name: &'static str, given: Option<String>, known: Option<&String>, longest: usize| {
        let Some(text) = given.or_else(|| known.cloned()) else {
            wrong(&["body", name], "missing", "a new skill needs this");
            return String::new();
        };
        if text.trim().is_empty() || text.chars().count() > longest {
            wrong(&["body", name], "value_error", &format!("expected a text of 1 to {longest} characters"));
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
        wrong(&["body", "examples"], "value_error", &says);
    }
    let enabled = change.enabled.or_else(|| known.map(|known| known.is_enabled)).unwrap_or(true);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(SkillRecord { id: id.to_owned(), name, description, examples, enabled })
}

/// Everything that is wrong with skills that are to be kept beside those that are: which one, and what.
pub(crate) fn problems_with(more: &[SkillRecord], kept: &[SkillRecord]) -> Vec<(Option<usize>, Problem)> {
    let builtin = SkillSet::new(&[], Vec::new());
    let mut ids: HashSet<&str> = builtin.all().iter().map(|known| known.skill.id.as_str()).collect();
    ids.extend(kept.iter().map(|skill| skill.id.as_str()));
    let before = ids.len();
    ids.extend(more.iter().map(|skill| skill.id.as_str()));
    if ids.len() > before.max(MAX_SKILLS) {
        let msg = format!("there would be {} skills; there may be {MAX_SKILLS}", ids.len());
        return vec![(None, Problem { loc: vec!["body".to_owned()], msg, kind: "value_error" })];
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

    fn places(id: &str, change: SkillChange) -> Vec<String> {
        let problems = changed(&SkillSet::new(&[], Vec::new()), id, change).unwrap_err();
        problems.iter().map(|problem| problem.loc.join(".")).collect()
    }

    #[test]
    fn a_skill_that_comes_along_is_disabled_without_saying_it_all_again() {
        let skills = SkillSet::new(&[], Vec::new());
        let off = SkillChange { enabled: Some(false), ..SkillChange::default() };
        let record = changed(&skills, "files", off).unwrap();
        assert!(!record.enabled && record.examples.len() >= 5);
        assert_eq!(record.name, skills.name_of("files"));
    }

    #[test]
    fn everything_that_is_wrong_is_reported_at_once() {
        assert_eq!(places("Not an id", SkillChange::default()), ["path.skill", "body.name", "body.description"]);
        let change = SkillChange {
            name: Some(" ".to_owned()),
            description: Some("x".repeat(2001)),
            examples: Some(vec![String::new()]),
            enabled: None,
        };
        assert_eq!(places("files", change), ["body.name", "body.description", "body.examples"]);
    }
}
