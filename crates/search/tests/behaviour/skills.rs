//! What tools are for.

use std::sync::LazyLock;

use search::{Classifier, Document, Limits, MiniLm, builtin_skills, embed_documents, search_by_skills};

use crate::{ALWAYS, TEN, by_meaning, document, embedded, keys, quality};

static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::new(&builtin_skills(), MiniLm::shared()).expect(ALWAYS));

fn vector(name: &str, description: &str) -> Vec<f32> {
    embed_documents(MiniLm::shared(), &[&document("", name, description)]).expect(ALWAYS).remove(0)
}

#[test]
fn most_tools_of_real_servers_get_the_right_skill() {
    let tools = quality::tools();
    let documents: Vec<&Document> = tools.iter().map(|(_, document)| document).collect();
    let vectors = embed_documents(MiniLm::shared(), &documents).unwrap();
    let (mut first, mut told, mut primary, mut right) = (0, 0, 0, 0);
    for ((tool, _), vector) in tools.iter().zip(&vectors) {
        let found = CLASSIFIER.classify(vector);
        assert!((1..=3).contains(&found.skills.len()));
        assert!(found.skills.is_sorted_by(|one, other| one.1 >= other.1));
        first += usize::from(found.skills[0].0 == tool.category);
        told += usize::from(found.skills.iter().any(|(id, _)| *id == tool.category));
        primary += usize::from(found.primary().is_some());
        right += usize::from(found.primary() == Some(&tool.category));
    }
    // Measured: 75, 84, 70 and 64 of 88.
    assert!(first >= 74 && told >= 83 && primary >= 68 && right >= 62, "{first} {told} {primary} {right}");
}

#[test]
fn a_tool_that_fits_nowhere_has_no_primary_skill() {
    let found = CLASSIFIER.classify(&vector("foo", "Frobnicates the bar"));
    assert_eq!(found.primary(), None, "{found:?}");
    assert!(CLASSIFIER.classify(&[0.0; 384]).skills.is_empty());
    assert!(CLASSIFIER.classify(&[1.0; 3]).skills.is_empty());
}

#[test]
fn a_skill_moves_towards_its_members_but_not_away_from_its_words() {
    let mut classifier = Classifier::new(&builtin_skills(), MiniLm::shared()).unwrap();
    let odd = vector("gitlab_mr_approve", "Approves an MR");
    let confidence = |classifier: &Classifier| {
        let found = classifier.classify(&odd).skills;
        found.iter().find(|(id, _)| id == "source-control").map_or(0.0, |(_, confidence)| *confidence)
    };
    let before = confidence(&classifier);
    classifier.recompute(std::iter::repeat_n(("source-control", odd.as_slice()), 1000));
    assert!(confidence(&classifier) > before);
    assert_eq!(classifier.classify(&vector("git_commit", "Records changes")).skills[0].0, "source-control");
    classifier.recompute(std::iter::empty());
    assert_eq!(confidence(&classifier), before);
}

#[test]
fn a_search_by_skills_looks_only_at_tools_of_the_skills_it_found() {
    let tools: Vec<Document> = quality::tools().into_iter().map(|(_, document)| document).collect();
    let skills: Vec<Vec<String>> = quality::tools().into_iter().map(|(tool, _)| vec![tool.category]).collect();
    let index = by_meaning(&tools);
    let three = Limits { count: 3, least_score: 0.1 };
    let search = |request: &str, skills: &[Vec<String>]| {
        search_by_skills((&index, &CLASSIFIER), &embedded(request), (TEN, three), |_| true, |key| &skills[*key])
    };
    let found = search("what does the weather forecast say", &skills);
    assert!(found.by_skills);
    assert_eq!(found.skills[0].key, "weather-and-environment");
    assert_eq!(tools[found.tools[0].key].name, "get_forecast");
    let ids: Vec<&str> = found.skills.iter().map(|skill| skill.key.as_str()).collect();
    assert!(found.tools.iter().all(|hit| ids.contains(&skills[hit.key][0].as_str())));
    // Tools that nobody has classified yet are looked at whatever the request is about.
    let unknown = vec![Vec::new(); tools.len()];
    let found = search("what does the weather forecast say", &unknown);
    assert_eq!(tools[found.tools[0].key].name, "get_forecast");
    // If no skill leads anywhere, all tools are searched.
    let elsewhere = vec![vec!["nowhere".to_owned()]; tools.len()];
    let found = search("what does the weather forecast say", &elsewhere);
    assert!(!found.by_skills && keys(&found.tools).len() == 10);
}
