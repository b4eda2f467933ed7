//! Answers the `assistant` blocks of a document.

use std::path::PathBuf;

use assistant::{Dialogue, DialogueEnd, DialogueLimits};
use models::Model;
use notebook::{Answer, Failure, Question};
use serde_json::json;

use crate::assistant::{
    self as helper, CliToolExecutor, Consent, EventPrinter, ModelArguments, OfferedTools, ServiceAskError, ToolBackend,
    ask_service,
};
use crate::client::Client;
use crate::config::ConfigSource;
use crate::documents::file_failed;

/// An assistant that answers blocks.
pub(crate) struct AssistantBlocks {
    /// Or why there is none, which matters only if there is an `assistant` block.
    model: Result<Model, String>,
    consent: Consent,
    /// Whether destructive tools may be called without asking.
    may_destroy: bool,
    document: PathBuf,
}

impl AssistantBlocks {
    pub(crate) fn new(model: &ModelArguments, config: Option<ConfigSource<'_>>, yes: bool, document: PathBuf) -> Self {
        let model = helper::model(model, config).map_err(|failure| match failure.hint {
            Some(hint) => format!("{}; {hint}", failure.message),
            None => failure.message,
        });
        Self { model, consent: Consent::new(yes), may_destroy: yes, document }
    }

    /// Why no model is available here, if none is.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.model.as_ref().err().map(String::as_str)
    }

    /// Asks the assistant of a service to answer a block. Dropping this cancels it.
    pub(crate) async fn answer_by(
        &self,
        service: &Client,
        question: &Question,
        session: &str,
    ) -> Result<Answer, Failure> {
        let mut body = json!({
            "question": question.words,
            "line": question.line,
            "servers": question.server.iter().collect::<Vec<_>>(),
            "confirm_destructive": self.may_destroy,
            "session": session,
            "path": self.document.to_string_lossy(),
        });
        body["text"] = json!(self.document_now()?);
        let mut printer = EventPrinter::calls_only();
        let answer = ask_service(service, &body, &mut |event| printer.print_event(event)).await;
        let answer = answer.map_err(|unasked| match unasked {
            // An existing answer is kept, as in a run without an assistant.
            ServiceAskError::NoAssistant => Failure::stopped(self.missing().unwrap_or("there is no assistant")),
            ServiceAskError::Failed(failure) => Failure::new(failure.message),
        })?;
        let message = || answer["message"].as_str().unwrap_or("there was no answer").to_owned();
        match answer["ended"].as_str() {
            Some("answered") => {
                let tokens = ["input_tokens", "output_tokens"].iter().filter_map(|name| answer[name].as_u64()).sum();
                let markdown = answer["answer"].as_str().unwrap_or_default().to_owned();
                Ok(Answer { markdown, tokens: Some(tokens).filter(|&tokens| tokens > 0) })
            }
            Some("stopped") => Err(Failure::stopped(message())),
            _ => Err(Failure::new(message())),
        }
    }

    /// The current text of the document, which may have been edited since the run started.
    fn document_now(&self) -> Result<String, Failure> {
        notebook::read(&self.document).map_err(|error| Failure::stopped(file_failed(error).message))
    }

    /// Answers a block with the tools that may be used there. Dropping this cancels it.
    pub(crate) async fn answer(
        &self,
        question: &Question,
        offered: &OfferedTools,
        way: ToolBackend<'_>,
    ) -> Result<Answer, Failure> {
        // An existing answer is worth more than the message that no assistant is available.
        let model = self.model.as_ref().map_err(|why| Failure::stopped(why.as_str()))?;
        let text = self.document_now()?;
        let task = assistant::task(Some((text.as_str(), question.line)));
        let executor = CliToolExecutor::new(way, question.line, &self.consent, offered);
        let mut dialogue = Dialogue::new(task, question.words.as_str(), offered.offers(), DialogueLimits::default());
        let mut printer = EventPrinter::calls_only();
        let outcome = dialogue.run(model, &executor, &mut |event| printer.print_event(event)).await;
        let outcome = outcome.map_err(|failure| Failure::new(failure.to_string()))?;
        match outcome.ended {
            DialogueEnd::Answered => {
                let tokens = Some(outcome.usage.total()).filter(|&tokens| tokens > 0);
                Ok(Answer { markdown: outcome.answer, tokens })
            }
            DialogueEnd::Stopped(why) => Err(Failure::stopped(why)),
            ended => Err(Failure::new(ended.to_string())),
        }
    }
}
