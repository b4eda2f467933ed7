//! Arithmetic on floats, written so that compilers vectorise it, and so that the order of roundings is fixed.

use super::{LANES, Sums};

/// The largest magnitude of a scaled number.
const MAX_QUANTISED: f32 = 127.0;

/// The scale of a row whose largest magnitude is this.
#[inline(always)]
pub(crate) fn scale_of(largest: f32) -> f32 {
    if largest > 0.0 { largest / MAX_QUANTISED } else { 1.0 }
}

/// Rounds a small number. Added to a number this large, a float has no places left for fractions, and its lowest bits
/// are the integer: three instructions that vectorise, where a cast would ask for overflow and NaN.
#[inline(always)]
pub(crate) fn quantised(value: f32) -> i8 {
    const LARGE: f32 = 12_582_912.0;
    ((value + LARGE).to_bits() as i32 - LARGE.to_bits() as i32) as i8
}

#[inline(always)]
pub(super) fn quantise(row: &[f32], numbers: &mut [i8]) -> (f32, i32) {
    let most = largest(row, f32::abs).max(0.0);
    let scale = scale_of(most);
    let factor = 1.0 / scale;
    let mut sum = 0;
    for (number, value) in numbers.iter_mut().zip(row) {
        *number = quantised(value * factor);
        sum += i32::from(*number);
    }
    (scale, sum)
}

#[inline(always)]
pub(super) fn finish(sums: &Sums, scale: f32, scales: &[f32; LANES], bias: &[f32; LANES], products: &mut [f32; LANES]) {
    for lane in 0..LANES {
        products[lane] = sums[lane] as f32 * (scales[lane] * scale) + bias[lane];
    }
}

/// With the error function of Abramowitz and Stegun 7.1.26 (off by 1.5e-7 at most).
#[inline(always)]
pub(super) fn gelu(values: &mut [f32]) {
    for value in values {
        let x = value.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * x);
        let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t + 0.254_829_6) * t;
        let erf = (1.0 - series * exp(-x * x)).copysign(*value);
        *value = 0.5 * *value * (1.0 + erf);
    }
}

#[inline(always)]
pub(super) fn attend(query: &[f32], key: &[f32], value: &[f32], width: usize, result: &mut [f32]) {
    let length = key.len() / width;
    let padded = length.next_multiple_of(LANES);
    // Columns first, so that sums for neighbouring keys stand side by side.
    let mut columns = vec![0.0_f32; width * padded];
    for (place, key) in key.chunks_exact(width).enumerate() {
        for (column, number) in columns[place..].iter_mut().step_by(padded).zip(key) {
            *column = *number;
        }
    }
    let mut weights = vec![0.0_f32; padded * QUERIES];
    let (queries, rest) = query.split_at(length / QUERIES * QUERIES * width);
    let (results, rest_results) = result.split_at_mut(queries.len());
    let part = Attended { columns: &columns, value, width, length };
    for (query, result) in queries.chunks_exact(width * QUERIES).zip(results.chunks_exact_mut(width * QUERIES)) {
        part.attend::<QUERIES>(query, &mut weights, result);
    }
    for (query, result) in rest.chunks_exact(width).zip(rest_results.chunks_exact_mut(width)) {
        part.attend::<1>(query, &mut weights[..padded], result);
    }
}

/// So many queries at once: sums that do not depend on each other hide the latency of additions.
const QUERIES: usize = 4;

/// What the queries of a text attend to.
struct Attended<'a> {
    /// The keys, number by number.
    columns: &'a [f32],
    value: &'a [f32],
    width: usize,
    length: usize,
}

impl Attended<'_> {
    #[inline(always)]
    fn attend<const COUNT: usize>(&self, query: &[f32], weights: &mut [f32], result: &mut [f32]) {
        let (width, padded) = (self.width, weights.len() / COUNT);
        for group in 0..padded / LANES {
            let mut sums = [[0.0_f32; LANES]; COUNT];
            for (place, column) in self.columns.chunks_exact(padded).enumerate() {
                let column = &column.as_chunks::<LANES>().0[group];
                for (row, sums) in sums.iter_mut().enumerate() {
                    add_multiple(sums, query[row * width + place], column);
                }
            }
            for (sums, weights) in sums.iter().zip(weights.chunks_exact_mut(padded)) {
                weights.as_chunks_mut::<LANES>().0[group] = *sums;
            }
        }
        let mut shares = [0.0; COUNT];
        for (share, weights) in shares.iter_mut().zip(weights.chunks_exact_mut(padded)) {
            weights[self.length..].fill(f32::NEG_INFINITY);
            let most = largest(weights, |weight| weight);
            weights.iter_mut().for_each(|weight| *weight = exp(*weight - most));
            *share = 1.0 / sum(weights);
        }
        for group in 0..width / LANES {
            let mut sums = [[0.0_f32; LANES]; COUNT];
            for (place, value) in self.value.chunks_exact(width).enumerate() {
                let value = &value.as_chunks::<LANES>().0[group];
                for (row, sums) in sums.iter_mut().enumerate() {
                    add_multiple(sums, weights[row * padded + place], value);
                }
            }
            for ((sums, share), result) in sums.iter().zip(shares).zip(result.chunks_exact_mut(width)) {
                result.as_chunks_mut::<LANES>().0[group] = sums.map(|sum| sum * share);
            }
        }
    }
}

#[inline(always)]
fn add_multiple(sums: &mut [f32; LANES], factor: f32, numbers: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] += factor * numbers[lane];
    }
}

/// The largest of some numbers after a step that makes them comparable; negative infinity of none. In lanes, because a
/// compiler must not change the order of comparisons.
#[inline(always)]
fn largest(row: &[f32], step: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            let value = step(chunk[lane]);
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    let all = lanes.into_iter().chain(rest.iter().map(|value| step(*value)));
    all.fold(f32::NEG_INFINITY, |largest, value| if value > largest { value } else { largest })
}

/// A sum in lanes.
#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    lanes.iter().chain(rest).sum()
}

/// The exponential of a number that is not positive, off by 2e-7 of it at most: two to the whole part of the exponent is
/// made of bits, two to the rest is a polynomial. Unlike the library's it vectorises.
#[inline(always)]
fn exp(value: f32) -> f32 {
    const LARGE: f32 = 12_582_912.0;
    /// Below this the result is as good as zero.
    const LEAST: f32 = -87.0;
    let value = if value < LEAST { LEAST } else { value };
    let exponent = value * std::f32::consts::LOG2_E;
    let shifted = exponent + LARGE;
    let whole = shifted - LARGE;
    // What is lost by rounding the logarithm is subtracted as a second part.
    let rest = value - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let series = ((((1.987_569_1e-4 * rest + 1.398_2e-3) * rest + 8.333_452e-3) * rest + 4.166_579_6e-2) * rest
        + 0.166_666_65)
        * rest
        + 0.5;
    let fraction = series * rest * rest + rest + 1.0;
    let power = (shifted.to_bits() as i32 - LARGE.to_bits() as i32 + 127) << 23;
    fraction * f32::from_bits(power.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_library() {
        for place in 0..8700 {
            let value = -(place as f32) / 100.0;
            assert!((exp(value) - value.exp()).abs() <= value.exp() * 4e-7, "{value}");
        }
        assert!(exp(-1e9) < 1e-37 && exp(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        assert_eq!([-127.0, -1.6, -0.4, 0.0, 0.4, 0.6, 126.7].map(quantised), [-127, -2, 0, 0, 0, 1, 127]);
    }
}
