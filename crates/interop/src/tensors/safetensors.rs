//! Safetensors: one file, or several with an index.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json};

use super::{Entry, Kind, Tensors};
use crate::{
    Error,
    error::Result,
    give::{Ours, Piece},
};

/// What names the file of each tensor, where there are several.
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// All tensors of a model folder.
pub(crate) fn open(folder: &Path) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    let index = folder.join(INDEX);
    if folder.join(SINGLE).is_file() {
        add(&mut tensors, &folder.join(SINGLE))?;
    } else if index.is_file() {
        let bytes = fs::read(&index).map_err(Error::file(&index))?;
        let Index { weight_map } = serde_json::from_slice(&bytes)
            .map_err(|e| Error::content(&index, format!("found {e}, expected a weight_map")))?;
        let files: BTreeSet<&String> = weight_map.values().collect();
        for file in files {
            if file.contains(['/', '\\']) || file == ".." {
                let found = format!("found the file {file:?}, expected a name without a folder");
                return Err(Error::content(&index, found));
            }
            add(&mut tensors, &folder.join(file))?;
        }
        if let Some(name) = weight_map.keys().find(|name| !tensors.entries.contains_key(*name)) {
            let expected = format!("it in {}, as {INDEX} says", weight_map[name]);
            return Err(Error::tensor(name, "nothing", expected));
        }
    } else if folder.join("pytorch_model.bin").is_file()
        || folder.join("pytorch_model.bin.index.json").is_file()
    {
        let found = "found pytorch_model.bin, expected model.safetensors: a pickle can run any program when it is opened. \
             In Python: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER), or the model's own class";
        return Err(Error::content(folder, found));
    } else {
        let found = format!("found neither {SINGLE} nor {INDEX}");
        return Err(Error::content(folder, found));
    }
    Ok(tensors)
}

/// What the header says of one tensor.
#[derive(Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Adds the tensors of one file.
pub(crate) fn add(tensors: &mut Tensors, path: &Path) -> Result<()> {
    let (header, start, length) = header(path)?;
    let file = tensors.files.len();
    tensors.files.push(path.to_owned());
    for (name, info) in header {
        if name == "__metadata__" {
            continue;
        }
        let Info { dtype, shape, data_offsets: (from, to) } = serde_json::from_value(info)
            .map_err(|e| Error::tensor(&name, e, "dtype, shape and data_offsets in the header"))?;
        let kind = match dtype.as_str() {
            "F32" => Kind::F32,
            "F16" => Kind::F16,
            "BF16" => Kind::Bf16,
            // Buffers of masks and places, which no table asks for, are of whole numbers.
            "BOOL" | "U8" | "I8" | "I16" | "I32" | "I64" => continue,
            other => return Err(Error::tensor(&name, other, "F32, F16 or BF16")),
        };
        let expected = super::count(&shape).and_then(|count| kind.bytes(count));
        if expected.map(|bytes| bytes as u64) != to.checked_sub(from) || to > length {
            let found = format!("bytes {from} to {to} of {length} for shape {shape:?}");
            return Err(Error::tensor(&name, found, "as many as the shape has, inside the file"));
        }
        let entry = Entry { file, kind, shape, start: start + from };
        if tensors.entries.insert(name.clone(), entry).is_some() {
            return Err(Error::tensor(name, "it in two files", "it once"));
        }
    }
    tensors.apart(file)
}

/// A tensor of whole numbers by name, with its sizes; nothing if there is none of that name. Refuses numbers below 0.
pub(crate) fn whole_numbers(path: &Path, name: &str) -> Result<Option<(Vec<usize>, Vec<u32>)>> {
    let (mut header, start, length) = header(path)?;
    let Some(info) = header.remove(name) else { return Ok(None) };
    let Info { dtype, shape, data_offsets: (from, to) } = serde_json::from_value(info)
        .map_err(|e| Error::tensor(name, e, "dtype, shape and data_offsets in the header"))?;
    let size = match dtype.as_str() {
        "I64" => 8,
        "I32" | "U32" => 4,
        other => return Err(Error::tensor(name, other, "I64, I32 or U32")),
    };
    let expected = super::count(&shape).and_then(|count| count.checked_mul(size));
    if expected.map(|bytes| bytes as u64) != to.checked_sub(from) || to > length {
        let found = format!("bytes {from} to {to} of {length} for shape {shape:?}");
        return Err(Error::tensor(name, found, "as many as the shape has, inside the file"));
    }
    let mut file = File::open(path).map_err(Error::file(path))?;
    file.seek(SeekFrom::Start(start + from)).map_err(Error::file(path))?;
    let mut bytes = vec![0; expected.unwrap_or(0)];
    file.read_exact(&mut bytes).map_err(Error::file(path))?;
    let number = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..size].copy_from_slice(bytes);
        let number = u64::from_le_bytes(all);
        u32::try_from(number).map_err(|_| Error::tensor(name, number, "ids below 2^32, from 0 on"))
    };
    Ok(Some((shape, bytes.chunks_exact(size).map(number).collect::<Result<_>>()?)))
}

/// The header, where the data begin, and their length.
fn header(path: &Path) -> Result<(BTreeMap<String, Value>, u64, u64)> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let size = file.metadata().map_err(Error::file(path))?.len();
    let broken = |e: &dyn std::fmt::Display| {
        Error::content(path, format!("{size} bytes that are cut short or no safetensors ({e})"))
    };
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).map_err(|e| broken(&e))?;
    let length = u64::from_le_bytes(bytes);
    if length > size.saturating_sub(8) {
        return Err(broken(&format!("a header of {length} bytes")));
    }
    let mut head = Vec::new();
    file.take(length).read_to_end(&mut head).map_err(Error::file(path))?;
    let Header(header) = serde_json::from_slice(&head).map_err(|e| broken(&e))?;
    Ok((header, 8 + length, size - 8 - length))
}

/// What a header says of each name, which it must hold once.
struct Header(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut from: A,
            ) -> std::result::Result<Header, A::Error> {
                let mut header = BTreeMap::new();
                while let Some((name, value)) = from.next_entry::<String, Value>()? {
                    if header.contains_key(&name) {
                        return Err(serde::de::Error::custom(format!("tensor {name} twice")));
                    }
                    header.insert(name, value);
                }
                Ok(Header(header))
            }
        }
        from.deserialize_map(Once)
    }
}

/// Writes tensors as f32, one after the other, whole or not at all.
pub(crate) fn save(path: &Path, pieces: &[Piece], ours: &Ours) -> Result<()> {
    let mut header = serde_json::Map::new();
    // transformers asks for it.
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut end = 0;
    for Piece { name, shape, .. } in pieces {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let info = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), info);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut out = whatwhere_files::Writer::create(path).map_err(whatwhere_training::Error::from)?;
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(Error::file(path))?;
    out.write_all(&header).map_err(Error::file(path))?;
    for piece in pieces {
        let array = piece.make(ours)?;
        for values in array.values.chunks(4096) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            out.write_all(&bytes).map_err(Error::file(path))?;
        }
    }
    out.finish().map_err(whatwhere_training::Error::from)?;
    Ok(())
}
