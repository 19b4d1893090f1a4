//! The conformance kit: inputs, settings, outputs and gradients of every choice, computed by the f64 reference and written as
//! files that any framework can run.
//!
//! `kit.json` has the cases: settings in the words of the Python package, in which `"@name"` stands for the tensor
//! `CASE/name` of `kit.safetensors`. Beside what the settings name, a case has `q`, `k`, `v` and `d_out`, what comes of
//! them (`out`, `d_q`, `d_k`, `d_v`, and `d_name` for each array), and `visible` with 1 for every pair that is seen, so that a
//! pattern can be run as a mask. Start at [`write()`].

mod attention;
mod case;
mod embedding;
mod linear;

use std::{collections::BTreeMap, fs, io::Write, path::Path};

use serde::Serialize;
use serde_json::{Value, json};
use whatwhere_attention::{
    AttentionSettings, Mixing, Pattern, Position, Score, position::NoPosition,
};

use crate::{Error, error::Result, tensors::Array};

pub use case::Case;

/// Sizes of a kit's tensors.
const HEADS: usize = 4;
const HEAD_DIM: usize = 8;
const LENGTH: usize = 12;
const BATCH: usize = 2;
/// Heads of keys and values: multi-head, grouped, multi-query.
const LAYOUTS: [usize; 3] = [4, 2, 1];

/// Settings in place of defaults that reach farther than a kit's sequences.
const NEAR: [(&str, i64); 11] = [
    ("left", 3),
    ("right", 2),
    ("stride", 4),
    ("summary", 2),
    ("block", 2),
    ("count", 2),
    ("radius", 3),
    ("length", 6),
    ("reach", 3),
    ("buckets", 8),
    ("max_distance", 10),
];

/// A choice that the kit does not have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Which.
    pub choice: String,
    /// Why.
    pub reason: String,
}

/// All cases, and what is left out.
#[derive(Clone, Debug, Default)]
pub struct Kit {
    /// In a fixed order, each with a name of its own.
    pub cases: Vec<Case>,
    /// Choices and combinations that are refused, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Written {
    /// Cases.
    pub cases: usize,
    /// Choices and combinations that are refused, by reason.
    pub left_out: usize,
    /// Tensors.
    pub tensors: usize,
}

impl Kit {
    /// Every score with every position, every pattern, every mixing and every head layout of the lists.
    pub fn new() -> Result<Self> {
        let mut kit = Self::default();
        let base = AttentionSettings {
            width: HEADS * HEAD_DIM,
            heads: HEADS,
            kv_heads: Some(2),
            position: vec![NoPosition::default().into()],
            ..AttentionSettings::default()
        };
        for position in Position::all() {
            let position: Position = near(&position)?;
            if position.embeds() {
                kit.cases.push(embedding::case(&position)?);
                continue;
            }
            for score in Score::all() {
                let name = format!("{}-{}", score.name(), position.name());
                let own =
                    AttentionSettings { score, position: vec![position.clone()], ..base.clone() };
                kit.add(name, &own)?;
            }
        }
        for pattern in Pattern::all() {
            let name = format!("pattern-{}", pattern.name());
            kit.add(name, &AttentionSettings { pattern: near(&pattern)?, ..base.clone() })?;
        }
        for mixing in Mixing::all() {
            let name = format!("mixing-{}", mixing.name());
            kit.add(name, &AttentionSettings { mixing, ..base.clone() })?;
        }
        for kv_heads in LAYOUTS {
            let own = AttentionSettings { kv_heads: Some(kv_heads), ..base.clone() };
            kit.add(format!("heads-{HEADS}-{kv_heads}"), &own)?;
        }
        kit.add("soft_cap".into(), &AttentionSettings { soft_cap: Some(0.5), ..base })?;
        Ok(kit)
    }

    fn add(&mut self, name: String, settings: &AttentionSettings) -> Result<()> {
        let made = match settings.check() {
            Err(refused) => Err(refused.to_string()),
            Ok(()) => attention::case(&name, settings)?,
        };
        match made {
            Ok(case) => self.cases.push(case),
            Err(reason) => self.left_out.push(LeftOut { choice: name, reason }),
        }
        Ok(())
    }

    /// Writes `kit.json` and `kit.safetensors` into a folder, which is made if it is not there.
    pub fn save(&self, folder: &Path) -> Result<Written> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let mut tensors: BTreeMap<String, Array> = BTreeMap::new();
        let mut cases = Vec::with_capacity(self.cases.len());
        for case in &self.cases {
            for (name, array) in &case.tensors {
                tensors.insert(format!("{}/{name}", case.name), array.clone());
            }
            cases.push(json!({ "name": case.name, "kind": case.kind, "settings": case.settings }));
        }
        save_tensors(&folder.join("kit.safetensors"), &tensors)?;
        let index = json!({
            "format": 1,
            "shape": { "batch": BATCH, "heads": HEADS, "length": LENGTH, "head_dim": HEAD_DIM },
            "cases": cases,
            "left_out": self.left_out,
        });
        let text =
            serde_json::to_string_pretty(&index).map_err(|e| Error::Refused(e.to_string()))?;
        whatwhere_files::replace(&folder.join("kit.json"), |out| writeln!(out, "{text}"))
            .map_err(whatwhere_training::Error::from)?;
        let (cases, left_out) = (self.cases.len(), self.left_out.len());
        Ok(Written { cases, left_out, tensors: tensors.len() })
    }
}

/// Makes the kit and writes it.
pub fn write(folder: &Path) -> Result<Written> {
    Kit::new()?.save(folder)
}

/// Writes tensors as f32 of safetensors.
fn save_tensors(path: &Path, tensors: &BTreeMap<String, Array>) -> Result<()> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, Array { shape, values }) in tensors {
        let start = end;
        end += 4 * values.len();
        let info = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), info);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    whatwhere_files::replace(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for value in tensors.values().flat_map(|array| &array.values) {
            out.write_all(&value.to_le_bytes())?;
        }
        Ok(())
    })
    .map_err(whatwhere_training::Error::from)?;
    Ok(())
}

/// A choice with settings that show within a kit's sequences, where it has them.
fn near<T: Serialize + serde::de::DeserializeOwned>(choice: &T) -> Result<T> {
    let mut words = words(choice)?;
    if let Value::Object(words) = &mut words {
        for (key, value) in NEAR {
            let has_number = words.get(key).is_some_and(Value::is_number);
            if has_number {
                words.insert(key.into(), value.into());
            }
        }
    }
    serde_json::from_value(words).map_err(|e| Error::Refused(e.to_string()))
}

/// A choice in the words of JSON.
fn words<T: Serialize>(choice: &T) -> Result<Value> {
    serde_json::to_value(choice).map_err(|e| Error::Refused(e.to_string()))
}
