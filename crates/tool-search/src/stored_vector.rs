//! Vectors as the registry stores them: the numbers in little-endian order, then the hash of the text that they stand for.
//!
//! The registry's own digest of a tool covers neither its server's name nor the form of the text.

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
}
