//! Tools are added, changed and removed.

use search::{Document, Index, Limits, Query, TextHash};

use crate::{TEN, by_meaning, by_words, document, embed_lacking, embedded, find, keys};

#[test]
fn a_tool_is_found_by_words_until_it_has_a_vector() {
    let documents = [document("github", "create_issue", "Open a new issue"), document("time", "now", "Current time")];
    let mut index = by_words(&documents);
    let hits = find(&index, "create issues");
    assert_eq!(keys(&hits), [0]);
    assert_eq!(hits[0].vector, None);
    assert_eq!(hits[0].words, ["create", "issues"]);
    assert!(find(&index, "report a bug").is_empty());
    embed_lacking(&mut index);
    assert_eq!(keys(&find(&index, "report a bug"))[0], 0);
    assert!(find(&index, "report a bug")[0].vector.is_some_and(|vector| vector > 0.2));
}

#[test]
fn tools_with_and_without_vectors_are_ranked_together() {
    let mut index = by_meaning(&[document("a", "get_weather", "Weather forecast"), document("b", "now", "The time")]);
    index.insert(2, document("c", "weather_radar", "Weather forecast as a map"));
    let hits = find(&index, "weather forecast map");
    assert_eq!(hits.len(), 3);
    assert!(hits[..2].iter().any(|hit| hit.key == 2), "{hits:?}");
}

#[test]
fn nothing_is_embedded_twice() {
    let mut index = by_meaning(&[document("github", "create_issue", "Open a new issue")]);
    assert!(index.missing_vectors(10).is_empty());
    // Neither the same again nor what its server says of itself makes another text to embed.
    let mut changed = document("github", "create_issue", "Open a new issue");
    index.insert(0, changed.clone());
    changed.about_server.push_str("Code and issues");
    index.insert(0, changed.clone());
    assert!(index.missing_vectors(10).is_empty());
    changed.parameters.push("title".into());
    index.insert(0, changed.clone());
    assert_eq!(index.missing_vectors(10).len(), 1, "names of parameters are in the vector");
    embed_lacking(&mut index);
    assert_eq!(keys(&index.search(&Query::new("title"), TEN, |_| true)), [0]);
    changed.description.push_str(" in a repository");
    index.insert(0, changed);
    assert_eq!(index.missing_vectors(10).len(), 1);
}

#[test]
fn a_vector_of_an_older_text_is_refused() {
    let mut index = by_words(&[document("a", "one", "first")]);
    let old = index.missing_vectors(1)[0].hash;
    index.insert(0, document("a", "one", "second"));
    assert!(!index.set_vector(&0, old, &[1.0; 384]));
    assert!(!index.set_vector(&7, old, &[1.0; 384]));
    let hash = index.missing_vectors(1)[0].hash;
    assert!(!index.set_vector(&0, hash, &[1.0; 3]));
    assert!(index.set_vector(&0, hash, &[1.0; 384]));
}

#[test]
fn a_removed_tool_is_not_found_and_its_place_is_used_again() {
    let mut index = by_meaning(&[document("a", "create_issue", "Open an issue"), document("b", "now", "The time")]);
    assert!(index.remove(&0));
    assert!(!index.remove(&0));
    assert!(!keys(&find(&index, "open an issue")).contains(&0));
    index.insert(5, document("c", "translate", "Translate text"));
    assert_eq!(index.missing_vectors(10).len(), 1, "the vector of the one before is not its own");
    assert_eq!(keys(&index.search(&Query::new("translate"), TEN, |_| true)), [5]);
    assert_eq!(index.len(), 2);
}

#[test]
fn the_insertion_order_of_tools_does_not_matter() {
    let tools: Vec<_> = crate::quality::tools().into_iter().map(|(_, document)| document).collect();
    let forwards = by_meaning(&tools);
    let mut backwards = Index::new(384);
    for (key, document) in tools.iter().enumerate().rev() {
        backwards.insert(key, document.clone());
    }
    embed_lacking(&mut backwards);
    backwards.insert(999, document("x", "to_be_gone", "issue issue issue"));
    backwards.remove(&999);
    for request in ["create an issue", "what time is it", "files", "Send a mail. Then post it to the channel."] {
        assert_eq!(find(&forwards, request), find(&backwards, request));
    }
}

#[test]
fn only_what_is_admitted_is_found() {
    let index =
        by_meaning(&[document("a", "create_issue", "Open an issue"), document("b", "create_issue", "Open an issue")]);
    let hits = index.search(&embedded("create issue"), TEN, |key| *key == 1);
    assert_eq!(keys(&hits), [1]);
}

