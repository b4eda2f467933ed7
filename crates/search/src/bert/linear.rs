//! Applies the weights of a layer to every piece of a text.

use crate::four_bits::{FourBitColumns, FourBitInputs};
use crate::kernel::Kernel;
use crate::matrix::{ROWS_AT_ONCE, Rows};

/// A matrix that every text is multiplied with, and what is added to what comes out.
pub(crate) struct Linear {
    pub(crate) weights: Matrix,
    pub(crate) bias: Vec<f32>,
}

/// The weights of a layer.
pub(crate) enum Matrix {
    /// In 16 bits, one row per output: of models in floats, which may need as many.
    Rows(Rows),
    /// In four bits, one column per output: of the built-in model.
    #[cfg_attr(not(feature = "builtin-model"), expect(dead_code, reason = "only that model has such weights"))]
    Columns(FourBitColumns),
}

impl Linear {
    /// The outputs for each row of inputs.
    pub(crate) fn apply(&self, inputs: &[f32], kernel: Kernel) -> Vec<f32> {
        let [outputs] = Self::apply_all([self], inputs, kernel);
        outputs
    }

    /// The outputs of several for the same inputs.
    pub(crate) fn apply_all<const N: usize>(linears: [&Self; N], inputs: &[f32], kernel: Kernel) -> [Vec<f32>; N] {
        let (mut in_8_bits, mut in_16_bits) = (None, None);
        linears.map(|linear| match &linear.weights {
            Matrix::Columns(columns) => {
                let inputs = in_8_bits.get_or_insert_with(|| FourBitInputs::scaled(inputs, columns.width(), kernel));
                columns.multiply(inputs, &linear.bias, kernel)
            }
            Matrix::Rows(rows) => {
                linear.by_rows(rows, in_16_bits.get_or_insert_with(|| Rows::scaled(inputs, rows.width())))
            }
        })
    }

    fn by_rows(&self, rows: &Rows, inputs: &Rows) -> Vec<f32> {
        let outputs = self.bias.len();
        let mut result = vec![0.0; inputs.count() * outputs];
        let mut lines = Vec::new();
        for (first, bias) in (0..outputs).step_by(ROWS_AT_ONCE).zip(self.bias.as_chunks::<ROWS_AT_ONCE>().0) {
            rows.products(first, inputs, &mut lines);
            for (line, row) in lines.iter().zip(result.chunks_exact_mut(outputs)) {
                for (place, (product, bias)) in row[first..].iter_mut().zip(line.iter().zip(bias)) {
                    *place = product + bias;
                }
            }
        }
        result
    }
}
