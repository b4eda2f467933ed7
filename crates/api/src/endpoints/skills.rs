//! Skills: what tools are good for.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use service::Error;
use tool_search::SkillChange;

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let skill = || Schema::named("Skill");
    vec![
        Endpoint::get("/skills", "List skills", |request| Box::pin(list(request)))
            .for_users()
            .about("Built-in skills come first. Each tool has up to three skills, derived from its description.")
            .parts("Skills, and how many tools have each.", skill())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/skills/{skill}", "Show a skill", |request| Box::pin(show(request)))
            .for_users()
            .answers(200, "The skill.", skill())
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::put("/skills/{skill}", "Create or change a skill", |request| Box::pin(put(request)))
            .about(
                "Members that are not in the body keep their value; a new skill needs a name and a description. \
                 Built-in skills can be changed and disabled, too. Afterwards all tools are classified again in the \
                 background.",
            )
            .takes(schemas::changed_skill())
            .answers(200, "The changed skill.", skill())
            .answers(201, "The new skill.", skill()),
        Endpoint::delete("/skills/{skill}", "Undo the changes of a skill", |request| Box::pin(delete(request)))
            .about(
                "A built-in skill, or one from a file, gets its original values back; a skill created here is removed.",
            )
            .answers_nothing(204, "The changes are undone, or there were none.")
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::get("/skills/suggestions", "List suggested skills", |request| Box::pin(suggestions(request)))
            .about(
                "A language model wrote the names and descriptions, based on the descriptions of tools: read them \
                 before you accept one.",
            )
            .answers(200, "Suggestions that wait for a decision.", Schema::list(schemas::suggestion())),
        Endpoint::post("/skills/suggestions/{skill}/accept", "Accept a suggested skill", |request| {
            Box::pin(accept(request))
        })
        .about("Afterwards all tools are classified again in the background.")
        .answers(201, "The new skill.", skill())
        .fails(&["SKILL_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/skills/suggestions/{skill}/reject", "Reject a suggested skill", |request| {
            Box::pin(reject(request))
        })
        .about("The skill is not suggested again.")
        .answers_nothing(204, "The suggestion is rejected.")
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
