//! Many scalar products at once, in 16-bit integers: the work of models in floats.
//!
//! Each row is scaled to twelve bits. Then a few hundred products fit into 32 bits whatever the numbers are, and CPUs
//! multiply and add integers of that size faster than any other type that is precise enough.

mod kernel;

/// The largest magnitude of a scaled number.
const MAX_QUANTISED: f32 = 2047.0;
/// Rows are padded with zeros to a multiple of this.
const STEP: usize = 16;
/// The number of rows that are multiplied together.
pub(crate) const ROWS_AT_ONCE: usize = 4;

/// Rows of scaled numbers, all of the same width.
pub(crate) struct Rows {
    width: usize,
    padded: usize,
    numbers: Vec<i16>,
    scales: Vec<f32>,
}

impl Rows {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, padded: width.next_multiple_of(STEP), numbers: Vec::new(), scales: Vec::new() }
    }

    /// Each row of `width` floats, scaled by its largest one.
    pub(crate) fn scaled(values: &[f32], width: usize) -> Self {
        let mut rows = Self::new(width);
        rows.numbers.reserve(values.len() / width * rows.padded);
        for row in values.chunks_exact(width) {
            rows.push(row);
        }
        rows
    }

    pub(crate) fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.width, "all rows have the same width");
        let (scale, numbers) = scaled(row);
        self.scales.push(scale);
        self.numbers.extend(numbers);
        self.numbers.resize(self.scales.len() * self.padded, 0);
    }

    /// A row as floats again, a little rounded.
    pub(crate) fn get(&self, index: usize) -> Vec<f32> {
        self.row(index)[..self.width].iter().map(|number| f32::from(*number) * self.scales[index]).collect()
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn count(&self) -> usize {
        self.scales.len()
    }

    fn row(&self, index: usize) -> &[i16] {
        &self.numbers[index * self.padded..][..self.padded]
    }

    /// The scalar products of four rows, from `first` on, with each of some others: one line for each of those.
    pub(crate) fn products(&self, first: usize, others: &Rows, lines: &mut Vec<[f32; ROWS_AT_ONCE]>) {
        assert_eq!(self.padded, others.padded, "only rows of the same width can be multiplied");
        lines.clear();
        lines.resize(others.count(), [0.0; ROWS_AT_ONCE]);
        let four = [0, 1, 2, 3].map(|next| self.row(first + next));
        kernel::products(four, &others.numbers, lines);
        let scales = [0, 1, 2, 3].map(|next| self.scales[first + next]);
        for (line, other) in lines.iter_mut().zip(&others.scales) {
            for (product, scale) in line.iter_mut().zip(scales) {
                *product *= scale * other;
            }
        }
    }
}

/// The scale of a row, and its numbers in that scale.
fn scaled(row: &[f32]) -> (f32, impl Iterator<Item = i16>) {
    let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let scale = if largest > 0.0 { largest / MAX_QUANTISED } else { 1.0 };
    let factor = scale.recip();
    (scale, row.iter().map(move |value| nearest(value * factor)))
}

/// Rounds a small number. After adding a number this large, a float has no fraction bits left, and its lowest bits are
/// the integer: three instructions that vectorise, whereas a cast also checks for overflow and NaN.
fn nearest(value: f32) -> i16 {
    const LARGE: f32 = 12_582_912.0;
    ((value + LARGE).to_bits() as i32 - LARGE.to_bits() as i32) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_nearly_those_of_floats() {
        for width in [1, 15, 16, 384, 1000] {
            let number = |place: usize| ((place * 7919) % 1009) as f32 / 504.5 - 1.0;
            let rows: Vec<f32> = (0..width * 5).map(number).collect();
            let others: Vec<f32> = (0..width * 3).map(|place| number(place + 17) * 50.0).collect();
            let mut lines = Vec::new();
            Rows::scaled(&rows, width).products(1, &Rows::scaled(&others, width), &mut lines);
            for (line, other) in lines.iter().zip(others.chunks(width)) {
                for (product, row) in line.iter().zip(rows.chunks(width).skip(1)) {
                    let expected: f32 = row.iter().zip(other).map(|(left, right)| left * right).sum();
                    let bound = 50.0 * width as f32 / 1000.0;
                    assert!((product - expected).abs() < bound, "{product} instead of {expected} at width {width}");
                }
            }
            assert_eq!(lines.len(), 3);
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        let rounded = [-2047.0, -1.6, -0.4, 0.0, 0.4, 0.6, 2046.7].map(nearest);
        assert_eq!(rounded, [-2047, -2, 0, 0, 0, 1, 2047]);
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        let rows = Rows::scaled(&[0.5, -1.0, 0.25], 3);
        for (number, expected) in rows.get(0).iter().zip([0.5, -1.0, 0.25]) {
            assert!((number - expected).abs() < 1e-3);
        }
    }
}