#[test]
fn equal_tools_come_in_the_order_of_their_keys() {
    let index = by_meaning(&vec![document("a", "create_issue", "Open an issue"); 20]);
    let hits = index.search(&embedded("create issue"), Limits { count: 3, least_score: 0.0 }, |_| true);
    assert_eq!(keys(&hits), [0, 1, 2]);
}

#[test]
fn scores_are_between_zero_and_one_and_limits_hold() {
    let tools: Vec<_> = crate::quality::tools().into_iter().map(|(_, document)| document).collect();
    let index = by_meaning(&tools);
    let query = embedded("create an issue create an issue create an issue");
    let hits = index.search(&query, Limits { count: 100, least_score: 0.0 }, |_| true);
    assert!(hits.iter().all(|hit| hit.score > 0.0 && hit.score <= 1.0));
    assert!(hits.is_sorted_by(|one, other| one.score >= other.score));
    let least_score = hits[2].score;
    assert_eq!(index.search(&query, Limits { count: 100, least_score }, |_| true).len(), 3);
    assert!(index.search(&query, Limits { count: 0, least_score: 0.0 }, |_| true).is_empty());
}

#[test]
fn a_request_for_several_things_finds_all_of_them() {
    let tools: Vec<_> = crate::quality::tools().into_iter().map(|(_, document)| document).collect();
    let hits = find(
        &by_meaning(&tools),
        "Search my emails for the hotel. Translate them to English. Show me the weather forecast.",
    );
    let names: Vec<&str> = hits[..5].iter().map(|hit| tools[hit.key].name.as_str()).collect();
    for expected in ["search_emails", "translate_text", "get_forecast"] {
        assert!(names.contains(&expected), "{names:?}");
    }
}

#[test]
fn strange_requests_find_nothing_and_break_nothing() {
    let index = by_meaning(&[document("a", "create_issue", "Open an issue")]);
    for request in ["", "   ", "?!.;", "the of and"] {
        assert!(index.search(&Query::new(request), TEN, |_| true).is_empty(), "{request:?}");
    }
    assert!(find(&index, "").is_empty());
    let long = "create. ".repeat(100_000);
    assert_eq!(keys(&find(&index, &long)), [0]);
    assert!(by_words(&[]).search(&embedded("anything"), TEN, |_| true).is_empty());
}

#[test]
fn a_hash_names_a_text_for_ever() {
    // Stored vectors are found by this hash: if it changes, all of them become useless.
    let hash = document("github", "create_issue", "Open a new issue").text_hash();
    assert_eq!(hash, TextHash(EXPECTED));
    assert_ne!(document("github", "create_issueOpen", " a new issue").text_hash(), hash);
}

const EXPECTED: [u8; 16] = [180, 205, 164, 25, 166, 183, 207, 203, 168, 129, 15, 175, 144, 70, 84, 133];

#[test]
fn a_query_with_a_tools_name_ranks_that_tool_first() {
    let tools = [
        document("github", "get_pull_request_diff", "Get the changes of a pull request that somebody wants to create"),
        document("github", "merge_pull_request", "Merge a pull request, or create a merge commit for the pull request"),
        document("github", "create_pull_request", "Open a PR"),
        document("odd", "getHTTPResponseCode", "Says something"),
        document("gitlab", "create_pull_request", "Opens one there"),
    ];
    let (by_words, by_meaning) = (by_words(&tools), by_meaning(&tools));
    let first = |request: &str| {
        let hits = [
            by_words.search(&Query::new(request), TEN, |_| true).remove(0),
            by_meaning.search(&embedded(request), TEN, |_| true).remove(0),
        ];
        assert!(hits.iter().all(|hit| hit.score >= 0.9 && hit.score <= 1.0), "{request}: {hits:?}");
        hits.map(|hit| hit.key)
    };
    assert!(first("create_pull_request").iter().all(|key| [2, 4].contains(key)));
    assert_eq!(first("gitlab.create_pull_request"), [4, 4]);
    assert_eq!(first("GitHub createPullRequest"), [2, 2]);
    assert_eq!(first("getHTTPResponseCode"), [3, 3]);
    assert!(find(&by_meaning, "merge it").iter().all(|hit| hit.score < 0.9));
}

#[test]
fn a_request_without_letters_means_nothing() {
    let index = by_meaning(&[document("s", "read_file", "Reads a file")]);
    for nothing in ["!!!???", "\u{0}", " … "] {
        assert!(find(&index, nothing).is_empty(), "{nothing:?}");
    }
}

