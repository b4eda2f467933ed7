//! Matrix products in 16-bit integers, which compilers turn into the widest multiply-and-add a machine has.
//!
//! Weights and inputs are scaled row by row to twelve bits, so that a stretch of products fits into 32 bits whatever
//! the numbers are, and nothing that four-bit weights know is lost.

use super::stretch::{self, STRETCH};

/// The largest magnitude of a scaled number. `STRETCH * LARGEST * LARGEST` must fit into an `i32`.
const LARGEST: f32 = 2047.0;
const _: () = assert!(STRETCH as i64 * 2047 * 2047 <= i32::MAX as i64);

/// Rows of scaled numbers.
pub(super) struct Rows {
    width: usize,
    numbers: Vec<i16>,
    scales: Vec<f32>,
}

impl Rows {
    /// Scales each row of `width` floats by its largest one.
    pub(super) fn scaled(values: &[f32], width: usize) -> Self {
        assert_eq!(width % STRETCH, 0, "rows are made of whole stretches");
        let mut rows = Self { width, numbers: Vec::with_capacity(values.len()), scales: Vec::new() };
        for row in values.chunks_exact(width) {
            let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            let scale = if largest > 0.0 { largest / LARGEST } else { 1.0 };
            let factor = scale.recip();
            rows.scales.push(scale);
            rows.numbers.extend(row.iter().map(|value| nearest(value * factor)));
        }
        rows
    }

    fn count(&self) -> usize {
        self.scales.len()
    }

    fn row(&self, index: usize) -> &[i16] {
        &self.numbers[index * self.width..][..self.width]
    }
}

/// Halves are rounded away from zero. Without `round`, which is a call on machines that have no instruction for it.
fn nearest(value: f32) -> i16 {
    (value + 0.5_f32.copysign(value)) as i16
}

/// A layer's weights, one row per output, and what is added to each output.
pub(super) struct Linear {
    pub(super) weights: Rows,
    pub(super) bias: Vec<f32>,
}

impl Linear {
    /// The outputs for each row of inputs.
    pub(super) fn apply(&self, inputs: &[f32]) -> Vec<f32> {
        let inputs = Rows::scaled(inputs, self.weights.width);
        let outputs = self.weights.count();
        let mut result = vec![0.0; inputs.count() * outputs];
        // A block of weights meets every input while it is still in the nearest cache.
        for output in (0..outputs).step_by(4) {
            let weights = [0, 1, 2, 3].map(|next| self.weights.row(output + next));
            let scales = [0, 1, 2, 3].map(|next| self.weights.scales[output + next]);
            for input in (0..inputs.count()).step_by(2) {
                // The last one of an odd count is simply done twice.
                let pair = [input, (input + 1).min(inputs.count() - 1)];
                let sums = products(pair.map(|row| inputs.row(row)), weights);
                for (row, sums) in pair.into_iter().zip(sums) {
                    let place = &mut result[row * outputs + output..][..4];
                    for next in 0..4 {
                        place[next] = sums[next] * scales[next] * inputs.scales[row] + self.bias[output + next];
                    }
                }
            }
        }
        result
    }
}

/// The scalar products of two rows with four others. Six loads for eight products.
fn products(inputs: [&[i16]; 2], weights: [&[i16]; 4]) -> [[f32; 4]; 2] {
    let inputs = inputs.map(|row| row.as_chunks::<STRETCH>().0);
    let weights = weights.map(|row| row.as_chunks::<STRETCH>().0);
    let mut sums = [[0.0; 4]; 2];
    for stretch in 0..inputs[0].len() {
        let part = stretch::products(inputs.map(|row| &row[stretch]), weights.map(|row| &row[stretch]));
        for (sums, part) in sums.iter_mut().zip(part) {
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum += part as f32;
            }
        }
    }
    sums
}
