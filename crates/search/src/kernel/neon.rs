//! NEON with the instruction for scalar products of 8-bit integers, which most ARM machines since 2018 have.

use std::arch::aarch64::{
    int8x16_t, int32x4_t, uint8x16_t, vandq_u8, vdupq_n_s32, vdupq_n_u8, veorq_u8, vld1q_s8, vld1q_s32, vld1q_u8,
    vmlaq_s32, vreinterpretq_s8_u8, vshrq_n_u8, vst1q_s32,
};
use std::arch::asm;

use super::{Group, InputGroup, LANES, OFFSET, Stripe, Sums, TILE_INPUTS, Tile};

/// Vectors whose sums fill a register.
const QUARTER_LANES: usize = 4;
const QUARTERS: usize = LANES / QUARTER_LANES;
/// Bytes of a register.
const BYTES: usize = 16;

#[target_feature(enable = "neon,dotprod")]
pub(super) fn sum(block: &[Stripe], tile: &[Tile], _: &[i32], sums: &mut [Sums]) {
    let offset = vdupq_n_u8(OFFSET);
    for quarter in 0..QUARTERS {
        let mut lanes = [vdupq_n_s32(0); TILE_INPUTS];
        for (stripe, tile) in block.iter().zip(tile) {
            let stripe = vreinterpretq_s8_u8(veorq_u8(load(stripe, quarter), offset));
            add_products(&mut lanes, stripe, tile);
        }
        store(&lanes, quarter, sums);
    }
}

/// The same for weights in four bits.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn sum_groups(block: &[Group], tile: &[InputGroup], sums: &mut [Sums]) {
    let four_bits = vdupq_n_u8(15);
    for quarter in 0..QUARTERS {
        let mut totals = [vdupq_n_s32(0); TILE_INPUTS];
        for (group, inputs) in block.iter().zip(tile) {
            let mut lanes = [vdupq_n_s32(0); TILE_INPUTS];
            for (lanes, sum) in lanes.iter_mut().zip(&inputs.sums) {
                *lanes = vdupq_n_s32(*sum);
            }
            for (packed, [low, high]) in group.packed.iter().zip(inputs.numbers.as_chunks::<2>().0) {
                let packed = load(packed, quarter);
                add_products(&mut lanes, vreinterpretq_s8_u8(vandq_u8(packed, four_bits)), low);
                add_products(&mut lanes, vreinterpretq_s8_u8(vshrq_n_u8::<4>(packed)), high);
            }
            let factors = factors(group, quarter);
            for (total, lanes) in totals.iter_mut().zip(lanes) {
                *total = vmlaq_s32(*total, lanes, factors);
            }
        }
        store(&totals, quarter, sums);
    }
}

/// Adds the products of a stripe with the inputs of a tile.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_products(lanes: &mut [int32x4_t; TILE_INPUTS], stripe: int8x16_t, tile: &Tile) {
    let (halves, _) = tile.as_flattened().as_chunks::<BYTES>();
    for (lanes, inputs) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(halves) {
        #[expect(unsafe_code, reason = "there is no safe way to load a register")]
        // SAFETY: sixteen bytes can be read there.
        let inputs = unsafe { vld1q_s8(inputs.as_ptr()) };
        let [first, second, third, fourth] = lanes;
        #[expect(unsafe_code, reason = "the compiler has no stable function for this instruction")]
        // SAFETY: the machine has the instruction, and it touches nothing but these registers.
        unsafe {
            asm!(
                "sdot {first:v}.4s, {stripe:v}.16b, {inputs:v}.4b[0]",
                "sdot {second:v}.4s, {stripe:v}.16b, {inputs:v}.4b[1]",
                "sdot {third:v}.4s, {stripe:v}.16b, {inputs:v}.4b[2]",
                "sdot {fourth:v}.4s, {stripe:v}.16b, {inputs:v}.4b[3]",
                first = inout(vreg) *first,
                second = inout(vreg) *second,
                third = inout(vreg) *third,
                fourth = inout(vreg) *fourth,
                stripe = in(vreg) stripe,
                inputs = in(vreg) inputs,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(stripe: &Stripe, quarter: usize) -> uint8x16_t {
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: sixteen bytes can be read there.
    unsafe {
        vld1q_u8(stripe.as_chunks::<BYTES>().0[quarter].as_ptr())
    }
}

/// The factors of four columns.
#[inline]
#[target_feature(enable = "neon")]
fn factors(group: &Group, quarter: usize) -> int32x4_t {
    let pairs: [i32; QUARTER_LANES] =
        std::array::from_fn(|column| i32::from(group.factors[(quarter * QUARTER_LANES + column) * 2]));
    #[expect(unsafe_code, reason = "there is no safe way to load a register")]
    // SAFETY: four integers can be read there.
    unsafe {
        vld1q_s32(pairs.as_ptr())
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(lanes: &[int32x4_t; TILE_INPUTS], quarter: usize, sums: &mut [Sums]) {
    for (sums, lanes) in sums.iter_mut().zip(lanes) {
        #[expect(unsafe_code, reason = "there is no safe way to store a register")]
        // SAFETY: four integers can be written there.
        unsafe {
            vst1q_s32(sums.as_chunks_mut::<QUARTER_LANES>().0[quarter].as_mut_ptr(), *lanes);
        }
    }
}
