//! Tools: what there is, and calls of them.

use http::{HeaderMap, StatusCode};
use registry::{RawJson, Source};
use serde_json::json;
use service::Error;
use service::calls::Call;
use service::traces::{TRACEPARENT, TRACESTATE, TraceContext};

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
            .about("Those of connected servers; of one server, those it is known to have.")
            .asks("server_id", Schema::kept_text().about("Only those of this server, by id or name."))
            .parts("Tools, server by server in its own order.", tool())
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        of_server(Endpoint::get("/servers/{server}/tools", "List the tools of a server", |request| {
            Box::pin(of_one(request))
        }))
        .parts("Its tools in its own order.", tool())
        .fails(&["VALIDATION_ERROR"]),
        of_server(Endpoint::post("/servers/{server}/tools/refresh", "Ask a server for its tools anew", |request| {
            Box::pin(refresh(request))
        }))
        .about("In the background; `tools.changed` tells if something is different.")
        .answers(202, "It will be asked.", Schema::object().with("status", Schema::word(["refreshing"])))
        .fails(&["SERVER_UNAVAILABLE"]),
        Endpoint::post("/tools/switch", "Switch tools on or off", |request| Box::pin(switch(request)))
            .about(
                "Those in `names` (`server.tool`), and all of `server_id`. Tools that are off are neither listed nor found \
                 nor called over MCP, and stay off when their server lists them again. If one is not there, none is \
                 touched.",
            )
            .takes(schemas::switched())
            .answers(200, "How many are different now.", Schema::object().with("changed", Schema::count()))
            .fails(&["TOOL_NOT_FOUND", "SERVER_NOT_FOUND"]),
        Endpoint::get("/tools/{tool}", "Look at a tool", |request| Box::pin(look(request)))
            .about("By its full name, whether it is on or off.")
            .answers(200, "The tool.", tool())
            .fails(&["TOOL_NOT_FOUND"]),
        Endpoint::patch("/tools/{tool}", "Switch a tool on or off", |request| Box::pin(switch_one(request)))
            .takes(Schema::object().with("enabled", Schema::truth()).and_no_more())
            .answers(200, "The tool as it is now.", tool())
            .fails(&["TOOL_NOT_FOUND"]),
        calling(Endpoint::post("/tools/call", "Call a tool", |request| Box::pin(call(request)))),
        calling(Endpoint::post("/execute", "Call a tool (the same)", |request| Box::pin(call(request)))),
    ]
}

fn calling(endpoint: Endpoint) -> Endpoint {
    endpoint
        .about(
            "By its full name `server.tool`, by its own name and `server_id`, or by its own name alone if no other \
             server has a tool of that name. The result is what the server sent, byte for byte, and `metadata` tells \
             how it got there; if the server's result has a `metadata` of its own, ours is called `_aggregator`. \
             A tool that says itself that it failed (`isError`) is a result like any other. A trace that the headers \
             `traceparent` and `tracestate` name is passed on to the server in `_meta`.",
        )
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
        names.extend(request.service.tools(Some(&server)).await?.into_iter().map(|tool| tool.name));
    }
    let changed = request.service.set_tools_enabled(&request.actor, &names, request.says("enabled")).await?;
    Ok(ApiResponse::ok(&json!({ "changed": changed })))
}

async fn look(request: ApiRequest) -> Result<ApiResponse, Error> {
    let tool = request.service.tool_by_name(request.path_parameter("tool")).await?;
    Ok(ApiResponse::ok(&request.service.with_states(vec![tool]).first()))
}

async fn switch_one(request: ApiRequest) -> Result<ApiResponse, Error> {
    let name = request.path_parameter("tool").to_owned();
    request.service.set_tools_enabled(&request.actor, std::slice::from_ref(&name), request.says("enabled")).await?;
    let tool = request.service.tool_by_name(&name).await?;
    Ok(ApiResponse::ok(&request.service.with_states(vec![tool]).first()))
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    tools(&request, request.text("server_id")).await
}

async fn of_one(request: ApiRequest) -> Result<ApiResponse, Error> {
    tools(&request, Some(request.server())).await
}

/// All tools, or the part that is asked for: the others are not even read then.
async fn tools(request: &ApiRequest, server: Option<&str>) -> Result<ApiResponse, Error> {
    if request.has_limit() {
        let part = request.service.tools_page(server, request.page()).await?;
        return Ok(ApiResponse::page(&request.service.with_states(part.items), part.total));
    }
    Ok(request.rest_of(&request.service.with_states(request.service.tools(server).await?)))
}

async fn refresh(request: ApiRequest) -> Result<ApiResponse, Error> {
    request.service.refresh_tools(&request.actor, request.server()).await?;
    Ok(ApiResponse::json(StatusCode::ACCEPTED, &json!({"status": "refreshing"})))
}

async fn call(request: ApiRequest) -> Result<ApiResponse, Error> {
    let body = &request.body;
    let (name, tool_name) = (body.text("name"), body.text("tool_name"));
    if name.is_some() && tool_name.is_some() && name != tool_name {
        return Err(refuse(&["body", "tool_name"], "value_error", "`name` and `tool_name` say different things"));
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

/// The trace that a request says it belongs to.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    // It may come in several headers, which are then one list.
    let states: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|state| state.to_str().ok()).collect();
    TraceContext::parse(parent.to_str().ok()?.trim(), Some(&states.join(",")))
}

/// The arguments as they were written, but in one line: between two tokens a blank does as well as a line end, and
/// servers over stdio are sent lines.
fn arguments(request: &ApiRequest) -> Result<RawJson, Error> {
    let written = request.body.raw("arguments").map_or("{}", |arguments| arguments.get());
    let text = written.replace(['\n', '\r'], " ");
    RawJson::parse(text).map_err(|error| refuse(&["body", "arguments"], "json_invalid", error.to_string()))
}