#[test]
fn what_a_server_is_for_counts_for_its_tools() {
    let memory = "Stores what is said in a knowledge graph";
    let tools = [
        ("memory", "create_entities", "Create multiple new entities in the knowledge graph"),
        ("memory", "add_observations", "Add new observations to existing entities in the knowledge graph"),
        ("memory", "read_graph", "Read the entire knowledge graph"),
        ("time", "get_current_time", "Get current time in a specific timezone"),
        ("fetch", "fetch", "Fetches a URL from the internet and extracts its contents as markdown"),
        ("everything", "printEnv", "Prints all environment variables, helpful for debugging MCP server configuration"),
        ("everything", "echo", "Echoes back the input"),
        (
            "thinking",
            "sequentialthinking",
            "A detailed tool for dynamic and reflective problem-solving through thoughts",
        ),
        ("filesystem", "write_file", "Create a new file or completely overwrite an existing file with new content"),
        ("git", "git_add", "Adds file contents to the staging area"),
    ];
    let documents: Vec<Document> = tools
        .iter()
        .map(|(server, name, description)| {
            let about_server = if *server == "memory" { memory.to_owned() } else { String::new() };
            Document { about_server, ..document(server, name, description) }
        })
        .collect();
    let index = by_meaning(&documents);
    for request in ["remember something", "remember something about Anna", "memory"] {
        let found = find(&index, request);
        assert_eq!(tools[found[0].key].0, "memory", "{request}: {:?}", keys(&found));
    }
    // A matching server takes nothing from a tool that matches better.
    assert_eq!(tools[find(&index, "what time is it")[0].key].1, "get_current_time");
}

#[test]
fn the_memory_server_is_found_by_what_it_is_for() {
    let mut tools: Vec<Document> = crate::quality::tools().into_iter().map(|(_, document)| document).collect();
    tools.retain(|tool| tool.server != "memory");
    // As server-memory describes itself: no title, no instructions.
    let memory = [
        ("create_entities", "Create multiple new entities in the knowledge graph", "entities"),
        ("add_observations", "Add new observations to existing entities in the knowledge graph", "observations"),
        (
            "delete_entities",
            "Delete multiple entities and their associated relations from the knowledge graph",
            "names",
        ),
        ("read_graph", "Read the entire knowledge graph", ""),
        ("search_nodes", "Search for nodes in the knowledge graph based on a query", "query"),
    ];
    tools.extend(memory.map(|(name, description, parameter)| Document {
        about_server: "memory-server".into(),
        parameters: vec![parameter.into()],
        ..document("memory", name, description)
    }));
    let index = by_meaning(&tools);
    for request in ["remember something", "remember this for later"] {
        assert_eq!(tools[find(&index, request)[0].key].server, "memory", "{request}");
    }
}

#[test]
fn a_tool_that_lists_anything_is_offered_for_a_thing() {
    let mut tools: Vec<Document> = crate::quality::tools().into_iter().map(|(_, document)| document).collect();
    tools.retain(|tool| tool.server != "kubernetes");
    tools.push(Document {
        parameters: vec!["resourceType".into(), "name".into(), "namespace".into()],
        ..document(
            "kubernetes",
            "kubectl_get",
            "Get or list Kubernetes resources by resource type, name, and optionally namespace",
        )
    });
    let index = by_meaning(&tools);
    for request in ["list pods", "show all pods"] {
        assert!(keys(&find(&index, request))[..3].contains(&(tools.len() - 1)), "{request}");
    }
}

#[test]
fn what_a_server_says_counts_by_words_alone() {
    let reported = "Remembers what users tell it. Use it to recall preferences.";
    let tools = [
        Document { about_server: reported.into(), ..document("memory", "read_graph", "Read the knowledge graph") },
        document("time", "now", "The time"),
    ];
    let found = by_words(&tools).search(&Query::new("recall preferences of users"), TEN, |_| true);
    assert_eq!(keys(&found), [0]);
    assert!(found[0].score > 0.05, "{found:?}");
    assert!(by_words(&tools).search(&Query::new("volcano"), TEN, |_| true).is_empty());
}

fn rough_tools() -> [Document; 3] {
    [
        document("github", "create_issue", "Open a new issue"),
        document("time", "now", "Current time"),
        document("mail", "send", "Sends a letter to a person"),
    ]
}

