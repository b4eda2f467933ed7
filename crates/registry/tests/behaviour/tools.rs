//! Tools are stored as their servers sent them, with what is known about them.

use registry::{
    Classified, Embedding, Error, ListedTool, Page, RawJson, ServerId, Store, ToolChanges, ToolFilter, ToolId,
    ToolRecord,
};

use crate::fixture::{RegistryFixture, on_both, registered, tool};

on_both! {
    definitions_come_back_byte_for_byte,
    a_new_list_keeps_what_is_the_same,
    what_is_searched_differently_is_classified_anew,
    tools_are_found_by_names_and_switches,
    a_name_that_comes_twice_counts_once_and_a_monstrous_one_not,
    a_thousand_tools_are_kept_at_once,
    an_embedding_of_yesterdays_words_is_left_out,
    a_tool_without_a_best_skill_is_looked_at_but_not_classified,
    two_lists_at_once_leave_one_of_them,
    definitions_are_measured_without_being_read,
}

async fn all(store: &Store, server: ServerId) -> Vec<ToolRecord> {
    let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
    store.tools(&filter, Page::ALL).await.unwrap().items
}

fn classified(tool: &ToolRecord, skills: &[&str], primary: Option<&str>) -> Classified {
    Classified {
        tool: tool.id,
        text_hash: tool.text_hash.clone(),
        skills: skills.iter().map(|&skill| skill.to_owned()).collect(),
        confidences: skills.iter().map(|_| 0.75).collect(),
        primary: primary.map(str::to_owned),
        by: "m".to_owned(),
    }
}

async fn definitions_come_back_byte_for_byte(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let texts = [
        r#"{"name":"a", "n": 1e2,  "d": 1.0,"big":123456789012345678901234567890}"#,
        r#"{"b":1,"a":2,"b":3, "nul":"\u0000", "half":"\ud800"}"#,
        "{\"text\":\"\u{1f980} \\/ \\u00e4 ä\"}\t",
        deep.as_str(),
    ];
    let tools: Vec<ListedTool> = texts
        .iter()
        .enumerate()
        .map(|(number, text)| ListedTool {
            original_name: format!("t{number}"),
            description: None,
            input_schema: Some(RawJson::parse(*text).unwrap()),
            definition: RawJson::parse(*text).unwrap(),
        })
        .collect();
    store.replace_tools(id, &tools[..]).await.unwrap();
    for (kept, given) in all(&store, id).await.iter().zip(&tools) {
        assert_eq!(kept.definition.get(), given.definition.get());
        assert_eq!(kept.input_schema.as_ref().unwrap().get(), given.definition.get());
        assert_eq!(kept.name, format!("one.{}", given.original_name));
    }
    assert!(store.replace_tools(id, &tools[..]).await.unwrap().is_empty());
}

async fn a_new_list_keeps_what_is_the_same(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let changes = store.replace_tools(id, [tool("a", "1"), tool("b", "2"), tool("c", "3")]).await.unwrap();
    assert_eq!(changes.added, ["a", "b", "c"]);
    assert_eq!(store.server(id).await.unwrap().tool_count, 3);
    let before = all(&store, id).await;
    store.set_tools_enabled(&[before[1].id], false).await.unwrap();
    assert_eq!(store.put_classified(vec![classified(&before[1], &["x", "y"], Some("y"))]).await.unwrap(), 1);

    let changes = store.replace_tools(id, [tool("d", "4"), tool("b", "2"), tool("a", "other")]).await.unwrap();
    let expected = ToolChanges {
        added: vec!["d".to_owned()],
        removed: vec!["c".to_owned()],
        changed: vec!["a".to_owned()],
        total: 3,
        left_out: 0,
    };
    assert_eq!(changes, expected);
    let after = all(&store, id).await;
    let names: Vec<&str> = after.iter().map(|tool| tool.original_name.as_str()).collect();
    assert_eq!(names, ["d", "b", "a"]);
    assert_eq!((after[1].id, after[1].enabled, after[1].is_classified), (before[1].id, false, true));
    assert_eq!((after[1].skills.clone(), after[1].primary_skill.as_deref()), (vec!["x".into(), "y".into()], Some("y")));
    assert_eq!(after[1].confidences, [0.75, 0.75]);
    assert_eq!((after[2].id, after[2].description.as_deref()), (before[0].id, Some("other")));
    assert!(after.iter().all(|tool| tool.is_external));
    assert_eq!(store.server(id).await.unwrap().tool_count, 3);

    let gone = store.replace_tools(id, []).await.unwrap();
    assert_eq!((gone.removed.len(), gone.total), (3, 0));
    store.replace_tools(id, [tool("b", "2"), tool("a", "1")]).await.unwrap();
    let again = all(&store, id).await;
    assert_eq!([again[0].enabled, again[1].enabled], [false, true], "what was off is off when it is listed again");
    store.set_tools_enabled(&[again[0].id], true).await.unwrap();
    store.replace_tools(id, []).await.unwrap();
    store.replace_tools(id, [tool("b", "2")]).await.unwrap();
    assert!(all(&store, id).await[0].enabled, "and on if it was switched on since");
    assert!(matches!(store.replace_tools(ServerId::fresh(), []).await, Err(Error::NotFound { .. })));
}

