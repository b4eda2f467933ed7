//! The service itself: state, health, events, clients, settings, audit log and metrics.

use executions::Error as CallError;
use http::StatusCode;
use http::header::HeaderName;
use registry::{AuditFilter, Page, Status};
use serde_json::{Map, Value, json};
use service::{Error, ServerView, login_command};

use super::executions::moment;
use crate::endpoint::Endpoint;
use crate::events::Stream;
use crate::metrics;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/state", "Show the state of the service", |request| Box::pin(state(request)))
            .for_users()
            .about("Answered from memory; needs neither the database nor a server.")
            .answers(200, "Numbers.", Schema::named("State")),
        Endpoint::get("/health", "Check the health of the service", |request| Box::pin(health(request)))
            .about(
                "The status is `degraded` if a server that should be connected is unhealthy, the database is \
                 unreachable, executions are stopped, the configured vector store is unreachable, or the embedding \
                 model is unreachable. A server that waits for a sign-in does not change it; `action_required` lists \
                 such servers.",
            )
            .answers(
                200,
                "Counts, the checks that were made, and the problems they found.",
                Schema::named("ServiceHealth"),
            ),
        Endpoint::get("/events", "Follow events", |request| Box::pin(events(request)))
            .about(
                "A stream of server-sent events, each with an id: `server.registered`, `server.updated`, \
                 `server.removed`, `server.status_changed`, `server.sign_in_required`, `server.signed_in`, \
                 `server.signed_out`, `server.progress`, `tools.changed`, `skills.changed`, `profile.changed`, `profile.removed`, `execution.pending`, `execution.executing`, `execution.success`, `execution.error`, \
                 `execution.timeout`, `execution.cancelled` and `notice`, which is meant for a person. Events are not \
                 stored: a client that reads too slowly or reconnects gets `events.missed` and should fetch the \
                 current state again.",
            )
            .answers_with(200, "A stream that does not end.", "text/event-stream", Some(Schema::text())),
        Endpoint::get("/clients", "List connected MCP clients", |request| Box::pin(clients(request)))
            .about(
                "Clients of revisions before 2026-07-28 are listed while their session lasts. Clients of later \
                 revisions have no session: they are listed for 15 minutes after their last request.",
            )
            .parts("Clients in the order in which they connected.", Schema::named("Client"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/settings", "Show the settings", |request| Box::pin(settings(request))).answers(
            200,
            "All settings.",
            Schema::named("Settings"),
        ),
        Endpoint::patch("/settings", "Change settings", |request| Box::pin(change_settings(request)))
            .for_admins()
            .about(
                "Settings that are not in the body keep their value; null resets a setting to its default. If one \
                 value is invalid, nothing changes. Changes take effect immediately.",
            )
            .takes(schemas::changed_settings())
            .answers(200, "All settings after the change.", Schema::named("Settings")),
        Endpoint::get("/audit", "Show the audit log", |request| Box::pin(audit(request)))
            .for_admins()
            .optional_query("who", Schema::storable_text().about("Only changes made with the token of this name."))
            .optional_query("action", Schema::storable_text().about("Only this action, such as `server.register`."))
            .optional_query("target", Schema::storable_text().about("Only changes of this object."))
            .optional_query("since", Schema::formatted("date-time").about("Only changes at this time or later."))
            .pages("Changes, newest first.", Schema::named("AuditRecord"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("", "Metrics for Prometheus", |request| Box::pin(metrics(request))).at("/metrics").answers_with(
            200,
            "Metrics in the text format of Prometheus.",
            metrics::CONTENT_TYPE,
            Some(Schema::text()),
        ),
    ]
}

async fn state(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.state()))
}

