//! Bindings: which server a part of a document may use.

use http::StatusCode;
use registry::{BindingId, Section};
use service::Error;
use service::bindings::Binding;

use crate::answer::Answer;
use crate::asked::{Asked, refuse};
use crate::endpoint::Endpoint;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/bindings", "List bindings", |asked| Box::pin(list(asked)))
            .about("Those that documents make themselves are not here.")
            .asks("document", Schema::kept_text().about("Only those made for exactly this path or pattern."))
            .asks("server_id", Schema::kept_text().about("Only those to this server, by id or name."))
            .pages("Bindings by document, the oldest first.", Schema::named("Binding"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/bindings", "Bind a part of documents to a server", |asked| Box::pin(add(asked)))
            .about(
                "Only tools of that server may run there. The part is a heading, a block or a range of lines: exactly \
                 one of them. What a document says itself about the same part counts first.",
            )
            .takes(schemas::new_binding())
            .answers(201, "The binding as it is kept.", Schema::named("Binding"))
            .fails(&["SERVER_NOT_FOUND"]),
        Endpoint::delete("/bindings/{binding}", "Remove a binding", |asked| Box::pin(remove(asked)))
            .answers_nothing(204, "It is gone.")
            .fails(&["BINDING_NOT_FOUND"]),
    ]
}

async fn list(asked: Asked) -> Result<Answer, Error> {
    let (document, server) = (asked.text("document"), asked.text("server_id"));
    let listed = asked.service.bindings(document, server, asked.page()).await?;
    Ok(Answer::page(&listed.items, listed.total))
}

async fn add(asked: Asked) -> Result<Answer, Error> {
    let body = &asked.body;
    let new = Binding {
        document: body.text("document").unwrap_or_default(),
        section: section(&asked)?,
        server: body.text("server_id").unwrap_or_default(),
        inherit_to_children: body.truth("inherit_to_children").unwrap_or(true),
    };
    Ok(Answer::json(StatusCode::CREATED, &asked.service.add_binding(&asked.actor, new).await?))
}

async fn remove(asked: Asked) -> Result<Answer, Error> {
    let text = asked.of_path("binding");
    let id = text.parse().map_err(|_| Error::BindingNotFound { id: text.to_owned() })?;
    asked.service.remove_binding(&asked.actor, BindingId(id)).await?;
    Ok(Answer::nothing(StatusCode::NO_CONTENT))
}

/// The part that is meant; exactly one must be.
fn section(asked: &Asked) -> Result<Section, Error> {
    let body = &asked.body;
    let line = |name: &str| body.number(name).and_then(|line| u32::try_from(line).ok());
    let wrong = |place: &str, msg: &str| Err(refuse(&["body", place], "value_error", msg));
    match (body.text("heading_text"), body.text("block_id"), line("start_line"), line("end_line")) {
        (Some(heading_text), None, None, None) => Ok(Section::Heading { heading_text }),
        (None, Some(block_id), None, None) => Ok(Section::Block { block_id }),
        (None, None, Some(start_line), Some(end_line)) if start_line < end_line => {
            Ok(Section::Range { start_line, end_line })
        }
        (None, None, Some(_), Some(_)) => wrong("end_line", "a range must end after its first line"),
        _ => wrong("section_type", "name a heading_text, a block_id, or a start_line and an end_line: exactly one"),
    }
}
