//! Operations on a registry while no service runs, with results in the format of REST.

use executions::limits::{CallLimits, LimitView};
use registry::{
    AuditNote, BindingId, BindingRecord, ConnectionConfig, Error, Existing, LimitKind, NewBinding, NewServer, Origin,
    Page, Secrets, Section, ServerFilter, ServerPatch, ServerRecord, Store, ToolFilter, Transaction,
};
use serde_json::{Map, Value, json};
use service::{Problem, Registration};

use crate::api_error::NO_ROOM;
use crate::failure::Failure;
use crate::output::print_message;
use crate::storage::with_causes;
use crate::suggestion;

/// The actor in the audit log.
const CLI_ACTOR: &str = "cli";

pub(crate) async fn add(store: &Store, new: Registration) -> Result<Value, Failure> {
    refuse(&new.problems())?;
    let config = ConnectionConfig::from(new.connection_config);
    let server = NewServer {
        description: new.description,
        health_check_url: new.health_check_url,
        enabled: new.enabled,
        auto_connect: new.auto_connect,
        ..NewServer::new(new.name, new.transport_type, config)
    };
    let mut change = store.transaction("register a server").await.map_err(failed)?;
    let record = change.insert_server(server).await.map_err(failed)?;
    let details = json!({ "transport_type": record.transport });
    commit(change, note("server.register", &record.name, details)).await?;
    Ok(json!(record))
}

pub(crate) async fn remove(store: &Store, name: &str) -> Result<(), Failure> {
    let record = changeable(store, name).await?;
    let mut change = store.transaction("remove a server").await.map_err(failed)?;
    change.delete_server(record.id).await.map_err(failed)?;
    commit(change, note("server.remove", &record.name, Value::Null)).await
}

pub(crate) async fn set_enabled(store: &Store, name: &str, on: bool) -> Result<Value, Failure> {
    let record = find(store, name).await?;
    let patch = ServerPatch { enabled: Some(on), ..ServerPatch::default() };
    let mut change = store.transaction("switch a server").await.map_err(failed)?;
    let record = change.update_server(record.id, patch).await.map_err(failed)?;
    let action = if on { "server.enable" } else { "server.disable" };
    commit(change, note(action, &record.name, Value::Null)).await?;
    Ok(json!(record))
}

pub(crate) async fn list(store: &Store) -> Result<Vec<Value>, Failure> {
    let servers = store.servers(&ServerFilter::default(), Page::ALL).await.map_err(failed)?.items;
    Ok(servers.iter().map(as_it_rests).collect())
}

/// A server with its stored tools.
pub(crate) async fn show(store: &Store, name: &str) -> Result<Value, Failure> {
    let record = find(store, name).await?;
    let mut server = as_it_rests(&record);
    server["tools"] = tools(store, ToolFilter { server: Some(record.id), ..ToolFilter::default() }).await?;
    Ok(server)
}

pub(crate) async fn all_tools(store: &Store) -> Result<Value, Failure> {
    tools(store, ToolFilter::default()).await
}

async fn tools(store: &Store, wanted: ToolFilter) -> Result<Value, Failure> {
    Ok(json!(store.tools(&wanted, Page::ALL).await.map_err(failed)?.items))
}

pub(crate) async fn history(store: &Store, name: &str, limit: u32) -> Result<Value, Failure> {
    let record = find(store, name).await?;
    Ok(json!(store.history(record.id, Page::first(limit)).await.map_err(failed)?.items))
}

pub(crate) async fn export(store: &Store, secrets: Secrets) -> Result<Value, Failure> {
    let exported = store.export(secrets).await.map_err(failed)?;
    let note = note("registry.export", "registry", json!({ "secrets": secrets == Secrets::Revealed }));
    if let Err(error) = store.append_audit(note).await {
        // A read-only registry can be exported, too, without an audit row.
        print_message(format_args!("warning: {}", failed(error).message));
    }
    Ok(exported)
}