async fn health(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut issues: Vec<Value> = Vec::new();
    let reached = request.service.ping().await.map_err(|error| error.to_string());
    let database = reached.and_then(|()| request.service.write_error().map_or(Ok(()), Err)).map_err(|message| {
        issues.push(json!({"component": "database", "message": message}));
    });
    // Without the database only the counters describe the servers.
    let listed = request.service.servers(None, Page::ALL);
    issues.extend(listed.items.iter().filter_map(ailing));
    let action_required: Vec<Value> = listed.items.iter().filter_map(sign_in_required).collect();
    let state = request.service.state();
    if state.executions_stopped {
        issues.push(json!({"component": "executions", "message": CallError::ExecutionStopped.to_string()}));
    }
    let config = request.service.config_error();
    issues.extend(config.iter().map(|message| json!({"component": "config", "message": message})));
    let tokens = request.service.token_error();
    issues.extend(tokens.iter().map(|message| json!({"component": "tokens", "message": message})));
    let certificate = request.service.certificate_error();
    issues.extend(certificate.iter().map(|message| json!({"component": "certificate", "message": message})));
    let settings = request.service.settings_error();
    issues.extend(settings.iter().map(|message| json!({"component": "settings", "message": message})));
    let conflicts = request.service.name_conflicts();
    issues.extend(conflicts.iter().map(|message| json!({"component": "tools", "message": message})));
    let vectors = request.service.vectors();
    if let Some(problem) = &vectors.problem {
        let message =
            format!("the configured vector store is not in use, vectors are compared in the program: {problem}");
        issues.push(json!({"component": "vectors", "message": message}));
    }
    let embeddings = request.service.embedding_error();
    issues.extend(embeddings.iter().map(|problem| {
        let message = format!(
            "the embedding model is unreachable, so search compares {} only: {problem}",
            service::SEARCHED_WITHOUT_MODEL
        );
        json!({"component": "embeddings", "message": message})
    }));
    let servers_are_well = state.error_servers == 0 && !issues.iter().any(|issue| issue["component"] == "server");
    let word = |is_well: bool| if is_well { "ok" } else { "failed" };
    let is_well = database.is_ok()
        && servers_are_well
        && config.is_none()
        && tokens.is_none()
        && certificate.is_none()
        && settings.is_none()
        && conflicts.is_none()
        && vectors.problem.is_none()
        && embeddings.is_none()
        && !state.executions_stopped;
    let mut health = Map::new();
    health.insert("status".to_owned(), json!(if is_well { "healthy" } else { "degraded" }));
    if let Value::Object(numbers) = json!(state) {
        health.extend(numbers);
    }
    let checks = json!({
        "database": {"status": word(database.is_ok())},
        "servers": {"status": word(servers_are_well)},
        "embeddings": {"status": word(embeddings.is_none())},
        "vectors": {
            "status": word(vectors.problem.is_none()),
            "in_use": vectors.in_use,
            "address": vectors.address,
            "points": vectors.points,
        },
    });
    health.insert("checks".to_owned(), checks);
    health.insert("issues".to_owned(), Value::Array(issues));
    health.insert("action_required".to_owned(), Value::Array(action_required));
    Ok(ApiResponse::ok(&health))
}

/// The problem of a server, unless its state is intended.
fn ailing(server: &ServerView) -> Option<Value> {
    let record = &server.record;
    let is_ailing = matches!(record.status, Status::Error | Status::Degraded) || record.auto_disabled;
    is_ailing.then(|| {
        let why = record.error_message.clone().unwrap_or_else(|| format!("it is {}", record.status));
        let message = format!("server `{}`: {why}", record.name);
        json!({"component": "server", "server_id": record.id, "server_name": record.name, "message": message})
    })
}

/// What a person has to do about a server that works otherwise. It is no issue of the service.
fn sign_in_required(server: &ServerView) -> Option<Value> {
    let record = &server.record;
    (record.status == Status::SignInRequired).then(|| {
        let command = login_command(&record.name);
        let message = format!("server `{}` requires a sign-in: run `{command}`", record.name);
        json!({
            "component": "server",
            "server_id": record.id,
            "server_name": record.name,
            "reason": record.status,
            "message": message,
            "command": command,
        })
    })
}

async fn events(request: ApiRequest) -> Result<ApiResponse, Error> {
    let resumed = request.headers.get(&LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    Ok(ApiResponse::events(Stream::new(request.service.events().listen(), request.closing.clone(), resumed)))
}

async fn clients(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(request.part_of(&request.service.clients()))
}

async fn settings(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.settings()))
}

async fn change_settings(request: ApiRequest) -> Result<ApiResponse, Error> {
    let changes = Value::Object(request.body.whole());
    Ok(ApiResponse::ok(&request.service.change_settings(&request.actor, changes).await?))
}

async fn audit(request: ApiRequest) -> Result<ApiResponse, Error> {
    let text = |name: &str| request.text(name).map(str::to_owned);
    let filter = AuditFilter {
        who: text("who"),
        action: text("action"),
        target: text("target"),
        since: moment(&request, "since")?,
    };
    let listed = request.service.audit(&filter, request.page()).await?;
    Ok(ApiResponse::page(&listed.items, listed.total))
}

async fn metrics(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::text(
        StatusCode::OK,
        metrics::CONTENT_TYPE,
        metrics::text(&request.service, request.auth_counter.as_ref()).await,
    ))
}
