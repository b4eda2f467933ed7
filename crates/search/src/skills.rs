//! Skills: what tools are for, in words that people and models choose by.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A group of tools by purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// By which it is referred to; never changes.
    pub id: String,
    /// For people.
    pub name: String,
    /// What its tools do.
    pub description: String,
    /// Things one would ask its tools for.
    #[serde(default)]
    pub examples: Vec<String>,
}

/// Why a list of skills cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SkillsError {
    /// It is no JSON array of skills.
    #[error("this is no list of skills")]
    Unreadable(#[from] serde_json::Error),
    /// Something that must be there is empty.
    #[error("the skill `{id}` has no {what}")]
    Lacks {
        /// Which one.
        id: String,
        /// What it lacks.
        what: &'static str,
    },
    /// Two have the same id.
    #[error("there are two skills `{0}`")]
    Twice(String),
}

/// The skills that come with the program.
///
/// # Panics
/// Never: they are compiled in, and a test reads them.
pub fn builtin_skills() -> Vec<Skill> {
    read_skills(include_str!("skills/builtin.json")).expect("the skills that are compiled in can be read")
}

/// Reads a JSON array of skills: `[{"id", "name", "description", "examples": []}]`.
///
/// # Errors
/// If it is none, or if a skill lacks something or is there twice.
pub fn read_skills(json: &str) -> Result<Vec<Skill>, SkillsError> {
    let skills: Vec<Skill> = serde_json::from_str(json)?;
    let mut ids = HashSet::new();
    for skill in &skills {
        let fields = [("id", &skill.id), ("name", &skill.name), ("description", &skill.description)];
        if let Some((what, _)) = fields.into_iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(SkillsError::Lacks { id: skill.id.clone(), what });
        }
        if !ids.insert(skill.id.as_str()) {
            return Err(SkillsError::Twice(skill.id.clone()));
        }
    }
    Ok(skills)
}

/// A digest of everything that shapes what a set of skills is told by: another set, or another order, has another one.
pub fn fingerprint(skills: &[Skill]) -> String {
    let mut digest = Sha256::new();
    for skill in skills {
        for text in [&skill.id, &skill.name, &skill.description].into_iter().chain(&skill.examples) {
            digest.update(text.len().to_le_bytes());
            digest.update(text.as_bytes());
        }
        digest.update([0xff]);
    }
    digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_word_makes_another_fingerprint() {
        let skills = builtin_skills();
        let mut other = skills.clone();
        assert_eq!(fingerprint(&skills), fingerprint(&other));
        other[3].examples[0].push('s');
        assert_ne!(fingerprint(&skills), fingerprint(&other));
        assert_ne!(fingerprint(&skills), fingerprint(&skills[1..]));
    }

    #[test]
    fn those_that_come_along_are_complete() {
        let skills = builtin_skills();
        assert!((20..=35).contains(&skills.len()));
        assert!(skills.iter().all(|skill| skill.examples.len() >= 5));
        let is_plain = |id: &str| id.chars().all(|character| character.is_ascii_lowercase() || character == '-');
        assert!(skills.iter().all(|skill| is_plain(&skill.id)));
    }

    #[test]
    fn what_is_wrong_with_a_list_is_reported() {
        let twice = r#"[{"id":"a","name":"A","description":"d"},{"id":"a","name":"B","description":"d"}]"#;
        assert_eq!(read_skills(twice).unwrap_err().to_string(), "there are two skills `a`");
        let missing_vectors = r#"[{"id":"a","name":" ","description":"d"}]"#;
        assert_eq!(read_skills(missing_vectors).unwrap_err().to_string(), "the skill `a` has no name");
        assert!(matches!(read_skills("{}"), Err(SkillsError::Unreadable(_))));
    }
}
