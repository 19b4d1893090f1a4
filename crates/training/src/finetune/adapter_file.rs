//! `adapter.safetensors`: what a run with adapters has learned, apart from the weights it adapts.

use std::collections::BTreeMap;

use whatwhere_transformer::{Model, Parameter, ParameterView};

use super::lora::{self, Adapters, DOWN, UP};
use crate::{
    Error, Folder, RunSettings, Weights,
    checkpoint::{self, Array, Checkpoint},
};

/// Before the names of parameters that were trained whole.
const WHOLE: &str = "whole.";
const ADAPTERS: &str = "adapter.";

/// Writes the adapters, and what was trained whole beside them.
pub(crate) fn save(
    folder: &Folder,
    adapters: &Adapters,
    whole: &[&ParameterView],
    mut metadata: BTreeMap<String, String>,
) -> Result<(), Error> {
    let mut arrays = adapters.arrays(ADAPTERS);
    arrays.extend(whole.iter().map(|view| Array {
        name: format!("{WHOLE}{}", view.name),
        shape: &view.shape,
        values: view.values().into(),
    }));
    metadata.insert("rank".into(), adapters.settings.rank.to_string());
    metadata.insert("alpha".into(), adapters.settings.alpha.to_string());
    checkpoint::save(&folder.adapter(), arrays, &metadata)
}

/// The model of a run with adapters, with them at work, and the updates behind it.
pub(crate) fn load(
    folder: &Folder,
    settings: &RunSettings,
    weights: Option<Weights>,
) -> Result<(Model, u64), Error> {
    let mut parameters = Checkpoint::load(&folder.model())?.take("");
    let step = apply(folder, &mut parameters)?.unwrap_or_default();
    let model = settings.model.build_with(parameters, &settings.device())?;
    Ok((if weights == Some(Weights::Int8) { model.to_int8()? } else { model }, step))
}

/// Adds what the folder's adapters have learned to the weights they adapt, if it has any; returns the updates behind them.
pub(crate) fn apply(folder: &Folder, weights: &mut [Parameter]) -> Result<Option<u64>, Error> {
    let path = folder.adapter();
    if !path.is_file() {
        return Ok(None);
    }
    let mut file = Checkpoint::load(&path)?;
    let (rank, alpha): (usize, f64) = (file.entry(&path, "rank")?, file.entry(&path, "alpha")?);
    let step = file.entry(&path, "step")?;
    let broken = |found: String| Error::Checkpoint { path: path.clone(), found };
    for Parameter { name, shape, values } in file.take(WHOLE) {
        let weight = weights.iter_mut().find(|weight| weight.name == name && weight.shape == shape);
        weight.ok_or_else(|| broken(format!("{name}, which the model has not")))?.values = values;
    }
    let mut parts: BTreeMap<String, Vec<f32>> =
        file.take(ADAPTERS).into_iter().map(|array| (array.name, array.values)).collect();
    let scale = lora::scale(&lora::Lora { rank, alpha, ..lora::Lora::default() });
    for weight in weights.iter_mut() {
        let down = parts.remove(&format!("{}.{DOWN}", weight.name));
        let up = parts.remove(&format!("{}.{UP}", weight.name));
        let (Some(down), Some(up)) = (down, up) else { continue };
        let &[from, to] = weight.shape.as_slice() else {
            return Err(broken(format!("an adapter of {}, which is no matrix", weight.name)));
        };
        let sizes = [from, to].map(|size| size.checked_mul(rank));
        if rank == 0 || sizes != [Some(down.len()), Some(up.len())] {
            let found = format!("an adapter of {} of other sizes than {from} × {to}", weight.name);
            return Err(broken(found));
        }
        lora::add_product(&mut weight.values, &down, &up, rank, scale);
    }
    match parts.into_keys().next() {
        Some(name) => Err(broken(format!("{name}, which adapts nothing of the model"))),
        None => Ok(Some(step)),
    }
}
