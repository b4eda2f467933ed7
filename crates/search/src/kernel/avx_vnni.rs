//! AVX2 with instructions that multiply small integers and add the products to 32-bit sums.

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_srli_epi16,
};

use super::avx2::{factors, halves, in_parts, repeated, store};
use super::{Group, InputGroup, Stripe, Sums, Tile};

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    in_parts!(sums, sum_of(block, tile, offsets));
}

/// The sums of some inputs of a tile, from `FIRST` on.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn sum_of<const FIRST: usize, const COUNT: usize>(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    let mut lanes = [[_mm256_setzero_si256(); 2]; COUNT];
    for (lanes, offset) in lanes.iter_mut().zip(&offsets[FIRST..]) {
        *lanes = [_mm256_set1_epi32(-offset); 2];
    }
    for (stripe, tile) in block.iter().zip(tile) {
        let halves = halves(stripe);
        for (input, lanes) in lanes.iter_mut().enumerate() {
            let input = repeated(tile[FIRST + input]);
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
    in_parts!(sums, groups_of(block, tile));
}

/// The same for weights in four bits.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn groups_of<const FIRST: usize, const COUNT: usize>(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    let (four_bits, first_of_pair) = (_mm256_set1_epi8(15), _mm256_set1_epi32(0xffff));
    let mut totals = [[_mm256_setzero_si256(); 2]; COUNT];
    for (group, inputs) in block.iter().zip(tile) {
        let mut lanes = [[four_bits; 2]; COUNT];
        for (lanes, sum) in lanes.iter_mut().zip(&inputs.sums[FIRST..]) {
            *lanes = [_mm256_set1_epi32(*sum); 2];
        }
        for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
            let [left, right] = halves(packed);
            let rest = [_mm256_srli_epi16::<4>(left), _mm256_srli_epi16::<4>(right)];
            for ([left, right], numbers) in [([left, right], low), (rest, high)] {
                let weights = [_mm256_and_si256(left, four_bits), _mm256_and_si256(right, four_bits)];
                for (input, lanes) in lanes.iter_mut().enumerate() {
                    let input = repeated(numbers[FIRST + input]);
                    for half in 0..2 {
                        lanes[half] = _mm256_dpbusd_avx_epi32(lanes[half], weights[half], input);
                    }
                }
            }
        }
        // The sum of a group fits into 16 bits, so the other half of each lane is only its sign.
        let [left, right] = factors(group);
        let factors = [_mm256_and_si256(left, first_of_pair), _mm256_and_si256(right, first_of_pair)];
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
