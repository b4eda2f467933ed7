//! Limits of calls, by identity, profile, server and tool.

use executions::limits::EACH;
use http::StatusCode;
use registry::LimitKind;
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/limits", "List limits of calls", |request| Box::pin(list(request)))
            .about("Each with what counts against it now, by kind and name.")
            .parts("Limits.", Schema::named("Limit"))
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::put("/limits/{kind}/{name}", "Set a limit of calls", |request| Box::pin(put(request)))
            .for_admins()
            .about(
                "The kind is `identity`, `profile`, `server` or `tool`. The name is that of a token, of a person \
                 (`oauth:ISSUER SUBJECT`), of a profile or a server, or the full name of a tool; `local` is the user of \
                 a service without tokens. `*` is the default for each of the kind that has no limit of its own; each \
                 is counted apart. The new limit replaces the whole earlier one; what is absent or null is not \
                 limited. Calls that were counted still count. A call beyond a limit is refused with 429 and \
                 `Retry-After`, over MCP with an error whose `data.reason` is `rate_limited`.",
            )
            .takes(schemas::limit())
            .with_extra_checks(|members| {
                let read = service::read_limit(LimitKind::Identity, EACH, &members.whole());
                read.err().unwrap_or_default()
            })
            .answers(200, "The limit.", Schema::named("Limit")),
        Endpoint::delete("/limits/{kind}/{name}", "Remove a limit of calls", |request| Box::pin(remove(request)))
            .for_admins()
            .about("What was counted against it is forgotten.")
            .answers_nothing(204, "The limit is removed.")
            .fails(&["LIMIT_NOT_FOUND", "VALIDATION_ERROR"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(request.part_of(&request.service.limits()))
}

async fn put(request: ApiRequest) -> Result<ApiResponse, Error> {
    let (kind, name) = (kind(&request)?, request.path_parameter("name"));
    let limit = request.service.put_limit(&request.actor, kind, name, &request.body.whole()).await?;
    Ok(ApiResponse::ok(&limit))
}

async fn remove(request: ApiRequest) -> Result<ApiResponse, Error> {
    request.service.remove_limit(&request.actor, kind(&request)?, request.path_parameter("name")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}

fn kind(request: &ApiRequest) -> Result<LimitKind, Error> {
    let kind = request.path_parameter("kind").parse::<LimitKind>();
    kind.map_err(|error| refuse(&["path", "kind"], "enum", error.to_string()))
}
