//! The built-in model, loaded on first use, so that programs that never search do not pay for it.

use crate::embedder::{EmbedError, Embedder};
use crate::minilm::{self, MiniLm};

/// The vectors of the built-in skills: for each its fingerprint in hexadecimal digits, the number of its vectors (one
/// byte), and their numbers. A test reports when they are out of date, and how to build them again.
const SKILLS: &[u8] = include_bytes!("../model/skills.bin");
const FINGERPRINT: usize = 16;
const VECTOR: usize = minilm::HIDDEN * size_of::<f32>();

/// The built-in sentence model.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltIn;

impl Embedder for BuiltIn {
    fn id(&self) -> &'static str {
        minilm::ID
    }

    fn earlier_ids(&self) -> &[&str] {
        minilm::EARLIER_IDS
    }

    fn dimension(&self) -> usize {
        minilm::HIDDEN
    }

    fn reads(&self, request: &str, is_known: &dyn Fn(&str) -> bool) -> bool {
        MiniLm::shared().reads(request, is_known)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        MiniLm::shared().embed(texts)
    }

    fn known_skill(&self, fingerprint: &str) -> Option<Vec<Vec<f32>>> {
        known_skill(SKILLS, fingerprint)
    }
}

fn known_skill(mut known: &[u8], fingerprint: &str) -> Option<Vec<Vec<f32>>> {
    loop {
        let (mark, rest) = known.split_at_checked(FINGERPRINT)?;
        let (count, rest) = rest.split_first()?;
        let (vectors, rest) = rest.split_at_checked(usize::from(*count) * VECTOR)?;
        if mark == fingerprint.as_bytes() {
            let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
            return Some(
                vectors.chunks_exact(VECTOR).map(|it| it.as_chunks().0.iter().map(number).collect()).collect(),
            );
        }
        known = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Classifier, builtin_skills, fingerprint};

    #[test]
    fn the_vectors_of_the_built_in_skills_are_those_the_model_makes() {
        let skills = builtin_skills();
        // The model itself knows none beforehand.
        let made = Classifier::new(&skills, MiniLm::shared()).expect("the built-in model always answers");
        let mut fresh = Vec::new();
        for skill in &skills {
            fresh.extend(fingerprint(std::slice::from_ref(skill)).bytes());
            let vectors = made.own_vectors(&skill.id).expect("every skill has vectors");
            fresh.push(u8::try_from(vectors.len()).expect("no skill has so many examples"));
            fresh.extend(vectors.iter().flat_map(|vector| vector.iter()).flat_map(|number| number.to_le_bytes()));
        }
        if std::env::var_os("MCP_UPDATE_SKILLS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/model/skills.bin"), &fresh).unwrap();
            return;
        }
        for skill in &skills {
            let mark = fingerprint(std::slice::from_ref(skill));
            let known = known_skill(SKILLS, &mark).unwrap_or_else(|| {
                panic!("the skill `{}` has changed: MCP_UPDATE_SKILLS=1 cargo test -p search the_vectors", skill.id)
            });
            let new = known_skill(&fresh, &mark).expect("it was just made");
            assert_eq!(known.len(), skill.examples.len() + 1, "{}", skill.id);
            let numbers = known.iter().flatten().zip(new.iter().flatten());
            assert!(numbers.into_iter().all(|(known, new)| (known - new).abs() < 1e-4), "{}", skill.id);
        }
        assert_eq!(SKILLS.len(), fresh.len(), "skills that are no more: MCP_UPDATE_SKILLS=1 cargo test -p search");
    }
}
