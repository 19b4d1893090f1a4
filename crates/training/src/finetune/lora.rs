//! Low-rank adapters: what a projection learns is the product of two narrow matrices.
//!
//! A model computes with `W + α/rank · A·B`, so every path, fused or not, knows adapters without being told; gradients of A
//! and B follow from that of the whole matrix. Only A and B are updated and remembered by the optimizer, and they are
//! saved apart from the weights they adapt.

use std::collections::BTreeMap;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::{Fingerprint, Random};
use whatwhere_settings::Refuses;
use whatwhere_transformer::{Parameter, ParameterView, Role};

use super::names;
use crate::{Error, checkpoint::Array};

/// What stands behind a projection's name for its two matrices.
pub(crate) const DOWN: &str = "lora_a";
pub(crate) const UP: &str = "lora_b";

/// Low-rank adapters (LoRA): projections learn `W + α/rank · A·B`, and all else stays as it was.
/// Hu et al. 2021, <https://arxiv.org/abs/2106.09685>.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Lora {
    /// Columns of A and rows of B; default 8.
    pub rank: usize,
    /// α, by which A·B is multiplied after a division by the rank; default 16.
    pub alpha: f64,
    /// Which projections: the last part of their names, or a pattern of the whole; default `["query", "value"]`.
    pub projections: Vec<String>,
    /// Parameters that are trained whole beside the adapters, by patterns of their names; default none.
    pub also: Vec<String>,
}

impl Default for Lora {
    fn default() -> Self {
        let projections = ["query", "value"].map(String::from).into();
        Self { rank: 8, alpha: 16.0, projections, also: Vec::new() }
    }
}

impl Lora {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.rank == 0 || self.rank > 1 << 16 {
            let reason = "expected at least 1 and at most 65536";
            return Err(Error::setting("training.lora.rank", self.rank, reason));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return Err(Error::setting("training.lora.alpha", self.alpha, "expected more than 0"));
        }
        if self.projections.is_empty() {
            let reason = "expected at least one, such as [\"query\", \"value\"]";
            return Err(Error::setting("training.lora.projections", "[]", reason));
        }
        Ok(())
    }

    /// Whether an entry names the projection that holds this parameter.
    fn names(entry: &str, parameter: &str) -> bool {
        let Some(projection) = parameter.strip_suffix(".weight") else { return false };
        let last = projection.rsplit('.').next().unwrap_or_default();
        entry == last || names::fits(entry, projection) || names::fits(entry, parameter)
    }

    /// Values of the matrices that are adapted, and of all that is updated, by names and sizes.
    pub(crate) fn sizes(&self, shapes: &[(String, Vec<usize>)]) -> [usize; 2] {
        let mut sizes = [0; 2];
        for (name, shape) in shapes {
            match shape[..] {
                [from, to] if self.projections.iter().any(|entry| Self::names(entry, name)) => {
                    sizes[0] += from * to;
                    sizes[1] += self.rank * (from + to);
                }
                _ if names::fits_any(&self.also, name) => {
                    sizes[1] += shape.iter().product::<usize>();
                }
                _ => {}
            }
        }
        sizes
    }

    /// Whether a parameter is the matrix of an adapted projection.
    fn adapts(&self, view: &ParameterView) -> bool {
        matches!(view.role, Role::Projection | Role::ResidualProjection)
            && self.projections.iter().any(|entry| Self::names(entry, &view.name))
    }

    /// Refuses entries that name no projection of the model.
    pub(crate) fn check_names(&self, views: &[ParameterView]) -> Result<(), Error> {
        let all: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
        names::check("training.lora.also", &self.also, &all)?;
        let one = |entry: &String| Self { projections: vec![entry.clone()], ..self.clone() };
        let unknown =
            self.projections.iter().find(|entry| !views.iter().any(|view| one(entry).adapts(view)));
        let Some(entry) = unknown else { return Ok(()) };
        let mut known: Vec<&str> = views
            .iter()
            .filter(|view| matches!(view.role, Role::Projection | Role::ResidualProjection))
            .filter_map(|view| view.name.strip_suffix(".weight")?.rsplit('.').next())
            .collect();
        known.sort_unstable();
        known.dedup();
        let reason = format!("names no projection of the model; there are {}", known.join(", "));
        Err(Error::setting("training.lora.projections", format!("{entry:?}"), reason))
    }
}

