//! Vectors in memory, all compared with every query: exact, and quick enough for tens of thousands.

use crate::matrix::{Rows, TOGETHER};

/// One vector for each slot, side by side.
pub(crate) struct Vectors {
    rows: Rows,
    present: Vec<bool>,
}

impl Vectors {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { rows: Rows::new(dimension), present: Vec::new() }
    }

    /// How many numbers a vector has; zero while nobody knows.
    pub(crate) fn dimension(&self) -> usize {
        self.rows.width()
    }

    /// Keeps a vector at length one for a slot. Says no to one of another dimension and to one without a direction.
    pub(crate) fn set(&mut self, slot: u32, vector: &[f32]) -> bool {
        // A model elsewhere says how long its vectors are by the first that it makes.
        if self.rows.width() == 0 && self.present.is_empty() {
            self.rows = Rows::new(vector.len());
        }
        let Some(vector) = normalized(vector).filter(|vector| vector.len() == self.rows.width()) else { return false };
        let slot = slot as usize;
        if self.present.len() <= slot {
            self.present.resize(slot + 1, false);
            self.rows.grow(self.present.len().next_multiple_of(TOGETHER));
        }
        self.rows.set(slot, &vector);
        self.present[slot] = true;
        true
    }

    pub(crate) fn clear(&mut self, slot: u32) {
        if let Some(present) = self.present.get_mut(slot as usize) {
            *present = false;
        }
    }

    pub(crate) fn has(&self, slot: u32) -> bool {
        self.present.get(slot as usize).copied().unwrap_or(false)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<Vec<f32>> {
        self.has(slot).then(|| self.rows.get(slot as usize))
    }

    /// How near each slot's vector is to each of some others, made one number by `join`. Nothing for slots without a
    /// vector, and nothing at all for vectors of another dimension.
    pub(crate) fn nearness(
        &self,
        others: &[Vec<f32>],
        join: impl Fn(&mut dyn Iterator<Item = f32>) -> f32,
    ) -> Vec<Option<f32>> {
        if others.is_empty() || others.iter().any(|other| other.len() != self.rows.width()) {
            return Vec::new();
        }
        let others = Rows::scaled(&others.concat(), self.rows.width());
        let mut lines = Vec::new();
        let mut found = Vec::with_capacity(self.present.len());
        for first in (0..self.rows.count()).step_by(TOGETHER) {
            self.rows.products(first, &others, &mut lines);
            for place in 0..TOGETHER.min(self.present.len() - first) {
                let near = || join(&mut lines.iter().map(|line| line[place]));
                found.push(self.present[first + place].then(near));
            }
        }
        found
    }

    /// The same for one slot.
    pub(crate) fn nearness_of(
        &self,
        slot: u32,
        others: &[Vec<f32>],
        join: impl Fn(&mut dyn Iterator<Item = f32>) -> f32,
    ) -> Option<f32> {
        if others.is_empty() || others.iter().any(|other| other.len() != self.rows.width()) {
            return None;
        }
        let vector = self.get(slot)?;
        Some(join(&mut others.iter().map(|other| dot(other, &vector))))
    }
}

/// A vector of the same direction and of length one, if it has a direction.
pub(crate) fn normalized(vector: &[f32]) -> Option<Vec<f32>> {
    let length = dot(vector, vector).sqrt();
    let has_direction = length.is_finite() && length > f32::MIN_POSITIVE;
    has_direction.then(|| vector.iter().map(|number| number / length).collect())
}

/// The scalar product, in eight sums side by side so that it becomes vector instructions.
#[inline]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left, left_rest) = left.as_chunks::<8>();
    let (right, right_rest) = right.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for (left, right) in left.iter().zip(right) {
        for lane in 0..8 {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_kept_at_length_one() {
        let mut vectors = Vectors::new(2);
        assert!(vectors.set(3, &[3.0, 4.0]));
        let kept = vectors.get(3).expect("it was just set");
        assert!((kept[0] - 0.6).abs() < 1e-3 && (kept[1] - 0.8).abs() < 1e-3, "{kept:?}");
        let nearness = vectors.nearness(&[vec![1.0, 0.0]], |parts| parts.sum());
        assert!(nearness[..3] == [None; 3] && (nearness[3].expect("it is there") - 0.6).abs() < 1e-3);
        assert_eq!(vectors.get(2), None);
        vectors.clear(3);
        assert_eq!(vectors.get(3), None);
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        let mut vectors = Vectors::new(2);
        for wrong in [vec![1.0], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0], Vec::new()] {
            assert!(!vectors.set(0, &wrong), "{wrong:?}");
        }
    }

    #[test]
    fn products_of_any_length_are_right() {
        let numbers: Vec<f32> = (0..19_u8).map(f32::from).collect();
        assert!((dot(&numbers, &numbers) - 2109.0).abs() < 1e-3);
    }
}
