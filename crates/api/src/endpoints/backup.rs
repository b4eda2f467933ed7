//! The whole registry in one piece, out and in.

use registry::Secrets;
use serde_json::Value;
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let secrets = Schema::truth().by_default(false).about("With credentials as they are. Who has the export has them.");
    vec![
        Endpoint::get("/export", "The whole registry in one piece", |request| Box::pin(export(request)))
            .about(
                "Registered servers, settings and bindings. What the config file says and what happened is not in it.",
            )
            .asks("secrets", secrets)
            .answers(200, "What `/import` takes.", Schema::named("Registry"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/import", "Take in what was exported", |request| Box::pin(import(request)))
            .about(
                "All or nothing. Servers that are there stay as they are; new ones are connected, unless their secrets \
                 are masked: those are switched off until they have them again.",
            )
            .takes(schemas::backup())
            .answers(200, "What was done.", Schema::named("ImportReport"))
            .fails(&["CONFLICT"]),
    ]
}

async fn export(request: ApiRequest) -> Result<ApiResponse, Error> {
    let secrets = if request.says("secrets") { Secrets::Revealed } else { Secrets::Masked };
    Ok(ApiResponse::ok(&request.service.export(&request.actor, secrets).await?))
}

async fn import(request: ApiRequest) -> Result<ApiResponse, Error> {
    let backup = Value::Object(request.body.whole());
    Ok(ApiResponse::ok(&request.service.import(&request.actor, backup).await?))
}