pub(crate) async fn import(store: &Store, backup: &Value) -> Result<Value, Failure> {
    let kept = store.skills().await.map_err(failed)?;
    refuse(&service::problems_with_backup(backup, &kept))?;
    let mut change = store.transaction("import a registry").await.map_err(failed)?;
    let report = change.import(backup, Existing::Kept).await.map_err(failed)?;
    commit(change, note("registry.import", "registry", json!({ "added": report.added }))).await?;
    Ok(json!(report))
}

pub(crate) async fn settings(store: &Store) -> Result<Value, Failure> {
    Ok(json!(service::stored_settings(store).await.map_err(refused)?))
}

pub(crate) async fn change_settings(store: &Store, changes: Map<String, Value>) -> Result<Value, Failure> {
    let by = registry::Actor::internal(CLI_ACTOR);
    Ok(json!(service::change_stored_settings(store, &by, changes).await.map_err(refused)?))
}

pub(crate) async fn limits(store: &Store) -> Result<Vec<Value>, Failure> {
    let limits = CallLimits::default();
    limits.load(store).await.map_err(|error| Failure::new(with_causes(&error)))?;
    Ok(limits.view().into_iter().map(shown_limit).collect())
}

/// Sets a limit from the body of the REST request.
pub(crate) async fn put_limit(
    store: &Store,
    kind: LimitKind,
    name: &str,
    members: &Map<String, Value>,
) -> Result<Value, Failure> {
    let limit = service::read_limit(kind, name, members)
        .map_err(|problems| refused(service::Error::Validation { problems }))?;
    let mut change = store.transaction("set a limit").await.map_err(failed)?;
    let record = change.put_limit(kind, name, limit).await.map_err(failed)?;
    commit(change, note("limit.put", &service::limit_target(kind, name), json!(limit))).await?;
    let limits = limits(store).await?;
    let is_it = |limit: &Value| limit["kind"] == json!(record.kind) && limit["name"] == record.name;
    limits.into_iter().find(is_it).ok_or_else(|| Failure::new("the limit was removed in the meantime"))
}

pub(crate) async fn remove_limit(store: &Store, kind: LimitKind, name: &str) -> Result<(), Failure> {
    let mut change = store.transaction("remove a limit").await.map_err(failed)?;
    change.delete_limit(kind, name).await.map_err(failed)?;
    commit(change, note("limit.remove", &service::limit_target(kind, name), Value::Null)).await
}

/// A limit while no service runs, which would know servers and tools.
fn shown_limit(view: LimitView) -> Value {
    json!(service::ShownLimit { view, exists: None })
}

/// The same refusal as by a running service.
fn refused(error: service::Error) -> Failure {
    match error {
        service::Error::Validation { problems } => match refuse(&problems) {
            Err(failure) => failure.of_kind("VALIDATION_ERROR"),
            Ok(()) => Failure::new("the settings are not valid"),
        },
        service::Error::Registry(error) => failed(error),
        error => Failure::new(with_causes(&error)),
    }
}

pub(crate) async fn bindings(store: &Store) -> Result<Vec<Value>, Failure> {
    let mut shown = Vec::new();
    for record in store.bindings(None, None, Page::ALL).await.map_err(failed)?.items {
        shown.push(with_server_name(store, &record).await?);
    }
    Ok(shown)
}

/// Creates a binding from the body of the REST request.
pub(crate) async fn bind(store: &Store, described: &Value) -> Result<Value, Failure> {
    let text = |name: &str| described[name].as_str().map(str::to_owned);
    let line = |name: &str| described[name].as_u64().and_then(|line| u32::try_from(line).ok()).unwrap_or_default();
    let section = match (text("heading_text"), text("block_id")) {
        (Some(heading_text), _) => Section::Heading { heading_text },
        (_, Some(block_id)) => Section::Block { block_id },
        _ => Section::Range { start_line: line("start_line"), end_line: line("end_line") },
    };
    let server = find(store, &text("server_id").unwrap_or_default()).await?;
    let binding = NewBinding {
        document: text("document").unwrap_or_default(),
        section,
        server_id: server.id,
        inherit_to_children: described["inherit_to_children"] == true,
    };
    let mut change = store.transaction("make a binding").await.map_err(failed)?;
    let record = change.insert_binding(binding).await.map_err(failed)?;
    let mut shown = json!(record);
    shown["server_name"] = json!(server.name);
    commit(change, note("binding.add", &record.id.to_string(), shown.clone())).await?;
    Ok(shown)
}

