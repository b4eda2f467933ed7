//! Many scalar products at once with weights in four bits: the work of the built-in model.
//!
//! The weights stay as they are stored, 32 of them with one scale: half the memory to go through for each request, and
//! products so small that many of them can be added up in 16 bits. The scales of a column become integers, too, so that
//! a sum is rounded only once. Columns stand in blocks of sixteen, as in [`crate::columns`].

use crate::kernel::{DEPTH, GROUP, GROUP_STRIPES, Group, InputGroup, Kernel, LANES, TILE_INPUTS, Tile};

/// The largest magnitude of a factor.
const MAX_FACTOR: f32 = 1023.0;
/// Columns are no longer than this, so that sums fit into 32 bits.
const MAX_WIDTH: usize = 2048;
const _: () = assert!(MAX_WIDTH as i64 * 8 * 127 * MAX_FACTOR as i64 <= i32::MAX as i64);

/// Columns of one width, in blocks of sixteen.
pub(crate) struct FourBitColumns {
    /// Groups of a column.
    depth: usize,
    groups: Vec<Group>,
    /// A scale for each column.
    scales: Vec<f32>,
}

/// What is multiplied with the columns.
pub(crate) struct FourBitInputs {
    depth: usize,
    /// Some inputs side by side; the last ones are filled up with zeros.
    tiles: Vec<InputGroup>,
    scales: Vec<f32>,
}

impl FourBitColumns {
    /// From 32 weights at a time, two in a byte with the first one in the lower bits, and their scales.
    ///
    /// # Panics
    ///
    /// If these are not whole blocks of columns, or a column is too long.
    #[cfg(feature = "builtin-model")]
    pub(crate) fn new<'a>(
        columns: usize,
        width: usize,
        weights: impl Iterator<Item = (&'a [u8; GROUP / 2], f32)>,
    ) -> Self {
        assert!(columns.is_multiple_of(LANES) && width.is_multiple_of(GROUP) && width <= MAX_WIDTH);
        let depth = width / GROUP;
        let empty = Group { packed: [[0; LANES * DEPTH]; GROUP_STRIPES / 2], factors: [0; LANES * 2] };
        let mut groups = vec![empty; columns / LANES * depth];
        let weights: Vec<_> = weights.collect();
        let mut scales = Vec::with_capacity(columns);
        for (column, weights) in weights.chunks_exact(depth).enumerate() {
            let largest = weights.iter().fold(0.0_f32, |largest, (_, scale)| largest.max(scale.abs()));
            let column_scale = if largest > 0.0 { largest / MAX_FACTOR } else { 1.0 };
            scales.push(column_scale);
            let lane = column % LANES;
            for (group, (bytes, scale)) in groups[column / LANES * depth..].iter_mut().zip(weights) {
                group.factors[lane * 2..][..2].fill((scale / column_scale).round() as i16);
                group.set_weights(lane, bytes);
            }
        }
        Self { depth, groups, scales }
    }

    pub(crate) fn width(&self) -> usize {
        self.depth * GROUP
    }

    /// The products of every input with every column, with a bias for each column: one row for each input.
    pub(crate) fn multiply(&self, inputs: &FourBitInputs, bias: &[f32], kernel: Kernel) -> Vec<f32> {
        assert_eq!(self.depth, inputs.depth, "only columns of the same width can be multiplied");
        let width = self.scales.len();
        let mut products = vec![0.0; inputs.scales.len() * width];
        let (scales, _) = self.scales.as_chunks::<LANES>();
        let (bias, _) = bias.as_chunks::<LANES>();
        // A block is multiplied with every input while it is in the nearest cache.
        for (block, groups) in self.groups.chunks_exact(self.depth).enumerate() {
            let tiles = inputs.tiles.chunks_exact(self.depth).zip(inputs.scales.chunks(TILE_INPUTS));
            for ((tile, inputs), rows) in tiles.zip(products.chunks_mut(width * TILE_INPUTS)) {
                let mut sums = [[0; LANES]; TILE_INPUTS];
                kernel.sum_groups(groups, tile, &mut sums[..inputs.len()]);
                for ((sums, input), row) in sums.iter().zip(inputs).zip(rows.chunks_exact_mut(width)) {
                    let products = &mut row.as_chunks_mut::<LANES>().0[block];
                    kernel.finish(sums, *input, &scales[block], &bias[block], products);
                }
            }
        }
        products
    }
}

