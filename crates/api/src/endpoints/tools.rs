//! Tools: list, enable, disable and call them.

use std::sync::Arc;

use executions::Call;
use executions::traces::{TRACEPARENT, TRACESTATE, TraceContext};
use http::{HeaderMap, StatusCode};
use registry::{RawJson, Source};
use serde_json::json;
use service::{Error, ToolList, ToolSelection};

use super::servers::of_server;
use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::result;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let tool = || Schema::named("Tool");
    vec![
        Endpoint::get("/tools", "List tools", |request| Box::pin(list(request)))
            .for_users()
            .within_profile()
            .about("Returns the tools of connected servers; with `server_id`, the known tools of that server.")
            .optional_query("server_id", Schema::storable_text().about("Only tools of this server, by id or name."))
            .parts("Tools, grouped by server, in the order of each server's list.", tool())
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        of_server(
            Endpoint::get("/servers/{server}/tools", "List the tools of a server", |request| Box::pin(of_one(request)))
                .for_users()
                .within_profile(),
        )
        .parts("The tools in the order of the server's list.", tool())
        .fails(&["VALIDATION_ERROR"]),
        of_server(Endpoint::post("/servers/{server}/tools/refresh", "Refresh the tools of a server", |request| {
            Box::pin(refresh(request))
        }))
        .about("Runs in the background; if the list changes, the event `tools.changed` follows.")
        .answers(202, "The refresh is scheduled.", Schema::object().with("status", Schema::one_of(["refreshing"])))
        .fails(&["SERVER_UNAVAILABLE"]),
        Endpoint::post("/tools/switch", "Enable or disable tools", |request| Box::pin(switch(request)))
            .about(
                "Applies to the tools in `names` (`server.tool`) and to all tools of `server_id`. Disabled tools \
                 cannot be listed, found or called over MCP, and stay disabled when their server lists them again. If \
                 one of the tools does not exist, nothing changes.",
            )
            .takes(schemas::switched())
            .answers(200, "The number of tools that changed.", Schema::object().with("changed", Schema::count()))
            .fails(&["TOOL_NOT_FOUND", "SERVER_NOT_FOUND"]),
        Endpoint::get("/tools/{tool}", "Show a tool", |request| Box::pin(look(request)))
            .for_users()
            .within_profile()
            .about("Takes the full name. Disabled tools are returned, too.")
            .answers(200, "The tool.", tool())
            .fails(&["TOOL_NOT_FOUND"]),
        Endpoint::patch("/tools/{tool}", "Enable or disable a tool", |request| Box::pin(switch_one(request)))
            .takes(Schema::object().with("enabled", Schema::truth()).and_no_more())
            .answers(200, "The changed tool.", tool())
            .fails(&["TOOL_NOT_FOUND"]),
        calling(Endpoint::post("/tools/call", "Call a tool", |request| Box::pin(call(request))).within_profile()),
        calling(
            Endpoint::post("/execute", "Call a tool (alias of `/tools/call`)", |request| Box::pin(call(request)))
                .within_profile(),
        ),
    ]
}

fn calling(endpoint: Endpoint) -> Endpoint {
    endpoint
        .about(
            "Takes the full name `server.tool`, the tool's own name with `server_id`, or the tool's own name alone if \
             only one server has a tool of that name. Returns the server's result byte for byte, plus `metadata` about \
             the call; if the result already has a member `metadata`, ours is called `_aggregator`. A tool that \
             reports a failure (`isError`) still returns a result with status 200. The trace in the headers \
             `traceparent` and `tracestate` is passed on to the server in `_meta`.",
        )
        .for_users()
        .ends_with_client()
        .takes(schemas::call())
        .answers(200, "The result.", Schema::named("Result"))
        .fails(&[
            "TOOL_NOT_FOUND",
            "SERVER_NOT_FOUND",
            "TOOL_AMBIGUOUS",
            "SERVER_UNAVAILABLE",
            "SESSION_NOT_FOUND",
            "SERVER_CONNECTION_FAILED",
            "EXECUTION_FAILED",
            "EXECUTION_TIMEOUT",
            "EXECUTION_CANCELLED",
            "EXECUTION_STOPPED",
            "LIMIT_REACHED",
        ])
}

