//! Export and import of the registry.

use registry::{Role, Secrets};
use serde_json::Value;
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let secrets = Schema::truth()
        .by_default(false)
        .about("Include credentials in plain text. Anyone who has the export can read them.");
    vec![
        Endpoint::get("/export", "Export the registry", |request| Box::pin(export(request)))
            .with_flag_for("secrets", Role::Admin)
            .about(
                "Returns registered servers, settings, skills, profiles, bindings and disabled tools. Servers of the config \
                 file, executions and the audit log are not included.",
            )
            .optional_query("secrets", secrets)
            .answers(200, "A document that `/import` accepts.", Schema::named("Registry"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/import", "Import an exported registry", |request| Box::pin(import(request)))
            .for_admins()
            .about(
                "Imports everything or nothing. Existing servers stay as they are. New servers are connected, except \
                 those whose secrets are masked: they stay disabled until you set their secrets.",
            )
            .takes(schemas::backup())
            .answers(200, "What was imported.", Schema::named("ImportReport"))
            .fails(&["CONFLICT"]),
    ]
}

async fn export(request: ApiRequest) -> Result<ApiResponse, Error> {
    let secrets = if request.flag("secrets") { Secrets::Revealed } else { Secrets::Masked };
    Ok(ApiResponse::ok(&request.service.export(&request.actor, secrets).await?))
}

async fn import(request: ApiRequest) -> Result<ApiResponse, Error> {
    let backup = Value::Object(request.body.whole());
    Ok(ApiResponse::ok(&request.service.import(&request.actor, backup).await?))
}
