//! Who answers the `assistant` blocks of a document.

use std::path::{Path, PathBuf};

use assistant::{Dialogue, DialogueEnd, DialogueLimits};
use models::Model;
use notebook::{Answer, Failure, Question};
use serde_json::json;

use crate::arguments::assistant::ModelArguments;
use crate::assistant::{
    self as helper, CliToolExecutor, Consent, EventPrinter, OfferedTools, ServiceAskError, ToolBackend, ask_service,
};
use crate::client::Client;
use crate::documents::file_failed;

/// An assistant that answers blocks.
pub(crate) struct AssistantBlocks {
    /// Or why there is none: that matters only if a block asks it.
    model: Result<Model, String>,
    consent: Consent,
    /// Whether tools that may destroy something may be called by who cannot ask.
    may_destroy: bool,
    document: PathBuf,
}

impl AssistantBlocks {
    pub(crate) fn new(model: &ModelArguments, config: Option<&Path>, yes: bool, document: PathBuf) -> Self {
        let model = helper::model(model, config).map_err(|failure| match failure.hint {
            Some(hint) => format!("{}; {hint}", failure.message),
            None => failure.message,
        });
        Self { model, consent: Consent::new(yes), may_destroy: yes, document }
    }

    /// Why no model answers here, if none does.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.model.as_ref().err().map(String::as_str)
    }

    /// Has a block answered by the assistant of a service. Dropping this stops it.
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
        let mut telling = EventPrinter::calls_only();
        let answer = ask_service(service, &body, &mut |told| telling.print_event(told)).await;
        let answer = answer.map_err(|unasked| match unasked {
            // As where nobody is asked: an answer that is there already is kept.
            ServiceAskError::NoAssistant => Failure::stopped(self.missing().unwrap_or("there is no assistant")),
            ServiceAskError::Failed(failure) => Failure::new(failure.message),
        })?;
        let message = || answer["message"].as_str().unwrap_or("there is no answer").to_owned();
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

    /// The document as it is now: it may have been edited since the run began.
    fn document_now(&self) -> Result<String, Failure> {
        notebook::read(&self.document).map_err(|error| Failure::stopped(file_failed(error).message))
    }

    /// Answers a block with the tools that may be used there. Dropping this stops it.
    pub(crate) async fn answer(
        &self,
        question: &Question,
        offered: &OfferedTools,
        way: ToolBackend<'_>,
    ) -> Result<Answer, Failure> {
        // An answer that is there already is worth more than the news that nobody can be asked.
        let model = self.model.as_ref().map_err(|why| Failure::stopped(why.as_str()))?;
        let text = self.document_now()?;
        let task = assistant::task(Some((text.as_str(), question.line)));
        let executor = CliToolExecutor::new(way, question.line, &self.consent, offered);
        let mut dialogue = Dialogue::new(task, question.words.as_str(), offered.offers(), DialogueLimits::default());
        let mut telling = EventPrinter::calls_only();
        let outcome = dialogue.run(model, &executor, &mut |told| telling.print_event(told)).await;
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
