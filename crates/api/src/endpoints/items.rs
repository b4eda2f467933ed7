//! Prompts and resources: listed, fetched and read.

use http::StatusCode;
use registry::RawJson;
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

/// What can go wrong where a server is asked.
const ASKING: &[&str] = &["SERVER_UNAVAILABLE", "EXECUTION_FAILED", "EXECUTION_TIMEOUT"];

pub(super) fn endpoints() -> Vec<Endpoint> {
    let of_server = || Schema::kept_text().about("Only those of this server, by id or name.");
    vec![
        Endpoint::get("/prompts", "List prompts", |request| Box::pin(prompts(request)))
            .asks("server_id", of_server())
            .parts("The prompts of connected servers.", Schema::named("Prompt"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/prompts/get", "Fill in a prompt", |request| Box::pin(prompt(request)))
            .ends_with_client()
            .about(
                "By its full name `server.prompt`, or by its own name alone if no other server has a prompt of that \
                 name. The result is what the server sent, byte for byte. The time-out is that of calls (`timeout_ms`).",
            )
            .takes(schemas::prompt_request())
            .answers(200, "The result.", Schema::any_object())
            .fails(&["PROMPT_NOT_FOUND", "PROMPT_AMBIGUOUS"])
            .fails(ASKING),
        Endpoint::get("/resources", "List resources", |request| Box::pin(resources(request)))
            .asks("server_id", of_server())
            .parts("The resources of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::get("/resources/templates", "List families of resources", |request| Box::pin(templates(request)))
            .about("`uri` is the pattern of their addresses.")
            .asks("server_id", of_server())
            .parts("The resource templates of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/resources/read", "Read a resource", |request| Box::pin(read(request)))
            .ends_with_client()
            .about(
                "The server that lists the address is asked, or else those that may have it. The result is what the \
                 server sent, byte for byte. The time-out is that of calls (`timeout_ms`).",
            )
            .takes(schemas::resource_request())
            .answers(200, "The result.", Schema::any_object())
            .fails(&["RESOURCE_NOT_FOUND", "SERVER_NOT_FOUND"])
            .fails(ASKING),
    ]
}

async fn prompts(request: ApiRequest) -> Result<ApiResponse, Error> {
    let all = request.service.prompts(request.text("server_id"))?;
    Ok(request.part_of(&all))
}

async fn resources(request: ApiRequest) -> Result<ApiResponse, Error> {
    let all = request.service.resources(request.text("server_id"))?;
    Ok(request.part_of(&all))
}

async fn templates(request: ApiRequest) -> Result<ApiResponse, Error> {
    let all = request.service.resource_templates(request.text("server_id"))?;
    Ok(request.part_of(&all))
}

async fn prompt(request: ApiRequest) -> Result<ApiResponse, Error> {
    let written = request.body.raw("arguments").map_or("{}", |arguments| arguments.get());
    let arguments = RawJson::parse(written.to_owned())
        .map_err(|error| refuse(&["body", "arguments"], "json_invalid", error.to_string()))?;
    let name = request.body.text("name").unwrap_or_default();
    let result = request.service.prompt(&request.actor, &name, &arguments).await?;
    Ok(ApiResponse::text(StatusCode::OK, "application/json", result.get().to_owned()))
}

async fn read(request: ApiRequest) -> Result<ApiResponse, Error> {
    let (uri, server) = (request.body.text("uri").unwrap_or_default(), request.body.text("server_id"));
    let result = request.service.read_resource(&request.actor, &uri, server.as_deref()).await?;
    Ok(ApiResponse::text(StatusCode::OK, "application/json", result.get().to_owned()))
}
