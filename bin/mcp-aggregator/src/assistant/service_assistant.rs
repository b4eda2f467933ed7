//! Asks the assistant of a running service: the service has the model and its key.

use std::time::Duration;

use assistant::DialogueEvent;
use serde_json::Value;

use crate::client::{Client, RequestError};
use crate::failure::Failure;

/// Why a service did not answer.
pub(crate) enum ServiceAskError {
    /// It has no assistant.
    NoAssistant,
    /// Another failure.
    Failed(Failure),
}

/// Asks, and prints events; returns the response of `POST /assistant/ask`. Dropping this cancels the request, because
/// the service sees the connection close.
pub(crate) async fn ask_service(
    service: &Client,
    question: &Value,
    on_event: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
) -> Result<Value, ServiceAskError> {
    let mut ended = None;
    let mut on_event = |kind: &str, data: &Value| match kind {
        "assistant.finished" | "assistant.failed" => ended = Some((kind == "assistant.finished", data.clone())),
        _ => pass_on(kind, data, on_event),
    };
    if let Err((code, denial)) = service.stream("/assistant/ask", question, &mut on_event).await {
        return Err(match code.as_deref() {
            Some("ASSISTANT_UNAVAILABLE") => ServiceAskError::NoAssistant,
            _ => ServiceAskError::Failed(denial.into()),
        });
    }
    match ended {
        Some((true, answer)) => Ok(answer),
        Some((false, error)) => {
            let why = error["detail"].as_str().unwrap_or("the service did not answer");
            Err(ServiceAskError::Failed(Failure::new(why)))
        }
        None => {
            let why = format!("the service at {} closed the connection before the answer was complete", service.url());
            Err(ServiceAskError::Failed(RequestError::Other(Failure::new(why)).into()))
        }
    }
}

fn pass_on(kind: &str, data: &Value, on_event: &mut (dyn FnMut(DialogueEvent<'_>) + Send)) {
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    match kind {
        "assistant.words" => on_event(DialogueEvent::Words(text("text"))),
        "assistant.calling" => {
            on_event(DialogueEvent::EndOfWords);
            on_event(DialogueEvent::Calling { tool: text("tool"), arguments: text("arguments") });
        }
        "assistant.called" => {
            let took = Duration::from_millis(data["took_ms"].as_u64().unwrap_or_default());
            on_event(DialogueEvent::Called { tool: text("tool"), took, problem: data["problem"].as_str() });
        }
        _ => {}
    }
}
