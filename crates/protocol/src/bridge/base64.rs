//! Base64 as headers use it: the standard alphabet, padded, and nothing but what an encoder would write.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` in Base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                let six = bits >> (18 - 6 * digit) & 63;
                text.push(char::from(ALPHABET[six as usize]));
            }
        }
    }
    text
}

/// What `text` stands for; `None` if it lacks padding, strays from the alphabet or spells something in a second way.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (groups, []) = text.as_bytes().as_chunks::<4>() else { return None };
    for (index, group) in groups.iter().enumerate() {
        let is_last = index + 1 == groups.len();
        let padding = if is_last { group.iter().rev().take_while(|byte| **byte == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut bits = 0u32;
        for digit in &group[..4 - padding] {
            bits = bits << 6 | ALPHABET.iter().position(|letter| letter == digit)? as u32;
        }
        bits <<= 6 * padding;
        let [_, decoded @ ..] = bits.to_be_bytes();
        let (kept, unused) = decoded.split_at(3 - padding);
        if unused.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_and_reads_what_everybody_does() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("Hello", "SGVsbG8=")];
        for (plain, encoded) in pairs {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded).unwrap(), plain.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn takes_no_other_spelling() {
        for text in [
            "SGVsbG8",
            "SGVs!!!bG8=",
            "Zg=",
            "Zg",
            "Zh==",
            "Zm9=",
            "====",
            "=",
            "Z===",
            "Zg==Zg==",
            "Zm9v\n",
            "-_-_",
            "Zm 9",
            "é",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_again(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn what_decodes_has_one_spelling(text in "[A-Za-z0-9+/=]{0,12}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
