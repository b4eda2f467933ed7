//! The inner loops, in the instructions that the machine has: chosen once, when the program runs.
//!
//! All kernels add the same integers and round floats in the same order, so a text has the same vector on every machine.

use std::sync::OnceLock;

use super::{DEPTH, Stripe, quantised, scale_of};

/// Vectors that are multiplied side by side.
pub(crate) const LANES: usize = 16;
/// Inputs that are multiplied while a stripe is in a register: as many as hide the latency of the instruction.
pub(super) const TILE_INPUTS: usize = 8;

/// Four numbers of each of some inputs.
pub(super) type Tile = [[i8; DEPTH]; TILE_INPUTS];

/// Sums for the sixteen vectors of a block.
type Sums = [i32; LANES];

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    /// Plain arithmetic, which compilers vectorise with what every machine of the architecture has: SSE2, NEON.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

/// The kernel of this process.
static BEST: OnceLock<Kernel> = OnceLock::new();

/// Defines a function that does the same work in every set of instructions, compiled once for each.
macro_rules! dispatched {
    ($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, $work:ident) => {
        $(#[$about])*
        pub(crate) fn $name(self, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn with_avx2($($argument: $type),*) $(-> $result)? {
                $work($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
            fn with_avx512($($argument: $type),*) $(-> $result)? {
                $work($($argument),*)
            }
            match self.0 {
                Instructions::Portable => $work($($argument),*),
                #[cfg(target_arch = "x86_64")]
                #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
                // SAFETY: `Kernel` is only made with instructions that the machine has.
                Instructions::Avx2 => unsafe { with_avx2($($argument),*) },
                #[cfg(target_arch = "x86_64")]
                #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
                // SAFETY: `Kernel` is only made with instructions that the machine has.
                Instructions::Avx512Vnni => unsafe { with_avx512($($argument),*) },
            }
        }
    };
}

impl Kernel {
    /// The fastest that this machine has, unless another one was chosen before.
    pub(crate) fn best() -> Self {
        *BEST.get_or_init(|| *Self::all().last().expect("the portable one is always there"))
    }

    /// The names of all that this machine has, the fastest last.
    #[cfg(feature = "reference")]
    pub(crate) fn names() -> Vec<String> {
        Self::all().into_iter().map(Self::name).collect()
    }

    /// Chooses one by its name for this process. Returns whether there is one, and none was used before.
    #[cfg(feature = "reference")]
    pub(crate) fn choose(name: &str) -> bool {
        Self::all().into_iter().find(|kernel| kernel.name() == name).is_some_and(|kernel| BEST.set(kernel).is_ok())
    }

    #[cfg(feature = "reference")]
    fn name(self) -> String {
        format!("{:?}", self.0).to_lowercase()
    }

    /// All that this machine has, the fastest last.
    fn all() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "other machines have one"))]
        let mut all = vec![Self(Instructions::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2");
            if has_avx2 {
                all.push(Self(Instructions::Avx2));
            }
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            if has_avx2 && has_avx512 && is_x86_feature_detected!("avx512vnni") {
                all.push(Self(Instructions::Avx512Vnni));
            }
        }
        all
    }

    /// For each input of a tile the sums of its products with the vectors of a block, which is as deep as the tile.
    pub(super) fn sum(self, block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
        debug_assert!(block.len() == tile.len() && sums.len() <= TILE_INPUTS);
        match self.0 {
            Instructions::Portable => portable::sum(block, tile, sums),
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::Avx2 => unsafe { avx2::sum(block, tile, sums) },
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::Avx512Vnni => unsafe { avx512::sum(block, tile, sums) },
        }
    }

    dispatched! {
        /// Scales a row by its largest number and rounds it. Returns the scale, and the sum of the integers.
        quantise(row: &[f32], numbers: &mut [i8]) -> (f32, i32), quantise
    }

    dispatched! {
        /// The products from the sums for one input: without its offset, in the scales of both sides, and with a bias.
        finish(sums: &Sums, input: (f32, i32), scales: &[f32; LANES], bias: &[f32; LANES], products: &mut [f32; LANES]), finish
    }

    dispatched! {
        /// The Gaussian error linear unit of each number.
        gelu(values: &mut [f32]), gelu
    }

    dispatched! {
        /// Self-attention of one head within a text. Queries, keys and values are rows of `width` numbers, one for each
        /// piece, and so are the results. The width is a multiple of [`LANES`]; queries are divided by the root of the
        /// head's own width.
        attend(query: &[f32], key: &[f32], value: &[f32], width: usize, result: &mut [f32]), attend
    }
}

mod portable {
    use super::{DEPTH, LANES, Stripe, Sums, Tile};

