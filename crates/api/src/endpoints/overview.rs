//! The service itself: how it stands, what happens, what is set, who changed what.

use http::StatusCode;
use http::header::HeaderName;
use registry::{AuditFilter, Page, Status};
use serde_json::{Map, Value, json};
use service::Error;
use service::servers::ServerView;

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
        Endpoint::get("/state", "How everything stands", |request| Box::pin(state(request)))
            .about("From memory: it needs neither the database nor a server.")
            .answers(200, "Numbers.", Schema::named("State")),
        Endpoint::get("/health", "How well everything is", |request| Box::pin(health(request)))
            .about("`degraded` if a server that should be connected is not well, the database is not there, calls are stopped, vectors are not compared where they should be, or the model that makes them cannot be asked.")
            .answers(200, "Numbers, what was looked at, and what is wrong.", Schema::named("ServiceHealth")),
        Endpoint::get("/events", "What happens, as it happens", |request| Box::pin(events(request)))
            .about(
                "Server-sent events, each with an id: `server.registered`, `server.updated`, `server.removed`, \
                 `server.status_changed`, `server.progress`, `tools.changed`, `skills.changed`, \
                 `execution.pending`, `execution.executing`, \
                 `execution.success`, `execution.error`, `execution.timeout`, `execution.cancelled` and `notice`, \
                 something that a person should see. Who reads too slowly, or comes back, gets `events.missed` and \
                 should read anew what they follow: events are not kept.",
            )
            .answers_with(200, "A stream without an end.", "text/event-stream", Some(Schema::text())),
        Endpoint::get("/clients", "List the MCP clients that are connected", |request| Box::pin(clients(request)))
            .about(
                "Clients of revisions before 2026-07-28 while their session lasts. Later ones have no session: they are \
                 listed for 15 minutes after their last request.",
            )
            .parts("The clients, in the order in which they came.", Schema::named("Client"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/settings", "What is set", |request| Box::pin(settings(request))).answers(
            200,
            "All settings.",
            Schema::named("Settings"),
        ),
        Endpoint::patch("/settings", "Change settings", |request| Box::pin(change_settings(request)))
            .about("What is not named stays; null takes a setting back to its default. If anything is wrong, nothing is changed. It takes effect at once.")
            .takes(schemas::changed_settings())
            .answers(200, "All settings as they are then.", Schema::named("Settings")),
        Endpoint::get("/audit", "Who changed what", |request| Box::pin(audit(request)))
            .asks("who", Schema::kept_text().about("Only what was done with the token of this name."))
            .asks("action", Schema::kept_text().about("Only this, such as `server.register`."))
            .asks("target", Schema::kept_text().about("Only what was done to this."))
            .asks("since", Schema::formatted("date-time").about("Only at this time or later."))
            .pages("Changes, newest first.", Schema::named("AuditRecord"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("", "Numbers for Prometheus", |request| Box::pin(metrics(request))).at("/metrics").answers_with(
            200,
            "The text format of Prometheus.",
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
    // What is kept cannot be read without the database; then only the numbers tell of servers.
    if let Ok(listed) = request.service.servers(None, false, Page::ALL).await {
        issues.extend(listed.items.iter().filter_map(ailing));
    }
    let state = request.service.state();
    if state.executions_stopped {
        issues.push(json!({"component": "executions", "message": Error::ExecutionStopped.to_string()}));
    }
    let config = request.service.config_error();
    issues.extend(config.iter().map(|message| json!({"component": "config", "message": message})));
    let tokens = request.service.token_error();
    issues.extend(tokens.iter().map(|message| json!({"component": "tokens", "message": message})));
    let settings = request.service.settings_error();
    issues.extend(settings.iter().map(|message| json!({"component": "settings", "message": message})));
    let vectors = request.service.vectors();
    if let Some(trouble) = &vectors.trouble {
        let message = format!("vectors are compared here, not where they should be: {trouble}");
        issues.push(json!({"component": "vectors", "message": message}));
    }
    let embeddings = request.service.embedding_error();
    issues.extend(embeddings.iter().map(|trouble| {
        let message =
            format!("tools are found by words alone, because the model that makes vectors cannot be asked: {trouble}");
        json!({"component": "embeddings", "message": message})
    }));
    let servers_are_well = state.error_servers == 0 && !issues.iter().any(|issue| issue["component"] == "server");
    let word = |is_well: bool| if is_well { "ok" } else { "failed" };
    let is_well = database.is_ok()
        && servers_are_well
        && config.is_none()
        && tokens.is_none()
        && settings.is_none()
        && vectors.trouble.is_none()
        && embeddings.is_none()
        && !state.executions_stopped;
    let mut told = Map::new();
    told.insert("status".to_owned(), json!(if is_well { "healthy" } else { "degraded" }));
    if let Value::Object(numbers) = json!(state) {
        told.extend(numbers);
    }
    let checks = json!({
        "database": {"status": word(database.is_ok())},
        "servers": {"status": word(servers_are_well)},
        "embeddings": {"status": word(embeddings.is_none())},
        "vectors": {
            "status": word(vectors.trouble.is_none()),
            "in_use": vectors.in_use,
            "address": vectors.address,
            "points": vectors.points,
        },
    });
    told.insert("checks".to_owned(), checks);
    told.insert("issues".to_owned(), Value::Array(issues));
    Ok(ApiResponse::ok(&told))
}

/// What is wrong with a server, if something is that nobody wanted.
fn ailing(server: &ServerView) -> Option<Value> {
    let record = &server.record;
    let is_ailing = matches!(record.status, Status::Error | Status::Degraded) || record.auto_disabled;
    is_ailing.then(|| {
        let why = record.error_message.clone().unwrap_or_else(|| format!("it is {}", record.status));
        let message = format!("server `{}`: {why}", record.name);
        json!({"component": "server", "server_id": record.id, "server_name": record.name, "message": message})
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
