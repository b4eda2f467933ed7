//! A JSON Schema validator with a budget: a check ends after a bounded number of steps, whatever the schema says.
//!
//! Schemas come from servers and are not trusted. Every part of the work is counted in steps, nesting is limited, and
//! nothing is fetched. What cannot be decided within the bounds is reported as [`Outcome::NotChecked`], never as valid.
//!
//! Schemas are read as draft 2020-12 unless `$schema` names draft 2019-09, draft-07 or draft-06. `format` is an
//! annotation from draft 2019-09 on and an assertion before, as the drafts recommend.
//!
//! # Layout
//! - `program`: a schema compiled to nodes; `compile` makes it, `reference` resolves URIs
//! - `evaluate`: a program applied to a value, `members` to objects and `items` to arrays; `marks` holds which members
//!   and items were evaluated
//! - `pattern`: regular expressions of ECMA-262 in linear time; `format`: the values of `format`
//! - `number` and `equality`: what JSON Schema says about numbers and equal values; `message`: bounded texts
//! - `copy`: copies of parts of a schema within a bound, for whoever shows schemas

mod compile;
mod copy;
mod equality;
mod evaluate;
mod format;
mod items;
mod marks;
mod members;
mod message;
mod number;
mod pattern;
mod program;
mod reference;
mod steps;

use serde_json::Value;

pub use copy::CopyBudget;
pub use message::Violation;

/// The bounds of one check, compilation included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many steps it may take. A step is one keyword applied to one value, or work of about that size.
    pub steps: u64,
    /// How many schemas may be applied inside each other.
    pub depth: usize,
    /// How many violations are reported. The check ends at the last.
    pub violations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 1_000_000, depth: 400, violations: 20 }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The value is what the schema describes.
    Valid,
    /// It is not, for these reasons: at least one.
    Invalid(Vec<Violation>),
    /// No violation was found, but not everything could be checked.
    NotChecked(NotChecked),
}

/// Why a value was not checked, or not completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotChecked {
    /// The schema is none.
    #[error("the schema is not valid: {0}")]
    NotASchema(String),
    /// The schema uses a draft that is not supported.
    #[error("the schema's draft `{0}` is not supported")]
    UnknownDraft(String),
    /// It took too many steps.
    #[error("the check takes more than {0} steps")]
    TooManySteps(u64),
    /// Schemas are applied inside each other too often; perhaps without end.
    #[error("the schema is nested or refers to itself more than {0} levels deep")]
    TooDeep(usize),
    /// The caller ended the check: its deadline passed, or nobody waits for it.
    #[error("the check did not finish in time")]
    Interrupted,
    /// A reference leads to something that is not in the schema. Nothing is fetched.
    #[error("the reference `{0}` points outside the schema")]
    UnresolvedReference(String),
    /// A pattern that the linear engine cannot express, or only at too high a cost.
    #[error("the pattern `{pattern}` cannot be checked: {why}")]
    Pattern {
        /// As the schema has it.
        pattern: String,
        /// What it uses.
        why: String,
    },
    /// The value is not JSON that can be held: a number out of range, for example.
    #[error("the value cannot be checked: {0}")]
    Value(String),
    /// The check could not be run.
    #[error("the check could not be run: {0}")]
    NotRun(String),
}

/// Checks a value against a schema. `is_interrupted` is asked every few thousand steps; if it says yes, the check ends.
pub fn check(schema: &Value, value: &Value, limits: Limits, is_interrupted: &dyn Fn() -> bool) -> Outcome {
    let mut steps = steps::Steps::new(limits, is_interrupted);
    let program = match compile::compile(schema, &mut steps) {
        Ok(program) => program,
        Err(why) => return Outcome::NotChecked(why),
    };
    evaluate::evaluate(&program, value, limits, steps)
}

/// What a fuzzer feeds: two JSON texts in the two halves of the input, separated by a line feed.
///
/// Whatever they are, the check ends within its bounds, and a value that a schema accepts is rejected by its `not`.
pub fn check_fuzz_input(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let mut next = || halves.next().and_then(|half| serde_json::from_slice::<Value>(half).ok());
    let (Some(schema), Some(value)) = (next(), next()) else { return };
    let limits = Limits { steps: 200_000, ..Limits::default() };
    let outcome = check(&schema, &value, limits, &|| false);
    // Inside another schema, references and identifiers would mean something else.
    if !(schema.is_object() || schema.is_boolean()) || schema.to_string().contains('$') {
        return;
    }
    // What is decided with these steps is decided with twice as many.
    let more = Limits { steps: 2 * limits.steps, depth: limits.depth + 1, ..limits };
    let negated = check(&serde_json::json!({ "not": schema }), &value, more, &|| false);
    match outcome {
        Outcome::Valid => assert!(matches!(negated, Outcome::Invalid(_)), "{schema} {value} {negated:?}"),
        Outcome::Invalid(_) => assert!(!matches!(negated, Outcome::Invalid(_)), "{schema} {value} {negated:?}"),
        Outcome::NotChecked(_) => {}
    }
}
