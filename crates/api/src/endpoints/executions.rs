//! Executions: the account of all calls.

use registry::{ExecutionFilter, ExecutionId, ExecutionStatus, Source, Timestamp};
use service::Error;

use crate::answer::Answer;
use crate::asked::{Asked, refuse};
use crate::endpoint::Endpoint;
use crate::schema::Schema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let execution = || Schema::named("Execution");
    let statuses = ExecutionStatus::ALL.iter().map(|status| status.as_str());
    let sources = Source::ALL.iter().map(|source| source.as_str());
    vec![
        Endpoint::get("/executions", "List executions", |asked| Box::pin(list(asked)))
            .asks("status", Schema::word(statuses).about("Only those that got so far."))
            .asks("source", Schema::word(sources).about("Only those that came this way."))
            .asks("server_id", Schema::kept_text().about("Only those of this server, by id or name."))
            .asks("tool_name", Schema::kept_text().about("Only those of tools that their servers call so."))
            .asks("document_path", Schema::kept_text().about("Only those made from this document."))
            .asks("since", Schema::formatted("date-time").about("Only those asked for at this time or later."))
            .asks("until", Schema::formatted("date-time").about("Only those asked for before this time."))
            .pages("Executions, newest first.", execution())
            .fails(&["VALIDATION_ERROR"]),
        of_execution(Endpoint::get("/executions/{execution}", "Look at an execution", |asked| Box::pin(show(asked))))
            .answers(200, "The execution.", execution()),
        of_execution(Endpoint::delete("/executions/{execution}", "Cancel an execution", |asked| {
            Box::pin(cancel(asked))
        }))
        .about("One that is over stays as it is.")
        .answers(200, "The execution as it is then.", execution()),
        Endpoint::post("/executions/stop", "Cancel every call and refuse new ones", |asked| Box::pin(stop(asked)))
            .about("Whatever way they come in, until they are allowed again.")
            .answers(200, "What that came to.", Schema::named("Stopped")),
        Endpoint::post("/executions/reset", "Allow calls again", |asked| Box::pin(reset(asked)))
            .about("And begin to count sessions anew.")
            .answers(200, "What that came to.", Schema::named("Stopped")),
    ]
}

fn of_execution(endpoint: Endpoint) -> Endpoint {
    endpoint.fails(&["EXECUTION_NOT_FOUND"])
}

async fn list(asked: Asked) -> Result<Answer, Error> {
    // A server may have had another name, so one that is there is found by its id; one that is gone, by the name it had.
    let server = asked.text("server_id");
    let there = match server {
        Some(server) => asked.service.server(server).await.ok(),
        None => None,
    };
    let server_id = there.map(|server| server.record.id).or_else(|| server.and_then(|server| server.parse().ok()));
    let filter = ExecutionFilter {
        server_id,
        server_name: server.filter(|_| server_id.is_none()).map(str::to_owned),
        tool_name: asked.text("tool_name").map(str::to_owned),
        status: asked.word("status").into_iter().collect(),
        source: asked.word("source"),
        document_path: asked.text("document_path").map(str::to_owned),
        since: moment(&asked, "since")?,
        until: moment(&asked, "until")?,
    };
    let listed = asked.service.executions(&filter, asked.page()).await?;
    Ok(Answer::page(&listed.items, listed.total))
}

/// A time in the query.
pub(super) fn moment(asked: &Asked, name: &str) -> Result<Option<Timestamp>, Error> {
    let parsed = asked.text(name).map(str::parse).transpose();
    parsed.map_err(|error: registry::BadTimestamp| refuse(&["query", name], "datetime_parsing", error.to_string()))
}

async fn show(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.execution(id(&asked)?).await?))
}

async fn cancel(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.cancel_execution(&asked.actor, id(&asked)?).await?))
}

/// What is no id is nobody's id.
fn id(asked: &Asked) -> Result<ExecutionId, Error> {
    let text = asked.of_path("execution");
    text.parse().map_err(|_| Error::ExecutionNotFound { id: text.to_owned() })
}

async fn stop(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.stop_executions(&asked.actor).await))
}

async fn reset(asked: Asked) -> Result<Answer, Error> {
    Ok(Answer::ok(&asked.service.reset_executions(&asked.actor).await))
}