async fn what_is_searched_differently_is_classified_anew(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    store.replace_tools(id, [tool("a", "1"), tool("b", "2")]).await.unwrap();
    for tool in all(&store, id).await {
        store.put_classified(vec![classified(&tool, &["x"], Some("x"))]).await.unwrap();
        let embedding =
            Embedding { tool: tool.id, text_hash: tool.text_hash, model: "m".into(), bytes: vec![0, 1, 255] };
        assert_eq!(store.put_embeddings(vec![embedding]).await.unwrap(), 1);
    }
    assert_eq!(store.tool_counts().await.unwrap().classified, 2);

    let spaced = RawJson::parse(tool("a", "1").definition.get().replace(',', " ,")).unwrap();
    let same_words = ListedTool { definition: spaced, ..tool("a", "1") };
    let changes = store.replace_tools(id, [same_words, tool("b", "other words")]).await.unwrap();
    assert_eq!(changes.changed, ["a", "b"]);
    let after = all(&store, id).await;
    assert_eq!((after[0].is_classified, after[0].embedding_model.as_deref()), (true, Some("m")));
    assert_eq!((after[1].is_classified, after[1].embedding_model.as_deref()), (false, None));
    assert_eq!((after[0].classified_by.as_deref(), after[1].classified_by.as_deref()), (Some("m"), None));
    assert_eq!(after[1].skills, ["x"]);
    let embeddings = store.embeddings("m").await.unwrap();
    assert_eq!((embeddings.len(), embeddings[0].bytes.clone()), (1, vec![0, 1, 255]));
    let counts = store.tool_counts().await.unwrap();
    assert_eq!((counts.total, counts.classified), (2, 1));
}

async fn tools_are_found_by_names_and_switches(RegistryFixture { store, .. }: RegistryFixture) {
    for name in ["one", "two"] {
        let id = registered(&store, name).await.id;
        store.replace_tools(id, [tool("echo", "1"), tool(name, "2")]).await.unwrap();
    }
    let names = |filter: ToolFilter| {
        let store = store.clone();
        async move {
            let listed = store.tools(&filter, Page::ALL).await.unwrap().items;
            listed.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
        }
    };
    let by_original = ToolFilter { original_name: Some("echo".to_owned()), ..ToolFilter::default() };
    assert_eq!(names(by_original).await, ["one.echo", "two.echo"]);
    let by_name = ToolFilter { name: Some("two.echo".to_owned()), ..ToolFilter::default() };
    let found = store.tools(&by_name, Page::ALL).await.unwrap().items.remove(0);
    store.set_tools_enabled(&[found.id], false).await.unwrap();
    assert!(!store.tool(found.id).await.unwrap().enabled);
    let off = ToolFilter { enabled: Some(false), ..ToolFilter::default() };
    assert_eq!(names(off).await, ["two.echo"]);
    for nothing in [store.set_tools_enabled(&[ToolId(987)], true).await, store.tool(ToolId(987)).await.map(drop)] {
        assert!(matches!(nothing, Err(Error::NotFound { what: "tool", .. })));
    }
}

async fn a_name_that_comes_twice_counts_once_and_a_monstrous_one_not(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    // Random, so that no index can compress it.
    let monster: String = (0..200).map(|_| registry::ServerId::fresh().to_string()).collect();
    let tools = [tool("a", "first"), tool("a", "second"), tool(&monster, "x"), tool("n\0l", "x"), tool("z", "last")];
    let changes = store.replace_tools(id, &tools[..]).await.unwrap();
    assert_eq!((changes.added, changes.total, changes.left_out), (vec!["a".into(), "z".into()], 2, 2));
    assert_eq!(all(&store, id).await[0].description.as_deref(), Some("first"));
}

