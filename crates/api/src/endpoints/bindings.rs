//! Bindings: which server a part of a document may use.

use http::StatusCode;
use registry::{BindingId, Section};
use service::{Binding, Error};

use crate::endpoint::Endpoint;
use crate::request::{ApiRequest, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/bindings", "List bindings", |request| Box::pin(list(request)))
            .about("Only bindings of the registry. Bindings that a document declares itself are not listed.")
            .optional_query(
                "document",
                Schema::storable_text().about("Only bindings with exactly this path or pattern."),
            )
            .optional_query("server_id", Schema::storable_text().about("Only bindings to this server, by id or name."))
            .pages("Bindings ordered by document, the oldest first.", Schema::named("Binding"))
            .fails(&["SERVER_NOT_FOUND", "VALIDATION_ERROR"]),
        Endpoint::post("/bindings", "Bind a part of a document to a server", |request| Box::pin(add(request)))
            .about(
                "Only tools of that server may run in that part, which is exactly one of: a heading, a block, a range \
                 of lines. A binding in the document itself takes precedence over a binding of the registry for the \
                 same part.",
            )
            .takes(schemas::new_binding())
            .answers(201, "The new binding.", Schema::named("Binding"))
            .fails(&["SERVER_NOT_FOUND"]),
        Endpoint::delete("/bindings/{binding}", "Remove a binding", |request| Box::pin(remove(request)))
            .answers_nothing(204, "The binding is removed.")
            .fails(&["BINDING_NOT_FOUND"]),
    ]
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let (document, server) = (request.text("document"), request.text("server_id"));
    let listed = request.service.bindings(document, server, request.page()).await?;
    Ok(ApiResponse::page(&listed.items, listed.total))
}

async fn add(request: ApiRequest) -> Result<ApiResponse, Error> {
    let body = &request.body;
    let new = Binding {
        document: body.text("document").unwrap_or_default(),
        section: section(&request)?,
        server: body.text("server_id").unwrap_or_default(),
        inherit_to_children: body.truth("inherit_to_children").unwrap_or(true),
    };
    Ok(ApiResponse::json(StatusCode::CREATED, &request.service.add_binding(&request.actor, new).await?))
}

async fn remove(request: ApiRequest) -> Result<ApiResponse, Error> {
    let text = request.path_parameter("binding");
    let id = text.parse().map_err(|_| Error::BindingNotFound { id: text.to_owned() })?;
    request.service.remove_binding(&request.actor, BindingId(id)).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}

/// The section of a binding; the request must name exactly one.
fn section(request: &ApiRequest) -> Result<Section, Error> {
    let body = &request.body;
    let line = |name: &str| body.number(name).and_then(|line| u32::try_from(line).ok());
    let wrong = |place: &str, msg: &str| Err(refuse(&["body", place], "value_error", msg));
    match (body.text("heading_text"), body.text("block_id"), line("start_line"), line("end_line")) {
        (Some(heading_text), None, None, None) => Ok(Section::Heading { heading_text }),
        (None, Some(block_id), None, None) => Ok(Section::Block { block_id }),
        (None, None, Some(start_line), Some(end_line)) if start_line < end_line => {
            Ok(Section::Range { start_line, end_line })
        }
        (None, None, Some(_), Some(_)) => wrong("end_line", "the last line of a range must come after its first line"),
        _ => wrong("section_type", "set exactly one of: heading_text, block_id, or start_line with end_line"),
    }
}
