//! Vectors in memory, all compared with every query: exact, and quick enough for tens of thousands.

/// One vector for each slot, side by side.
pub(crate) struct Vectors {
    dimension: usize,
    numbers: Vec<f32>,
    present: Vec<bool>,
}

impl Vectors {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { dimension, numbers: Vec::new(), present: Vec::new() }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// Keeps a vector of length one for a slot. Says no to one of another dimension and to one without a direction.
    pub(crate) fn set(&mut self, slot: u32, vector: &[f32]) -> bool {
        let Some(vector) = normalized(vector).filter(|vector| vector.len() == self.dimension) else { return false };
        let slot = slot as usize;
        if self.present.len() <= slot {
            self.present.resize(slot + 1, false);
            self.numbers.resize((slot + 1) * self.dimension, 0.0);
        }
        self.numbers[slot * self.dimension..][..self.dimension].copy_from_slice(&vector);
        self.present[slot] = true;
        true
    }

    pub(crate) fn clear(&mut self, slot: u32) {
        if let Some(present) = self.present.get_mut(slot as usize) {
            *present = false;
        }
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&[f32]> {
        let slot = slot as usize;
        let is_present = self.present.get(slot).copied().unwrap_or(false);
        is_present.then(|| &self.numbers[slot * self.dimension..][..self.dimension])
    }
}

/// A vector of the same direction and of length one, if it has a direction.
pub(crate) fn normalized(vector: &[f32]) -> Option<Vec<f32>> {
    let length = dot(vector, vector).sqrt();
    let has_direction = length.is_finite() && length > f32::MIN_POSITIVE;
    has_direction.then(|| vector.iter().map(|number| number / length).collect())
}

/// The scalar product, in eight sums side by side so that it becomes vector instructions.
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
        assert_eq!(vectors.get(3), Some([0.6, 0.8].as_slice()));
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