async fn a_thousand_tools_are_kept_at_once(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let tools: Vec<ListedTool> = (0..1000).map(|number| tool(&format!("t{number}"), "does something")).collect();
    assert_eq!(store.replace_tools(id, &tools[..]).await.unwrap().added.len(), 1000);
    let kept = all(&store, id).await;
    assert_eq!(kept.len(), 1000);
    assert!(kept.iter().zip(&tools).all(|(kept, given)| kept.original_name == given.original_name));
}

async fn an_embedding_of_yesterdays_words_is_left_out(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    store.replace_tools(id, [tool("a", "1")]).await.unwrap();
    let tool_id = all(&store, id).await[0].id;
    let stale = Embedding { tool: tool_id, text_hash: "older".to_owned(), model: "m".to_owned(), bytes: vec![1] };
    assert_eq!(store.put_embeddings(vec![stale]).await.unwrap(), 0);
    assert!(store.embeddings("m").await.unwrap().is_empty());
}

async fn a_tool_without_a_best_skill_is_looked_at_but_not_classified(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    store.replace_tools(id, [tool("a", "1"), tool("b", "2")]).await.unwrap();
    let tools = all(&store, id).await;
    let yesterdays = Classified { text_hash: "older".to_owned(), ..classified(&tools[1], &["x"], Some("x")) };
    let given = vec![classified(&tools[0], &[], None), yesterdays];
    assert_eq!(store.put_classified(given).await.unwrap(), 1);
    let after = all(&store, id).await;
    assert_eq!((after[0].is_classified, after[0].classified_by.as_deref()), (false, Some("m")));
    assert_eq!((after[1].is_classified, after[1].classified_by.as_deref()), (false, None));
    assert!(after.iter().all(|tool| tool.skills.is_empty()));
    store.put_classified(vec![classified(&tools[0], &["x", "y"], Some("x"))]).await.unwrap();
    assert_eq!(store.tool_counts().await.unwrap().classified, 1);
    store.put_classified(vec![classified(&tools[0], &[], None)]).await.unwrap();
    assert_eq!(store.tool_counts().await.unwrap().classified, 0, "what is known today counts");
}

async fn two_lists_at_once_leave_one_of_them(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let list = |letter: char| -> Vec<ListedTool> { (0..20).map(|at| tool(&format!("{letter}{at}"), "x")).collect() };
    let tasks: Vec<_> = ('a'..='f')
        .map(|letter| {
            let (store, tools) = (store.clone(), list(letter));
            tokio::spawn(async move { store.replace_tools(id, &tools[..]).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let kept = all(&store, id).await;
    let letter = kept[0].original_name.chars().next();
    assert_eq!(kept.len(), 20);
    assert!(kept.iter().all(|tool| tool.original_name.chars().next() == letter));
}

async fn definitions_are_measured_without_being_read(RegistryFixture { store, .. }: RegistryFixture) {
    let (one, two) = (registered(&store, "one").await.id, registered(&store, "two").await.id);
    let (first, second) = ([tool("a", "é"), tool("b", "x")], [tool("c", "y")]);
    let size = |tools: &[ListedTool]| {
        (tools.len() as u64, tools.iter().map(|tool| tool.definition.get().len() as u64).sum::<u64>())
    };
    store.replace_tools(one, first.clone()).await.unwrap();
    store.replace_tools(two, second.clone()).await.unwrap();
    let measured = async |servers: &[ServerId], enabled| store.measure_tools(servers, enabled).await.unwrap();
    let both = [&first[..], &second[..]].concat();
    assert_eq!(measured(&[one, two], None).await, size(&both));
    assert_eq!(measured(&[one], None).await, size(&first));
    assert_eq!(measured(&[], None).await, (0, 0), "of no server");
    assert_eq!(measured(&[ServerId::fresh()], Some(true)).await, (0, 0));
    store.set_tools_enabled(&[all(&store, one).await[0].id], false).await.unwrap();
    assert_eq!(measured(&[one], Some(true)).await, size(&first[1..]));
    assert_eq!(measured(&[one, two], Some(false)).await, size(&first[..1]));
    assert_eq!(store.tool_counts_of_servers().await.unwrap(), [(one, 2), (two, 1)].into());
    assert_eq!(store.tool_names(one).await.unwrap(), ["one.a", "one.b"]);
    let of_two = ToolFilter { servers: vec![two, ServerId::fresh()], ..ToolFilter::default() };
    assert_eq!(store.tools(&of_two, Page::ALL).await.unwrap().items[0].name, "two.c");
}
