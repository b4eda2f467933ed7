//! Classification of tools into skills.

use std::sync::LazyLock;

use search::{Classifier, Document, MiniLm, builtin_skills, embed_documents};

use crate::{ALWAYS, TEN, document, embedded, quality};

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
    // Measured: 83, 86, 75 and 75 of 88.
    assert!(first >= 82 && told >= 85 && primary >= 74 && right >= 74, "{first} {told} {primary} {right}");
}

#[test]
fn a_tool_that_fits_nowhere_has_no_primary_skill() {
    let found = CLASSIFIER.classify(&vector("foo", "Frobnicates the bar"));
    assert_eq!(found.primary(), None, "{found:?}");
    assert!(CLASSIFIER.classify(&[0.0; 384]).skills.is_empty());
    assert!(CLASSIFIER.classify(&[1.0; 3]).skills.is_empty());
}

#[test]
fn members_of_a_skill_affect_search_but_not_classification() {
    let mut classifier = Classifier::new(&builtin_skills(), MiniLm::shared()).unwrap();
    let odd = vector("gitlab_mr_approve", "Approves an MR");
    let told = classifier.classify(&odd);
    let score = |classifier: &Classifier| {
        let found = classifier.find(&embedded("approve the mr in gitlab"), TEN);
        found.iter().find(|hit| hit.key == "source-control").map_or(0.0, |hit| hit.score)
    };
    let before = score(&classifier);
    classifier.recompute(std::iter::repeat_n(("source-control", odd.as_slice()), 1000));
    assert!(score(&classifier) > before);
    assert_eq!(classifier.classify(&odd), told, "what a tool is for does not depend on what was told before");
    classifier.recompute(std::iter::empty());
    assert_eq!(score(&classifier), before);
}

/// Tools of many servers, with the skill that people expect.
const COMMON: [(&str, &str, &str); 24] = [
    ("create_issue", "Create a new GitHub issue", "issue-tracking"),
    ("issue_write", "Create a new or update an existing issue in a GitHub repository.", "issue-tracking"),
    ("list_issues", "List issues in a repository", "issue-tracking"),
    ("close_issue", "Close an issue of a repository", "issue-tracking"),
    ("add_issue_comment", "Add a comment to a specific issue in a GitHub repository.", "issue-tracking"),
    ("list_repositories", "List repositories of a user", "source-control"),
    ("list_user_repos", "List repositories of a user", "source-control"),
    ("get_repository", "Get information about a GitHub repository", "source-control"),
    ("search_repositories", "Search for GitHub repositories", "source-control"),
    ("create_branch", "Create a new branch in a GitHub repository", "source-control"),
    ("list_commits", "Get list of commits of a branch in a GitHub repository", "source-control"),
    ("create_pull_request", "Create a new pull request in a GitHub repository", "source-control"),
    ("git_status", "Shows the working tree status", "source-control"),
    ("read_file", "Read the complete contents of a file from the file system", "files"),
    ("list_directory", "Get a detailed listing of all files and directories in a specified path", "files"),
    ("fetch", "Fetches a URL from the internet and extracts its contents as markdown", "web-browsing"),
    ("query", "Run a read-only SQL query", "databases"),
    ("get_current_time", "Get current time in a specific timezone", "calendar-and-time"),
    ("create_entities", "Create multiple new entities in the knowledge graph", "knowledge"),
    ("send_email", "Send an email", "email"),
    ("slack_post_message", "Post a new message to a Slack channel", "chat"),
    ("brave_web_search", "Performs a web search using the Brave Search API", "web-search"),
    ("browser_click", "Perform click on a web page", "web-browsing"),
    ("create_event", "Create a calendar event", "calendar-and-time"),
];

#[test]
fn common_tools_have_the_primary_skill_that_people_expect() {
    let wrong: Vec<String> = COMMON
        .iter()
        .filter_map(|(name, description, expected)| {
            let found = CLASSIFIER.classify(&vector(name, description));
            (found.primary() != Some(*expected)).then(|| format!("{name}, {description}: {:?}", found.skills))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
