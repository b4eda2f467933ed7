//! The same tool of several servers leaves room for others among the first ten.

use search::{Document, Hit, Limits};

use crate::{by_meaning, by_words, document, embed_lacking, embedded, find, keys};

const MANY: Limits = Limits { count: 50, least_score: 0.0 };

/// Twelve tools that search the web as well, under other names.
fn others() -> impl Iterator<Item = Document> {
    (0..12).map(|number| document("x", &format!("find_{number}"), "Find pages on the web"))
}

fn copies(hits: &[Hit<usize>], count: usize) -> usize {
    keys(hits).iter().filter(|key| **key < count).count()
}

#[test]
fn the_first_ten_have_three_of_a_kind_and_the_rest_is_in_order() {
    let mut tools: Vec<Document> =
        (0..30).map(|number| document(&format!("mirror{number}"), "search_web", "Search the web")).collect();
    tools.extend(others());
    let index = by_meaning(&tools);
    let found = find(&index, "search for pages on the web");
    assert_eq!((found.len(), copies(&found, 30)), (10, 3), "{found:?}");
    let all = index.search(&embedded("search for pages on the web"), MANY, |_| true);
    assert_eq!((all.len(), copies(&all[..10], 30), copies(&all, 30)), (42, 3, 30), "the others come later");
    let is_sorted = |hits: &[Hit<usize>]| hits.is_sorted_by(|one, other| one.score >= other.score);
    assert!(is_sorted(&all[..10]) && is_sorted(&all[10..]), "{all:?}");
    assert!(all[10].score > all[9].score, "one that was held back is better than the last of the first ten");
    let twelve = index.search(&embedded("search for pages on the web"), Limits { count: 12, ..MANY }, |_| true);
    assert_eq!(twelve, all[..12], "a limit changes nothing but the length");
    let three = index.search(&embedded("search for pages on the web"), Limits { count: 3, ..MANY }, |_| true);
    assert_eq!(keys(&three), keys(&all[..3]));
    let named = find(&index, "search_web");
    assert_eq!(copies(&named, 30), 10, "who names the tool asks for it");
}

/// Copies of one tool, in the words of their authors.
const FORKS: [(&str, &str, &str); 8] = [
    ("github", "create_issue", "Create a new issue in a GitHub repository"),
    ("github-mirror", "create_issue", "Create a new issue in a GitHub project"),
    ("gh", "createIssue", "Creates a new issue in a GitHub repository."),
    ("github-enterprise", "create_issue", "Create a new issue in the given GitHub repository"),
    ("octo", "create-issue", "Creates an issue in a GitHub repository"),
    ("hub", "create_issue", "Create one new issue in a GitHub repository"),
    ("forge", "create_issue", "Create a new issue in your GitHub repository"),
    ("github2", "create_issue", "Create new issues in a GitHub repository"),
];

fn forks_and_others() -> Vec<Document> {
    let mut tools: Vec<Document> =
        FORKS.iter().map(|(server, name, description)| document(server, name, description)).collect();
    tools.extend((0..12).map(|number| document("x", &format!("report_{number}"), "Report an issue of a repository")));
    tools
}

#[test]
fn reworded_copies_are_of_one_kind() {
    let query = embedded("open an issue in a repository");
    for index in [by_words(&forks_and_others()), by_meaning(&forks_and_others())] {
        let found = index.search(&query, Limits { count: 10, ..MANY }, |_| true);
        assert_eq!(copies(&found, FORKS.len()), 3, "{found:?}");
        let all = index.search(&query, MANY, |_| true);
        assert_eq!(copies(&all, FORKS.len()), FORKS.len(), "the others come later");
    }
}

/// Different tools of one name.
const NAMESAKES: [(&str, &str, &str); 10] = [
    ("github", "create_issue", "Create a new issue in a GitHub repository"),
    ("gitlab", "create_issue", "Create a new issue in a GitLab project"),
    ("jira", "create_issue", "Create a new issue in a Jira project"),
    ("linear", "create_issue", "Creates a Linear issue in a team"),
    ("redmine", "create_issue", "Open a ticket in the Redmine tracker"),
    ("slack", "send_message", "Send a message to a Slack channel"),
    ("discord", "send_message", "Send a message to a Discord channel"),
    ("mail", "send_message", "Send an email message"),
    ("sms", "send_message", "Send a text message to a phone number"),
    ("queue", "send_message", "Put a message into a queue of the broker"),
];

#[test]
fn different_tools_of_one_name_are_not_held_back() {
    let tools: Vec<Document> =
        NAMESAKES.iter().map(|(server, name, description)| document(server, name, description)).collect();
    for index in [by_words(&tools), by_meaning(&tools)] {
        for request in ["open an issue", "create a new issue for this problem", "send someone a message"] {
            let all = index.search(&embedded(request), Limits { count: 10, ..MANY }, |_| true);
            let by_score = |one: &Hit<usize>, other: &Hit<usize>| one.score >= other.score;
            assert!(all.len() >= 4 && all.is_sorted_by(by_score), "{request}: {all:?}");
            let name = |hit: &Hit<usize>| NAMESAKES[hit.key].1;
            assert!(all[..4].iter().all(|hit| name(hit) == name(&all[0])), "{request}: {all:?}");
        }
    }
}

#[test]
fn a_query_finds_what_is_admitted_although_copies_are_not() {
    let mut index = by_words(&forks_and_others());
    embed_lacking(&mut index);
    let found = index.search(&embedded("create an issue of a repository"), MANY, |key| *key >= 5);
    assert_eq!(found.len(), 15);
    assert!(keys(&found).iter().all(|key| *key >= 5));
}