impl FourBitInputs {
    /// Each row of `width` floats as an input.
    pub(crate) fn scaled(values: &[f32], width: usize, kernel: Kernel) -> Self {
        let depth = width / GROUP;
        let rows = values.len() / width;
        let mut tiles = Vec::with_capacity(rows.div_ceil(TILE_INPUTS) * depth);
        let mut scales = Vec::with_capacity(rows);
        let mut numbers = vec![0; width * TILE_INPUTS];
        for rows in values.chunks(width * TILE_INPUTS) {
            for (row, numbers) in rows.chunks_exact(width).zip(numbers.chunks_exact_mut(width)) {
                scales.push(kernel.quantise(row, numbers).0);
            }
            numbers[rows.len()..].fill(0);
            tiles.extend((0..depth).map(|group| InputGroup::new(side_by_side(&numbers, width, group))));
        }
        Self { depth, tiles, scales }
    }
}

/// A group of the numbers of some inputs.
fn side_by_side(numbers: &[i8], width: usize, group: usize) -> [Tile; GROUP_STRIPES] {
    let mut tiles = [[[0; DEPTH]; TILE_INPUTS]; GROUP_STRIPES];
    for (input, numbers) in numbers.chunks_exact(width).enumerate() {
        let (stripes, _) = numbers[group * GROUP..][..GROUP].as_chunks::<DEPTH>();
        for (tile, numbers) in tiles.iter_mut().zip(stripes) {
            tile[input] = *numbers;
        }
    }
    tiles
}

#[cfg(all(test, feature = "builtin-model"))]
mod tests {
    use super::*;

    fn number(place: usize) -> f32 {
        ((place * 7919) % 1009) as f32 / 504.5 - 1.0
    }

    #[test]
    fn products_are_nearly_those_of_floats() {
        for (width, count) in [(32, 16), (384, 48), (2048, 16)] {
            let bytes: Vec<[u8; GROUP / 2]> = (0..width / GROUP * count)
                .map(|group| std::array::from_fn(|place| (group * 31 + place * 7) as u8))
                .collect();
            let scales: Vec<f32> = (0..bytes.len()).map(|group| 0.5 + number(group) / 4.0).collect();
            let columns = FourBitColumns::new(count, width, bytes.iter().zip(scales.iter().copied()));
            let weights: Vec<f32> = bytes
                .iter()
                .zip(&scales)
                .flat_map(|(bytes, scale)| {
                    bytes
                        .iter()
                        .flat_map(|byte| [byte & 15, byte >> 4])
                        .map(move |bits| (f32::from(bits) - 8.0) * scale)
                })
                .collect();
            let inputs: Vec<f32> = (0..width * 9).map(|place| number(place + 17) * 50.0).collect();
            let kernel = Kernel::best();
            let scaled = FourBitInputs::scaled(&inputs, width, kernel);
            let products = columns.multiply(&scaled, &vec![1.0; count], kernel);
            assert_eq!((products.len(), columns.width()), (9 * count, width));
            for (products, input) in products.chunks(count).zip(inputs.chunks(width)) {
                for (product, column) in products.iter().zip(weights.chunks(width)) {
                    let expected = 1.0 + column.iter().zip(input).map(|(left, right)| left * right).sum::<f32>();
                    let bound = (width as f32).sqrt() * 1.5;
                    assert!((product - expected).abs() < bound, "{product} instead of {expected} at {width}");
                }
            }
        }
    }
}
