//! A hash that stays the same over versions and machines: FNV-1a, mixed at the end.

use crate::finalize;

/// A hash of several texts, in order.
#[derive(Clone, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of nothing yet.
    pub const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    /// Of one text.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        hash.add(bytes);
        hash.finish()
    }

    /// Adds bytes and their number, so that `ab, c` differs from `a, bc`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.absorb(bytes);
        self.absorb(&(bytes.len() as u64).to_le_bytes());
    }

    /// The hash of what was added.
    pub fn finish(&self) -> u64 {
        finalize(self.0)
    }

    fn absorb(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_hashed_as_fnv_1a() {
        // <http://www.isthe.com/chongo/src/fnv/test_fnv.c>
        for (text, expected) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            let mut hash = Fingerprint::new();
            hash.absorb(text.as_bytes());
            assert_eq!(hash.0, expected, "{text}");
        }
    }

    #[test]
    fn where_texts_end_matters() {
        let of = |texts: [&str; 2]| {
            let mut hash = Fingerprint::new();
            texts.iter().for_each(|text| hash.add(text.as_bytes()));
            hash.finish()
        };
        assert_eq!(of(["ab", "c"]), of(["ab", "c"]));
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
        assert_ne!(of(["ab", ""]), Fingerprint::of(b"ab"));
    }
}
