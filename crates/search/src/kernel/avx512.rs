//! AVX-512 with instructions that multiply small integers and add the products to 32-bit sums.

use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_srli_epi16, _mm512_storeu_si512,
};

use super::{Group, InputGroup, LANES, Stripe, Sums, TILE_INPUTS, Tile};

/// Calls a function with the number of inputs as a constant, so that their sums stay in registers.
macro_rules! for_each_count {
    ($count:expr, $function:ident($($argument:expr),*)) => {
        match $count {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            3 => $function::<3>($($argument),*),
            4 => $function::<4>($($argument),*),
            5 => $function::<5>($($argument),*),
            6 => $function::<6>($($argument),*),
            7 => $function::<7>($($argument),*),
            _ => $function::<TILE_INPUTS>($($argument),*),
        }
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    for_each_count!(sums.len(), sum_of(block, tile, offsets, sums));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sum_of<const INPUTS: usize>(block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
    let mut lanes = [_mm512_setzero_si512(); INPUTS];
    for (lanes, offset) in lanes.iter_mut().zip(offsets) {
        *lanes = _mm512_set1_epi32(-offset);
    }
    for (stripe, tile) in block.iter().zip(tile) {
        let stripe = load(stripe);
        for (lanes, numbers) in lanes.iter_mut().zip(tile) {
            let input = _mm512_set1_epi32(i32::from_ne_bytes(numbers.map(i8::cast_unsigned)));
            *lanes = _mm512_dpbusd_epi32(*lanes, stripe, input);
        }
    }
    for (lanes, sums) in lanes.into_iter().zip(sums) {
        store(lanes, sums);
    }
}

/// The same for weights in four bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn sum_groups(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    for_each_count!(sums.len(), groups_of(block, tile, sums));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn groups_of<const INPUTS: usize>(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    let (four_bits, first_of_pair) = (_mm512_set1_epi8(15), _mm512_set1_epi32(0xffff));
    let mut totals = [_mm512_setzero_si512(); INPUTS];
    for (group, inputs) in block.iter().zip(tile) {
        let mut lanes = [four_bits; INPUTS];
        for (lanes, sum) in lanes.iter_mut().zip(&inputs.sums) {
            *lanes = _mm512_set1_epi32(*sum);
        }
        for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
            let packed = load(packed);
            let rest = _mm512_srli_epi16::<4>(packed);
            for (weights, numbers) in [(packed, low), (rest, high)] {
                let weights = _mm512_and_si512(weights, four_bits);
                for (lanes, numbers) in lanes.iter_mut().zip(numbers) {
                    let input = _mm512_set1_epi32(i32::from_ne_bytes(numbers.map(i8::cast_unsigned)));
                    *lanes = _mm512_dpbusd_epi32(*lanes, weights, input);
                }
            }
        }
        // The sum of a group fits into 16 bits, so the other half of each lane is only its sign.
        let factors = _mm512_and_si512(load_numbers(&group.factors), first_of_pair);
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            *total = _mm512_dpwssd_epi32(*total, lanes, factors);
        }
    }
    for (total, sums) in totals.into_iter().zip(sums) {
        store(total, sums);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(stripe: &Stripe) -> __m512i {
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: 64 bytes can be read there, and the instruction asks for no alignment.
    unsafe {
        _mm512_loadu_si512(stripe.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_numbers(numbers: &[i16; LANES * 2]) -> __m512i {
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: 32 numbers can be read there, and the instruction asks for no alignment.
    unsafe {
        _mm512_loadu_si512(numbers.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(lanes: __m512i, sums: &mut Sums) {
    #[expect(unsafe_code, reason = "there is no safe way to store a register")]
    // SAFETY: sixteen integers can be written there, and the instruction asks for no alignment.
    unsafe {
        _mm512_storeu_si512(sums.as_mut_ptr().cast(), lanes);
    }
}
