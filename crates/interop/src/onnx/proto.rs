//! Protocol buffers, as far as ONNX needs them: messages whose large fields stay where they are until they are written.

use std::io::{self, Write};

/// A part of a message.
#[derive(Debug)]
enum Chunk<'a> {
    Bytes(Vec<u8>),
    /// Numbers of 32 bits, little-endian in the file.
    Values(&'a [f32]),
}

/// A message that knows its length.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    chunks: Vec<Chunk<'a>>,
    length: u64,
}

/// Kinds of fields, in the last three bits of a tag.
const VARINT: u64 = 0;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl<'a> Message<'a> {
    fn raw(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        match self.chunks.last_mut() {
            Some(Chunk::Bytes(own)) => own.extend_from_slice(bytes),
            _ => self.chunks.push(Chunk::Bytes(bytes.to_vec())),
        }
    }

    fn number(&mut self, mut value: u64) {
        let mut bytes = Vec::with_capacity(10);
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        self.raw(&bytes);
    }

    fn tag(&mut self, field: u64, kind: u64) {
        self.number(field << 3 | kind);
    }

    /// A whole number; negative ones as in two's complement.
    pub(super) fn int(mut self, field: u64, value: i64) -> Self {
        self.tag(field, VARINT);
        self.number(value.cast_unsigned());
        self
    }

    /// A number of 32 bits.
    pub(super) fn float(mut self, field: u64, value: f32) -> Self {
        self.tag(field, FIXED32);
        self.raw(&value.to_le_bytes());
        self
    }

    /// Bytes, or a text.
    pub(super) fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.tag(field, DELIMITED);
        self.number(value.len() as u64);
        self.raw(value);
        self
    }

    /// Numbers of 32 bits as bytes, which are not copied.
    pub(super) fn values(mut self, field: u64, values: &'a [f32]) -> Self {
        let length = size_of_val(values) as u64;
        self.tag(field, DELIMITED);
        self.number(length);
        self.length += length;
        self.chunks.push(Chunk::Values(values));
        self
    }

    /// A message within this one.
    pub(super) fn message(mut self, field: u64, inner: Message<'a>) -> Self {
        self.tag(field, DELIMITED);
        self.number(inner.length);
        for chunk in inner.chunks {
            match chunk {
                Chunk::Bytes(bytes) => self.raw(&bytes),
                values @ Chunk::Values(_) => self.chunks.push(values),
            }
        }
        // Bytes were counted above, values were not.
        self.length = self.chunks.iter().map(Chunk::len).sum();
        self
    }

    /// The same message again; its numbers are not copied.
    pub(super) fn borrowed(&self) -> Message<'a> {
        let again = |chunk: &Chunk<'a>| match chunk {
            Chunk::Bytes(bytes) => Chunk::Bytes(bytes.clone()),
            Chunk::Values(values) => Chunk::Values(values),
        };
        Self { chunks: self.chunks.iter().map(again).collect(), length: self.length }
    }

    /// Several messages in one field.
    pub(super) fn messages(self, field: u64, all: impl IntoIterator<Item = Message<'a>>) -> Self {
        all.into_iter().fold(self, |message, inner| message.message(field, inner))
    }

    /// Writes it.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for chunk in &self.chunks {
            match chunk {
                Chunk::Bytes(bytes) => out.write_all(bytes)?,
                Chunk::Values(values) => write_values(out, values)?,
            }
        }
        Ok(())
    }
}

impl Chunk<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Values(values) => size_of_val(*values) as u64,
        }
    }
}

/// Numbers as they lie in a file.
pub(super) fn write_values(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    let mut bytes = [0; 1 << 14];
    for chunk in values.chunks(bytes.len() / 4) {
        for (bytes, value) in bytes.chunks_exact_mut(4).zip(chunk) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        out.write_all(&bytes[..4 * chunk.len()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_encoding_guide() {
        let mut out = Vec::new();
        let inner = Message::default().int(1, 150);
        let message = Message::default().message(3, inner).bytes(2, "testing").int(4, -2);
        message.values(5, &[1.0]).float(6, 1.0).write(&mut out).unwrap();
        let mut want = vec![0x1a, 3, 8, 0x96, 1, 0x12, 7];
        want.extend(b"testing");
        want.extend([0x20, 0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        want.extend([0x2a, 4, 0, 0, 0x80, 0x3f, 0x35, 0, 0, 0x80, 0x3f]);
        assert_eq!(out, want);
    }
}
