//! Chorales in JSON: `{"train": [piece, …], "valid": …, "test": …}`, a piece is steps of four pitches, −1 is silence.
//! Boulanger-Lewandowski et al. 2012, <https://arxiv.org/abs/1206.6392>; with voices, <https://github.com/czhuang/JSB-Chorales-dataset>.

use std::{collections::BTreeMap, path::Path};

use super::{open, whole};
use crate::{Error, Result, corpus::Split};

/// Voices in each step.
pub(crate) const VOICES: usize = 4;
pub(crate) const LOWEST: i64 = 21; // the piano's lowest A as a MIDI pitch
pub(crate) const HIGHEST: i64 = 108; // its highest C
/// The token of a voice that is silent.
pub(crate) const SILENCE: u32 = (HIGHEST - LOWEST + 1) as u32;

/// Pieces of tokens in raster order, and the symbols of the tokens.
pub(crate) struct Grids {
    pub(crate) splits: BTreeMap<Split, Vec<Vec<u32>>>,
    pub(crate) symbols: Vec<String>,
}

/// Reads the pieces of all splits.
pub(crate) fn chorales(path: &Path) -> Result<Grids> {
    let name = path.display().to_string();
    let text = whole(&name, &mut open(path)?.1)?;
    let file: BTreeMap<String, Vec<Vec<Vec<f64>>>> = serde_json::from_str(&text).map_err(|e| {
        let expected = "expected an object of train, valid and test, each a list of pieces of steps of pitches";
        Error::content(&name, format!("{expected}: {e}"))
    })?;
    let mut splits = BTreeMap::new();
    for (split, pieces) in &file {
        let at = |piece: usize| format!("{name}, {split}, piece {piece}");
        let pieces: Vec<Vec<u32>> = pieces
            .iter()
            .enumerate()
            .map(|(i, steps)| tokens(&at(i), steps))
            .collect::<Result<_>>()?;
        let split = match split.as_str() {
            "train" => Split::Train,
            "valid" | "validation" => Split::Valid,
            "test" => Split::Test,
            other => {
                let reason = format!("found the split {other:?}, expected train, valid or test");
                return Err(Error::content(&name, reason));
            }
        };
        splits.insert(split, pieces);
    }
    if splits.get(&Split::Train).is_none_or(Vec::is_empty) {
        return Err(Error::content(&name, "has no pieces in train"));
    }
    let symbols = (LOWEST..=HIGHEST).map(|pitch| pitch.to_string()).chain(["silence".into()]);
    Ok(Grids { splits, symbols: symbols.collect() })
}

fn tokens(at: &str, steps: &[Vec<f64>]) -> Result<Vec<u32>> {
    let mut tokens = Vec::with_capacity(steps.len() * VOICES);
    for (i, step) in steps.iter().enumerate() {
        if step.len() != VOICES {
            let reason = format!("step {i} has {} voices, expected {VOICES}", step.len());
            return Err(Error::content(at, reason));
        }
        for &pitch in step {
            tokens.push(match pitch as i64 {
                -1 => SILENCE,
                pitch @ LOWEST..=HIGHEST => (pitch - LOWEST) as u32,
                _ => {
                    let reason = format!(
                        "step {i} has the pitch {pitch}, expected {LOWEST} to {HIGHEST}, or -1 for silence"
                    );
                    return Err(Error::content(at, reason));
                }
            });
        }
    }
    Ok(tokens)
}
