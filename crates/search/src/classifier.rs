//! Classifies tools into skills by the similarity of their vectors, and finds the skills of a query.

use std::collections::{BTreeMap, HashMap};

use crate::document::Document;
use crate::embedder::{EmbedError, Embedder};
use crate::index::{Hit, Index, Limits};
use crate::query::Query;
use crate::skills::{Skill, fingerprint};
use crate::vectors::{dot, normalized};

/// Converts similarity, and the lead over the next skill, to a probability: a logistic curve, fitted to 88 tools of
/// real servers with the built-in skills and to 2,000 tools in 146 categories.
const BY_NEARNESS: f32 = 3.7;
const BY_LEAD: f32 = 14.3;
const OFFSET: f32 = -2.9;

/// An example that is more similar to a tool than the whole skill by more than this says almost the same as the tool;
/// the factor for the rest.
const NEARER_BY: f32 = 0.1;
const BY_EXAMPLE: f32 = 0.7;

/// A tool whose best skill has a lower confidence has no primary skill.
pub const MIN_PRIMARY: f32 = 0.5;
/// A second or third skill with a lower confidence is dropped: nearly all skills that people see must be right.
const MIN_SECONDARY: f32 = 0.25;
/// The maximum number of skills of a tool.
const MAX_SKILLS: usize = 3;
/// A server's tendency counts for its other tools only if at least this many of its tools, and at least half of them,
/// have the same best skill.
const MIN_TENDENCY: usize = 3;
/// With this many members, they count as much as the skill's own text in its vector, and never more.
const FULL_MEMBERS: f32 = 10.0;

/// Classifies with the vectors of one model.
pub struct Classifier {
    skills: Vec<Known>,
    /// The same skills as a search index.
    index: Index<String>,
}

struct Known {
    id: String,
    document: Document,
    /// The vectors of its text and its examples, used to classify tools.
    seed: Vec<f32>,
    examples: Vec<Vec<f32>>,
    /// The vector of its text and its members, used to find it by queries.
    vector: Vec<f32>,
}

/// The skills of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classification {
    /// Skills with their confidence, highest first; three at most.
    pub skills: Vec<(String, f32)>,
}

impl Classification {
    /// The best skill, if its confidence is high enough.
    pub fn primary(&self) -> Option<&str> {
        self.skills.first().filter(|(_, confidence)| *confidence >= MIN_PRIMARY).map(|(id, _)| id.as_str())
    }
}

impl Classifier {
    /// Embeds the skills whose vectors are not precomputed.
    ///
    /// # Errors
    /// If the model is unreachable.
    pub fn new(skills: &[Skill], embedder: &dyn Embedder) -> Result<Self, EmbedError> {
        let mut known = Vec::with_capacity(skills.len());
        for skill in skills {
            let (seed, examples) = match embedder.known_skill(&fingerprint(std::slice::from_ref(skill))) {
                Some(known) => known.split_first().map_or((None, Vec::new()), |(seed, examples)| {
                    (normalized(seed), examples.iter().filter_map(|example| normalized(example)).collect())
                }),
                None => embedded(skill, embedder)?,
            };
            let document = Document {
                name: skill.name.clone(),
                description: format!("{}. {}", skill.description, skill.examples.join(". ")),
                ..Document::default()
            };
            // A skill with a zero vector can be found by words, but no tool is similar to it.
            let seed = seed.unwrap_or_else(|| vec![0.0; embedder.dimension()]);
            known.push(Known { id: skill.id.clone(), document, vector: seed.clone(), seed, examples });
        }
        let mut classifier = Self { skills: known, index: Index::new(embedder.dimension()) };
        classifier.refresh_index();
        Ok(classifier)
    }

