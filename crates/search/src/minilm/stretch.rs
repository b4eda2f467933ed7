//! The inner loop of the model: scalar products of short rows of 16-bit integers.
//!
//! Compilers do not find the instruction that is made for this (multiply pairs, add them), so on x86-64 it is named:
//! sixteen numbers at a time where the machine has AVX2, eight where it has not. Integers make all ways equal to the bit.

/// How many products are added before they become a float.
pub(super) const STRETCH: usize = 384;

type Row<'a> = &'a [i16; STRETCH];

/// The scalar products of each of two rows with each of four.
#[cfg(target_arch = "x86_64")]
pub(super) fn products(inputs: [Row; 2], weights: [Row; 4]) -> [[i32; 4]; 2] {
    #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the machine was just asked.
        unsafe { with_avx2(inputs, weights) }
    } else {
        // SAFETY: SSE2 is part of the x86-64 architecture itself.
        unsafe { with_sse2(inputs, weights) }
    }
}

/// The scalar products of each of two rows with each of four.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn products(inputs: [Row; 2], weights: [Row; 4]) -> [[i32; 4]; 2] {
    portable(inputs, weights)
}

/// Plain arithmetic, which other machines' compilers vectorise well enough.
#[cfg_attr(target_arch = "x86_64", cfg(test))]
fn portable(inputs: [Row; 2], weights: [Row; 4]) -> [[i32; 4]; 2] {
    inputs.map(|input| {
        weights.map(|weights| input.iter().zip(weights).map(|(left, right)| i32::from(*left) * i32::from(*right)).sum())
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2([a, b]: [Row; 2], weights: [Row; 4]) -> [[i32; 4]; 2] {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi32, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_madd_epi16,
        _mm256_setr_epi16, _mm256_setzero_si256,
    };

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(n: &[i16; 16]) -> __m256i {
        _mm256_setr_epi16(
            n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15],
        )
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum(lanes: __m256i) -> i32 {
        four_lanes(_mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes)))
    }

    let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
    let weights = weights.map(|row| row.as_chunks::<16>().0);
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    for place in 0..STRETCH / 16 {
        let (a, b) = (load(&a[place]), load(&b[place]));
        for output in 0..4 {
            let weights = load(&weights[output][place]);
            sums[0][output] = _mm256_add_epi32(sums[0][output], _mm256_madd_epi16(a, weights));
            sums[1][output] = _mm256_add_epi32(sums[1][output], _mm256_madd_epi16(b, weights));
        }
    }
    let mut result = [[0; 4]; 2];
    for input in 0..2 {
        for output in 0..4 {
            result[input][output] = sum(sums[input][output]);
        }
    }
    result
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn with_sse2([a, b]: [Row; 2], weights: [Row; 4]) -> [[i32; 4]; 2] {
    use std::arch::x86_64::{__m128i, _mm_add_epi32, _mm_madd_epi16, _mm_setr_epi16, _mm_setzero_si128};

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(n: &[i16; 8]) -> __m128i {
        _mm_setr_epi16(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    }

    let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let weights = weights.map(|row| row.as_chunks::<8>().0);
    let mut sums = [[_mm_setzero_si128(); 4]; 2];
    for place in 0..STRETCH / 8 {
        let (a, b) = (load(&a[place]), load(&b[place]));
        for output in 0..4 {
            let weights = load(&weights[output][place]);
            sums[0][output] = _mm_add_epi32(sums[0][output], _mm_madd_epi16(a, weights));
            sums[1][output] = _mm_add_epi32(sums[1][output], _mm_madd_epi16(b, weights));
        }
    }
    let mut result = [[0; 4]; 2];
    for input in 0..2 {
        for output in 0..4 {
            result[input][output] = four_lanes(sums[input][output]);
        }
    }
    result
}

/// The sum of four 32-bit integers side by side.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn four_lanes(lanes: std::arch::x86_64::__m128i) -> i32 {
    use std::arch::x86_64::{_mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32};
    let pairs = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
    _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, up to the largest magnitude there is.
    fn row(seed: i32) -> [i16; STRETCH] {
        std::array::from_fn(|place| ((place as i32 * 7919 + seed * 104_729) % 4095 - 2047) as i16)
    }

    #[test]
    fn every_way_to_multiply_gives_the_same() {
        let rows: Vec<[i16; STRETCH]> = (0..6).map(row).collect();
        let (inputs, weights) = ([&rows[0], &rows[1]], [&rows[2], &rows[3], &rows[4], &rows[5]]);
        let expected = portable(inputs, weights);
        assert_eq!(products(inputs, weights), expected);
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: SSE2 is part of the x86-64 architecture itself.
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            let with_sse2 = unsafe { with_sse2(inputs, weights) };
            assert_eq!(with_sse2, expected);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let largest = &[2047; STRETCH];
        assert_eq!(products([largest; 2], [largest; 4]), [[2047 * 2047 * STRETCH as i32; 4]; 2]);
    }
}
