//! A writer of GGUF for tests: values and F32 tensors.

use serde_json::Value;

/// The bytes of a file.
pub(crate) fn gguf(values: &Value, tensors: &[(String, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let values = values.as_object().expect("an object");
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    for (key, value) in values {
        text(&mut out, key);
        out.extend(kind(value).to_le_bytes());
        put(&mut out, value);
    }
    let mut offset = 0u64;
    for (name, shape, bytes) in tensors {
        text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|size| out.extend((*size as u64).to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += (bytes.len() as u64).next_multiple_of(32);
    }
    for (_, _, bytes) in tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(bytes);
    }
    out
}

fn kind(value: &Value) -> u32 {
    match value {
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::Bool(_) => 7,
        Value::Number(number) if number.is_f64() => 6,
        _ => 5,
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(value) => text(out, value),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Array(values) => {
            out.extend(values.first().map_or(5, kind).to_le_bytes());
            out.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| put(out, value));
        }
        Value::Number(number) if number.is_f64() => {
            out.extend((number.as_f64().unwrap_or(0.0) as f32).to_le_bytes());
        }
        other => out.extend((other.as_i64().unwrap_or(0) as i32).to_le_bytes()),
    }
}
