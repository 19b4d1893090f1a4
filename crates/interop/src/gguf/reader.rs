//! The header of a GGUF file: what it says of the model, and where its tensors lie. Every length is held against what is left
//! of the file before anything is allocated.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use serde_json::{Map, Number, Value};

use crate::{
    Error,
    error::Result,
    tensors::{Entry, Kind, Tensors, count},
};

/// Lists within lists; no model has one.
const DEEPEST: usize = 2;
const ALIGNMENT: u64 = 32;

/// What a header says.
pub(crate) struct Header {
    pub(crate) values: Map<String, Value>,
    pub(crate) tensors: Tensors,
}

/// Reads the header of a file.
pub(crate) fn read(path: &Path) -> Result<Header> {
    let file = File::open(path).map_err(Error::file(path))?;
    let size = file.metadata().map_err(Error::file(path))?.len();
    let mut bytes = Bytes { from: BufReader::new(file), size, left: size };
    parse(&mut bytes, path).map_err(|found| Error::content(path, found))
}

/// A file that knows how much of it is left.
struct Bytes<R> {
    from: R,
    size: u64,
    left: u64,
}

type Found<T> = std::result::Result<T, String>;

impl<R: Read> Bytes<R> {
    fn take<const N: usize>(&mut self) -> Found<[u8; N]> {
        let mut bytes = [0; N];
        self.left = self.left.checked_sub(N as u64).ok_or("a file that is cut short")?;
        self.from.read_exact(&mut bytes).map_err(|e| format!("a file that is cut short ({e})"))?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Found<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Found<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// A number of things of which each takes at least so many bytes.
    fn many(&mut self, least: u64, what: &str) -> Found<u64> {
        let found = self.u64()?;
        match found.checked_mul(least) {
            Some(bytes) if bytes <= self.left => Ok(found),
            _ => Err(format!("{found} {what}, expected no more than {} bytes hold", self.left)),
        }
    }

    fn text(&mut self) -> Found<String> {
        let length = self.many(1, "bytes of a text")?;
        let mut bytes = vec![0; length as usize];
        self.left -= length;
        self.from.read_exact(&mut bytes).map_err(|e| format!("a file that is cut short ({e})"))?;
        // Tokens of GGUF may be any bytes.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Found<Value> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.take()?).into(),
            1 => i8::from_le_bytes(self.take()?).into(),
            2 => u16::from_le_bytes(self.take()?).into(),
            3 => i16::from_le_bytes(self.take()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.take()?).into(),
            // As it would be written: 1e-5 and not 9.9999997e-6.
            6 => number(f32::from_le_bytes(self.take()?).to_string().parse().unwrap_or(f64::NAN)),
            7 => Value::Bool(self.take::<1>()? != [0]),
            8 => self.text()?.into(),
            9 => {
                let kind = self.u32()?;
                let least = match kind {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    9 => 12,
                    _ => 8,
                };
                if depth == DEEPEST {
                    return Err(format!("lists in lists, expected no more than {DEEPEST} deep"));
                }
                let length = self.many(least, "values of a list")?;
                let values = (0..length).map(|_| self.value(kind, depth + 1));
                Value::Array(values.collect::<Found<_>>()?)
            }
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.take()?).into(),
            12 => number(f64::from_le_bytes(self.take()?)),
            other => return Err(format!("a value of type {other}, expected 0 to 12")),
        })
    }
}

fn number(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn parse<R: Read>(bytes: &mut Bytes<R>, path: &Path) -> Found<Header> {
    if bytes.take::<4>()? != *b"GGUF" {
        return Err("other bytes than GGUF at its beginning".into());
    }
    let version = bytes.u32()?;
    if !(2..=3).contains(&version) {
        return Err(format!("GGUF version {version}, expected 2 or 3, little-endian"));
    }
    // A tensor has a name, a number of sizes, a type and an offset; a value a key and a type.
    let tensor_count = bytes.many(24, "tensors")?;
    let value_count = bytes.many(13, "values")?;
    let mut values = Map::new();
    for _ in 0..value_count {
        let key = bytes.text()?;
        let kind = bytes.u32()?;
        let value = bytes.value(kind, 0).map_err(|e| format!("{key}: {e}"))?;
        values.insert(key, value);
    }
    let mut infos: BTreeMap<String, (Vec<usize>, u32, u64)> = BTreeMap::new();
    for _ in 0..tensor_count {
        let name = bytes.text()?;
        let sizes = bytes.u32()?;
        if sizes > 4 {
            return Err(format!("tensor {name}: {sizes} sizes, expected at most 4"));
        }
        let mut shape = Vec::new();
        for _ in 0..sizes {
            shape.push(usize::try_from(bytes.u64()?).map_err(|e| e.to_string())?);
        }
        // GGML names the fastest size first.
        shape.reverse();
        let (kind, offset) = (bytes.u32()?, bytes.u64()?);
        if infos.insert(name.clone(), (shape, kind, offset)).is_some() {
            return Err(format!("tensor {name}: twice, expected once"));
        }
    }
    let alignment = match values.get("general.alignment") {
        None => ALIGNMENT,
        Some(value) => value
            .as_u64()
            .filter(|a| a.is_power_of_two() && *a <= 1 << 20)
            .ok_or_else(|| format!("general.alignment = {value}, expected a power of two"))?,
    };
    let start = (bytes.size - bytes.left).next_multiple_of(alignment);
    let mut tensors = Tensors { files: vec![path.into()], ..Tensors::default() };
    for (name, (shape, kind, offset)) in infos {
        let kind = kind_of(kind).ok_or_else(|| {
            format!(
                "tensor {name}: type {kind}, expected F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K or Q6_K"
            )
        })?;
        let length = count(&shape).and_then(|count| kind.bytes(count)).map(|length| length as u64);
        // Blocks lie within rows.
        let whole = shape.last().is_none_or(|row| row.is_multiple_of(kind.block().0));
        let place = start.checked_add(offset);
        let end = place.and_then(|start| length.and_then(|length| start.checked_add(length)));
        match (place, end) {
            (Some(start), Some(end)) if end <= bytes.size && whole => {
                tensors.entries.insert(name, Entry { file: 0, kind, shape, start });
            }
            _ => {
                let name_of = kind.name();
                let size = bytes.size;
                return Err(format!(
                    "tensor {name}: shape {shape:?} of {name_of} at {offset}, expected whole blocks within {size} bytes"
                ));
            }
        }
    }
    tensors.apart(0).map_err(|error| error.to_string())?;
    Ok(Header { values, tensors })
}

fn kind_of(number: u32) -> Option<Kind> {
    Some(match number {
        0 => Kind::F32,
        1 => Kind::F16,
        2 => Kind::Q4_0,
        3 => Kind::Q4_1,
        8 => Kind::Q8_0,
        12 => Kind::Q4K,
        14 => Kind::Q6K,
        30 => Kind::Bf16,
        _ => return None,
    })
}