    pub(super) fn sum(block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
        for (input, sums) in sums.iter_mut().enumerate() {
            *sums = [0; LANES];
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
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_set1_epi32, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_cvtepu8_epi16, _mm256_hadd_epi32, _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_setzero_si256,
        _mm256_storeu_si256,
    };

    use super::{DEPTH, LANES, Stripe, Sums, Tile};

    /// Bytes of a stripe that fill a register as 16-bit numbers: those of four vectors.
    const QUARTER: usize = 16;

    #[target_feature(enable = "avx2")]
    pub(super) fn sum(block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
        for (pair, sums) in sums.chunks_mut(2).enumerate() {
            match sums.len() {
                1 => sum_of::<1>(block, tile, pair * 2, sums),
                _ => sum_of::<2>(block, tile, pair * 2, sums),
            }
        }
    }

    /// The sums of some inputs of a tile, from `first` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum_of<const INPUTS: usize>(block: &[Stripe], tile: &[Tile], first: usize, sums: &mut [Sums]) {
        // Each register has two sums for each of four vectors.
        let mut lanes = [[_mm256_setzero_si256(); LANES / DEPTH]; INPUTS];
        for (stripe, tile) in block.iter().zip(tile) {
            let quarters: [__m256i; LANES / DEPTH] = {
                let (quarters, _) = stripe.as_chunks::<QUARTER>();
                std::array::from_fn(|quarter| _mm256_cvtepu8_epi16(load(&quarters[quarter])))
            };
            for (lanes, numbers) in lanes.iter_mut().zip(&tile[first..]) {
                let input = repeated(*numbers);
                for (lanes, quarter) in lanes.iter_mut().zip(quarters) {
                    *lanes = _mm256_add_epi32(*lanes, _mm256_madd_epi16(quarter, input));
                }
            }
        }
        for (sums, lanes) in sums.iter_mut().zip(lanes) {
            for (sums, pair) in sums.as_chunks_mut::<8>().0.iter_mut().zip(lanes.as_chunks::<2>().0) {
                let added = _mm256_hadd_epi32(pair[0], pair[1]);
                store(_mm256_permute4x64_epi64::<0b11_01_10_00>(added), sums);
            }
        }
    }

