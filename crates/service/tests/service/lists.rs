//! Long lists: only the requested page is read, and what waits for a slot has loaded nothing.

use registry::{Page, ToolFilter};
use service::{ItemKind, ListPlace, ListSize, ToolSelection};

use crate::fixture::{ServiceFixture, fake, somebody};

/// A server with a list of so many bytes on one page.
fn with_items(name: &str, list: &str, bytes: &str) -> service::Registration {
    fake(name, &["--endless-list", list, "--pages", "1", "--page-bytes", bytes])
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_long_list_of_items_only_the_page_is_read() {
    let fixture = ServiceFixture::new().await;
    let service = &fixture.service;
    service.register(&somebody(), with_items("one", "resources", "3000000")).await.unwrap();
    service.register(&somebody(), with_items("two", "prompts", "3000000")).await.unwrap();
    fixture.until("one", registry::Status::Connected).await;
    fixture.until("two", registry::Status::Connected).await;
    for kind in [ItemKind::Resource, ItemKind::Prompt] {
        let whole = service.items(kind, None, Page::ALL).unwrap().size();
        assert!(whole.items > 500 && whole.bytes > 500_000, "{whole:?}");
        assert!(ListPlace::of(whole).await.unwrap().is_beside());
        let page = service.items(kind, None, Page { limit: 1, offset: 7 }).unwrap();
        assert_eq!(page.size().items, 1);
        assert!(page.size().bytes < whole.bytes / 100, "{:?} of {whole:?}", page.size());
        assert!(!ListPlace::of(page.size()).await.unwrap().is_beside());
        let (shown, total) = match kind {
            ItemKind::Prompt => {
                let listed = page.prompts(&|| false).unwrap();
                assert_eq!(listed.items[0].arguments.get(), "[]");
                (listed.items[0].original_name.clone(), listed.total)
            }
            _ => {
                let listed = page.resources(&|| false).unwrap();
                (listed.items[0].uri.clone(), listed.total)
            }
        };
        assert!(shown.contains("i0_7"), "{shown}");
        assert_eq!(total, whole.items);
        assert!(service.items(kind, None, Page::ALL).unwrap().resources(&|| true).is_err(), "it can be interrupted");
        assert_eq!(service.items(kind, None, Page { limit: 1, offset: total }).unwrap().size(), ListSize::default());
    }
    let name = service.items(ItemKind::Prompt, None, Page::first(1)).unwrap().prompts(&|| false).unwrap();
    assert_eq!(service.prompt_view(&name.items[0].name).unwrap().original_name, name.items[0].original_name);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_connected_is_described_beside_the_calls_if_it_has_many_tools() {
    let fixture = ServiceFixture::new().await;
    let service = &fixture.service;
    let here = std::thread::current().id();
    for (name, tools, is_beside) in [("few", 8_u32, false), ("many", 800, true)] {
        service.register(&somebody(), fake(name, &["--tools", &tools.to_string(), "--only-generated"])).await.unwrap();
        fixture.until_it(name, "all tools", |view| view.record.tool_count == tools).await;
        let view = service.restart(&somebody(), name, false).await.unwrap();
        let describe = |view: &service::ServerView| (view.tools.clone().unwrap().len(), std::thread::current().id());
        let (count, there) = service.describe_with_tools(view, describe).await.unwrap();
        assert_eq!((u32::try_from(count), there != here), (Ok(tools), is_beside), "{name}");
    }
    let view = service.disconnect(&somebody(), "few", true).await.unwrap();
    let has_tools = service.describe_with_tools(view, |view| view.tools.is_some()).await.unwrap();
    assert!(!has_tools, "it is not connected");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_tools_waits_for_a_slot_before_it_is_loaded_and_pages_do_not() {
    let fixture = ServiceFixture::new().await;
    let service = &fixture.service;
    service.register(&somebody(), fake("one", &["--tools", "800", "--only-generated"])).await.unwrap();
    fixture.until_it("one", "all tools", |view| view.record.tool_count == 800).await;
    // All slots are taken.
    let mut slots = Vec::new();
    for _ in 0..(std::thread::available_parallelism().unwrap().get() / 2).max(1) {
        slots.push(ListPlace::of(ListSize { items: u64::MAX, bytes: 0 }).await.unwrap());
    }
    let list = tokio::spawn({
        let service = service.clone();
        async move { service.list_tools(&ToolSelection::default()).await.unwrap() }
    });
    let (slot_index, page) = service.tools_page(None, Page { limit: 10, offset: 795 }).await.unwrap();
    assert!(!slot_index.is_beside());
    assert_eq!((page.items.len(), page.total), (5, 800));
    assert_eq!(service.tool_names("one").await.unwrap().len(), 800);
    let name = &page.items[0].original_name;
    assert_eq!(service.tool_of("one", name).await.unwrap().unwrap().id, page.items[0].id);
    assert!(service.tool_of("one", "none").await.unwrap().is_none());
    assert!(!list.is_finished(), "it waits");
    drop(slots);
    let list = list.await.unwrap();
    assert!(list.place.is_beside());
    assert_eq!(list.tools.len(), 800);
    drop(list);
    let skills = ["none".to_owned()];
    let wanted = ToolSelection { skills: &skills, ..ToolSelection::default() };
    assert_eq!(service.list_tools(&wanted).await.unwrap().tools.len(), 0);
    let servers = ["other".to_owned()];
    let wanted = ToolSelection { servers: &servers, ..ToolSelection::default() };
    assert_eq!(service.list_tools(&wanted).await.unwrap().tools.len(), 0);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_tools_do_not_overlap_when_fewer_are_stored_than_offered() {
    let fixture = ServiceFixture::new().await;
    let service = &fixture.service;
    for name in ["one", "two"] {
        service.register(&somebody(), fake(name, &["--tools", "3", "--only-generated"])).await.unwrap();
        fixture.until_it(name, "all tools", |view| view.record.tool_count == 3).await;
    }
    let all = service.tools(None).await.unwrap();
    assert_eq!(all.len(), 6);
    // As if a row of another program had the name of a tool of `one`.
    let of_one = ToolFilter { server: Some(all[0].source_server_id), ..ToolFilter::default() };
    let mut kept: Vec<registry::ListedTool> = fixture
        .store
        .tools(&of_one, Page::ALL)
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|tool| registry::ListedTool {
            original_name: tool.original_name,
            description: tool.description,
            input_schema: tool.input_schema,
            definition: tool.definition,
        })
        .collect();
    kept.pop();
    fixture.store.replace_tools(all[0].source_server_id, kept).await.unwrap();
    let mut names = Vec::new();
    for offset in [0, 2, 4] {
        let (_, page) = service.tools_page(None, Page { limit: 2, offset }).await.unwrap();
        assert_eq!(page.total, 5);
        names.extend(page.items.into_iter().map(|tool| tool.name));
    }
    let expected: Vec<String> = service.tools(None).await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, expected);
    fixture.end().await;
}
