//! The inner loops, in the instructions that the machine has: chosen once, when the program runs.
//!
//! - here: which instructions there are, and the choice between them
//! - [`portable`], [`avx2`], [`avx_vnni`], [`avx512`], [`neon`]: sums of products of small integers
//! - [`floats`]: everything else, which compilers vectorise well enough
//!
//! All kernels add the same integers and round floats in the same order, so a text has the same vector on every machine.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
mod floats;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::sync::OnceLock;

pub(crate) use floats::{quantised, scale_of};

/// Vectors that are multiplied side by side.
pub(crate) const LANES: usize = 16;
/// Numbers of a vector that stand together.
pub(crate) const DEPTH: usize = 4;
/// Inputs that are multiplied while a stripe is in a register: as many as hide the latency of the instruction.
pub(crate) const TILE_INPUTS: usize = 8;
/// Numbers are stored with this added, because one side of the machines' instruction has no sign.
pub(crate) const OFFSET: u8 = 128;
/// The same for weights in four bits.
const WEIGHT_OFFSET: i32 = 8;
/// How many weights in four bits share a factor.
pub(crate) const GROUP: usize = 32;
/// Stripes of a group.
pub(crate) const GROUP_STRIPES: usize = GROUP / DEPTH;

/// Four numbers of each of sixteen vectors.
pub(crate) type Stripe = [u8; LANES * DEPTH];
/// Four numbers of each of some inputs.
pub(crate) type Tile = [[i8; DEPTH]; TILE_INPUTS];
/// Sums for sixteen vectors.
pub(crate) type Sums = [i32; LANES];

/// Weights in four bits, 32 of each of sixteen columns. Aligned, because registers of this size are loaded from it.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Group {
    /// Two stripes in each, the first one in the lower bits. [`WEIGHT_OFFSET`] is added to each weight.
    pub(crate) packed: [Stripe; GROUP_STRIPES / 2],
    /// What the weights of each column are multiplied with; twice, because sums come in pairs.
    pub(crate) factors: [i16; LANES * 2],
}

/// The same place of some inputs.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct InputGroup {
    pub(crate) numbers: [Tile; GROUP_STRIPES],
    /// What takes [`WEIGHT_OFFSET`] out of the sums of each input: of the first two
    /// numbers of each tile in the lower half, of the others in the upper half.
    pub(crate) pairs: [i32; TILE_INPUTS],
    /// The sums of both.
    pub(crate) sums: [i32; TILE_INPUTS],
}

impl Group {
    /// Sets the weights of a column, two in a byte with the first one in the lower bits.
    #[cfg(feature = "builtin-model")]
    pub(crate) fn set_weights(&mut self, lane: usize, bytes: &[u8; GROUP / 2]) {
        for (place, byte) in bytes.iter().enumerate() {
            for (weight, next) in [(byte & 15, 0), (byte >> 4, 1)] {
                let (stripe, depth) = ((place * 2 + next) / DEPTH, (place * 2 + next) % DEPTH);
                self.packed[stripe / 2][lane * DEPTH + depth] |= weight << (stripe % 2 * 4);
            }
        }
    }
}

impl InputGroup {
    pub(crate) fn new(numbers: [Tile; GROUP_STRIPES]) -> Self {
        let mut halves = [[0; 2]; TILE_INPUTS];
        for tile in &numbers {
            for ([low, high], numbers) in halves.iter_mut().zip(tile) {
                let [one, two, three, four] = numbers.map(i32::from);
                *low -= WEIGHT_OFFSET * (one + two);
                *high -= WEIGHT_OFFSET * (three + four);
            }
        }
        Self {
            numbers,
            pairs: halves.map(|[low, high]| low & 0xffff | high << 16),
            sums: halves.map(|[low, high]| low + high),
        }
    }
}

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    /// Plain arithmetic.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

/// The kernel of this process.
static BEST: OnceLock<Kernel> = OnceLock::new();

