//! Plain arithmetic, which compilers vectorise with what every machine of the architecture has.

use super::{DEPTH, Group, InputGroup, LANES, Stripe, Sums, Tile};

pub(super) fn sum(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    for (input, (sums, offset)) in sums.iter_mut().zip(offsets).enumerate() {
        *sums = [-offset; LANES];
        for (stripe, tile) in block.iter().zip(tile) {
            let numbers = tile[input].map(i32::from);
            for (sum, column) in sums.iter_mut().zip(stripe.as_chunks::<DEPTH>().0) {
                for place in 0..DEPTH {
                    *sum += i32::from(column[place]) * numbers[place];
                }
            }
        }
    }
}

pub(super) fn sum_groups(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    for (input, sums) in sums.iter_mut().enumerate() {
        *sums = [0; LANES];
        for (group, inputs) in block.iter().zip(tile) {
            // Sixteen bits are enough for the products of a group: eight of at most 15 * 127.
            let mut lanes = [0_i16; LANES * DEPTH];
            for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
                add_products(&mut lanes, &packed.map(|byte| byte & 15), low[input]);
                add_products(&mut lanes, &packed.map(|byte| byte >> 4), high[input]);
            }
            let columns = lanes.as_chunks::<DEPTH>().0.iter().zip(group.factors.as_chunks::<2>().0);
            for (sum, (lanes, [factor, _])) in sums.iter_mut().zip(columns) {
                let lanes: i32 = lanes.iter().map(|lane| i32::from(*lane)).sum();
                *sum += (lanes + inputs.sums[input]) * i32::from(*factor);
            }
        }
    }
}

/// Number by number, which asks for nothing but multiplication and addition of neighbours.
#[inline(always)]
fn add_products(lanes: &mut [i16; LANES * DEPTH], weights: &Stripe, numbers: [i8; DEPTH]) {
    let mut repeated = [0_i16; LANES * DEPTH];
    for four in repeated.as_chunks_mut::<DEPTH>().0 {
        *four = numbers.map(i16::from);
    }
    for place in 0..LANES * DEPTH {
        lanes[place] += i16::from(weights[place]) * repeated[place];
    }
}
