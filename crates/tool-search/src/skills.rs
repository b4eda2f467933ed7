//! The skills: built-in ones, those of a file, and the changes of an administrator.

use registry::SkillRecord;
use search::{Skill, builtin_skills, fingerprint};
use serde::Serialize;

/// Where a skill comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillOrigin {
    /// Built in.
    Builtin,
    /// The file that the service was started with.
    File,
    /// An administrator created it.
    Custom,
}

impl SkillOrigin {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::File => "file",
            Self::Custom => "custom",
        }
    }

    /// All origins.
    pub const ALL: [Self; 3] = [Self::Builtin, Self::File, Self::Custom];
}

/// A skill and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownSkill {
    pub(super) skill: Skill,
    pub(super) is_enabled: bool,
    pub(super) origin: SkillOrigin,
    /// An administrator changed or created it.
    pub(super) is_kept: bool,
}

/// All skills at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillSet {
    all: Vec<KnownSkill>,
    fingerprint: String,
}

impl SkillSet {
    /// The built-in skills, then those of a file, then stored ones; a later one replaces an earlier one with the same
    /// id.
    pub(super) fn new(of_file: &[Skill], kept: Vec<SkillRecord>) -> Self {
        let given = |origin| move |skill| KnownSkill { skill, is_enabled: true, origin, is_kept: false };
        let mut all: Vec<KnownSkill> = builtin_skills().into_iter().map(given(SkillOrigin::Builtin)).collect();
        of_file.iter().cloned().map(given(SkillOrigin::File)).for_each(|skill| put(&mut all, skill));
        for SkillRecord { id, name, description, examples, enabled } in kept {
            let origin =
                all.iter().find(|known| known.skill.id == id).map_or(SkillOrigin::Custom, |known| known.origin);
            let skill = Skill { id, name, description, examples };
            put(&mut all, KnownSkill { skill, is_enabled: enabled, origin, is_kept: true });
        }
        let mut set = Self { all, fingerprint: String::new() };
        set.fingerprint = fingerprint(&set.enabled());
        set
    }

    pub(super) fn all(&self) -> &[KnownSkill] {
        &self.all
    }

    /// The enabled skills.
    pub(super) fn enabled(&self) -> Vec<Skill> {
        self.all.iter().filter(|known| known.is_enabled).map(|known| known.skill.clone()).collect()
    }

    /// The key of classifications by these skills and a model.
    pub(super) fn mark(&self, model: &str) -> String {
        format!("{model} {}", self.fingerprint)
    }

    /// The key of classifications by vectors. It changed when servers began to count, so older results are computed
    /// again.
    pub(super) fn mark_by_vectors(&self, model: &str) -> String {
        format!("{} and its server", self.mark(model))
    }

    pub(super) fn get(&self, id: &str) -> Option<&KnownSkill> {
        self.all.iter().find(|known| known.skill.id == id)
    }

    /// The name of a skill for people; its id if it is unknown.
    pub(super) fn name_of<'s>(&'s self, id: &'s str) -> &'s str {
        self.get(id).map_or(id, |known| &known.skill.name)
    }

    /// The ids of the skills with this id or name.
    pub(super) fn named_by(&self, id_or_name: &str) -> Vec<String> {
        let enabled = || self.all.iter().filter(|known| known.is_enabled).map(|known| &known.skill);
        if enabled().any(|skill| skill.id == id_or_name) {
            return vec![id_or_name.to_owned()];
        }
        let wanted = id_or_name.trim().to_lowercase();
        enabled().filter(|skill| skill.name.trim().to_lowercase() == wanted).map(|skill| skill.id.clone()).collect()
    }
}

fn put(all: &mut Vec<KnownSkill>, skill: KnownSkill) {
    match all.iter_mut().find(|known| known.skill.id == skill.skill.id) {
        Some(known) => *known = skill,
        None => all.push(skill),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: &str, name: &str, enabled: bool) -> SkillRecord {
        let (id, name, description) = (id.to_owned(), name.to_owned(), "d".to_owned());
        SkillRecord { id, name, description, examples: Vec::new(), enabled }
    }

    #[test]
    fn stored_skills_override_built_in_ones() {
        let plain = SkillSet::new(&[], Vec::new());
        let of_file = Skill { id: "bees".into(), name: "Bees".into(), description: "d".into(), examples: vec![] };
        let set = SkillSet::new(&[of_file], vec![kept("files", "Papers", true), kept("mine", "My own", false)]);
        let origin = |id: &str| set.get(id).map(|known| (known.origin, known.is_kept));
        assert_eq!(origin("files"), Some((SkillOrigin::Builtin, true)));
        assert_eq!(origin("bees"), Some((SkillOrigin::File, false)));
        assert_eq!(origin("mine"), Some((SkillOrigin::Custom, true)));
        assert_eq!(set.all().len(), plain.all().len() + 2);
        assert_eq!(set.enabled().len(), plain.all().len() + 1);
        assert_ne!(set.mark("m"), plain.mark("m"));
    }

    #[test]
    fn a_skill_is_meant_by_its_id_or_its_name_unless_it_is_off() {
        let set = SkillSet::new(&[], vec![kept("files", "Papers", true), kept("email", "Mail", false)]);
        assert_eq!(set.named_by("files"), ["files"]);
        assert_eq!(set.named_by(" pApers "), ["files"]);
        for nothing in ["email", "Mail", "nope", ""] {
            assert!(set.named_by(nothing).is_empty(), "{nothing}");
        }
    }
}
