//! Scores are similar with and without a model, and the name of a tool counts.

use search::{Document, Query};

use crate::{TEN, by_meaning, by_words, document, find};

/// The tools of `mcp-server-git`, beside two others.
fn git() -> Vec<Document> {
    let tools = [
        ("git_status", "Shows the working tree status"),
        ("git_diff_unstaged", "Shows changes in the working directory that are not yet staged"),
        ("git_diff_staged", "Shows changes that are staged for commit"),
        ("git_diff", "Shows differences between branches or commits"),
        ("git_commit", "Records changes to the repository"),
        ("git_add", "Adds file contents to the staging area"),
        ("git_reset", "Unstages all staged changes"),
        ("git_log", "Shows the commit logs"),
        ("git_create_branch", "Creates a new branch from an optional base branch"),
        ("git_checkout", "Switches branches"),
        ("git_show", "Shows the contents of a commit"),
        ("git_branch", "List Git branches"),
    ];
    let others = [("py", "add", "Add two numbers"), ("py", "greet", "Greet somebody by name")];
    let tools = tools.map(|(name, description)| document("git", name, description));
    tools.into_iter().chain(others.map(|(server, name, text)| document(server, name, text))).collect()
}

#[test]
fn by_words_alone_a_good_answer_scores_about_as_much_as_with_a_model() {
    let tools = git();
    let (words, meaning) = (by_words(&tools), by_meaning(&tools));
    for (request, right) in [
        ("commit changes", "git_commit"),
        ("show the commit logs", "git_log"),
        ("create branch", "git_create_branch"),
        ("switch to another branch", "git_checkout"),
        ("add numbers", "add"),
    ] {
        let found = words.search(&Query::new(request), TEN, |_| true);
        let alone = found.iter().find(|hit| tools[hit.key].name == right).unwrap();
        let both = find(&meaning, request).into_iter().find(|hit| tools[hit.key].name == right).unwrap();
        assert!(alone.score >= 0.3, "{request}: {}", alone.score);
        assert!(alone.score < both.score + 0.2, "{request}: {} and {}", alone.score, both.score);
    }
    assert!(words.search(&Query::new("qwertz asdf"), TEN, |_| true).is_empty());
    let courtesy = words.search(&Query::new("kindly prepare a lovely birthday cake with numbers"), TEN, |_| true);
    assert!(courtesy.iter().all(|hit| hit.score < 0.25), "{courtesy:?}");
}

#[test]
fn a_query_that_is_a_tools_name_means_that_tool() {
    let tools = git();
    let meaning = by_meaning(&tools);
    let place = |request: &str| find(&meaning, request).iter().position(|hit| tools[hit.key].name == "git_commit");
    assert_eq!(place("commit"), Some(0));
    assert!(place("commit my work").unwrap() < 3);
}
