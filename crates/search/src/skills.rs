//! Skills: purposes of tools, described for people and models.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A group of tools by purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Its id; never changes.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// What its tools do.
    pub description: String,
    /// Examples of requests that its tools fulfil.
    #[serde(default)]
    pub examples: Vec<String>,
}

/// Why a list of skills is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SkillsError {
    /// It is not a JSON array of skills.
    #[error("not a list of skills")]
    Unreadable(#[from] serde_json::Error),
    /// A required member is empty.
    #[error("the skill `{id}` has no {what}")]
    Lacks {
        /// The skill.
        id: String,
        /// The member.
        what: &'static str,
    },
    /// Two skills have the same id.
    #[error("the skill `{0}` exists twice")]
    Twice(String),
}

/// The built-in skills.
///
/// # Panics
///
/// Never: they are compiled in, and a test reads them.
pub fn builtin_skills() -> Vec<Skill> {
    read_skills(include_str!("skills/builtin.json")).expect("the skills that are compiled in can be read")
}

/// Parses a JSON array of skills: `[{"id", "name", "description", "examples": []}]`.
///
/// # Errors
///
/// If it is invalid, or if a skill is incomplete or a duplicate.
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

/// A digest of everything in a set of skills that affects classification: another set, or another order, has another
/// digest.
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
    fn the_built_in_skills_are_complete() {
        let skills = builtin_skills();
        assert!((20..=35).contains(&skills.len()));
        assert!(skills.iter().all(|skill| skill.examples.len() >= 5));
        let is_plain = |id: &str| id.chars().all(|character| character.is_ascii_lowercase() || character == '-');
        assert!(skills.iter().all(|skill| is_plain(&skill.id)));
    }

    #[test]
    fn what_is_wrong_with_a_list_is_reported() {
        let twice = r#"[{"id":"a","name":"A","description":"d"},{"id":"a","name":"B","description":"d"}]"#;
        assert_eq!(read_skills(twice).unwrap_err().to_string(), "the skill `a` exists twice");
        let missing_vectors = r#"[{"id":"a","name":" ","description":"d"}]"#;
        assert_eq!(read_skills(missing_vectors).unwrap_err().to_string(), "the skill `a` has no name");
        assert!(matches!(read_skills("{}"), Err(SkillsError::Unreadable(_))));
    }
}