async fn switch(request: ApiRequest) -> Result<ApiResponse, Error> {
    let names = request.body.get("names").and_then(|names| names.as_array().cloned()).unwrap_or_default();
    let mut names: Vec<String> = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    if let Some(server) = request.body.text("server_id") {
        names.extend(request.service.tool_names(&server).await?);
    }
    let changed = request.service.set_tools_enabled(&request.actor, &names, request.flag("enabled")).await?;
    Ok(ApiResponse::ok(&json!({ "changed": changed })))
}

async fn look(request: ApiRequest) -> Result<ApiResponse, Error> {
    let tool = request.service.tool_by_name(request.path_parameter("tool")).await?;
    Ok(ApiResponse::ok(&request.service.with_states(vec![tool]).first()))
}

async fn switch_one(request: ApiRequest) -> Result<ApiResponse, Error> {
    let name = request.path_parameter("tool").to_owned();
    request.service.set_tools_enabled(&request.actor, std::slice::from_ref(&name), request.flag("enabled")).await?;
    let tool = request.service.tool_by_name(&name).await?;
    Ok(ApiResponse::ok(&request.service.with_states(vec![tool]).first()))
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    tools(&request, request.text("server_id")).await
}

async fn of_one(request: ApiRequest) -> Result<ApiResponse, Error> {
    tools(&request, Some(request.server())).await
}

/// All tools, or one page: then the others are not even read.
async fn tools(request: &ApiRequest, server: Option<&str>) -> Result<ApiResponse, Error> {
    let service = Arc::clone(&request.service);
    if request.has_limit() {
        let (place, part) = service.tools_page(server, request.page()).await?;
        return place.run(move |_| Ok(ApiResponse::page(&service.with_states(part.items), part.total))).await;
    }
    let wanted = ToolSelection { server, hint: "pass `limit` to get them in pages", ..ToolSelection::default() };
    let ToolList { place, mut tools } = service.list_tools(&wanted).await?;
    let (offset, total) = (usize::try_from(request.page().offset).unwrap_or(usize::MAX), tools.len());
    place
        .run(move |_| {
            let rest = tools.split_off(offset.min(total));
            Ok(ApiResponse::page(&service.with_states(rest), total as u64))
        })
        .await
}

async fn refresh(request: ApiRequest) -> Result<ApiResponse, Error> {
    request.service.refresh_tools(&request.actor, request.server()).await?;
    Ok(ApiResponse::json(StatusCode::ACCEPTED, &json!({"status": "refreshing"})))
}

async fn call(request: ApiRequest) -> Result<ApiResponse, Error> {
    let body = &request.body;
    let (name, tool_name) = (body.text("name"), body.text("tool_name"));
    if name.is_some() && tool_name.is_some() && name != tool_name {
        return Err(refuse(&["body", "tool_name"], "value_error", "`name` and `tool_name` differ"));
    }
    let line = body.number("section_line").and_then(|line| u32::try_from(line).ok());
    let call = Call {
        name: name.or(tool_name).unwrap_or_default(),
        server: body.text("server_id"),
        arguments: arguments(&request)?,
        source: body.text("source").and_then(|word| word.parse().ok()).unwrap_or(Source::Rest),
        actor: request.actor.clone(),
        document: body.text("document_path").map(|path| (path, line)),
        session: body.text("session"),
        timeout_ms: body.number("timeout_ms"),
        trace: trace(&request.headers),
    };
    let outcome = request.service.call(call).await?;
    Ok(ApiResponse::text(StatusCode::OK, "application/json", result::with_metadata(&outcome)))
}

/// The trace context of a request.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    // Several `tracestate` headers form one list.
    let states: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|state| state.to_str().ok()).collect();
    TraceContext::parse(parent.to_str().ok()?.trim(), Some(&states.join(",")))
}

/// The arguments as they were sent, but on one line: messages over stdio are single lines, and between two JSON tokens
/// a space is as good as a line break.
fn arguments(request: &ApiRequest) -> Result<RawJson, Error> {
    let written = request.body.raw("arguments").map_or("{}", |arguments| arguments.get());
    let text = written.replace(['\n', '\r'], " ");
    RawJson::parse(text).map_err(|error| refuse(&["body", "arguments"], "json_invalid", error.to_string()))
}
