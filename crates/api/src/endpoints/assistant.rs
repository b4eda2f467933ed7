//! What an assistant may use: the tools of enabled servers, narrowed, and in the form that its provider takes.

use models::{Format, SafeNames, Tool};
use registry::ToolRecord;
use serde_json::{Value, json};
use service::{Error, Service};

use super::documents::Context;
use crate::answer::Answer;
use crate::asked::Asked;
use crate::documents::Meant;
use crate::endpoint::Endpoint;
use crate::schema::Schema;
use crate::schemas::documents as shapes;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let format = || {
        Schema::word(Format::ALL.map(Format::as_str)).about("Also give them as this provider wants them in a request.")
    };
    let fails = ["DOCUMENT_NOT_FOUND", "SERVER_NOT_FOUND", "SKILL_NOT_FOUND", "VALIDATION_ERROR"];
    vec![
        Endpoint::get("/assistant/tools", "What an assistant may use", |asked| Box::pin(by_query(asked)))
            .about(
                "The tools of enabled servers that can be called now; in a line of a document that is bound to a server, \
                 those of that server alone. The document must be below the folder of `serve --documents`; the text of \
                 another is sent by POST.",
            )
            .asks("format", format())
            .asks("servers", Schema::kept_text().about("Only of these, by id or name, with commas between them."))
            .asks("skills", Schema::kept_text().about("Only with one of these, by id or name, with commas between."))
            .asks("path", shapes::path())
            .asks("line", shapes::line())
            .answers(200, "The tools.", Schema::named("AssistantTools"))
            .fails(&fails),
        Endpoint::post("/assistant/tools", "The same for a text that is sent", |asked| Box::pin(by_body(asked)))
            .takes(
                shapes::meant()
                    .may_have("line", shapes::line())
                    .may_have("format", format())
                    .may_have("servers", Schema::list(Schema::kept_text()).about("Only of these, by id or name."))
                    .may_have("skills", Schema::list(Schema::kept_text()).about("Only with one of these.")),
            )
            .answers(200, "The tools.", Schema::named("AssistantTools"))
            .fails(&fails),
    ]
}

/// What is to be left out.
struct Narrowing {
    servers: Vec<String>,
    skills: Vec<String>,
    format: Option<Format>,
}

async fn by_query(asked: Asked) -> Result<Answer, Error> {
    let list = |name: &str| {
        let parts = asked.text(name).unwrap_or_default().split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let narrowing =
        Narrowing { servers: list("servers"), skills: list("skills"), format: format(asked.text("format")) };
    let meant = match asked.text("path") {
        Some(path) => Some(Meant::in_folder(asked.documents.as_ref(), path.to_owned()).await?),
        None => None,
    };
    let line = asked.query.get("line").and_then(Value::as_u64).unwrap_or(1);
    Ok(Answer::ok(&offered(&asked.service, meant, line, &narrowing).await?))
}

async fn by_body(asked: Asked) -> Result<Answer, Error> {
    let body = &asked.body;
    let list = |name: &str| {
        let items = body.get(name).and_then(|items| items.as_array().cloned()).unwrap_or_default();
        items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let format = format(body.text("format").as_deref());
    let narrowing = Narrowing { servers: list("servers"), skills: list("skills"), format };
    let has_document = body.raw("text").is_some() || body.raw("path").is_some();
    let meant = if has_document { Some(Meant::by_body(&asked).await?) } else { None };
    let line = body.number("line").unwrap_or(1);
    Ok(Answer::ok(&offered(&asked.service, meant, line, &narrowing).await?))
}

fn format(word: Option<&str>) -> Option<Format> {
    word.and_then(|word| word.trim().to_ascii_lowercase().parse().ok())
}

async fn offered(service: &Service, meant: Option<Meant>, line: u64, narrowing: &Narrowing) -> Result<Value, Error> {
    // Without a document, every line of no text at all: bound to nothing.
    let meant = meant.unwrap_or_else(|| Meant { text: String::new(), path: None, file: None });
    let Context { place, mut tools, .. } = Context::of(service, meant, line).await?;
    let servers = server_names(service, &narrowing.servers).await?;
    let skills = skill_ids(service, &narrowing.skills)?;
    tools.retain(|tool| servers.is_empty() || servers.contains(&tool.server_name));
    tools.retain(|tool| skills.is_empty() || tool.skills.iter().any(|skill| skills.contains(skill)));
    let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
    let forms = narrowing.format.map(|format| {
        let tools: Vec<Tool> = tools.iter().map(model_tool).collect();
        format.tools(&tools, &names)
    });
    let enabled = place.allowed_servers.iter().filter(|name| servers.is_empty() || servers.contains(name));
    Ok(json!({
        "tools": tools.iter().map(|tool| shown(tool, &names)).collect::<Vec<_>>(),
        "enabled_servers": enabled.collect::<Vec<_>>(),
        "section_binding": place.bound.as_ref().map(|bound| &bound.binding.server),
        "why": place.why,
        "format": narrowing.format.map(Format::as_str),
        "provider_tools": forms,
    }))
}

async fn server_names(service: &Service, wanted: &[String]) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for key in wanted {
        names.push(service.server(key).await?.record.name);
    }
    Ok(names)
}

fn skill_ids(service: &Service, wanted: &[String]) -> Result<Vec<String>, Error> {
    let all = service.skills();
    let found = |key: &String| {
        let is_it = |id: &str, name: &str| id == key || name.eq_ignore_ascii_case(key);
        let known = all.iter().find(|skill| is_it(&skill.id, &skill.name));
        known.map(|skill| skill.id.clone()).ok_or_else(|| Error::SkillNotFound { key: key.clone() })
    };
    wanted.iter().map(found).collect()
}

fn schema_of(tool: &ToolRecord) -> Value {
    tool.input_schema.as_ref().and_then(|schema| serde_json::from_str(schema.get()).ok()).unwrap_or_else(|| json!({}))
}

fn model_tool(tool: &ToolRecord) -> Tool {
    Tool::new(&tool.name, tool.description.as_deref().unwrap_or_default(), schema_of(tool))
}

fn shown(tool: &ToolRecord, names: &SafeNames) -> Value {
    let definition: Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
    let says = |hint: &str| definition["annotations"][hint] == true;
    json!({
        "server_id": tool.source_server_id,
        "server_name": tool.server_name,
        "tool_name": tool.original_name,
        "name": tool.name,
        "safe_name": names.safe(&tool.name),
        "description": tool.description,
        "input_schema": tool.input_schema,
        "is_read_only": says("readOnlyHint"),
        "is_idempotent": says("idempotentHint"),
        "is_destructive": says("destructiveHint") && !says("readOnlyHint"),
        "skill_ids": tool.skills,
    })
}
