//! The budget of a check: steps, depth, and whether the caller still wants it.

use crate::{Limits, NotChecked};

/// The caller is asked once in so many steps.
const STEPS_BETWEEN_QUESTIONS: u64 = 2048;

/// What is left of a budget.
pub(crate) struct Steps<'a> {
    limits: Limits,
    used: u64,
    next_question: u64,
    is_interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(limits: Limits, is_interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { limits, used: 0, next_question: STEPS_BETWEEN_QUESTIONS, is_interrupted }
    }

    /// Takes steps out of the budget, before the work is done that they stand for.
    pub(crate) fn take(&mut self, steps: usize) -> Result<(), NotChecked> {
        self.used = self.used.saturating_add(steps as u64);
        if self.used > self.limits.steps {
            return Err(NotChecked::TooManySteps(self.limits.steps));
        }
        if self.used >= self.next_question {
            self.next_question = self.used + STEPS_BETWEEN_QUESTIONS;
            if (self.is_interrupted)() {
                return Err(NotChecked::Interrupted);
            }
        }
        Ok(())
    }

    /// Fails if schemas are applied inside each other too often.
    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), NotChecked> {
        if depth > self.limits.depth { Err(NotChecked::TooDeep(self.limits.depth)) } else { Ok(()) }
    }
}
