//! Many scalar products at once, in 8-bit integers: the work of comparing vectors.
//!
//! The vectors that many inputs are multiplied with stand in blocks of sixteen, side by side, four numbers of each at a
//! time. So one instruction adds up products of all sixteen, and no sum has to be collected from the lanes of a register.

use crate::kernel::{DEPTH, Kernel, LANES, OFFSET, Stripe, TILE_INPUTS, Tile, quantised, scale_of};

const ZEROS: Stripe = [OFFSET; LANES * DEPTH];

/// Vectors of one width, in blocks of sixteen.
pub(crate) struct Columns {
    width: usize,
    /// Stripes of a block.
    depth: usize,
    stripes: Vec<Stripe>,
    /// A factor for each vector, filled up with zeros to whole blocks.
    scales: Vec<f32>,
}

/// What is multiplied with the vectors.
pub(crate) struct Inputs {
    depth: usize,
    /// Some inputs side by side; the last ones are filled up with zeros.
    tiles: Vec<Tile>,
    /// The scale of each.
    scales: Vec<f32>,
    /// What [`OFFSET`] adds to its products.
    offsets: Vec<i32>,
}

impl Columns {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, depth: width.div_ceil(DEPTH), stripes: Vec::new(), scales: Vec::new() }
    }

    /// Each row of `width` floats as a vector.
    #[cfg(any(test, feature = "builtin-model", feature = "table"))]
    pub(crate) fn scaled(values: &[f32], width: usize) -> Self {
        let mut columns = Self::new(width);
        columns.grow(values.len() / width);
        for (index, row) in values.chunks_exact(width).enumerate() {
            columns.set(index, row);
        }
        columns
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Makes room for so many vectors, in whole blocks. New ones are zero.
    pub(crate) fn grow(&mut self, count: usize) {
        let count = count.next_multiple_of(LANES).max(self.scales.len());
        self.scales.resize(count, 0.0);
        self.stripes.resize(count / LANES * self.depth, ZEROS);
    }

    pub(crate) fn set(&mut self, index: usize, vector: &[f32]) {
        assert_eq!(vector.len(), self.width, "all vectors have the same width");
        let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let scale = scale_of(largest);
        let factor = scale.recip();
        self.scales[index] = scale;
        let (block, lane) = (index / LANES, index % LANES);
        for (stripe, numbers) in self.stripes[block * self.depth..].iter_mut().zip(vector.chunks(DEPTH)) {
            for (place, number) in stripe[lane * DEPTH..].iter_mut().zip(numbers) {
                *place = quantised(number * factor).cast_unsigned().wrapping_add(OFFSET);
            }
        }
    }

    /// A vector as floats again, a little rounded.
    pub(crate) fn get(&self, index: usize) -> Vec<f32> {
        let (block, lane) = (index / LANES, index % LANES);
        let stripes = &self.stripes[block * self.depth..][..self.depth];
        let numbers = stripes.iter().flat_map(|stripe| &stripe[lane * DEPTH..][..DEPTH]).take(self.width);
        numbers.map(|number| f32::from(number.wrapping_sub(OFFSET).cast_signed()) * self.scales[index]).collect()
    }

    /// The products of every input with every vector: one row for each input, filled up to whole blocks.
    pub(crate) fn multiply(&self, inputs: &Inputs, kernel: Kernel) -> Vec<f32> {
        assert_eq!(self.depth, inputs.depth, "only vectors of the same width can be multiplied");
        let width = self.scales.len();
        let mut products = vec![0.0; inputs.count() * width];
        if self.depth == 0 || width == 0 {
            return products;
        }
        let (scales, _) = self.scales.as_chunks::<LANES>();
        // A block is multiplied with every input while it is in the nearest cache.
        for (block, (stripes, scales)) in self.stripes.chunks_exact(self.depth).zip(scales).enumerate() {
            let (input_scales, offsets) = (inputs.scales.chunks(TILE_INPUTS), inputs.offsets.chunks(TILE_INPUTS));
            let tiles = inputs.tiles.chunks_exact(self.depth).zip(input_scales).zip(offsets);
            for (((tile, inputs), offsets), rows) in tiles.zip(products.chunks_mut(width * TILE_INPUTS)) {
                let mut sums = [[0; LANES]; TILE_INPUTS];
                kernel.sum(stripes, tile, offsets, &mut sums[..inputs.len()]);
                for ((sums, input), row) in sums.iter().zip(inputs).zip(rows.chunks_exact_mut(width)) {
                    kernel.finish(sums, *input, scales, &[0.0; LANES], &mut row.as_chunks_mut::<LANES>().0[block]);
                }
            }
        }
        products
    }
}

