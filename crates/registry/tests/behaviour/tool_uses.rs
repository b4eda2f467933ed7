//! Uses of tools are counted by user and word, and go with their tool.

use registry::{Page, Store, ToolFilter, ToolId, ToolUse};

use crate::fixture::{RegistryFixture, on_both, registered, tool};

on_both! {
    uses_are_counted_by_user_and_word_up_to_a_limit,
    uses_go_with_their_tool_and_with_its_server,
    surplus_uses_are_deleted_those_that_grew_last_stay,
}

const MAX_USES: u32 = 8;

fn uses(user: &str, word: &str, tool: ToolId, uses: u32) -> ToolUse {
    ToolUse { user: user.to_owned(), word: word.to_owned(), tool, uses }
}

/// Two tools of a new server.
async fn tools(store: &Store, server: &str) -> Vec<ToolId> {
    let server = registered(store, server).await.id;
    store.replace_tools(server, vec![tool("a", "A"), tool("b", "B")]).await.unwrap();
    let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
    store.tools(&filter, Page::ALL).await.unwrap().items.iter().map(|tool| tool.id).collect()
}

async fn uses_are_counted_by_user_and_word_up_to_a_limit(fixture: RegistryFixture) {
    let store = &fixture.store;
    let tools = tools(store, "one").await;
    let unknown = uses("", "mail", ToolId(9_999), 1);
    let first = vec![uses("", "mail", tools[0], 1), uses("anna", "mail", tools[0], 2), unknown];
    assert_eq!(store.add_tool_uses(first, MAX_USES).await.unwrap(), 0);
    store.add_tool_uses(vec![uses("", "mail", tools[0], 2), uses("", "mail", tools[1], 50)], MAX_USES).await.unwrap();
    store.add_tool_uses(vec![uses("anna", "mail", tools[0], 50)], MAX_USES).await.unwrap();
    let mut kept = fixture.opened_again().await.tool_uses().await.unwrap();
    assert_eq!(kept[0].user, "anna", "what grew last comes first");
    kept.sort_by_key(|it| (it.user.clone(), it.tool));
    let expected =
        [uses("", "mail", tools[0], 3), uses("", "mail", tools[1], 50), uses("anna", "mail", tools[0], MAX_USES)];
    assert_eq!(kept, expected);
    store.forget_tool_uses().await.unwrap();
    assert_eq!(store.tool_uses().await.unwrap(), []);
}

async fn uses_go_with_their_tool_and_with_its_server(RegistryFixture { store, .. }: RegistryFixture) {
    let (one, two) = (tools(&store, "one").await, tools(&store, "two").await);
    let all = vec![uses("", "w", one[0], 1), uses("", "w", one[1], 1), uses("", "w", two[0], 1)];
    store.add_tool_uses(all, MAX_USES).await.unwrap();
    let server = store.find_server("one").await.unwrap().id;
    store.replace_tools(server, vec![tool("b", "B")]).await.unwrap();
    store.replace_tools(server, vec![tool("a", "A"), tool("b", "B")]).await.unwrap();
    let mut kept: Vec<ToolId> = store.tool_uses().await.unwrap().iter().map(|it| it.tool).collect();
    kept.sort();
    assert_eq!(kept, [one[1], two[0]], "a tool that comes back starts anew");
    store.delete_server(server).await.unwrap();
    assert_eq!(store.tool_uses().await.unwrap(), [uses("", "w", two[0], 1)]);
}

async fn surplus_uses_are_deleted_those_that_grew_last_stay(RegistryFixture { store, .. }: RegistryFixture) {
    let tools = tools(&store, "one").await;
    let many = |batch: u32| (0..1_000).map(move |number| format!("w{}", batch * 1_000 + number));
    for batch in 0..20 {
        let batch = many(batch).map(|word| uses("", &word, tools[0], 1)).collect();
        assert_eq!(store.add_tool_uses(batch, MAX_USES).await.unwrap(), 0);
    }
    let deleted = store.add_tool_uses(vec![uses("", "last", tools[0], 1)], MAX_USES).await.unwrap();
    assert!((1_000..=2_000).contains(&deleted), "{deleted}");
    let kept = store.tool_uses().await.unwrap();
    assert_eq!((kept[0].word.as_str(), kept.len() as u64), ("last", 20_001 - deleted));
    assert!(kept.iter().all(|it| it.word != "w0"));
}
