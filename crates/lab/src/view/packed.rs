//! Numbers as bytes: a line of JSON that says what follows, and the numbers as a browser's typed arrays have them.
//!
//! `u32` bytes of the header, the header (with blanks at its end, so that what follows is aligned to four bytes), then the
//! numbers of every array, little-endian. An array of `f16` has a `scale` in the header, by which its numbers are multiplied.

use serde::Serialize;
use serde_json::{Map, Value};
use whatwhere_kernels::layer::f16_bits;

use super::Answer;

/// The content type of such bytes.
const KIND: &str = "application/vnd.whatwhere.packed";

/// Arrays of numbers under a header.
#[derive(Debug, Default)]
pub struct Packed {
    header: Map<String, Value>,
    arrays: Vec<Value>,
    bytes: Vec<u8>,
}

#[derive(Serialize)]
struct Array {
    name: String,
    kind: &'static str,
    length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f32>,
}

impl Packed {
    /// Says something of the whole in the header.
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).expect("headers have names for keys");
        self.header.insert(name.into(), value);
        self
    }

    /// Numbers of which three digits are enough, none of them negative: weights.
    pub fn add_f16(&mut self, name: impl Into<String>, values: &[f32]) {
        let most = values.iter().copied().fold(0.0f32, f32::max);
        let scale = if most > 0.0 { most } else { 1.0 };
        self.add(name.into(), "f16", values.len(), Some(scale));
        self.bytes.extend(values.iter().flat_map(|v| f16_bits(v / scale).to_le_bytes()));
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Numbers as they are.
    pub fn add_f32(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = f32>) {
        let start = self.bytes.len();
        self.bytes.extend(values.into_iter().flat_map(f32::to_le_bytes));
        self.add(name.into(), "f32", (self.bytes.len() - start) / 4, None);
    }

    fn add(&mut self, name: String, kind: &'static str, length: usize, scale: Option<f32>) {
        let array = Array { name, kind, length, scale };
        self.arrays.push(serde_json::to_value(array).expect("arrays have names for keys"));
    }

    /// All of it.
    pub fn answer(mut self) -> Answer {
        self.header.insert("arrays".into(), Value::Array(self.arrays));
        let mut header = Value::Object(self.header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(4), b' ');
        let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(self.bytes);
        Answer { content_type: KIND, bytes }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use whatwhere_kernels::layer::f16_value;

    use super::*;

    /// The header and the arrays of packed bytes.
    pub(crate) fn unpacked(bytes: &[u8]) -> (Value, Vec<Vec<f32>>) {
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
        let mut rest = &bytes[4 + length..];
        let mut arrays = Vec::new();
        for array in header["arrays"].as_array().unwrap() {
            let count = array["length"].as_u64().unwrap() as usize;
            let (values, size): (Vec<f32>, usize) = match array["scale"].as_f64() {
                Some(scale) => {
                    let all = rest[..2 * count].chunks_exact(2);
                    let value = |b: &[u8]| f16_value(u16::from_le_bytes([b[0], b[1]]));
                    (all.map(|b| value(b) * scale as f32).collect(), 2 * count)
                }
                None => {
                    let all = rest[..4 * count].chunks_exact(4);
                    let value = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
                    (all.map(value).collect(), 4 * count)
                }
            };
            arrays.push(values);
            rest = &rest[size.next_multiple_of(4)..];
        }
        assert!(rest.is_empty());
        (header, arrays)
    }

    #[test]
    fn numbers_come_back() {
        let mut packed = Packed::default().with("rows", 3);
        packed.add_f16("odd", &[0.5, 0.25, 1e-6]);
        packed.add_f32("exact", [-1.5, f32::NAN]);
        let answer = packed.answer();
        let (header, arrays) = unpacked(&answer.bytes);
        assert_eq!((header["rows"].as_u64(), arrays.len()), (Some(3), 2));
        assert_eq!(arrays[0][..2], [0.5, 0.25]);
        assert!((arrays[0][2] / 1e-6 - 1.0).abs() < 0.05);
        assert!(arrays[1][0] == -1.5 && arrays[1][1].is_nan());
    }
}
