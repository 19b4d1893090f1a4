//! The text that comes with the program, to learn from without any file: tiny Shakespeare, which is in the public domain.
//!
//! It never changes, so that figures on it can be held against older ones, and against nanoGPT's.

use std::io::Read;

use crate::read::zstandard;

const COMPRESSED: &[u8] = include_bytes!("../text/shakespeare.txt.zst");

/// Tiny Shakespeare: 1 115 394 bytes of ASCII, 65 different characters.
pub fn shakespeare() -> String {
    let mut text = String::new();
    zstandard(COMPRESSED).read_to_string(&mut text).expect("it was compressed from ASCII");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_text_is_the_one_that_nanogpt_reads() {
        let text = shakespeare();
        assert_eq!(text.len(), 1_115_394);
        assert_eq!(text.chars().collect::<BTreeSet<_>>().len(), 65);
        assert!(text.starts_with("First Citizen:\nBefore we proceed any further, hear me speak."));
    }
}
