//! A GGUF file, written one tensor after the other, whole or not at all.

use std::{io::Write, path::Path};

use serde_json::{Number, Value};

use crate::{Error, error::Result, tensors::Kind};

const ALIGNMENT: u64 = 32;

/// A value of the header with its type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Typed {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

impl From<usize> for Typed {
    fn from(value: usize) -> Self {
        // Sizes of a model are far below.
        Self::U32(u32::try_from(value).unwrap_or(u32::MAX))
    }
}

impl From<f64> for Typed {
    fn from(value: f64) -> Self {
        Self::F32(value as f32)
    }
}

impl From<bool> for Typed {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Typed {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Typed {
    fn kind(&self) -> u32 {
        match self {
            Self::U32(_) => 4,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => 8,
            Self::Texts(_) | Self::Floats(_) | Self::Integers(_) => 9,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let mut list = |kind: u32, length: usize| {
            out.extend(kind.to_le_bytes());
            out.extend((length as u64).to_le_bytes());
        };
        match self {
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Text(value) => text(out, value),
            Self::Texts(values) => {
                list(8, values.len());
                values.iter().for_each(|value| text(out, value));
            }
            Self::Floats(values) => {
                list(6, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
            Self::Integers(values) => {
                list(5, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
        }
    }

    /// As [`super::reader`] would read it.
    pub(super) fn json(&self) -> Value {
        let float = |value: f32| {
            let read = value.to_string().parse().ok().and_then(Number::from_f64);
            read.map_or(Value::Null, Value::Number)
        };
        match self {
            Self::U32(value) => (*value).into(),
            Self::F32(value) => float(*value),
            Self::Bool(value) => (*value).into(),
            Self::Text(value) => value.clone().into(),
            Self::Texts(values) => values.clone().into(),
            Self::Floats(values) => values.iter().map(|value| float(*value)).collect(),
            Self::Integers(values) => values.clone().into(),
        }
    }
}

/// A tensor to be written.
pub(super) struct Info {
    pub(super) name: String,
    /// Slowest size first.
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
}

impl Info {
    fn bytes(&self) -> u64 {
        self.kind.bytes(self.shape.iter().product()).unwrap_or(0) as u64
    }
}

fn number_of(kind: Kind) -> u32 {
    match kind {
        Kind::F32 => 0,
        Kind::F16 => 1,
        Kind::Q4_0 => 2,
        Kind::Q4_1 => 3,
        Kind::Q8_0 => 8,
        Kind::Q4K => 12,
        Kind::Q6K => 14,
        Kind::Bf16 => 30,
    }
}

fn header(values: &[(String, Typed)], tensors: &[Info]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    for (key, value) in values {
        text(&mut out, key);
        out.extend(value.kind().to_le_bytes());
        value.put(&mut out);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|size| out.extend((*size as u64).to_le_bytes()));
        out.extend(number_of(tensor.kind).to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset = (offset + tensor.bytes()).next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
    out
}

/// Writes the file; `make` is asked for the values of one tensor after the other, by number.
pub(super) fn write(
    path: &Path,
    values: &[(String, Typed)],
    tensors: &[Info],
    mut make: impl FnMut(usize) -> Result<Vec<f32>>,
) -> Result<()> {
    let mut out = whatwhere_files::Writer::create(path).map_err(whatwhere_training::Error::from)?;
    out.write_all(&header(values, tensors)).map_err(Error::file(path))?;
    for (i, tensor) in tensors.iter().enumerate() {
        let Info { name, kind, shape } = tensor;
        let made = make(i)?;
        let row = shape.last().copied().unwrap_or(1).max(1);
        // Rows together, a megabyte or so at a time.
        for rows in made.chunks(row * (1usize << 18).div_ceil(row)) {
            let bytes = kind.pack(rows).ok_or_else(|| {
                let kind = kind.name();
                let expected =
                    format!("values within the range of {kind}; --weights f32 has no such bound");
                Error::tensor(name, "a value that is not a number or too large", expected)
            })?;
            out.write_all(&bytes).map_err(Error::file(path))?;
        }
        let length = tensor.bytes();
        let rest = length.next_multiple_of(ALIGNMENT) - length;
        out.write_all(&[0; ALIGNMENT as usize][..rest as usize]).map_err(Error::file(path))?;
    }
    out.finish().map_err(whatwhere_training::Error::from)?;
    Ok(())
}
