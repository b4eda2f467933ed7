//! AVX2: it multiplies 8-bit integers in pairs, one without a sign by one with a sign, and adds them up in 16 bits.

use std::arch::x86_64::{
    __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_sign_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{DEPTH, Group, InputGroup, LANES, OFFSET, Stripe, Sums, Tile};

/// Bytes of a register.
const BYTES: usize = 32;
/// So many inputs at once: their sums fill the registers.
const INPUTS: usize = 4;

#[target_feature(enable = "avx2")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], _: &[i32], sums: &mut [Sums]) {
    for (part, sums) in sums.chunks_mut(INPUTS).enumerate() {
        let first = part * INPUTS;
        match sums.len() {
            1 => sum_of::<1>(block, tile, first, sums),
            2 => sum_of::<2>(block, tile, first, sums),
            3 => sum_of::<3>(block, tile, first, sums),
            _ => sum_of::<INPUTS>(block, tile, first, sums),
        }
    }
}

/// The sums of some inputs of a tile, from `first` on.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of<const COUNT: usize>(block: &[Stripe], tile: &[Tile], first: usize, sums: &mut [Sums]) {
    let (offset, ones) = (_mm256_set1_epi8(OFFSET.cast_signed()), _mm256_set1_epi16(1));
    let mut lanes = [[_mm256_setzero_si256(); 2]; COUNT];
    for (stripe, tile) in block.iter().zip(tile) {
        let halves = halves(stripe).map(|half| _mm256_xor_si256(half, offset));
        let magnitudes = halves.map(|half| _mm256_abs_epi8(half));
        for (lanes, numbers) in lanes.iter_mut().zip(&tile[first..]) {
            let input = repeated(*numbers);
            for half in 0..2 {
                // The sign goes to the other side. Two products of at most 128 * 127 fit into 16 bits.
                let input = _mm256_sign_epi8(input, halves[half]);
                let pairs = _mm256_maddubs_epi16(magnitudes[half], input);
                lanes[half] = _mm256_add_epi32(lanes[half], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    for (sums, lanes) in sums.iter_mut().zip(lanes) {
        store(lanes, sums);
    }
}

#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
fn groups_of<const COUNT: usize>(block: &[Group], tile: &[InputGroup], first: usize, sums: &mut [Sums]) {
    let four_bits = _mm256_set1_epi8(15);
    let mut totals = [[_mm256_setzero_si256(); 2]; COUNT];
    for (group, inputs) in block.iter().zip(tile) {
        // Sixteen bits are enough for the products of a group: eight times two of at most 15 * 127.
        let mut lanes: [[__m256i; 2]; COUNT] =
            std::array::from_fn(|input| [_mm256_set1_epi32(inputs.pairs[first + input]); 2]);
        for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
            let packed = halves(packed);
            let rest = packed.map(|half| _mm256_srli_epi16::<4>(half));
            for (weights, numbers) in [(packed, low), (rest, high)] {
                let weights = weights.map(|half| _mm256_and_si256(half, four_bits));
                for (lanes, numbers) in lanes.iter_mut().zip(&numbers[first..]) {
                    let input = repeated(*numbers);
                    for half in 0..2 {
                        let pairs = _mm256_maddubs_epi16(weights[half], input);
                        lanes[half] = _mm256_add_epi16(lanes[half], pairs);
                    }
                }
            }
        }
        let factors = factors(group);
        for (totals, lanes) in totals.iter_mut().zip(lanes) {
            for half in 0..2 {
                totals[half] = _mm256_add_epi32(totals[half], _mm256_madd_epi16(lanes[half], factors[half]));
            }
        }
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        store(totals, sums);
    }
}

/// Four numbers, eight times.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn repeated(numbers: [i8; DEPTH]) -> __m256i {
    _mm256_set1_epi32(i32::from_ne_bytes(numbers.map(i8::cast_unsigned)))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn halves(stripe: &Stripe) -> [__m256i; 2] {
    let (halves, _) = stripe.as_chunks::<BYTES>();
    std::array::from_fn(|half| {
        #[expect(unsafe_code, reason = "there is no safe way to load a register")]
        // SAFETY: 32 bytes can be read there, and the instruction asks for no alignment.
        unsafe {
            _mm256_loadu_si256(halves[half].as_ptr().cast())
        }
    })
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn factors(group: &Group) -> [__m256i; 2] {
    let (halves, _) = group.factors.as_chunks::<LANES>();
    std::array::from_fn(|half| {
        #[expect(unsafe_code, reason = "there is no safe way to load a register")]
        // SAFETY: sixteen numbers of 16 bits can be read there, and the instruction asks for no alignment.
        unsafe {
            _mm256_loadu_si256(halves[half].as_ptr().cast())
        }
    })
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(lanes: [__m256i; 2], sums: &mut Sums) {
    for (lanes, sums) in lanes.into_iter().zip(sums.as_chunks_mut::<{ LANES / 2 }>().0) {
        #[expect(unsafe_code, reason = "there is no safe way to store a register")]
        // SAFETY: eight integers can be written there, and the instruction asks for no alignment.
        unsafe {
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), lanes);
        }
    }
}