pub(crate) async fn unbind(store: &Store, id: i64) -> Result<(), Failure> {
    let mut change = store.transaction("remove a binding").await.map_err(failed)?;
    change.delete_binding(BindingId(id)).await.map_err(failed)?;
    commit(change, note("binding.remove", &id.to_string(), Value::Null)).await
}

async fn with_server_name(store: &Store, record: &BindingRecord) -> Result<Value, Failure> {
    let mut shown = json!(record);
    shown["server_name"] = json!(find(store, &record.binding.server_id.to_string()).await?.name);
    Ok(shown)
}

async fn find(store: &Store, name: &str) -> Result<ServerRecord, Failure> {
    let error = match store.find_server(name).await {
        Ok(record) => return Ok(record),
        Err(error) => error,
    };
    let is_missing = matches!(error, Error::NotFound { what: "server", .. });
    let failure = failed(error);
    if !is_missing {
        return Err(failure);
    }
    // Adds a suggestion, if the registry can be read.
    let servers = store.servers(&ServerFilter::default(), Page::ALL).await.map(|listed| listed.items);
    let servers = servers.unwrap_or_default();
    Err(match suggestion::among(name, servers.iter().map(|server| server.name.as_str())) {
        Some(question) => failure.with_hint(question),
        None => failure,
    })
}

/// Servers of the config file are changed in that file.
async fn changeable(store: &Store, name: &str) -> Result<ServerRecord, Failure> {
    let record = find(store, name).await?;
    match record.origin {
        Origin::Registered => Ok(record),
        Origin::Config => Err(Failure::new(format!("server `{name}` is in the config file; change it there"))),
    }
}

/// A server while no service runs. After a crash, the registry still has the status from before.
fn as_it_rests(record: &ServerRecord) -> Value {
    let mut shown = json!(record);
    if record.status != registry::Status::Disabled {
        shown["status"] = json!(registry::Status::Disconnected);
        shown["connected_at"] = Value::Null;
    }
    shown
}

fn note(action: &str, target: &str, details: Value) -> AuditNote {
    AuditNote {
        who: Some(CLI_ACTOR.to_owned()),
        action: action.to_owned(),
        target: Some(target.to_owned()),
        details: Some(details).filter(|details| !details.is_null()),
    }
}

/// Commits a change together with its audit row.
async fn commit(mut change: Transaction, note: AuditNote) -> Result<(), Failure> {
    change.append_audit(note).await.map_err(failed)?;
    change.commit().await.map_err(failed)
}

fn refuse(problems: &[Problem]) -> Result<(), Failure> {
    let line = |problem: &Problem| match &problem.loc[1..] {
        [] => problem.msg.clone(),
        place => {
            let place = place.join(".");
            // This prefix is not part of what the user typed.
            format!("{}: {}", place.strip_prefix("connection_config.").unwrap_or(&place), problem.msg)
        }
    };
    match problems {
        [] => Ok(()),
        [only] => Err(Failure::new(line(only))),
        several => {
            let lines: Vec<String> = several.iter().map(line).collect();
            Err(Failure::new(format!("the request is invalid\n  {}", lines.join("\n  "))))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
fn failed(error: Error) -> Failure {
    let failure = Failure::new(with_causes(&error));
    match &error {
        Error::NotFound { what: "server", .. } => {
            failure.of_kind("SERVER_NOT_FOUND").with_hint("`mcp-aggregator list` lists all servers")
        }
        Error::NotFound { what: "limit", .. } => {
            failure.of_kind("LIMIT_NOT_FOUND").with_hint("`mcp-aggregator limits` lists all limits")
        }
        Error::AlreadyExists { name } => failure
            .of_kind("SERVER_ALREADY_EXISTS")
            .with_hint(format!("`mcp-aggregator show {name}` shows it; choose another name, or remove it first (`mcp-aggregator remove {name}`; one of a config file is removed there)")),
        Error::Full { .. } => failure.with_hint(NO_ROOM),
        _ => failure,
    }
}
