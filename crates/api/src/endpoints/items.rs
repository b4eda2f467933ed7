//! Prompts and resources: listed, fetched and read.

use http::StatusCode;
use registry::RawJson;
use service::{Error, ItemKind, ItemPage, ListPlace};

use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

/// Errors of endpoints that send a request to a server.
const UPSTREAM_REQUEST_ERRORS: &[&str] = &["SERVER_UNAVAILABLE", "EXECUTION_FAILED", "EXECUTION_TIMEOUT"];

pub(super) fn endpoints() -> Vec<Endpoint> {
    let of_server = || Schema::storable_text().about("Only those of this server, by id or name.");
    vec![
        Endpoint::get("/prompts", "List prompts", |request| Box::pin(prompts(request)))
            .for_users()
            .within_profile()
            .optional_query("server_id", of_server())
            .parts("The prompts of connected servers.", Schema::named("Prompt"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/prompts/get", "Get a prompt", |request| Box::pin(prompt(request)))
            .for_users()
            .within_profile()
            .ends_with_client()
            .about(
                "Takes the full name `server.prompt`, or the prompt's own name if only one server has a prompt of that \
                 name. Returns the server's result byte for byte. The timeout is that of calls (`timeout_ms`).",
            )
            .takes(schemas::prompt_request())
            .answers(200, "The result.", Schema::any_object())
            .fails(&["PROMPT_NOT_FOUND", "PROMPT_AMBIGUOUS"])
            .fails(UPSTREAM_REQUEST_ERRORS),
        Endpoint::get("/resources", "List resources", |request| Box::pin(resources(request)))
            .for_users()
            .within_profile()
            .optional_query("server_id", of_server())
            .parts("The resources of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::get("/resources/templates", "List resource templates", |request| Box::pin(templates(request)))
            .for_users()
            .within_profile()
            .about("`uri` is the URI template.")
            .optional_query("server_id", of_server())
            .parts("The resource templates of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/resources/read", "Read a resource", |request| Box::pin(read(request)))
            .for_users()
            .within_profile()
            .ends_with_client()
            .about(
                "Asks the server that lists the URI, or else those whose templates match it. Returns the server's \
                 result byte for byte. The timeout is that of calls (`timeout_ms`).",
            )
            .takes(schemas::resource_request())
            .answers(200, "The result.", Schema::any_object())
            .fails(&["RESOURCE_NOT_FOUND", "SERVER_NOT_FOUND"])
            .fails(UPSTREAM_REQUEST_ERRORS),
    ]
}

async fn prompts(request: ApiRequest) -> Result<ApiResponse, Error> {
    items(request, ItemKind::Prompt, |page, is_over| {
        page.prompts(is_over).map(|listed| ApiResponse::page(&listed.items, listed.total))
    })
    .await
}

async fn resources(request: ApiRequest) -> Result<ApiResponse, Error> {
    items(request, ItemKind::Resource, resource_page).await
}

async fn templates(request: ApiRequest) -> Result<ApiResponse, Error> {
    items(request, ItemKind::Template, resource_page).await
}

fn resource_page(page: &ItemPage, is_over: &dyn Fn() -> bool) -> Result<ApiResponse, Error> {
    page.resources(is_over).map(|listed| ApiResponse::page(&listed.items, listed.total))
}

/// A page of a list that is in memory.
async fn items(
    request: ApiRequest,
    kind: ItemKind,
    respond: fn(&ItemPage, &dyn Fn() -> bool) -> Result<ApiResponse, Error>,
) -> Result<ApiResponse, Error> {
    let page = request.page_or_rest();
    let size = request.service.items(kind, request.text("server_id"), page)?.size();
    let place = ListPlace::of(size).await?;
    // Found again: what waits for its place keeps no old list alive.
    place.run(move |is_over| respond(&request.service.items(kind, request.text("server_id"), page)?, is_over)).await
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