    /// Moves the vectors of skills towards their tools: pairs of a skill's id and a tool's vector. Earlier members are
    /// forgotten.
    pub fn recompute<'a>(&mut self, members: impl Iterator<Item = (&'a str, &'a [f32])>) {
        let mut sums: HashMap<&str, (Vec<f32>, f32)> = HashMap::new();
        for (id, vector) in members {
            let Some(vector) = normalized(vector) else { continue };
            let (sum, count) = sums.entry(id).or_insert_with(|| (vec![0.0; vector.len()], 0.0));
            sum.iter_mut().zip(&vector).for_each(|(sum, number)| *sum += number);
            *count += 1.0;
        }
        for skill in &mut self.skills {
            let members = sums.get(skill.id.as_str()).and_then(|(sum, count)| Some((normalized(sum)?, *count)));
            skill.vector = match members {
                Some((middle, count)) if middle.len() == skill.seed.len() => {
                    let share = (count / FULL_MEMBERS).min(1.0);
                    let sum: Vec<f32> =
                        skill.seed.iter().zip(&middle).map(|(seed, middle)| seed + share * middle).collect();
                    normalized(&sum).unwrap_or_else(|| skill.seed.clone())
                }
                _ => skill.seed.clone(),
            };
        }
        self.refresh_index();
    }

    fn refresh_index(&mut self) {
        for skill in &self.skills {
            self.index.insert(skill.id.clone(), skill.document.clone());
            // A zero vector is refused; the skill is found by words.
            self.index.set_vector(&skill.id, skill.document.text_hash(), &skill.vector);
        }
    }

    /// The vector of a skill, of length one unless it is zero.
    pub fn vector(&self, id: &str) -> Option<&[f32]> {
        self.skills.iter().find(|skill| skill.id == id).map(|skill| skill.vector.as_slice())
    }

    /// The vector of a skill's own text, then those of its examples.
    #[cfg(test)]
    pub(crate) fn own_vectors(&self, id: &str) -> Option<Vec<&[f32]>> {
        let skill = self.skills.iter().find(|skill| skill.id == id)?;
        let examples = skill.examples.iter().map(Vec::as_slice);
        Some(std::iter::once(skill.seed.as_slice()).chain(examples).collect())
    }

    /// The skills of a tool with this vector, by the skills' own texts: members do not count, or a wrong member would
    /// reinforce itself. Empty if it is not a vector of the classifier's model.
    pub fn classify(&self, vector: &[f32]) -> Classification {
        let Some(vector) = normalized(vector) else { return Classification::default() };
        let of_this_model = self.skills.iter().filter(|skill| skill.seed.len() == vector.len());
        let mut near: Vec<(f32, &str)> =
            of_this_model.map(|skill| (skill.nearness(&vector), skill.id.as_str())).collect();
        near.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        let lead = |place: usize| {
            // The best is compared with the second, the others with the best.
            let rival = near.get(if place == 0 { 1 } else { 0 }).map_or(0.0, |(nearness, _)| *nearness);
            near[place].0 - rival
        };
        let confidences = (0..near.len().min(MAX_SKILLS)).map(|place| confidence(near[place].0, lead(place)));
        let skills = near.iter().zip(confidences).enumerate();
        let worth_telling = skills.filter(|(place, (_, confidence))| *place == 0 || *confidence >= MIN_SECONDARY);
        Classification {
            skills: worth_telling.map(|(_, ((_, id), confidence))| ((*id).to_owned(), confidence)).collect(),
        }
    }

    /// The skills of a tool that people see. A tool without a best skill gets its server's tendency; if the server has none,
    /// the tool has no skills, because an uncertain skill helps nobody to choose.
    pub fn shown(&self, vector: &[f32], tendency: Option<&str>) -> Classification {
        let found = self.classify(vector);
        match (found.primary(), tendency) {
            (Some(_), _) => found,
            (None, Some(tendency)) => Classification { skills: vec![(tendency.to_owned(), MIN_PRIMARY)] },
            (None, None) => Classification::default(),
        }
    }

    /// The skill that most tools of a server have as their best one, if there is one: of the vectors of all its tools.
    pub fn tendency(&self, vectors: &[Vec<f32>]) -> Option<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for skill in vectors.iter().filter_map(|vector| self.classify(vector).primary().map(str::to_owned)) {
            *counts.entry(skill).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.filter(|(_, count)| *count >= MIN_TENDENCY && count * 2 >= vectors.len()).map(|(skill, _)| skill)
    }

    /// The skills for a query, best first. Their members help to find them.
    pub fn find(&self, query: &Query, limits: Limits) -> Vec<Hit<String>> {
        self.index.search(query, limits, |_| true)
    }
}

impl Known {
    /// The similarity to a tool's vector. An example that says nearly the same as the tool counts more than the whole
    /// text of the skill, which covers other things as well.
    fn nearness(&self, vector: &[f32]) -> f32 {
        let whole = dot(&self.seed, vector);
        let best = self.examples.iter().map(|example| dot(example, vector)).fold(whole, f32::max);
        whole + BY_EXAMPLE * (best - whole - NEARER_BY).max(0.0)
    }
}

/// The vector of a skill's own words, if it has a direction, and those of its examples.
type SkillVectors = (Option<Vec<f32>>, Vec<Vec<f32>>);

fn embedded(skill: &Skill, embedder: &dyn Embedder) -> Result<SkillVectors, EmbedError> {
    let summary = format!("{}: {}", skill.name, skill.description);
    let texts: Vec<&str> = std::iter::once(&summary).chain(&skill.examples).map(String::as_str).collect();
    let vectors = embedder.embed(&texts)?;
    let Some((summary, examples)) = vectors.split_first() else { return Ok((None, Vec::new())) };
    let examples: Vec<Vec<f32>> = examples.iter().filter_map(|example| normalized(example)).collect();
    Ok((seed(summary, &examples), examples))
}

/// The vector of a skill's own words: half what it says of itself, half its examples.
fn seed(summary: &[f32], examples: &[Vec<f32>]) -> Option<Vec<f32>> {
    let summary = normalized(summary)?;
    let mut middle = vec![0.0; summary.len()];
    for example in examples {
        middle.iter_mut().zip(example).for_each(|(sum, number)| *sum += number);
    }
    let Some(middle) = normalized(&middle) else { return Some(summary) };
    let sum: Vec<f32> = summary.iter().zip(&middle).map(|(summary, middle)| summary + middle).collect();
    normalized(&sum)
}

fn confidence(nearness: f32, lead: f32) -> f32 {
    (1.0 + (-(BY_NEARNESS * nearness + BY_LEAD * lead + OFFSET)).exp()).recip()
}
