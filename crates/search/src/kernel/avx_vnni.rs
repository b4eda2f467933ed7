//! AVX2 with instructions that multiply small integers and add the products to 32-bit sums.

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_srli_epi16,
};

use super::avx2::{factors, halves, repeated, store};
use super::{Group, InputGroup, Stripe, Sums, Tile};

/// So many inputs at once: their sums fill the registers.
const INPUTS: usize = 4;

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    for (part, (sums, offsets)) in sums.chunks_mut(INPUTS).zip(offsets.chunks(INPUTS)).enumerate() {
        let first = part * INPUTS;
        match sums.len() {
            1 => sum_of::<1>(block, tile, first, offsets, sums),
            2 => sum_of::<2>(block, tile, first, offsets, sums),
            3 => sum_of::<3>(block, tile, first, offsets, sums),
            _ => sum_of::<INPUTS>(block, tile, first, offsets, sums),
        }
    }
}

/// The sums of some inputs of a tile, from `first` on.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn sum_of<const COUNT: usize>(block: &[Stripe], tile: &[Tile], first: usize, offsets: &[i32], sums: &mut [Sums]) {
    let mut lanes: [[__m256i; 2]; COUNT] = std::array::from_fn(|input| [_mm256_set1_epi32(-offsets[input]); 2]);
    for (stripe, tile) in block.iter().zip(tile) {
        let halves = halves(stripe);
        for (lanes, numbers) in lanes.iter_mut().zip(&tile[first..]) {
            let input = repeated(*numbers);
            for half in 0..2 {
                lanes[half] = _mm256_dpbusd_avx_epi32(lanes[half], halves[half], input);
            }
        }
    }
    for (sums, lanes) in sums.iter_mut().zip(lanes) {
        store(lanes, sums);
    }
}

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn sum_groups(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    for (part, sums) in sums.chunks_mut(INPUTS).enumerate() {
        let first = part * INPUTS;
        match sums.len() {
            1 => groups_of::<1>(block, tile, first, sums),
            2 => groups_of::<2>(block, tile, first, sums),
            3 => groups_of::<3>(block, tile, first, sums),
            _ => groups_of::<INPUTS>(block, tile, first, sums),
        }
    }
}

/// The same for weights in four bits.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn groups_of<const COUNT: usize>(block: &[Group], tile: &[InputGroup], first: usize, sums: &mut [Sums]) {
    let (four_bits, first_of_pair) = (_mm256_set1_epi8(15), _mm256_set1_epi32(0xffff));
    let mut totals = [[_mm256_setzero_si256(); 2]; COUNT];
    for (group, inputs) in block.iter().zip(tile) {
        let mut lanes: [[__m256i; 2]; COUNT] =
            std::array::from_fn(|input| [_mm256_set1_epi32(inputs.sums[first + input]); 2]);
        for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
            let packed = halves(packed);
            let rest = packed.map(|half| _mm256_srli_epi16::<4>(half));
            for (weights, numbers) in [(packed, low), (rest, high)] {
                let weights = weights.map(|half| _mm256_and_si256(half, four_bits));
                for (lanes, numbers) in lanes.iter_mut().zip(&numbers[first..]) {
                    let input = repeated(*numbers);
                    for half in 0..2 {
                        lanes[half] = _mm256_dpbusd_avx_epi32(lanes[half], weights[half], input);
                    }
                }
            }
        }
        // The sum of a group fits into 16 bits, so the other half of each lane is only its sign.
        let factors = factors(group).map(|half| _mm256_and_si256(half, first_of_pair));
        for (totals, lanes) in totals.iter_mut().zip(lanes) {
            for half in 0..2 {
                totals[half] = _mm256_dpwssd_avx_epi32(totals[half], lanes[half], factors[half]);
            }
        }
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        store(totals, sums);
    }
}
