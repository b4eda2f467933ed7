//! The layers in plain arithmetic, as they are written down: what the kernels are compared with.

use crate::vectors::dot;

/// Self-attention of one head within a text.
pub(super) fn attend(query: &[f32], key: &[f32], value: &[f32], width: usize, result: &mut [f32]) {
    let mut weights = vec![0.0_f32; key.len() / width];
    for (asking, sum) in query.chunks_exact(width).zip(result.chunks_exact_mut(width)) {
        for (weight, key) in weights.iter_mut().zip(key.chunks_exact(width)) {
            *weight = dot(asking, key);
        }
        soften(&mut weights);
        sum.fill(0.0);
        for (weight, value) in weights.iter().zip(value.chunks_exact(width)) {
            for (sum, number) in sum.iter_mut().zip(value) {
                *sum += weight * number;
            }
        }
    }
}

/// Softmax: positive, with a sum of one.
fn soften(weights: &mut [f32]) {
    let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    weights.iter_mut().for_each(|weight| *weight = (*weight - largest).exp());
    let sum: f32 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// The Gaussian error linear unit, with the error function of Abramowitz and Stegun 7.1.26 (off by 1.5e-7 at most).
pub(super) fn gelu(values: &mut [f32]) {
    for value in values {
        let x = value.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = (1.0 + 0.327_591_1 * x).recip();
        let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t + 0.254_829_6) * t;
        let erf = (1.0 - series * (-x * x).exp()).copysign(*value);
        *value = 0.5 * *value * (1.0 + erf);
    }
}
