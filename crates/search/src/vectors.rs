//! Vectors in memory, all compared with every query: no approximate index, and quick enough for tens of thousands.
//!
//! A vector is stored in 8 bits. A request has 8 bits and 8 more for what the first leave over, so only the stored one is
//! rounded.

use crate::MAX_DIMENSION;
use crate::columns::{Columns, Inputs};
use crate::kernel::{Kernel, LANES};
use crate::query::near;

/// One vector for each slot, adjacent in memory.
pub(crate) struct Vectors {
    columns: Columns,
    states: Vec<State>,
}

/// What is known of a slot's vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    /// Close to the slot's vector: searched with until that is there.
    Interim,
    Own,
}

impl Vectors {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { columns: Columns::new(dimension), states: Vec::new() }
    }

    /// How many numbers a vector has; zero while that is unknown.
    pub(crate) fn dimension(&self) -> usize {
        self.columns.width()
    }

    /// Says how many numbers a vector has, while that is unknown.
    pub(crate) fn expect_dimension(&mut self, dimension: usize) {
        if self.columns.width() == 0 && self.states.is_empty() {
            self.columns = Columns::new(dimension);
        }
    }

    /// Keeps a vector at length one for a slot. Returns false for one of another dimension, or without a direction.
    pub(crate) fn set(&mut self, slot: u32, vector: &[f32]) -> bool {
        // A remote model's dimension is known by its first vector.
        if normalized(vector).is_some() {
            self.expect_dimension(vector.len());
        }
        self.put(slot, vector, State::Own)
    }

    /// Searches with a vector that is close to the slot's until that is set. One that is there stays.
    pub(crate) fn set_interim(&mut self, slot: u32, vector: &[f32]) -> bool {
        !self.has(slot) && self.columns.width() > 0 && self.put(slot, vector, State::Interim)
    }

    fn put(&mut self, slot: u32, vector: &[f32], state: State) -> bool {
        let fits = |vector: &Vec<f32>| vector.len() == self.columns.width() && vector.len() <= MAX_DIMENSION;
        let Some(vector) = normalized(vector).filter(fits) else { return false };
        let slot = slot as usize;
        if self.states.len() <= slot {
            self.states.resize(slot + 1, State::Missing);
            self.columns.grow(self.states.len());
        }
        self.columns.set(slot, &vector);
        self.states[slot] = state;
        true
    }

    pub(crate) fn clear(&mut self, slot: u32) {
        if let Some(state) = self.states.get_mut(slot as usize) {
            *state = State::Missing;
        }
    }

    /// Whether a slot has its own vector.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.state(slot) == State::Own
    }

    /// A slot's own vector.
    pub(crate) fn get(&self, slot: u32) -> Option<Vec<f32>> {
        self.has(slot).then(|| self.columns.get(slot as usize))
    }

    fn state(&self, slot: u32) -> State {
        self.states.get(slot as usize).copied().unwrap_or(State::Missing)
    }

    /// The similarity of each slot's vector to a query, by its vectors. `None` for slots without a vector, and nothing if
    /// the dimension is another one.
    pub(crate) fn nearness(&self, others: &[Vec<f32>]) -> Vec<Option<f32>> {
        if others.is_empty() || others.iter().any(|other| other.len() != self.columns.width()) {
            return Vec::new();
        }
        let kernel = Kernel::best();
        let inputs = Inputs::in_two_parts(&others.concat(), self.columns.width(), kernel);
        let products = self.columns.multiply(&inputs, kernel);
        let rows: Vec<&[f32]> = products.chunks(self.states.len().next_multiple_of(LANES).max(LANES)).collect();
        let (pairs, _) = rows.as_chunks::<2>();
        let of_slot = |slot: usize| near(pairs.iter().map(|[coarse, fine]| coarse[slot] + fine[slot]));
        self.states.iter().enumerate().map(|(slot, state)| (*state != State::Missing).then(|| of_slot(slot))).collect()
    }

    /// The same for one slot.
    pub(crate) fn nearness_of(&self, slot: u32, others: &[Vec<f32>]) -> Option<f32> {
        if others.is_empty() || others.iter().any(|other| other.len() != self.columns.width()) {
            return None;
        }
        let vector = (self.state(slot) != State::Missing).then(|| self.columns.get(slot as usize))?;
        Some(near(others.iter().map(|other| dot(other, &vector))))
    }
}

/// Whether these are the numbers of a vector: they have a direction.
pub fn has_direction(vector: &[f32]) -> bool {
    normalized(vector).is_some()
}

/// A normalized vector of the same direction, unless it is zero.
pub(crate) fn normalized(vector: &[f32]) -> Option<Vec<f32>> {
    let length = dot(vector, vector).sqrt();
    let has_direction = length.is_finite() && length > f32::MIN_POSITIVE;
    has_direction.then(|| vector.iter().map(|number| number / length).collect())
}

/// The scalar product, in eight independent sums so that the compiler vectorises it.
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
    fn a_vector_is_stored_normalized() {
        let mut vectors = Vectors::new(2);
        assert!(vectors.set(3, &[3.0, 4.0]));
        let kept = vectors.get(3).expect("it was just set");
        assert!((kept[0] - 0.6).abs() < 5e-3 && (kept[1] - 0.8).abs() < 5e-3, "{kept:?}");
        let nearness = vectors.nearness(&[vec![1.0, 0.0]]);
        assert!(nearness[..3] == [None; 3] && (nearness[3].expect("it is there") - 0.6).abs() < 5e-3);
        assert_eq!(vectors.get(2), None);
        vectors.clear(3);
        assert_eq!(vectors.get(3), None);
    }

    #[test]
    fn an_interim_vector_is_compared_until_the_own_one_is_there() {
        let mut vectors = Vectors::new(2);
        let nearness = |vectors: &Vectors| vectors.nearness(&[vec![1.0, 0.0]])[0];
        assert!(vectors.set_interim(0, &[1.0, 0.0]));
        assert!(!vectors.has(0) && vectors.get(0).is_none());
        assert!(nearness(&vectors).is_some_and(|near| near > 0.99));
        assert!(vectors.nearness_of(0, &[vec![1.0, 0.0]]).is_some());
        assert!(vectors.set(0, &[0.0, 1.0]) && !vectors.set_interim(0, &[1.0, 0.0]));
        assert!(nearness(&vectors).is_some_and(|near| near < 0.01));
        assert!(!Vectors::new(0).set_interim(0, &[1.0]), "only the model says how long its vectors are");
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        let mut vectors = Vectors::new(2);
        for wrong in [vec![1.0], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0], Vec::new()] {
            assert!(!vectors.set(0, &wrong), "{wrong:?}");
        }
        assert!(!Vectors::new(0).set(0, &vec![1.0; MAX_DIMENSION + 1]), "its products could overflow");
        let (mut longest, vector) = (Vectors::new(0), vec![1.0; MAX_DIMENSION]);
        assert!(longest.set(0, &vector));
        let unit = normalized(&vector).expect("it has a direction");
        let near = longest.nearness(&[unit])[0];
        assert!(near.is_some_and(|near| (near - 1.0).abs() < 1e-2), "{near:?}");
    }

    #[test]
    fn products_of_any_length_are_right() {
        let numbers: Vec<f32> = (0..19_u8).map(f32::from).collect();
        assert!((dot(&numbers, &numbers) - 2109.0).abs() < 1e-3);
    }
}
