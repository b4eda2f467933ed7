//! Skills: what tools can be for.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use service::Error;
use service::tool_search::SkillChange;

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let skill = || Schema::named("Skill");
    vec![
        Endpoint::get("/skills", "List skills", |request| Box::pin(list(request)))
            .about("Those that come along first. Each tool has up to three, told by what it says it does.")
            .parts("Skills, with how many tools have them.", skill())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/skills/{skill}", "Show a skill", |request| Box::pin(show(request)))
            .answers(200, "The skill.", skill())
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::put("/skills/{skill}", "Change a skill, or make one", |request| Box::pin(put(request)))
            .about(
                "What is not named stays as it is; a new skill needs a name and a description. One that comes along can \
                 be changed and switched off, too. All tools are then classified anew in the background.",
            )
            .takes(schemas::changed_skill())
            .answers(200, "The skill as it is now.", skill())
            .answers(201, "The skill is new.", skill()),
        Endpoint::delete("/skills/{skill}", "Take back what was changed about a skill", |request| Box::pin(delete(request)))
            .about("One that comes along, or from a file, is as it was; one that was made here is gone.")
            .answers_nothing(204, "It was taken back, or there was nothing to take back.")
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::get("/skills/suggestions", "List skills that a classifier missed", |request| Box::pin(suggestions(request)))
            .about("Its words are what a language model made of what tools say of themselves: read them before you accept.")
            .answers(200, "What waits for somebody who knows.", Schema::list(schemas::suggestion())),
        Endpoint::post("/skills/suggestions/{skill}/accept", "Make a suggestion a skill", |request| Box::pin(accept(request)))
            .about("All tools are then classified anew in the background.")
            .answers(201, "The skill.", skill())
            .fails(&["SKILL_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/skills/suggestions/{skill}/reject", "Say no to a suggestion", |request| Box::pin(reject(request)))
            .about("It is not made again.")
            .answers_nothing(204, "It is gone.")
            .fails(&["SKILL_NOT_FOUND"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let skills = request.service.skills();
    if !request.has_limit() {
        return Ok(request.rest_of(&skills));
    }
    let page = request.page();
    let (offset, limit) = (usize::try_from(page.offset).unwrap_or(usize::MAX), page.limit as usize);
    let part: Vec<_> = skills.iter().skip(offset).take(limit).collect();
    Ok(ApiResponse::page(&part, skills.len() as u64))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.skill(request.path_parameter("skill"))?))
}

async fn put(request: ApiRequest) -> Result<ApiResponse, Error> {
    let body = &request.body;
    let texts = |values: Vec<Value>| values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let examples = body.get("examples").and_then(|examples| match examples {
        Value::Array(values) => Some(texts(values)),
        _ => None,
    });
    let change = SkillChange {
        name: body.text("name"),
        description: body.text("description"),
        examples,
        enabled: body.truth("enabled"),
    };
    let putting = Arc::clone(&request.service).put_skill(&request.actor, request.path_parameter("skill"), change);
    let (skill, is_new) = putting.await?;
    Ok(ApiResponse::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &skill))
}

async fn suggestions(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.suggestions().await?))
}

async fn accept(request: ApiRequest) -> Result<ApiResponse, Error> {
    let skill = Arc::clone(&request.service).accept_suggestion(&request.actor, request.path_parameter("skill")).await?;
    Ok(ApiResponse::json(StatusCode::CREATED, &skill))
}

async fn reject(request: ApiRequest) -> Result<ApiResponse, Error> {
    Arc::clone(&request.service).reject_suggestion(&request.actor, request.path_parameter("skill")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, Error> {
    Arc::clone(&request.service).delete_skill(&request.actor, request.path_parameter("skill")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}