#[test]
fn rough_vectors_are_compared_wherever_there_is_no_exact_score() {
    let mut index = Index::new(384).with_rough_vectors();
    rough_tools().into_iter().enumerate().for_each(|(key, tool)| index.insert(key, tool));
    let (rough, both) =
        (Query::new("report a bug").with_rough_vectors(), embedded("report a bug").with_rough_vectors());
    let best = |index: &Index<usize>, query: &Query| index.search(query, TEN, |_| true).into_iter().next();
    assert!(by_words(&rough_tools()).search(&rough, TEN, |_| true).is_empty(), "no word is in common");
    let by_table = best(&index, &rough).expect("found by the table");
    assert!(by_table.key == 0 && by_table.vector.is_some(), "{by_table:?}");
    assert_eq!(best(&index, &both), Some(by_table.clone()), "the model has no vector of a tool yet");
    embed_lacking(&mut index);
    let exact = best(&index, &both).expect("found by the model");
    assert!(exact.key == 0 && exact.vector != by_table.vector, "{exact:?}");
    assert_eq!(best(&index, &rough), Some(by_table.clone()), "a request that the model did not read");
    index.forget_vectors();
    assert_eq!(best(&index, &both), Some(by_table), "the vectors of the table stay");
    assert_eq!(index.missing_vectors(10).len(), 3);
    index.remove(&0);
    assert!(best(&index, &rough).is_none_or(|hit| hit.key != 0));
}

#[test]
fn rough_vectors_may_be_made_later() {
    let mut index = Index::new(384).with_rough_vectors_later();
    rough_tools().into_iter().enumerate().for_each(|(key, tool)| index.insert(key, tool));
    let query = Query::new("report a bug").with_rough_vectors();
    assert!(index.search(&query, TEN, |_| true).is_empty());
    let one = index.missing_vectors(1)[0];
    let (key, hash) = (*one.key, one.hash);
    assert!(index.set_vector(&key, hash, &[1.0; 384]));
    assert_eq!(index.missing_rough_vectors(false), [1, 2], "what has a vector needs no other");
    assert_eq!(index.missing_rough_vectors(true), [1, 2, 0], "unless a request has none");
    for key in index.missing_rough_vectors(true) {
        let (document, hash) = index.text(&key).expect("it is there");
        let vector = document.rough_vector().expect("the table is compiled in");
        index.set_rough_vector(&key, TextHash([0; 16]), &vector);
        assert!(index.missing_rough_vectors(true).contains(&key), "that was another text");
        index.set_rough_vector(&key, hash, &vector);
    }
    assert!(index.missing_rough_vectors(true).is_empty());
    assert_eq!(keys(&index.search(&query, TEN, |_| true))[0], 0);
    index.insert(1, document("time", "now", "Another text"));
    assert_eq!(index.missing_rough_vectors(false), [1]);
}

#[test]
fn a_server_is_found_by_its_rough_vector() {
    let about = "Sends electronic mail to people";
    let tools = [
        Document { about_server: about.into(), ..document("m", "a", "Frobnicates") },
        document("n", "b", "Frobnicates"),
    ];
    let mut index = Index::new(0).with_rough_vectors();
    tools.into_iter().enumerate().for_each(|(key, tool)| index.insert(key, tool));
    let hits = index.search(&Query::new("write an email").with_rough_vectors(), TEN, |_| true);
    let lexical = |key: usize| hits.iter().find(|hit| hit.key == key).map_or(0.0, |hit| hit.lexical);
    assert!(lexical(0) > lexical(1), "{hits:?}");
}

#[test]
fn a_text_that_was_given_up_is_not_asked_for_again_until_it_changes() {
    let mut index = by_words(&[document("a", "one", "first"), document("a", "two", "second")]);
    let hash = index.missing_vectors(1)[0].hash;
    index.give_up(&0, TextHash([0; 16]));
    assert!(!index.has_given_up(&0), "that was another text");
    index.give_up(&0, hash);
    assert!(index.has_given_up(&0));
    assert_eq!(index.missing_vectors(10).len(), 1);
    let mut reported = document("a", "one", "first");
    reported.about_server.push_str("more");
    index.insert(0, reported);
    assert!(index.has_given_up(&0), "its text is the same");
    index.insert(0, document("a", "one", "another"));
    assert_eq!((index.has_given_up(&0), index.missing_vectors(10).len()), (false, 2));
    let hash = index.missing_vectors(1)[0].hash;
    index.give_up(&0, hash);
    index.forget_vectors();
    assert_eq!((index.has_given_up(&0), index.missing_vectors(10).len()), (false, 2), "another model may have one");
    let server = index.servers_missing_vectors(1)[0].hash;
    index.give_up_server(&"a".to_owned(), server);
    assert!(index.servers_missing_vectors(1).is_empty());
    index.forget_vectors();
    assert_eq!(index.servers_missing_vectors(1).len(), 1);
}