/// The adapter of one projection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adapter {
    /// The projection as it was, `[from, to]`.
    pub(crate) base: Vec<f32>,
    /// `[from, rank]`.
    pub(crate) down: Vec<f32>,
    /// `[rank, to]`; zeros at first, so that nothing changes before the first update.
    pub(crate) up: Vec<f32>,
    /// Sizes of `down` and `up`.
    pub(crate) shapes: [[usize; 2]; 2],
}

/// All adapters of a model, by the names of the matrices they adapt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adapters {
    pub(crate) settings: Lora,
    pub(crate) by_name: BTreeMap<String, Adapter>,
}

/// Gradients of an adapter's two matrices.
#[derive(Debug)]
pub(crate) struct AdapterGradient {
    pub(crate) down: Vec<f32>,
    pub(crate) up: Vec<f32>,
}

impl Adapters {
    /// New adapters, drawn from the seed and each projection's name.
    pub(crate) fn new(settings: &Lora, views: &[ParameterView], seed: u64) -> Self {
        let adapted = views.iter().filter(|view| settings.adapts(view));
        let by_name = adapted.map(|view| {
            let (from, to) = (view.shape[0], view.shape[1]);
            let mut random = Random::new(&[seed, Fingerprint::of(view.name.as_bytes())]);
            // As a linear layer that is trained from scratch: the variance of what it gives is a third of what it reads.
            let bound = (1.0 / from as f64).sqrt();
            let draw = |_| ((2.0 * random.uniform() - 1.0) * bound) as f32;
            let down = (0..from * settings.rank).map(draw).collect();
            let up = vec![0.0; settings.rank * to];
            let shapes = [[from, settings.rank], [settings.rank, to]];
            (view.name.clone(), Adapter { base: view.values().to_vec(), down, up, shapes })
        });
        Self { settings: settings.clone(), by_name: by_name.collect() }
    }

    /// α/rank.
    fn scale(&self) -> f32 {
        scale(&self.settings)
    }

    /// The matrix that the model computes with.
    pub(crate) fn merged(&self, name: &str) -> Option<Vec<f32>> {
        let Adapter { base, down, up, .. } = self.by_name.get(name)?;
        let mut merged = base.clone();
        add_product(&mut merged, down, up, self.settings.rank, self.scale());
        Some(merged)
    }

    /// Gradients of A and B from that of the whole matrix.
    pub(crate) fn gradient(&self, name: &str, whole: &[f32]) -> Option<AdapterGradient> {
        let Adapter { down, up, shapes: [_, [rank, to]], .. } = self.by_name.get(name)?;
        let (rank, to, scale) = (*rank, *to, self.scale());
        let mut d_down = vec![0.0; down.len()];
        d_down.par_chunks_mut(rank).zip(whole.par_chunks(to)).for_each(|(d_down, whole)| {
            for (d, up) in d_down.iter_mut().zip(up.chunks(to)) {
                *d = scale * whole.iter().zip(up).map(|(w, u)| w * u).sum::<f32>();
            }
        });
        let mut d_up = vec![0.0; up.len()];
        d_up.par_chunks_mut(to).enumerate().for_each(|(column, d_up)| {
            for (down, whole) in down.chunks(rank).zip(whole.chunks(to)) {
                let factor = scale * down[column];
                d_up.iter_mut().zip(whole).for_each(|(d, w)| *d += factor * w);
            }
        });
        Some(AdapterGradient { down: d_down, up: d_up })
    }

