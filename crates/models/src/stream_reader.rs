//! Reads a response as it arrives, for any provider.

use crate::conversation::Answer;
use crate::error::ModelErrorKind;

/// A part of an answer that is not complete yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'t> {
    /// More text.
    Text(&'t str),
    /// A call of the tool with this safe name follows.
    Call(&'t str),
}

/// Reads the responses of one provider.
pub(crate) trait AnswerReader: Send {
    /// Reads the next event of a stream.
    fn event(&mut self, data: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind>;

    /// Reads a response in one piece, from a server that does not stream.
    fn whole(&mut self, body: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind>;

    /// Whether the response is complete.
    fn is_done(&self) -> bool;

    /// The answer, if it is complete.
    fn finish(self: Box<Self>) -> Result<Answer, ModelErrorKind>;
}
