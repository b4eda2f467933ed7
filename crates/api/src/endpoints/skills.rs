//! Skills: what tools can be for.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use service::Error;
use service::finding::SkillChange;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::endpoint::Endpoint;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let skill = || Schema::named("Skill");
    vec![
        Endpoint::get("/skills", "List skills", |asked| Box::pin(list(asked)))
            .about("Those that come along first. Each tool has up to three, told by what it says it does.")
            .parts("Skills, with how many tools have them.", skill())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::get("/skills/{skill}", "Show a skill", |asked| Box::pin(show(asked)))
            .answers(200, "The skill.", skill())
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::put("/skills/{skill}", "Change a skill, or make one", |asked| Box::pin(put(asked)))
            .about(
                "What is not named stays as it is; a new skill needs a name and a description. One that comes along can \
                 be changed and switched off, too. All tools are then classified anew in the background.",
            )
            .takes(schemas::changed_skill())
            .answers(200, "The skill as it is now.", skill())
            .answers(201, "The skill is new.", skill()),
        Endpoint::delete("/skills/{skill}", "Take back what was changed about a skill", |asked| Box::pin(delete(asked)))
            .about("One that comes along, or from a file, is as it was; one that was made here is gone.")
            .answers_nothing(204, "It was taken back, or there was nothing to take back.")
            .fails(&["SKILL_NOT_FOUND"]),
        Endpoint::get("/skills/suggestions", "List skills that a classifier missed", |asked| Box::pin(suggestions(asked)))
            .about("Its words are what a language model made of what tools say of themselves: read them before you accept.")
            .answers(200, "What waits for somebody who knows.", Schema::list(schemas::suggestion())),
        Endpoint::post("/skills/suggestions/{skill}/accept", "Make a suggestion a skill", |asked| Box::pin(accept(asked)))
            .about("All tools are then classified anew in the background.")
            .answers(201, "The skill.", skill())
            .fails(&["SKILL_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/skills/suggestions/{skill}/reject", "Say no to a suggestion", |asked| Box::pin(reject(asked)))
            .about("It is not made again.")
            .answers_nothing(204, "It is gone.")
            .fails(&["SKILL_NOT_FOUND"]),
    ]
}

async fn list(asked: Asked) -> Result<Answer, Error> {
    let skills = asked.service.skills();
    if !asked.has_limit() {
        return Ok(asked.rest_of(&skills));
    }
    let page = asked.page();
    let (offset, limit) = (usize::try_from(page.offset).unwrap_or(usize::MAX), page.limit as usize);
    let part: Vec<_> = skills.iter().skip(offset).take(limit).collect();
    Ok(Answer::page(&part, skills.len() as u64))
}

async fn show(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.skill(asked.of_path("skill"))?))
}

async fn put(asked: Asked) -> Result<Answer, Error> {
    let body = &asked.body;
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
    let putting = Arc::clone(&asked.service).put_skill(&asked.actor, asked.of_path("skill"), change);
    let (skill, is_new) = putting.await?;
    Ok(Answer::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &skill))
}

async fn suggestions(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.suggestions().await?))
}

async fn accept(asked: Asked) -> Result<Answer, Error> {
    let skill = Arc::clone(&asked.service).accept_suggestion(&asked.actor, asked.of_path("skill")).await?;
    Ok(Answer::json(StatusCode::CREATED, &skill))
}

async fn reject(asked: Asked) -> Result<Answer, Error> {
    Arc::clone(&asked.service).reject_suggestion(&asked.actor, asked.of_path("skill")).await?;
    Ok(Answer::nothing(StatusCode::NO_CONTENT))
}

async fn delete(asked: Asked) -> Result<Answer, Error> {
    Arc::clone(&asked.service).delete_skill(&asked.actor, asked.of_path("skill")).await?;
    Ok(Answer::nothing(StatusCode::NO_CONTENT))
}