    /// The matrices of all adapters as arrays to save, with this before their names.
    pub(crate) fn arrays(&self, beginning: &str) -> Vec<Array<'_>> {
        let each = self.by_name.iter().flat_map(|(name, adapter)| {
            let [down, up] = &adapter.shapes;
            [(DOWN, down, &adapter.down), (UP, up, &adapter.up)].map(|(part, shape, values)| {
                let name = format!("{beginning}{name}.{part}");
                Array { name, shape, values: values.as_slice().into() }
            })
        });
        each.collect()
    }

    /// Takes the values of saved matrices, by the names of [`Self::arrays`] without their beginning.
    pub(crate) fn restore(&mut self, arrays: Vec<Parameter>) -> Result<(), String> {
        let expected = 2 * self.by_name.len();
        if arrays.len() != expected {
            return Err(format!("{} matrices of adapters, expected {expected}", arrays.len()));
        }
        for Parameter { name, values, .. } in arrays {
            let (projection, part) = name.rsplit_once('.').unwrap_or_default();
            let adapter = self.by_name.get_mut(projection);
            let matrix = adapter.and_then(|adapter| match part {
                DOWN => Some(&mut adapter.down),
                UP => Some(&mut adapter.up),
                _ => None,
            });
            match matrix {
                Some(matrix) if matrix.len() == values.len() => *matrix = values,
                Some(matrix) => {
                    return Err(format!(
                        "{name} of {} values, expected {}",
                        values.len(),
                        matrix.len()
                    ));
                }
                None => return Err(format!("{name}, which is no adapter of this run")),
            }
        }
        Ok(())
    }
}

/// α/rank.
pub(crate) fn scale(settings: &Lora) -> f32 {
    (settings.alpha / settings.rank as f64) as f32
}

/// Adds `scale · down·up` to a matrix, row by row, in the same order on any number of threads.
pub(crate) fn add_product(matrix: &mut [f32], down: &[f32], up: &[f32], rank: usize, scale: f32) {
    let to = up.len() / rank;
    matrix.par_chunks_mut(to).zip(down.par_chunks(rank)).for_each(|(row, down)| {
        for (factor, up) in down.iter().zip(up.chunks(to)) {
            let factor = scale * factor;
            row.iter_mut().zip(up).for_each(|(w, u)| *w += factor * u);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Σ target · merged`, whose gradient of the whole matrix is the target.
    fn loss(adapters: &Adapters, target: &[f32]) -> f64 {
        let merged = adapters.merged("x").unwrap();
        merged.iter().zip(target).map(|(w, t)| f64::from(w * t)).sum()
    }

    #[test]
    fn gradients_of_both_matrices_are_slopes_of_the_loss() {
        let rank = 3;
        let numbers = |key: u64, count: usize| Random::new(&[key]).signed(count);
        let shapes = [[5, rank], [rank, 7]];
        let adapter =
            Adapter { base: numbers(1, 35), down: numbers(2, 15), up: numbers(3, 21), shapes };
        let settings = Lora { rank, alpha: 5.0, ..Lora::default() };
        let adapters = Adapters { settings, by_name: BTreeMap::from([("x".into(), adapter)]) };
        let target = numbers(4, 35);
        let gradient = adapters.gradient("x", &target).unwrap();
        let step = 1e-2; // The loss is linear in each value.
        for part in 0..2 {
            let found = if part == 0 { &gradient.down } else { &gradient.up };
            for (i, &found) in found.iter().enumerate() {
                let at = |sign: f32| {
                    let mut moved = adapters.clone();
                    let adapter = moved.by_name.get_mut("x").unwrap();
                    let values = if part == 0 { &mut adapter.down } else { &mut adapter.up };
                    values[i] += sign * step;
                    loss(&moved, &target)
                };
                let slope = (at(1.0) - at(-1.0)) / (2.0 * f64::from(step));
                assert!((slope - f64::from(found)).abs() < 1e-3, "{part} {i}: {slope} {found}");
            }
        }
    }
}
