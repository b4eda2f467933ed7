//! Principals that are bound to a profile: the service shows them what it allows, and nothing else.

use std::sync::Arc;

use executions::Call;
use registry::{Actor, ExecutionFilter, Page, Principal, RawJson, Role, Source, Status};
use serde_json::{Value, json};
use service::{BoundPrincipal, Error, ItemKind, Service, ToolSelection};
use testkit::{Puppet, Spec};
use tool_search::{DEFAULT_SKILL_THRESHOLD, SearchRequest, Strategy};

use crate::fixture::{ServiceFixture, registration, somebody};

/// A holder of a token that is bound to a profile.
fn bound(profile: &str) -> Actor {
    Actor::new(&Principal::of_token("ci", Role::Admin, Some(profile)), "rest")
}

fn server(prefix: &str) -> Puppet {
    let spec = Spec::legacy()
        .tool("read")
        .tool("drop")
        .prompt("review")
        .prompt("wipe")
        .resource(&format!("{prefix}://1"))
        .resource(&format!("{prefix}-secret://1"))
        .instructions("Never drop what is there.")
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#)
        .answers("resources/read", r#"{"contents":[{"uri":"x","text":"content"}]}"#)
        .answers("prompts/get", r#"{"messages":[]}"#)
        .echoes();
    Puppet::over_http(spec)
}

/// A service with the servers `files` and `vault`, and the profile `dev`, which shows a part of `files`.
async fn service() -> (ServiceFixture, [Puppet; 2]) {
    let fixture = ServiceFixture::new().await;
    let puppets = [server("files"), server("vault")];
    for (name, puppet) in ["files", "vault"].into_iter().zip(&puppets) {
        let config = json!({ "url": format!("http://{}/mcp", puppet.address()) });
        fixture.register(registration(name, "http", config)).await;
        fixture.until_it(name, "its tools are known", |view| view.record.tool_count == 2).await;
    }
    let spec = json!({
        "servers": ["files"], "tools": ["!files.drop"], "prompts": ["files.review"], "resources": ["files://*"],
    });
    Arc::clone(&fixture.service).put_profile(&somebody(), "dev", spec).await.unwrap();
    (fixture, puppets)
}

fn call(by: &Actor, name: &str, server: Option<&str>) -> Call {
    Call {
        name: name.to_owned(),
        server: server.map(str::to_owned),
        arguments: RawJson::parse("{}").unwrap(),
        source: Source::Rest,
        actor: by.clone(),
        document: None,
        session: None,
        timeout_ms: None,
        trace: None,
    }
}

/// The error of a call, without the name that was asked for.
async fn refusal(service: &Service, by: &Actor, name: &str, server: Option<&str>) -> (String, Value) {
    let error = service.call(call(by, name, server)).await.unwrap_err();
    let asked = server.unwrap_or(name);
    let context: Value = serde_json::from_str(&error.context().to_string().replace(asked, "NAME")).unwrap();
    (error.to_string().replace(asked, "NAME"), context)
}

fn search(query: &str) -> SearchRequest {
    SearchRequest {
        query: query.to_owned(),
        limit: 50,
        servers: Vec::new(),
        skills: Vec::new(),
        strategy: Strategy::Direct,
        skill_threshold: DEFAULT_SKILL_THRESHOLD,
        threshold: 0.0,
        include_schemas: true,
        profile: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_principal_sees_and_uses_only_its_profile() {
    let (fixture, puppets) = service().await;
    let (whole, by) = (&fixture.service, bound("dev"));
    let seen = whole.as_seen_by(&by).unwrap();

    let servers = seen.servers(None, Page::ALL);
    let names: Vec<(&str, u32)> =
        servers.items.iter().map(|view| (view.record.name.as_str(), view.record.tool_count)).collect();
    assert_eq!((names, servers.total), (vec![("files", 1)], 1));
    let instructions =
        |view: &service::ServerView| view.record.server_info.as_ref().unwrap()["instructions"].is_string();
    assert!(instructions(&whole.server("files").await.unwrap()));
    assert!(!instructions(&seen.server("files").await.unwrap()), "they name a hidden tool");
    assert!(seen.server("vault").await.is_err());
    let hidden_id = whole.server("vault").await.unwrap().record.id.to_string();
    assert!(seen.server(&hidden_id).await.is_err(), "by its id neither");

    let listed = seen.list_tools(&ToolSelection::default()).await.unwrap().tools;
    assert_eq!(listed.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["files.read"]);
    let (_, page) = seen.tools_page(None, Page::first(10)).await.unwrap();
    assert_eq!((page.items.len(), page.total), (1, 1));
    assert!(seen.tools(Some("vault")).await.is_err());
    assert_eq!(seen.tool_names("files").await.unwrap(), ["files.read"]);
    for hidden in ["files.drop", "vault.read", "nobody.read"] {
        assert!(seen.tool_by_name(hidden).await.is_err(), "{hidden}");
        assert!(seen.tool_by_any_name(hidden).await.is_err(), "{hidden}");
    }
    let found = seen.search(search("read or drop something")).await.unwrap();
    assert!(found.tools.iter().all(|tool| tool.name == "files.read"), "{:?}", found.tools);
    assert_eq!((found.metadata.servers_searched, found.metadata.total_tools_searched), (1, 1));
    assert!(seen.search(SearchRequest { servers: vec!["vault".to_owned()], ..search("x") }).await.is_err());

    for (kind, count) in [(ItemKind::Prompt, 1), (ItemKind::Resource, 1)] {
        assert_eq!(seen.items(kind, None, Page::ALL).unwrap().size().items, count, "{kind:?}");
        assert!(seen.items(kind, Some("vault"), Page::ALL).is_err());
    }
    let none = RawJson::parse("{}").unwrap();
    assert!(seen.prompt(&by, "files.review", &none).await.is_ok());
    for hidden in ["files.wipe", "vault.review", "wipe"] {
        assert!(matches!(seen.prompt(&by, hidden, &none).await, Err(Error::PromptNotFound { .. })), "{hidden}");
    }
    assert!(seen.read_resource(&by, "files://1", None).await.is_ok());
    for hidden in ["files-secret://1", "vault://1"] {
        let read = seen.read_resource(&by, hidden, None).await;
        assert!(matches!(read, Err(Error::ResourceNotFound { .. })), "{hidden}: {read:?}");
    }
    assert!(seen.read_resource(&by, "vault://1", Some("vault")).await.is_err());
    assert_eq!((puppets[1].count("resources/read"), puppets[1].count("prompts/get")), (0, 0));
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_tool_is_called_like_one_that_never_existed() {
    let (fixture, puppets) = service().await;
    let (whole, by) = (&fixture.service, bound("dev"));
    let seen = whole.as_seen_by(&by).unwrap();
    assert!(seen.call(call(&by, "files.read", None)).await.is_ok());
    assert!(seen.call(call(&by, "read", None)).await.is_ok(), "only one visible server has it");
    for (hidden, never) in [
        (("files.drop", None), ("files.nope", None)),
        (("drop", None), ("nope", None)),
        (("vault.read", None), ("nobody.read", None)),
        (("read", Some("vault")), ("read", Some("nobody"))),
    ] {
        let of_hidden = refusal(&seen, &by, hidden.0, hidden.1).await;
        assert_eq!(of_hidden, refusal(&seen, &by, never.0, never.1).await, "{hidden:?}");
    }

    // Nor is it known when its server is not connected.
    for name in ["files", "vault"] {
        whole.disconnect(&somebody(), name, true).await.unwrap();
        fixture.until(name, Status::Disconnected).await;
    }
    for (hidden, never) in [("drop", "nope"), ("vault.read", "nobody.read")] {
        let of_hidden = refusal(&seen, &by, hidden, None).await;
        assert_eq!(of_hidden, refusal(&seen, &by, never, None).await, "{hidden}");
    }
    assert_eq!(puppets[1].count("tools/call"), 0);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_of_hidden_tools_are_not_listed() {
    let (fixture, _puppets) = service().await;
    let (whole, by) = (&fixture.service, bound("dev"));
    let seen = whole.as_seen_by(&by).unwrap();
    for tool in ["files.read", "files.drop", "vault.read"] {
        whole.call(call(&somebody(), tool, None)).await.unwrap();
    }
    let filter = ExecutionFilter::default();
    let all = whole.executions(&filter, Page::ALL).await.unwrap();
    assert_eq!(all.total, 3);
    let visible = seen.executions(&filter, Page::first(10)).await.unwrap();
    assert_eq!(visible.items.iter().map(|it| &*it.tool_name).collect::<Vec<_>>(), ["read"]);
    assert_eq!(visible.total, 1);
    for execution in &all.items {
        let is_visible = &*execution.server_name == "files" && &*execution.tool_name == "read";
        assert_eq!(seen.execution(execution.id).await.is_ok(), is_visible, "{execution:?}");
        assert_eq!(seen.cancel_execution(&by, execution.id).await.is_ok(), is_visible);
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_binds_somebody_can_be_neither_left_nor_removed() {
    let (fixture, _puppets) = service().await;
    let (whole, by) = (&fixture.service, bound("dev"));
    let put = Arc::clone(whole).put_profile(&by, "dev", json!({})).await;
    assert!(matches!(put, Err(Error::BoundToProfile { .. })), "{put:?}");
    let removed = Arc::clone(whole).remove_profile(&by, "dev").await;
    assert!(matches!(removed, Err(Error::BoundToProfile { .. })), "{removed:?}");

    let ci = BoundPrincipal { name: "ci".into(), role: Role::Admin, profile: "dev".into() };
    let lost = BoundPrincipal { profile: "gone".into(), ..ci.clone() };
    whole.set_bound_principals(Arc::new(move || vec![ci.clone(), lost.clone()]));
    let refused = Arc::clone(whole).remove_profile(&somebody(), "dev").await.unwrap_err();
    assert!(matches!(&refused, Error::ProfileInUse { bound, .. } if *bound == ["ci"]), "{refused:?}");
    assert_eq!(whole.profile("dev").unwrap().bound, ["ci"]);

    // Who is bound to nothing sees nothing, and is told so.
    let without = whole.principals_without_profile();
    assert_eq!(without.iter().map(|bound| &*bound.profile).collect::<Vec<_>>(), ["gone"]);
    let refused = whole.as_seen_by(&bound("gone")).err().unwrap();
    assert!(refused.to_string().contains("`gone`, which does not exist"), "{refused}");

    let fixture = fixture.again().await;
    assert_eq!(fixture.service.profile("dev").unwrap().spec["servers"], json!(["files"]), "it is stored");
    fixture.end().await;
}
