//! Copies of parts of a schema, within a bound.

use std::cell::Cell;

use serde_json::Value;

/// How many values are copied unless another number is given. Nobody reads a schema of this size.
const MAX_COPIED: usize = 100_000;
/// So many bytes of a text count as one value.
const TEXT_BYTES: usize = 64;

/// Bounds what is copied of one schema. Whoever follows references copies what they lead to, each time, so a small schema
/// can stand for a huge one.
#[derive(Debug)]
pub struct CopyBudget {
    left: Cell<usize>,
}

impl Default for CopyBudget {
    fn default() -> Self {
        Self::of(MAX_COPIED)
    }
}

impl CopyBudget {
    /// One for so many values.
    pub fn of(values: usize) -> Self {
        Self { left: Cell::new(values) }
    }

    /// How many values may still be copied.
    pub fn left(&self) -> usize {
        self.left.get()
    }

    /// A copy of a part; nothing if that would be more than is left. Then the budget stays as it is.
    pub fn copy(&self, part: &Value) -> Option<Value> {
        let left = self.left.get();
        let size = size_up_to(part, left)?;
        self.left.set(left - size);
        Some(part.clone())
    }
}

/// How many values there are in a value, itself included, where a long text counts as several; `None` if they are more than
/// `most`.
fn size_up_to(value: &Value, most: usize) -> Option<usize> {
    let left = most.checked_sub(1)?;
    let add = |sum: usize, part: &Value| Some(sum + size_up_to(part, left.checked_sub(sum)?)?);
    let within = match value {
        Value::Object(members) => members.values().try_fold(0, add)?,
        Value::Array(elements) => elements.iter().try_fold(0, add)?,
        Value::String(text) => Some(text.len() / TEXT_BYTES).filter(|&parts| parts <= left)?,
        _ => 0,
    };
    Some(within + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_values_of_a_value_are_counted_up_to_a_bound() {
        let value = json!({"a": [1, 2, {}], "b": null});
        assert_eq!(size_up_to(&value, 6), Some(6));
        assert_eq!((size_up_to(&value, 5), size_up_to(&value, 0)), (None, None));
        let text = json!("x".repeat(10 * TEXT_BYTES));
        assert_eq!((size_up_to(&text, 11), size_up_to(&text, 10)), (Some(11), None));
    }

    #[test]
    fn as_much_as_allowed_is_copied_and_no_more() {
        let budget = CopyBudget::default();
        let part = json!(vec![0; 999]);
        let copies = std::iter::from_fn(|| budget.copy(&part)).count();
        assert_eq!(copies, MAX_COPIED / 1000);
        assert_eq!(budget.copy(&json!(1)), None);
    }
}
