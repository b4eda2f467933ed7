//! Who answers the `assistant` blocks of a document.

use std::path::PathBuf;

use assistant::{Bounds, Dialogue, Ended};
use models::Model;
use notebook::{Answer, Failure, Question};

use crate::arguments::assistant::ModelArguments;
use crate::assistant::{self as helper, CallingHands, Consent, Offered, Telling, Way};

/// An assistant that answers blocks.
pub(crate) struct Answering {
    /// Or why there is none: that matters only if a block asks it.
    model: Result<Model, String>,
    consent: Consent,
    document: PathBuf,
}

impl Answering {
    pub(crate) fn new(model: &ModelArguments, yes: bool, document: PathBuf) -> Self {
        let model = helper::model(model).map_err(|failure| match failure.hint {
            Some(hint) => format!("{}; {hint}", failure.message),
            None => failure.message,
        });
        Self { model, consent: Consent::new(yes), document }
    }

    /// Answers a block with the tools that may be used there. Dropping this stops it.
    pub(crate) async fn answer(&self, question: &Question, offered: &Offered, way: Way<'_>) -> Result<Answer, Failure> {
        let model = self.model.as_ref().map_err(|why| Failure::new(why.as_str()))?;
        // As it is now: it may have been edited since the run began. Without it, the words of the block must do.
        let text = notebook::read(&self.document).ok();
        let line = u32::try_from(question.line).unwrap_or(u32::MAX);
        let task = helper::task(text.as_deref().map(|text| (text, line)));
        let hands = CallingHands::new(way, question.line, &self.consent, offered);
        let mut dialogue = Dialogue::new(task, question.words.as_str(), offered.offers(), Bounds::default());
        let mut telling = Telling::calls_only();
        let outcome = dialogue.run(model, &hands, &mut |told| telling.tell(told)).await;
        let outcome = outcome.map_err(|failure| Failure::new(failure.to_string()))?;
        match outcome.ended {
            Ended::Answered => {
                let tokens = Some(outcome.usage.total()).filter(|&tokens| tokens > 0);
                Ok(Answer { markdown: outcome.answer, tokens })
            }
            Ended::Stopped(why) => Err(Failure::stopped(why)),
            ended => Err(Failure::new(ended.to_string())),
        }
    }
}
