//! How often tools get the right skill, on data whose tools have categories.

use std::collections::BTreeMap;

use search::{Classifier, Embedder, Index, Skill, builtin_skills};

use crate::data::{DataSet, Tool};

/// Examples that a category learned from data has. As many as a person would write.
const EXAMPLES: usize = 6;

/// How the skills of a data set's tools are told, and how often that is right.
pub(crate) fn judge(index: &Index<usize>, set: &DataSet, model: &dyn Embedder) -> anyhow::Result<Option<String>> {
    let labelled: Vec<(usize, &Tool, &str)> = (0..)
        .zip(&set.tools)
        .filter_map(|(key, tool)| tool.category.as_deref().map(|category| (key, tool, category)))
        .collect();
    if labelled.is_empty() {
        return Ok(None);
    }
    let builtin = builtin_skills();
    let is_builtin = labelled.iter().all(|(_, _, category)| builtin.iter().any(|skill| skill.id == *category));
    // Where the categories are not our skills, half of the tools give the examples and the other half is judged.
    let (skills, judged) = if is_builtin {
        (builtin, labelled)
    } else {
        let (shown, judged): (Vec<_>, Vec<_>) = labelled.into_iter().partition(|(key, _, _)| key % 2 == 0);
        (learned(&shown), judged)
    };
    let classifier = Classifier::new(&skills, model)?;
    let mut counts = [0.0; 4];
    for (key, _, category) in &judged {
        let Some(vector) = index.vector(key) else { continue };
        let found = classifier.classify(&vector);
        let is_right = |place: usize| found.skills.get(place).is_some_and(|(id, _)| id == category);
        let facts = [
            is_right(0),
            (0..found.skills.len()).any(is_right),
            found.primary().is_some(),
            found.primary() == Some(*category),
        ];
        for (count, fact) in counts.iter_mut().zip(facts) {
            *count += f64::from(u8::from(fact));
        }
    }
    let [first, suggested, primary, right] = counts;
    let percent = |part: f64, whole: f64| part / f64::max(whole, 1.0) * 100.0;
    let all = judged.len() as f64;
    Ok(Some(format!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
        set.name,
        skills.len(),
        judged.len(),
        percent(first, all),
        percent(suggested, all),
        percent(primary, all),
        percent(right, primary)
    )))
}

/// A skill for every category, with some tools as its examples.
fn learned(shown: &[(usize, &Tool, &str)]) -> Vec<Skill> {
    let mut skills: BTreeMap<&str, Skill> = BTreeMap::new();
    for (_, tool, category) in shown {
        let skill = skills.entry(category).or_insert_with(|| Skill {
            id: (*category).to_owned(),
            name: (*category).to_owned(),
            description: (*category).to_owned(),
            examples: Vec::new(),
        });
        if skill.examples.len() < EXAMPLES {
            skill.examples.push(tool.document.description.clone());
        }
    }
    skills.into_values().collect()
}
