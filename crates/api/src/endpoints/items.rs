//! Prompts and resources: listed, fetched and read.

use http::StatusCode;
use registry::RawJson;
use service::Error;

use crate::answer::Answer;
use crate::asked::{Asked, refuse};
use crate::endpoint::Endpoint;
use crate::schema::Schema;
use crate::schemas;

/// What can go wrong where a server is asked.
const ASKING: &[&str] = &["SERVER_UNAVAILABLE", "EXECUTION_FAILED", "EXECUTION_TIMEOUT"];

pub(super) fn endpoints() -> Vec<Endpoint> {
    let of_server = || Schema::kept_text().about("Only those of this server, by id or name.");
    vec![
        Endpoint::get("/prompts", "List prompts", |asked| Box::pin(prompts(asked)))
            .asks("server_id", of_server())
            .parts("The prompts of connected servers.", Schema::named("Prompt"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/prompts/get", "Fill in a prompt", |asked| Box::pin(prompt(asked)))
            .ends_with_client()
            .about(
                "By its full name `server.prompt`, or by its own name alone if no other server has a prompt of that \
                 name. The result is what the server sent, byte for byte. The time-out is that of calls (`timeout_ms`).",
            )
            .takes(schemas::prompt_request())
            .answers(200, "The result.", Schema::any_object())
            .fails(&["PROMPT_NOT_FOUND", "PROMPT_AMBIGUOUS"])
            .fails(ASKING),
        Endpoint::get("/resources", "List resources", |asked| Box::pin(resources(asked)))
            .asks("server_id", of_server())
            .parts("The resources of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::get("/resources/templates", "List families of resources", |asked| Box::pin(templates(asked)))
            .about("`uri` is the pattern of their addresses.")
            .asks("server_id", of_server())
            .parts("The resource templates of connected servers.", Schema::named("Resource"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/resources/read", "Read a resource", |asked| Box::pin(read(asked)))
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

async fn prompts(asked: Asked) -> Result<Answer, Error> {
    let all = asked.service.prompts(asked.text("server_id"))?;
    Ok(asked.part_of(&all))
}

async fn resources(asked: Asked) -> Result<Answer, Error> {
    let all = asked.service.resources(asked.text("server_id"))?;
    Ok(asked.part_of(&all))
}

async fn templates(asked: Asked) -> Result<Answer, Error> {
    let all = asked.service.resource_templates(asked.text("server_id"))?;
    Ok(asked.part_of(&all))
}

async fn prompt(asked: Asked) -> Result<Answer, Error> {
    let written = asked.body.raw("arguments").map_or("{}", |arguments| arguments.get());
    let arguments = RawJson::parse(written.to_owned())
        .map_err(|error| refuse(&["body", "arguments"], "json_invalid", error.to_string()))?;
    let name = asked.body.text("name").unwrap_or_default();
    let result = asked.service.prompt(&asked.actor, &name, &arguments).await?;
    Ok(Answer::text(StatusCode::OK, "application/json", result.get().to_owned()))
}

async fn read(asked: Asked) -> Result<Answer, Error> {
    let (uri, server) = (asked.body.text("uri").unwrap_or_default(), asked.body.text("server_id"));
    let result = asked.service.read_resource(&asked.actor, &uri, server.as_deref()).await?;
    Ok(Answer::text(StatusCode::OK, "application/json", result.get().to_owned()))
}