impl Inputs {
    pub(crate) fn count(&self) -> usize {
        self.scales.len()
    }

    /// Each row of `width` floats as two inputs, the second of which is what rounding took from the first.
    pub(crate) fn in_two_parts(values: &[f32], width: usize, kernel: Kernel) -> Self {
        let mut inputs = Self::sized(values.len().checked_div(width).unwrap_or(0) * 2, width);
        for (index, row) in values.chunks_exact(width.max(1)).enumerate() {
            let (numbers, scale) = inputs.set(index * 2, row, kernel);
            let rest = row.iter().zip(numbers).map(|(value, number)| value - f32::from(number) * scale);
            inputs.set(index * 2 + 1, &rest.collect::<Vec<f32>>(), kernel);
        }
        inputs
    }

    fn sized(count: usize, width: usize) -> Self {
        let depth = width.div_ceil(DEPTH);
        let tiles = vec![[[0; DEPTH]; TILE_INPUTS]; count.div_ceil(TILE_INPUTS) * depth];
        Self { depth, tiles, scales: vec![0.0; count], offsets: vec![0; count] }
    }

    /// Sets an input. Returns its numbers and their scale.
    fn set(&mut self, index: usize, row: &[f32], kernel: Kernel) -> (Vec<i8>, f32) {
        let mut numbers = vec![0; self.depth * DEPTH];
        let (scale, sum) = kernel.quantise(row, &mut numbers[..row.len()]);
        let tile = &mut self.tiles[index / TILE_INPUTS * self.depth..];
        for (tile, numbers) in tile.iter_mut().zip(numbers.as_chunks::<DEPTH>().0) {
            tile[index % TILE_INPUTS] = *numbers;
        }
        self.scales[index] = scale;
        self.offsets[index] = sum * i32::from(OFFSET);
        (numbers, scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(place: usize) -> f32 {
        ((place * 7919) % 1009) as f32 / 504.5 - 1.0
    }

    #[test]
    fn products_are_nearly_those_of_floats() {
        for (width, count) in [(1, 1), (15, 17), (384, 33), (1000, 16)] {
            let vectors: Vec<f32> = (0..width * count).map(number).collect();
            let inputs: Vec<f32> = (0..width * 9).map(|place| number(place + 17) * 50.0).collect();
            let kernel = Kernel::best();
            let (columns, parts) = (Columns::scaled(&vectors, width), Inputs::in_two_parts(&inputs, width, kernel));
            let products = columns.multiply(&parts, kernel);
            let row = count.next_multiple_of(LANES);
            assert_eq!((products.len(), parts.count()), (18 * row, 18));
            for (products, input) in products.chunks(row * 2).zip(inputs.chunks(width)) {
                for (place, vector) in vectors.chunks(width).enumerate() {
                    let product = products[place] + products[row + place];
                    let expected = vector.iter().zip(input).map(|(left, right)| left * right).sum::<f32>();
                    let bound = (width as f32).sqrt() * 0.3;
                    assert!((product - expected).abs() < bound, "{product} instead of {expected} at {width}");
                }
            }
        }
    }

    #[test]
    fn a_vector_comes_back_as_it_was() {
        let mut columns = Columns::new(3);
        columns.grow(18);
        columns.set(17, &[0.5, -1.0, 0.25]);
        assert_eq!(columns.get(0), [0.0; 3]);
        for (number, expected) in columns.get(17).iter().zip([0.5, -1.0, 0.25]) {
            assert!((number - expected).abs() < 5e-3);
        }
    }
}
