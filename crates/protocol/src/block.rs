//! Scans a string sixteen bytes at a time for bytes that need a closer look.
//!
//! Long strings make up most of a large message, so this is the inner loop of the whole relay. On x86-64 it uses SSE2,
//! which every such machine has; other machines use plain arithmetic on two words.

/// The number of bytes in a block.
pub(crate) const SIZE: usize = 16;

/// A bit for every byte that cannot occur unescaped in a JSON string: quote, backslash, control character.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn specials(block: &[u8; SIZE]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    #[inline]
    #[target_feature(enable = "sse2")]
    fn with_sse2(block: &[u8; SIZE]) -> u32 {
        let (low, high) = words(block);
        let bytes = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)).cast_unsigned()
    }

    // SAFETY: SSE2 is part of the x86-64 architecture itself.
    #[expect(unsafe_code, reason = "the compiler asks for it wherever a target feature is named")]
    unsafe {
        with_sse2(block)
    }
}

/// A bit for every byte that cannot occur unescaped in a JSON string: quote, backslash, control character.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn specials(block: &[u8; SIZE]) -> u32 {
    portable(block)
}

/// The same without vector instructions.
#[cfg_attr(target_arch = "x86_64", cfg(test))]
fn portable(block: &[u8; SIZE]) -> u32 {
    /// One bit per byte, from the top bit of each.
    fn gather(tops: u64) -> u32 {
        // The multiplication moves the eight top bits next to each other into the highest byte.
        ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    }
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // Exact for every byte: no carry leaves its byte because the top bits are masked off before adding.
    let is_zero = |word: u64| !(((word & !TOPS) + !TOPS) | word) & TOPS;
    let specials = |word: u64| {
        let control = is_zero(word & (ONES * 0xe0));
        is_zero(word ^ (ONES * u64::from(b'"'))) | is_zero(word ^ (ONES * u64::from(b'\\'))) | control
    };
    let (low, high) = words(block);
    gather(specials(low)) | gather(specials(high)) << 8
}

#[inline]
fn words(block: &[u8; SIZE]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    (whole as u64, (whole >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_hand(block: &[u8; SIZE]) -> u32 {
        block
            .iter()
            .enumerate()
            .fold(0, |mask, (index, &byte)| mask | u32::from(byte == b'"' || byte == b'\\' || byte < 0x20) << index)
    }

    #[test]
    fn every_byte_is_validated_at_every_position() {
        for byte in 0..=255 {
            for place in 0..SIZE {
                for around in [b'a', b'"', 0x00, 0xff] {
                    let mut block = [around; SIZE];
                    block[place] = byte;
                    assert_eq!(specials(&block), by_hand(&block), "{block:?}");
                    assert_eq!(portable(&block), by_hand(&block), "{block:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree_on_anything(block in any::<[u8; SIZE]>()) {
            prop_assert_eq!(specials(&block), by_hand(&block));
            prop_assert_eq!(portable(&block), by_hand(&block));
        }
    }
}