    /// Four numbers in 16 bits, four times.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn repeated(numbers: [i8; DEPTH]) -> __m256i {
        // Two instructions: widened one by one, they would cost more than the products.
        _mm256_cvtepi8_epi16(_mm_set1_epi32(i32::from_le_bytes(numbers.map(i8::cast_unsigned))))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; QUARTER]) -> __m128i {
        #[expect(unsafe_code, reason = "there is no safe way to load a register")]
        // SAFETY: sixteen bytes can be read there, and the instruction asks for no alignment.
        unsafe {
            _mm_loadu_si128(bytes.as_ptr().cast())
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(lanes: __m256i, sums: &mut [i32; 8]) {
        #[expect(unsafe_code, reason = "there is no safe way to store a register")]
        // SAFETY: eight integers can be written there, and the instruction asks for no alignment.
        unsafe {
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), lanes);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use super::{Stripe, Sums, TILE_INPUTS, Tile};

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn sum(block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
        match sums.len() {
            1 => sum_of::<1>(block, tile, sums),
            2 => sum_of::<2>(block, tile, sums),
            3 => sum_of::<3>(block, tile, sums),
            4 => sum_of::<4>(block, tile, sums),
            5 => sum_of::<5>(block, tile, sums),
            6 => sum_of::<6>(block, tile, sums),
            7 => sum_of::<7>(block, tile, sums),
            _ => sum_of::<TILE_INPUTS>(block, tile, sums),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn sum_of<const INPUTS: usize>(block: &[Stripe], tile: &[Tile], sums: &mut [Sums]) {
        let mut lanes = [_mm512_setzero_si512(); INPUTS];
        for (stripe, tile) in block.iter().zip(tile) {
            let stripe = load(stripe);
            for (lanes, numbers) in lanes.iter_mut().zip(tile) {
                let input = i32::from_ne_bytes(numbers.map(i8::cast_unsigned));
                *lanes = _mm512_dpbusd_epi32(*lanes, stripe, _mm512_set1_epi32(input));
            }
        }
        for (lanes, sums) in lanes.into_iter().zip(sums) {
            store(lanes, sums);
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
    fn store(lanes: __m512i, sums: &mut Sums) {
        #[expect(unsafe_code, reason = "there is no safe way to store a register")]
        // SAFETY: sixteen integers can be written there, and the instruction asks for no alignment.
        unsafe {
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), lanes);
        }
    }
}

#[inline(always)]
fn quantise(row: &[f32], numbers: &mut [i8]) -> (f32, i32) {
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
fn finish(
    sums: &Sums,
    (scale, offset): (f32, i32),
    scales: &[f32; LANES],
    bias: &[f32; LANES],
    products: &mut [f32; LANES],
) {
    for lane in 0..LANES {
        products[lane] = (sums[lane] - offset) as f32 * (scales[lane] * scale) + bias[lane];
    }
}

/// With the error function of Abramowitz and Stegun 7.1.26 (off by 1.5e-7 at most).
#[inline(always)]
fn gelu(values: &mut [f32]) {
    for value in values {
        let x = value.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * x);
        let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t + 0.254_829_6) * t;
        let erf = (1.0 - series * exp(-x * x)).copysign(*value);
        *value = 0.5 * *value * (1.0 + erf);
    }
}

#[inline(always)]
fn attend(query: &[f32], key: &[f32], value: &[f32], width: usize, result: &mut [f32]) {
    let length = key.len() / width;
    let padded = length.next_multiple_of(LANES);
    // Columns first, so that sums for neighbouring keys stand side by side.
    let mut columns = vec![0.0_f32; width * padded];
    for (place, key) in key.chunks_exact(width).enumerate() {
        for (column, number) in columns[place..].iter_mut().step_by(padded).zip(key) {
            *column = *number;
        }
    }
    let mut weights = vec![0.0_f32; padded];
    for (asking, result) in query.chunks_exact(width).zip(result.chunks_exact_mut(width)) {
        for (group, weights) in weights.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut sums = [0.0_f32; LANES];
            for (asking, column) in asking.iter().zip(columns.chunks_exact(padded)) {
                add_multiple(&mut sums, *asking, &column.as_chunks::<LANES>().0[group]);
            }
            *weights = sums;
        }
        weights[length..].fill(f32::NEG_INFINITY);
        let most = largest(&weights, |weight| weight);
        weights.iter_mut().for_each(|weight| *weight = exp(*weight - most));
        let share = 1.0 / sum(&weights);
        for (group, result) in result.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut sums = [0.0_f32; LANES];
            for (weight, value) in weights.iter().zip(value.chunks_exact(width)) {
                add_multiple(&mut sums, *weight, &value.as_chunks::<LANES>().0[group]);
            }
            *result = sums.map(|sum| sum * share);
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

    /// Numbers that look random.
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    fn floats(count: usize, seed: &mut u64) -> Vec<f32> {
        (0..count).map(|_| random(seed) as f32 / (1_u64 << 28) as f32 - 4.0).collect()
    }

    #[test]
    fn every_kernel_gives_the_same_to_the_bit() {
        let mut seed = 7;
        for (depth, count) in [(1, 1), (3, 2), (96, 7), (97, 8), (384, 5)] {
            let block: Vec<Stripe> = (0..depth).map(|_| std::array::from_fn(|_| random(&mut seed) as u8)).collect();
            let number = |_| (random(&mut seed) as u8).cast_signed();
            let mut numbers = (0..depth * DEPTH * TILE_INPUTS).map(number);
            let mut four = || std::array::from_fn(|_| numbers.next().expect("there are enough"));
            let tile: Vec<Tile> = (0..depth).map(|_| std::array::from_fn(|_| four())).collect();
            drop(numbers);
            let row = floats(depth * DEPTH, &mut seed);
            let texts = [floats(count * 32, &mut seed), floats(count * 32, &mut seed), floats(count * 32, &mut seed)];
            let run = |kernel: Kernel| {
                let mut sums = vec![[1; LANES]; count];
                kernel.sum(&block, &tile, &mut sums);
                let mut numbers = vec![0; row.len()];
                let total = kernel.quantise(&row, &mut numbers);
                let mut products = [0.0; LANES];
                kernel.finish(&sums[0], (0.3, 77), &[0.7; LANES], &[0.1; LANES], &mut products);
                let mut values = row.clone();
                kernel.gelu(&mut values);
                let mut attended = vec![0.0; count * 32];
                kernel.attend(&texts[0], &texts[1], &texts[2], 32, &mut attended);
                (sums, products, numbers, total, values, attended)
            };
            let expected = run(Kernel(Instructions::Portable));
            for kernel in Kernel::all() {
                assert_eq!(run(kernel), expected, "{kernel:?}, {depth} deep, {count} inputs");
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for kernel in Kernel::all() {
            let mut sums = vec![[0; LANES]; 1];
            kernel.sum(&vec![[255; 64]; 8192], &vec![[[-128; DEPTH]; TILE_INPUTS]; 8192], &mut sums);
            assert_eq!(sums, [[-128 * 255 * 8192 * 4; LANES]], "{kernel:?}");
        }
    }

    #[test]
    fn exponentials_are_those_of_the_library() {
        for place in 0..8700 {
            let value = -(place as f32) / 100.0;
            assert!((exp(value) - value.exp()).abs() <= value.exp() * 4e-7, "{value}");
        }
        assert!(exp(-1e9) < 1e-37 && exp(f32::NEG_INFINITY) < 1e-37);
    }
}
