//! Profiles: which part of everything some clients see.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use service::Error;

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let profile = || Schema::named("Profile");
    vec![
        Endpoint::get("/profiles", "List profiles", |request| Box::pin(list(request)))
            .about("A profile is a named view of what all servers offer: clients at `/mcp/@NAME` see only that.")
            .parts("Profiles, by name.", profile())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/profiles/{profile}", "Show a profile", |request| Box::pin(show(request)))
            .answers(200, "The profile.", profile())
            .fails(&["PROFILE_NOT_FOUND"]),
        Endpoint::put("/profiles/{profile}", "Create or replace a profile", |request| Box::pin(put(request)))
            .for_admins()
            .about(
                "A member that is left out restricts nothing; an empty list admits nothing. Patterns are read in order, \
                 and the last one that matches decides; `*` stands for any characters, and `!` excludes. A pattern that \
                 certainly matches nothing is refused; one that may match something of a server that is not connected \
                 is a warning. Connected clients whose lists change are notified.",
            )
            .takes(schemas::profile_request())
            .answers(200, "The replaced profile.", profile())
            .answers(201, "The new profile.", profile())
            .fails(&["PROFILE_READ_ONLY"]),
        Endpoint::delete("/profiles/{profile}", "Remove a profile", |request| Box::pin(remove(request)))
            .for_admins()
            .about("Its clients see nothing from then on. A profile that a token is bound to cannot be removed.")
            .answers_nothing(204, "The profile is removed.")
            .fails(&["PROFILE_NOT_FOUND", "PROFILE_READ_ONLY", "PROFILE_IN_USE"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(request.part_of(&request.service.profiles()))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.profile(request.path_parameter("profile"))?))
}

async fn put(request: ApiRequest) -> Result<ApiResponse, Error> {
    let spec = Value::Object(request.body.whole());
    let putting = Arc::clone(&request.service).put_profile(&request.actor, request.path_parameter("profile"), spec);
    let (profile, is_new) = putting.await?;
    Ok(ApiResponse::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &profile))
}

async fn remove(request: ApiRequest) -> Result<ApiResponse, Error> {
    Arc::clone(&request.service).remove_profile(&request.actor, request.path_parameter("profile")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}
