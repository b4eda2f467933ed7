//! Reading an answer as it comes, whoever gives it.

use crate::conversation::Answer;
use crate::error::ModelErrorKind;

/// What is heard before an answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'t> {
    /// More words.
    Text(&'t str),
    /// A tool of this safe name is going to be called.
    Call(&'t str),
}

/// An answer in the words of one provider.
pub(crate) trait AnswerReader: Send {
    /// The next event of a stream.
    fn event(&mut self, data: &[u8], heard: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind>;

    /// The answer in one piece, from who does not stream.
    fn whole(&mut self, body: &[u8], heard: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind>;

    /// Nothing more is to come.
    fn is_done(&self) -> bool;

    /// What was said, if it is whole.
    fn finish(self: Box<Self>) -> Result<Answer, ModelErrorKind>;
}
