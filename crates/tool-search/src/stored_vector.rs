//! Vectors as the registry stores them: the numbers in little-endian order, then the hash of the text that they stand for.
//!
//! The registry's own digest of a tool covers neither its server's name nor the form of the text.

use std::collections::BTreeMap;

use search::TextHash;

const HASH_LEN: usize = 16;

pub(super) fn encode(vector: &[f32], hash: TextHash) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).chain(hash.0).collect()
}

/// A vector and the hash of its text. Earlier versions stored no hash: then this is one that no text has.
pub(super) fn decode(bytes: &[u8]) -> Option<(Vec<f32>, TextHash)> {
    let (vector, hash) = bytes.split_last_chunk::<HASH_LEN>()?;
    Some((floats(vector), TextHash(*hash)))
}

/// The numbers of a vector of this dimension, with or without a hash; none if it has another one.
pub(super) fn numbers(bytes: &[u8], dimension: usize) -> Vec<f32> {
    let (vector, rest) = bytes.split_at(bytes.len().min(dimension * size_of::<f32>()));
    if rest.is_empty() || rest.len() == HASH_LEN { floats(vector) } else { Vec::new() }
}

/// How many numbers most of these vectors have. A vector ends with a hash if its last numbers could not be those of a
/// vector: a hash has random bits, the numbers of a vector are small.
pub(super) fn dimension_of<'a>(stored: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for bytes in stored.filter(|bytes| bytes.len() % size_of::<f32>() == 0) {
        let is_number = |number: &f32| *number == 0.0 || (1e-8..1e4).contains(&number.abs());
        let has_hash = bytes.split_last_chunk::<HASH_LEN>().is_some_and(|(_, end)| !floats(end).iter().all(is_number));
        let length = bytes.len() - if has_hash { HASH_LEN } else { 0 };
        *counts.entry(length / size_of::<f32>()).or_default() += 1;
    }
    counts.into_iter().filter(|(dimension, _)| *dimension > 0).max_by_key(|(_, count)| *count).map(|(it, _)| it)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was_stored() {
        let (vector, hash) = ([1.0, -0.25, f32::MIN_POSITIVE], TextHash([7; 16]));
        let bytes = encode(&vector, hash);
        assert_eq!(decode(&bytes), Some((vector.to_vec(), hash)));
        assert_eq!(numbers(&bytes, 3), vector);
        assert_eq!(numbers(&bytes[..12], 3), vector, "as earlier versions stored it");
        assert!(numbers(&bytes, 2).is_empty() && decode(&bytes[..12]).is_none());
    }
    #[test]
    fn the_dimension_follows_from_the_lengths_of_rows() {
        let vector: Vec<f32> = (0..24_u8).map(|number| f32::from(number) / 100.0 - 0.1).collect();
        let earlier = encode(&vector, TextHash([0; 16]))[..96].to_vec();
        let hash =
            TextHash([0x8f, 0x33, 0xe1, 0x7a, 0x05, 0xc2, 0x9b, 0xfe, 0x61, 0x0d, 0xd4, 0x88, 0x2c, 0xb7, 0x19, 0xf0]);
        let (earlier, now) = (earlier.as_slice(), encode(&vector, hash));
        assert_eq!(dimension_of([earlier, earlier].into_iter()), Some(24));
        assert_eq!(dimension_of([now.as_slice(), &now].into_iter()), Some(24));
        assert_eq!(dimension_of([now.as_slice(), earlier, b"broken"].into_iter()), Some(24));
        assert_eq!(dimension_of([&b""[..], b"abc"].into_iter()), None);
    }
}
