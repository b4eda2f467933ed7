//! Executions: the records of all calls.

use executions::Error as CallError;
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
            .within_profile()
            .optional_query("status", Schema::one_of(statuses).about("Only executions with this status."))
            .optional_query("source", Schema::one_of(sources).about("Only executions with this source."))
            .optional_query(
                "server_id",
                Schema::storable_text().about("Only executions on this server, by id or name."),
            )
            .optional_query(
                "tool_name",
                Schema::storable_text().about("Only executions of tools with this name, without the server."),
            )
            .optional_query(
                "document_path",
                Schema::storable_text().about("Only executions started from this document."),
            )
            .optional_query(
                "since",
                Schema::formatted("date-time").about("Only executions started at this time or later."),
            )
            .optional_query("until", Schema::formatted("date-time").about("Only executions started before this time."))
            .pages("Executions, newest first.", execution())
            .fails(&["VALIDATION_ERROR"]),
        of_execution(
            Endpoint::get("/executions/{execution}", "Show an execution", |request| Box::pin(show(request)))
                .within_profile(),
        )
        .answers(200, "The execution.", execution()),
        of_execution(
            Endpoint::delete("/executions/{execution}", "Cancel an execution", |request| Box::pin(cancel(request)))
                .within_profile(),
        )
        .about("Cancelling a finished execution changes nothing.")
        .answers(200, "The execution after the cancellation.", execution()),
        Endpoint::post("/executions/stop", "Stop all executions", |request| Box::pin(stop(request)))
            .about("Cancels every running call and refuses new ones from all sources, until `/executions/reset`.")
            .answers(200, "The new state, and how many calls were cancelled.", Schema::named("Stopped")),
        Endpoint::post("/executions/reset", "Allow executions again", |request| Box::pin(reset(request)))
            .about("Ends the stop and resets the call counters of all sessions.")
            .answers(200, "The new state.", Schema::named("Stopped")),
    ]
}

fn of_execution(endpoint: Endpoint) -> Endpoint {
    endpoint.fails(&["EXECUTION_NOT_FOUND"])
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    // A server may have been renamed, so an existing one is found by its id and a removed one by its name.
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
        status: request.parsed("status").into_iter().collect(),
        source: request.parsed("source"),
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

/// Parses the id. An invalid id is an unknown one.
fn id(request: &ApiRequest) -> Result<ExecutionId, Error> {
    let text = request.path_parameter("execution");
    text.parse().map_err(|_| Error::Call(CallError::ExecutionNotFound { id: text.to_owned() }))
}

async fn stop(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.stop_executions(&request.actor).await))
}

async fn reset(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.reset_executions(&request.actor).await))
}