/// Calls the function of this name that is written for a kernel.
macro_rules! written {
    ($kernel:expr, $function:ident($($argument:expr),*)) => {
        match $kernel.0 {
            Instructions::Portable => portable::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::Avx2 => unsafe { avx2::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::AvxVnni => unsafe { avx_vnni::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::Avx512Vnni => unsafe { avx512::$function($($argument),*) },
            #[cfg(target_arch = "aarch64")]
            #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
            // SAFETY: `Kernel` is only made with instructions that the machine has.
            Instructions::NeonDot => unsafe { neon::$function($($argument),*) },
        }
    };
}

/// Defines a function that does the same work in every set of instructions, compiled once for each.
macro_rules! compiled {
    ($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$about])*
        pub(crate) fn $name(self, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn with_avx2($($argument: $type),*) $(-> $result)? {
                floats::$name($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
            fn with_avx512($($argument: $type),*) $(-> $result)? {
                floats::$name($($argument),*)
            }
            match self.0 {
                Instructions::Portable => floats::$name($($argument),*),
                #[cfg(target_arch = "x86_64")]
                #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
                // SAFETY: `Kernel` is only made with instructions that the machine has.
                Instructions::Avx2 | Instructions::AvxVnni => unsafe { with_avx2($($argument),*) },
                #[cfg(target_arch = "x86_64")]
                #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
                // SAFETY: `Kernel` is only made with instructions that the machine has.
                Instructions::Avx512Vnni => unsafe { with_avx512($($argument),*) },
                #[cfg(target_arch = "aarch64")]
                Instructions::NeonDot => floats::$name($($argument),*),
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
        let mut all = vec![Instructions::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            all.extend(has_avx2.then_some(Instructions::Avx2));
            all.extend((has_avx2 && is_x86_feature_detected!("avxvnni")).then_some(Instructions::AvxVnni));
            let has_vnni = has_avx2 && has_avx512 && is_x86_feature_detected!("avx512vnni");
            all.extend(has_vnni.then_some(Instructions::Avx512Vnni));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(std::arch::is_aarch64_feature_detected!("dotprod").then_some(Instructions::NeonDot));
        all.into_iter().map(Self).collect()
    }

    /// For each input of a tile the sums of its products with the vectors of a block, which is as deep as the tile. The
    /// offsets are what [`OFFSET`] adds to the sums of each input.
    pub(crate) fn sum(self, block: &[Stripe], tile: &[Tile], offsets: &[i32], sums: &mut [Sums]) {
        debug_assert!(block.len() == tile.len() && sums.len() <= TILE_INPUTS && offsets.len() == sums.len());
        written!(self, sum(block, tile, offsets, sums));
    }

    /// The same for weights in four bits.
    pub(crate) fn sum_groups(self, block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
        debug_assert!(block.len() == tile.len() && sums.len() <= TILE_INPUTS);
        written!(self, sum_groups(block, tile, sums));
    }

    compiled! {
        /// Scales a row by its largest number and rounds it. Returns the scale, and the sum of the integers.
        quantise(row: &[f32], numbers: &mut [i8]) -> (f32, i32)
    }

    compiled! {
        /// The products from the sums for one input: in the scales of both sides, and with a bias.
        finish(sums: &Sums, scale: f32, scales: &[f32; LANES], bias: &[f32; LANES], products: &mut [f32; LANES])
    }

    compiled! {
        /// The Gaussian error linear unit of each number.
        gelu(values: &mut [f32])
    }

    compiled! {
        /// Self-attention of one head within a text. Queries, keys and values are rows of `width` numbers, one for each
        /// piece, and so are the results. The width is a multiple of [`LANES`]; queries are divided by the root of the
        /// head's own width.
        attend(query: &[f32], key: &[f32], value: &[f32], width: usize, result: &mut [f32])
    }
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

    fn tiles(depth: usize, mut number: impl FnMut() -> i8) -> Vec<Tile> {
        (0..depth).map(|_| std::array::from_fn(|_| std::array::from_fn(|_| number()))).collect()
    }

    /// What the inputs of a tile add up to, times a number.
    fn totals(tile: &[Tile], factor: i32) -> [i32; TILE_INPUTS] {
        std::array::from_fn(|input| factor * tile.iter().flat_map(|tile| tile[input]).map(i32::from).sum::<i32>())
    }

    fn groups_of_inputs(tile: &[Tile]) -> Vec<InputGroup> {
        let (groups, _) = tile.as_chunks::<GROUP_STRIPES>();
        groups.iter().map(|numbers| InputGroup::new(*numbers)).collect()
    }

    #[test]
    fn every_kernel_gives_the_same_to_the_bit() {
        let mut seed = 7;
        for (depth, count) in [(8, 1), (16, 2), (24, 3), (96, 7), (104, 8), (384, 5)] {
            let block: Vec<Stripe> = (0..depth).map(|_| std::array::from_fn(|_| random(&mut seed) as u8)).collect();
            let tile = tiles(depth, || ((random(&mut seed) % 255) as i16 - 127) as i8);
            let offsets = totals(&tile, i32::from(OFFSET));
            let weights: Vec<Group> = (0..depth / GROUP_STRIPES)
                .map(|_| Group {
                    packed: std::array::from_fn(|_| std::array::from_fn(|_| random(&mut seed) as u8)),
                    factors: {
                        let factors: [i16; LANES] = std::array::from_fn(|_| (random(&mut seed) % 2047) as i16 - 1023);
                        std::array::from_fn(|place| factors[place / 2])
                    },
                })
                .collect();
            let inputs = groups_of_inputs(&tile);
            let row = floats(depth * DEPTH, &mut seed);
            let texts = [floats(count * 32, &mut seed), floats(count * 32, &mut seed), floats(count * 32, &mut seed)];
            let run = |kernel: Kernel| {
                let mut sums = vec![[1; LANES]; count];
                kernel.sum(&block, &tile, &offsets[..count], &mut sums);
                let mut of_groups = vec![[1; LANES]; count];
                kernel.sum_groups(&weights, &inputs, &mut of_groups);
                let mut numbers = vec![0; row.len()];
                let total = kernel.quantise(&row, &mut numbers);
                let mut products = [0.0; LANES];
                kernel.finish(&sums[0], 0.3, &[0.7; LANES], &[0.1; LANES], &mut products);
                let mut values = row.clone();
                kernel.gelu(&mut values);
                let mut attended = vec![0.0; count * 32];
                kernel.attend(&texts[0], &texts[1], &texts[2], 32, &mut attended);
                (sums, of_groups, products, numbers, total, values, attended)
            };
            let expected = run(Kernel(Instructions::Portable));
            for kernel in Kernel::all() {
                assert_eq!(run(kernel), expected, "{kernel:?}, {depth} deep, {count} inputs");
            }
        }
    }

    #[test]
    fn the_sums_are_those_of_signed_numbers() {
        for kernel in Kernel::all() {
            let (tile, mut sums) = (tiles(3, || -5), vec![[0; LANES]; 2]);
            kernel.sum(&[[OFFSET - 7; 64]; 3], &tile, &totals(&tile, i32::from(OFFSET))[..2], &mut sums);
            assert_eq!(sums, [[5 * 7 * 12; LANES]; 2], "{kernel:?}");
            let group = Group { packed: [[0x5d; 64]; 4], factors: [3; LANES * 2] };
            kernel.sum_groups(&[group], &groups_of_inputs(&tiles(8, || -2)), &mut sums);
            // Half of the weights are five, and half are minus three.
            assert_eq!(sums, [[-2 * 16 * (5 - 3) * 3; LANES]; 2], "{kernel:?}");
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for kernel in Kernel::all() {
            for (number, least, most) in [(127, 1, 255), (-127, 1, 255)] {
                let (tile, mut sums) = (tiles(8192, || number), vec![[0; LANES]; 1]);
                let offsets = totals(&tile, i32::from(OFFSET));
                for byte in [least, most] {
                    kernel.sum(&vec![[byte; 64]; 8192], &tile, &offsets[..1], &mut sums);
                    let expected = i32::from(number) * (i32::from(byte) - 128) * 8192 * 4;
                    assert_eq!(sums, [[expected; LANES]], "{kernel:?}");
                }
                let inputs = groups_of_inputs(&tiles(8 * 48, || number));
                for (byte, weight) in [(0x00, -8), (0xff, 7)] {
                    let group = Group { packed: [[byte; 64]; 4], factors: [1023; LANES * 2] };
                    kernel.sum_groups(&vec![group; 48], &inputs, &mut sums);
                    assert_eq!(sums, [[i32::from(number) * weight * 32 * 48 * 1023; LANES]], "{kernel:?}");
                }
            }
        }
    }
}
