//! A layer's weights, applied to every piece of a text.

use crate::matrix::{Rows, TOGETHER};

/// One row of weights per output, and what is added to each output.
pub(crate) struct Linear {
    pub(crate) weights: Rows,
    pub(crate) bias: Vec<f32>,
}

impl Linear {
    /// The outputs for each row of inputs.
    pub(crate) fn apply(&self, inputs: &[f32]) -> Vec<f32> {
        let inputs = Rows::scaled(inputs, self.weights.width());
        let outputs = self.weights.count();
        let mut result = vec![0.0; inputs.count() * outputs];
        let mut lines = Vec::new();
        // A few weights meet every input while they are still in the nearest cache.
        for (first, bias) in (0..outputs).step_by(TOGETHER).zip(self.bias.as_chunks::<TOGETHER>().0) {
            self.weights.products(first, &inputs, &mut lines);
            for (line, row) in lines.iter().zip(result.chunks_exact_mut(outputs)) {
                for (place, (product, bias)) in row[first..].iter_mut().zip(line.iter().zip(bias)) {
                    *place = product + bias;
                }
            }
        }
        result
    }
}
