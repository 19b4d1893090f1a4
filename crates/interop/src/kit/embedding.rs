//! Encodings that are added to embeddings: `x`, and `out` with the places added.

use serde_json::json;
use whatwhere_attention::Position;

use super::{BATCH, Case, HEAD_DIM, HEADS, LENGTH, words};
use crate::error::Result;

pub(super) fn case(position: &Position) -> Result<Case> {
    let width = HEADS * HEAD_DIM;
    let sizes = [BATCH, LENGTH, width];
    let name = format!("embedding-{}", position.name());
    let mut said = words(position)?;
    let mut case = Case::new(&name, "embedding", json!({}));
    let x = case.draw("x", &sizes);
    let d_out = case.draw("d_out", &sizes);
    let added: Vec<f64> = match position {
        Position::Sinusoidal(waves) => {
            let place = |at: usize| (at / width % LENGTH + waves.first) as f64;
            (0..x.len()).map(|at| waves.value(place(at), at % width, width)).collect()
        }
        _ => {
            // A vector for each place; a kit's has as many as its sequences are long.
            said["length"] = LENGTH.into();
            said["table"] = "@position.table".into();
            let table = case.draw("position.table", &[LENGTH, width]);
            let mut d_table = vec![0.0; table.len()];
            for (at, d) in d_out.iter().enumerate() {
                d_table[at % table.len()] += d;
            }
            case.put("d_position.table", &[LENGTH, width], d_table);
            (0..x.len()).map(|at| f64::from(table[at % table.len()])).collect()
        }
    };
    let out = x.iter().zip(added).map(|(x, added)| (f64::from(*x) + added) as f32).collect();
    case.put("out", &sizes, out);
    case.put("d_x", &sizes, d_out);
    case.settings = json!({ "position": said });
    Ok(case)
}
