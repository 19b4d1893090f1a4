//! SentencePiece's files: pieces with scores, and how text is made ready for them. They are messages of protobuf, of which five
//! fields are read; every length is held against what is left of the file.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{Error, error::Result};

/// A trained model of pieces.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pieces {
    pub(super) all: Vec<Piece>,
    /// Whether a text is cut so that the scores of its pieces sum to the most; otherwise pieces are merged.
    pub(super) unigram: bool,
    /// The piece of what is unknown.
    pub(super) unknown: usize,
    /// Whether unknown characters become bytes.
    bytes: bool,
    /// Characters and what takes their place, as SentencePiece has compiled them.
    replaced: Vec<u8>,
}

/// A piece: its text, its score and its kind.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f64,
    pub(super) kind: u64,
}

/// Kinds of pieces that no text is cut into.
pub(super) const CONTROL: u64 = 3;
pub(super) const USER: u64 = 4;

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Single(f32),
    Double,
}

/// The fields of a message, by number.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(number(&mut bytes)?),
            1 => {
                take(&mut bytes, 8)?;
                Field::Double
            }
            2 => {
                let length = usize::try_from(number(&mut bytes)?).ok()?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => Field::Single(f32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?)),
            _ => return None,
        };
        out.push((key >> 3, field));
    }
    Some(out)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = bytes.split_at_checked(count)?;
    *bytes = left;
    Some(taken)
}

/// Seven bits to a byte, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut out = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = *take(bytes, 1)? else { return None };
        out |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(out);
        }
    }
    None
}

impl Pieces {
    /// The model of a file; nothing if it is none, or cut short.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        let file = fs::read(path).map_err(Error::file(path))?;
        Ok(Self::parse(&file).filter(|read| read.unknown < read.all.len()))
    }

    fn parse(file: &[u8]) -> Option<Self> {
        let mut out = Self { unigram: true, ..Self::default() };
        for (key, field) in fields(file)? {
            let Field::Bytes(bytes) = field else { continue };
            match key {
                1 => out.all.push(piece(bytes)?),
                2 => {
                    for (key, field) in fields(bytes)? {
                        match (key, field) {
                            (3, Field::Number(kind)) => out.unigram = kind == 1,
                            (35, Field::Number(bytes)) => out.bytes = bytes != 0,
                            (40, Field::Number(id)) => out.unknown = usize::try_from(id).ok()?,
                            _ => {}
                        }
                    }
                }
                3 => {
                    for (key, field) in fields(bytes)? {
                        if let (2, Field::Bytes(map)) = (key, field) {
                            out.replaced = map.to_vec();
                        }
                    }
                }
                _ => {}
            }
        }
        Some(out)
    }

    /// What makes text ready: replaced characters between what the family's class does first and last.
    pub(super) fn normalizer(&self, first: Vec<Value>, last: Vec<Value>) -> Value {
        let mut all = first;
        if !self.replaced.is_empty() {
            let map = base64(&self.replaced);
            all.push(json!({ "type": "Precompiled", "precompiled_charsmap": map }));
        }
        all.extend(last);
        json!({ "type": "Sequence", "normalizers": all })
    }

    /// A model of tokens with their scores.
    pub(super) fn model(&self, tokens: &[(String, f64)], unknown: usize) -> Value {
        json!({ "type": "Unigram", "unk_id": unknown, "vocab": tokens, "byte_fallback": self.bytes })
    }
}

fn piece(bytes: &[u8]) -> Option<Piece> {
    let mut out = Piece { text: String::new(), score: 0.0, kind: 1 };
    for (key, field) in fields(bytes)? {
        match (key, field) {
            (1, Field::Bytes(text)) => out.text = String::from_utf8(text.to_vec()).ok()?,
            (2, Field::Single(score)) => out.score = f64::from(score),
            (3, Field::Number(kind)) => out.kind = kind,
            _ => {}
        }
    }
    Some(out)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8][..], bytes].concat()
    }

    #[test]
    fn messages_are_read_and_broken_ones_are_not() {
        let score = (-1.5f32).to_le_bytes();
        let one = [&message(1, "▁a".as_bytes())[..], &[2 << 3 | 5], &score, &[3 << 3, 4]].concat();
        let trainer = [3 << 3, 1, 40 << 3 & 127 | 128, 2, 0];
        let file =
            [message(1, &one), message(2, &trainer), message(3, &message(2, b"xyz"))].concat();
        let read = Pieces::parse(&file).unwrap();
        assert_eq!(read.all, [Piece { text: "▁a".into(), score: -1.5, kind: USER }]);
        assert!(read.unigram && read.replaced == b"xyz" && read.unknown == 0);
        for length in 1..file.len() {
            // Shorter ones end between two messages, or are none.
            if let Some(read) = Pieces::parse(&file[..length]) {
                assert!(read.all.len() <= 1);
            }
        }
        assert_eq!(
            Pieces::parse(&[1 << 3 | 2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            None
        );
        assert_eq!(Pieces::parse(&[7]), None);
    }

    #[test]
    fn bytes_are_written_in_64_digits() {
        for (text, want) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(text.as_bytes()), want);
        }
    }
}
