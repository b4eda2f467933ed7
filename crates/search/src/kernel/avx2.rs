//! AVX2: it multiplies 8-bit integers in pairs, one without a sign by one with a sign, and adds them up in 16 bits.

use std::arch::x86_64::{
    __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_sign_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{DEPTH, Group, InputGroup, LANES, OFFSET, Stripe, Sums, Tile};

/// Bytes of a register.
const BYTES: usize = 32;

/// Calls a function for up to four inputs at once, whose sums fill the registers. The first of them and their number are
/// constants, so that they stay there.
macro_rules! in_parts {
    ($sums:expr, $function:ident($($argument:expr),*)) => {
        let (first, second) = $sums.split_at_mut($sums.len().min(4));
        match first.len() {
            1 => $function::<0, 1>($($argument,)* first),
            2 => $function::<0, 2>($($argument,)* first),
            3 => $function::<0, 3>($($argument,)* first),
            _ => $function::<0, 4>($($argument,)* first),
        }
        match second.len() {
            0 => {}
            1 => $function::<4, 1>($($argument,)* second),
            2 => $function::<4, 2>($($argument,)* second),
            3 => $function::<4, 3>($($argument,)* second),
            _ => $function::<4, 4>($($argument,)* second),
        }
    };
}
pub(super) use in_parts;

#[target_feature(enable = "avx2")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], _: &[i32], sums: &mut [Sums]) {
    in_parts!(sums, sum_of(block, tile));
}

/// The sums of some inputs of a tile, from `FIRST` on.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of<const FIRST: usize, const COUNT: usize>(block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
    let (offset, ones) = (_mm256_set1_epi8(OFFSET.cast_signed()), _mm256_set1_epi16(1));
    let mut lanes = [[_mm256_setzero_si256(); 2]; COUNT];
    for (stripe, tile) in block.iter().zip(tile) {
        let [left, right] = halves(stripe);
        let halves = [_mm256_xor_si256(left, offset), _mm256_xor_si256(right, offset)];
        let magnitudes = [_mm256_abs_epi8(halves[0]), _mm256_abs_epi8(halves[1])];
        for (input, lanes) in lanes.iter_mut().enumerate() {
            let input = repeated(tile[FIRST + input]);
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
    in_parts!(sums, groups_of(block, tile));
}

/// The same for weights in four bits.
#[inline]
#[target_feature(enable = "avx2")]
fn groups_of<const FIRST: usize, const COUNT: usize>(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    let four_bits = _mm256_set1_epi8(15);
    let mut totals = [[_mm256_setzero_si256(); 2]; COUNT];
    for (group, inputs) in block.iter().zip(tile) {
        // Sixteen bits are enough for the products of a group: eight times two of at most 15 * 127.
        let mut lanes = [[four_bits; 2]; COUNT];
        for (lanes, pair) in lanes.iter_mut().zip(&inputs.pairs[FIRST..]) {
            *lanes = [_mm256_set1_epi32(*pair); 2];
        }
        for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
            let [left, right] = halves(packed);
            let rest = [_mm256_srli_epi16::<4>(left), _mm256_srli_epi16::<4>(right)];
            for ([left, right], numbers) in [([left, right], low), (rest, high)] {
                let weights = [_mm256_and_si256(left, four_bits), _mm256_and_si256(right, four_bits)];
                for (input, lanes) in lanes.iter_mut().enumerate() {
                    let input = repeated(numbers[FIRST + input]);
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
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: 32 bytes can be read at both places, and the instruction asks for no alignment.
    unsafe {
        [_mm256_loadu_si256(halves[0].as_ptr().cast()), _mm256_loadu_si256(halves[1].as_ptr().cast())]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn factors(group: &Group) -> [__m256i; 2] {
    let (halves, _) = group.factors.as_chunks::<LANES>();
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: sixteen numbers of 16 bits can be read at both places, and the instruction asks for no alignment.
    unsafe {
        [_mm256_loadu_si256(halves[0].as_ptr().cast()), _mm256_loadu_si256(halves[1].as_ptr().cast())]
    }
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
