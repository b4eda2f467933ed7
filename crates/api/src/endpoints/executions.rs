//! Executions: the account of all calls.

use registry::{ExecutionFilter, ExecutionId, ExecutionStatus, Source, Timestamp};
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let execution = || Schema::named("Execution");
    let statuses = ExecutionStatus::ALL.iter().map(|status| status.as_str());
    let sources = Source::ALL.iter().map(|source| source.as_str());
    vec![
        Endpoint::get("/executions", "List executions", |request| Box::pin(list(request)))
            .asks("status", Schema::word(statuses).about("Only those that got so far."))
            .asks("source", Schema::word(sources).about("Only those that came this way."))
            .asks("server_id", Schema::kept_text().about("Only those of this server, by id or name."))
            .asks("tool_name", Schema::kept_text().about("Only those of tools that their servers call so."))
            .asks("document_path", Schema::kept_text().about("Only those made from this document."))
            .asks("since", Schema::formatted("date-time").about("Only those asked for at this time or later."))
            .asks("until", Schema::formatted("date-time").about("Only those asked for before this time."))
            .pages("Executions, newest first.", execution())
            .fails(&["VALIDATION_ERROR"]),
        of_execution(Endpoint::get("/executions/{execution}", "Look at an execution", |request| {
            Box::pin(show(request))
        }))
        .answers(200, "The execution.", execution()),
        of_execution(Endpoint::delete("/executions/{execution}", "Cancel an execution", |request| {
            Box::pin(cancel(request))
        }))
        .about("One that is over stays as it is.")
        .answers(200, "The execution as it is then.", execution()),
        Endpoint::post("/executions/stop", "Cancel every call and refuse new ones", |request| Box::pin(stop(request)))
            .about("Whatever way they come in, until they are allowed again.")
            .answers(200, "What that came to.", Schema::named("Stopped")),
        Endpoint::post("/executions/reset", "Allow calls again", |request| Box::pin(reset(request)))
            .about("And begin to count sessions anew.")
            .answers(200, "What that came to.", Schema::named("Stopped")),
    ]
}

fn of_execution(endpoint: Endpoint) -> Endpoint {
    endpoint.fails(&["EXECUTION_NOT_FOUND"])
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    // A server may have had another name, so one that is there is found by its id; one that is gone, by the name it had.
    let server = request.text("server_id");
    let there = match server {
        Some(server) => request.service.server(server).await.ok(),
        None => None,
    };
    let server_id = there.map(|server| server.record.id).or_else(|| server.and_then(|server| server.parse().ok()));
    let filter = ExecutionFilter {
        server_id,
        server_name: server.filter(|_| server_id.is_none()).map(str::to_owned),
        tool_name: request.text("tool_name").map(str::to_owned),
        status: request.word("status").into_iter().collect(),
        source: request.word("source"),
        document_path: request.text("document_path").map(str::to_owned),
        since: moment(&request, "since")?,
        until: moment(&request, "until")?,
    };
    let listed = request.service.executions(&filter, request.page()).await?;
    Ok(ApiResponse::page(&listed.items, listed.total))
}

/// A time in the query.
pub(super) fn moment(request: &ApiRequest, name: &str) -> Result<Option<Timestamp>, Error> {
    let parsed = request.text(name).map(str::parse).transpose();
    parsed.map_err(|error: registry::InvalidTimestamp| refuse(&["query", name], "datetime_parsing", error.to_string()))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.execution(id(&request)?).await?))
}

async fn cancel(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.cancel_execution(&request.actor, id(&request)?).await?))
}

/// What is no id is nobody's id.
fn id(request: &ApiRequest) -> Result<ExecutionId, Error> {
    let text = request.path_parameter("execution");
    text.parse().map_err(|_| Error::ExecutionNotFound { id: text.to_owned() })
}

async fn stop(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.stop_executions(&request.actor).await))
}

async fn reset(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.reset_executions(&request.actor).await))
}
