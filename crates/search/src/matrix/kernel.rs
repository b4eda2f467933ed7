//! The inner loop: scalar products of rows of 16-bit integers.
//!
//! Compilers do not find the instruction that is made for this (multiply pairs, add them), so on x86-64 it is called
//! explicitly: sixteen numbers at a time with AVX2, eight without it. Sums are exact within one stretch, so all
//! implementations give identical results.

/// The number of products that fit into an `i32` sum; numbers are at most 2047.
const STRETCH: usize = 384;
const _: () = assert!(STRETCH as i64 * 2047 * 2047 <= i32::MAX as i64);

/// Adds the scalar products of four rows with each of the others to its line. The others are adjacent in memory.
#[cfg(target_arch = "x86_64")]
pub(super) fn products(four: [&[i16]; 4], others: &[i16], lines: &mut [[f32; 4]]) {
    #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: checked above that the machine has AVX2.
        unsafe { with_avx2(four, others, lines) }
    } else {
        // SAFETY: SSE2 is part of the x86-64 architecture itself.
        unsafe { with_sse2(four, others, lines) }
    }
}

/// Adds the scalar products of four rows with each of the others to its line. The others are adjacent in memory.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn products(four: [&[i16]; 4], others: &[i16], lines: &mut [[f32; 4]]) {
    portable(four, others, lines);
}

/// Plain arithmetic, which compilers for other machines vectorise well enough.
#[cfg_attr(target_arch = "x86_64", cfg(test))]
fn portable(four: [&[i16]; 4], others: &[i16], lines: &mut [[f32; 4]]) {
    for (line, other) in lines.iter_mut().zip(others.chunks_exact(four[0].len())) {
        for (product, row) in line.iter_mut().zip(four) {
            for (left, right) in row.chunks(STRETCH).zip(other.chunks(STRETCH)) {
                let pairs = left.iter().zip(right);
                *product += pairs.map(|(left, right)| i32::from(*left) * i32::from(*right)).sum::<i32>() as f32;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(four: [&[i16]; 4], others: &[i16], lines: &mut [[f32; 4]]) {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_add_epi32, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_extracti128_si256,
        _mm256_madd_epi16, _mm256_setr_epi16, _mm256_setzero_si256,
    };
    const LANES: usize = 16;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(n: &[i16; LANES]) -> __m256i {
        _mm256_setr_epi16(
            n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15],
        )
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn halved(lanes: __m256i) -> __m128i {
        _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes))
    }

    let four = four.map(|row| row.as_chunks::<LANES>().0);
    let width = four[0].len();
    let others = others.as_chunks::<LANES>().0;
    for (pair, lines) in lines.chunks_mut(2).enumerate() {
        let first = &others[pair * 2 * width..][..width];
        // The last row of an odd number is multiplied twice.
        let second = if lines.len() == 2 { &others[(pair * 2 + 1) * width..][..width] } else { first };
        for start in (0..width).step_by(STRETCH / LANES) {
            let end = (start + STRETCH / LANES).min(width);
            let (first, second) = (&first[start..end], &second[start..end]);
            let [k, l, m, n] = four.map(|row| &row[start..end]);
            let mut sums = [[_mm256_setzero_si256(); 4]; 2];
            for (((((first, second), k), l), m), n) in first.iter().zip(second).zip(k).zip(l).zip(m).zip(n) {
                let (first, second) = (load(first), load(second));
                for (place, row) in [k, l, m, n].into_iter().enumerate() {
                    let row = load(row);
                    sums[0][place] = _mm256_add_epi32(sums[0][place], _mm256_madd_epi16(first, row));
                    sums[1][place] = _mm256_add_epi32(sums[1][place], _mm256_madd_epi16(second, row));
                }
            }
            for (line, [k, l, m, n]) in lines.iter_mut().zip(sums) {
                add_sums(line, [halved(k), halved(l), halved(m), halved(n)]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn with_sse2(four: [&[i16]; 4], others: &[i16], lines: &mut [[f32; 4]]) {
    use std::arch::x86_64::{__m128i, _mm_add_epi32, _mm_madd_epi16, _mm_setr_epi16, _mm_setzero_si128};
    const LANES: usize = 8;

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(n: &[i16; LANES]) -> __m128i {
        _mm_setr_epi16(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    }

    let four = four.map(|row| row.as_chunks::<LANES>().0);
    let width = four[0].len();
    for (line, other) in lines.iter_mut().zip(others.as_chunks::<LANES>().0.chunks_exact(width)) {
        for start in (0..width).step_by(STRETCH / LANES) {
            let end = (start + STRETCH / LANES).min(width);
            let [k, l, m, n] = four.map(|row| &row[start..end]);
            let mut sums = [_mm_setzero_si128(); 4];
            for ((((other, k), l), m), n) in other[start..end].iter().zip(k).zip(l).zip(m).zip(n) {
                let other = load(other);
                for (sum, row) in sums.iter_mut().zip([k, l, m, n]) {
                    *sum = _mm_add_epi32(*sum, _mm_madd_epi16(other, load(row)));
                }
            }
            add_sums(line, sums);
        }
    }
}

/// Sums up four vectors of four integers, and adds the sums to a line.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn add_sums(line: &mut [f32; 4], sums: [std::arch::x86_64::__m128i; 4]) {
    use std::arch::x86_64::{_mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32};
    for (product, lanes) in line.iter_mut().zip(sums) {
        let pairs = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
        *product += _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs))) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers up to the largest magnitude.
    fn numbers(count: usize, seed: usize) -> Vec<i16> {
        (0..count).map(|place| ((place * 7919 + seed * 104_729) % 4095) as i16 - 2047).collect()
    }

    #[test]
    fn every_way_to_multiply_gives_the_same() {
        for width in [16, 384, 400, 1536] {
            let rows: Vec<Vec<i16>> = (0..4).map(|seed| numbers(width, seed)).collect();
            let four = [0, 1, 2, 3].map(|row| rows[row].as_slice());
            let others = numbers(width * 3, 9);
            let mut expected = [[1.0; 4]; 3];
            portable(four, &others, &mut expected);
            let mut lines = [[1.0; 4]; 3];
            products(four, &others, &mut lines);
            assert_eq!(lines, expected, "{width}");
            #[cfg(target_arch = "x86_64")]
            {
                let mut lines = [[1.0; 4]; 3];
                // SAFETY: SSE2 is part of the x86-64 architecture itself.
                #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
                unsafe {
                    with_sse2(four, &others, &mut lines);
                }
                assert_eq!(lines, expected, "{width}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let largest = [2047; STRETCH];
        let mut lines = [[0.0; 4]; 1];
        products([&largest; 4], &largest, &mut lines);
        assert_eq!(lines, [[(2047 * 2047 * STRETCH as i32) as f32; 4]]);
    }
}
