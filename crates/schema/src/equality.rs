//! Whether JSON values are equal, and hashes by which many are compared in linear time.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use serde_json::{Number, Value};

use crate::number;

/// Makes hashes that nobody outside can foresee: two values with the same hash are almost certainly equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueHasher(RandomState);

impl ValueHasher {
    /// A hash of a value that all values equal to it have. Nesting is limited by what a parser accepts.
    pub(crate) fn hash(&self, value: &Value) -> u64 {
        match value {
            Value::Null => self.0.hash_one(0u8),
            Value::Bool(it) => self.0.hash_one((1u8, it)),
            Value::Number(it) => self.0.hash_one((2u8, canonical(it))),
            Value::String(it) => self.0.hash_one((3u8, it)),
            Value::Array(items) => {
                let mut hasher = self.0.build_hasher();
                (4u8, items.len()).hash(&mut hasher);
                items.iter().for_each(|item| self.hash(item).hash(&mut hasher));
                hasher.finish()
            }
            // Members have no order, so their hashes are added up.
            Value::Object(members) => {
                let sum = members
                    .iter()
                    .fold(0u64, |sum, (name, value)| sum.wrapping_add(self.0.hash_one((name, self.hash(value)))));
                self.0.hash_one((5u8, members.len(), sum))
            }
        }
    }
}

/// The same bits for all numbers of the same value. Floats of more than 64 bits' range are kept as they are.
fn canonical(number: &Number) -> (bool, u64) {
    if let Some(it) = number.as_u64() {
        return (false, it);
    }
    if let Some(it) = number.as_i64() {
        return (true, it.unsigned_abs());
    }
    let float = number.as_f64().unwrap_or(f64::INFINITY);
    // Whole floats of this range are integers, and equal to those.
    if float.fract() == 0.0 && float.abs() < 18_446_744_073_709_551_616.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, and in range")]
        return (float < 0.0, float.abs() as u64);
    }
    (float.is_sign_negative(), float.to_bits())
}

/// Whether two values are equal: numbers by value, objects whatever the order of their members.
pub(crate) fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => number::compare(left, right) == Ordering::Equal,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| is_equal(value, other)))
        }
        _ => left == right,
    }
}

/// About how much work it is to look at all of a value.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::String(it) => 1 + it.len() / 64,
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            1 + members.iter().map(|(name, value)| 1 + name.len() / 64 + size(value)).sum::<usize>()
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ValueHasher, is_equal};

    #[test]
    fn equal_values_have_equal_hashes() {
        let hasher = ValueHasher::default();
        for (left, right, expected) in [
            (json!(1), json!(1.0), true),
            (json!(-1), json!(-1.0), true),
            (json!(0), json!(-0.0), true),
            (json!(1), json!(true), false),
            (json!({"a": 1, "b": [1, 2]}), json!({"b": [1.0, 2], "a": 1}), true),
            (json!([1, 2]), json!([2, 1]), false),
            (json!(""), json!(null), false),
            (json!(1e19), json!(10_000_000_000_000_000_000_u64), true),
        ] {
            assert_eq!(is_equal(&left, &right), expected, "{left} {right}");
            assert_eq!(hasher.hash(&left) == hasher.hash(&right), expected, "{left} {right}");
        }
    }
}
