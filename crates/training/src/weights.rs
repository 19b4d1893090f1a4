//! What a run's weights are stored as and computed with, and runs that are stored otherwise.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::layer::{bf16_bits, f16_bits};
use whatwhere_transformer::{
    Int8Values, MappedParameter, Model, Parameter, QuantizedLinear, quantized,
};

use crate::{
    Error, Folder, RunSettings,
    archive::{Archive, SCALES},
    checkpoint::{self, Array, Values},
};

/// What a model computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Numbers of 32 bits.
    F32,
    /// Levels of 8 bits, each block of 32 with a scale: a quarter of the memory, and nearly the same results.
    Int8,
}

/// What weights are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// As [`Weights::Int8`].
    Int8,
    /// Numbers of 16 bits: 11 of them digits, from 6e-8 to 65504.
    F16,
    /// Numbers of 16 bits: 8 of them digits, with the range of f32.
    Bf16,
}

/// A parameter on its way to a model.
enum Read {
    /// Where it lies.
    Mapped(MappedParameter),
    F32(Parameter),
    Int8(String, QuantizedLinear),
}

/// The model of a file: f32 weights stay where the file is mapped, others are taken over one after the other.
pub(crate) fn load(
    archive: &Archive,
    settings: &RunSettings,
    weights: Option<Weights>,
) -> Result<Model, Error> {
    let stored = if archive.is_int8() { Weights::Int8 } else { Weights::F32 };
    let tables = match weights.unwrap_or(stored) {
        Weights::F32 => BTreeMap::new(),
        Weights::Int8 => settings.model.quantized_parameters()?,
    };
    let read = archive.read(|name, shape, stored| {
        let broken = |found| archive.broken(found);
        let (part, is_f32) = (archive.part(name), stored.dtype == Dtype::F32);
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let Some(is_table) = tables.get(&name) else {
            if is_f32 && tables.is_empty() {
                let file = archive.file.clone();
                return Ok(Read::Mapped(MappedParameter { name, shape, file, part }));
            }
            let values = stored.f32(&name, &shape).map_err(broken)?.into_owned();
            archive.file.release(part);
            return Ok(Read::F32(Parameter { name, shape, values }));
        };
        let layer = if stored.dtype == Dtype::I8 {
            let values = stored.int8(&name, &shape).map_err(broken)?;
            if values.is_table() != *is_table {
                return Err(broken(format!("scales of {name} along the wrong side of it")));
            }
            QuantizedLinear::from_values(&values)
                .map_err(|found| broken(format!("{name}: {found}")))?
        } else {
            let values = stored.f32(&name, &shape).map_err(broken)?;
            quantized(&name, &shape, &values, *is_table)?
        };
        // It has been taken over.
        archive.file.release(part);
        Ok(Read::Int8(name, layer))
    })?;
    let (mut mapped, mut parameters, mut layers) = (Vec::new(), Vec::new(), Vec::new());
    for read in read {
        match read {
            Read::Mapped(parameter) => mapped.push(parameter),
            Read::F32(parameter) => parameters.push(parameter),
            Read::Int8(name, layer) => layers.push((name, layer)),
        }
    }
    let device = settings.device();
    Ok(match tables.is_empty() {
        true => settings.model.build_mapped(mapped, parameters, &device)?,
        false => settings.model.build_int8(parameters, layers, &device)?,
    })
}

/// Writes a run folder with the weights of another, stored otherwise. It must not hold a run yet. What only training asks for
/// is left out.
pub fn quantize(from: &Path, to: &Path, storage: Storage) -> Result<Model, Error> {
    let (from, to) = (Folder::new(from), Folder::new(to));
    let settings = from.load_settings()?;
    if to.has_run() {
        return Err(Error::RunExists { folder: to.path().into() });
    }
    if from.adapter().is_file() {
        return Err(Error::Settings(format!(
            "{} has adapters; merge them into its weights first: whatwhere merge",
            from.path().display()
        )));
    }
    let archive = Archive::open(&from.model())?;
    let weights = if storage == Storage::Int8 { Weights::Int8 } else { Weights::F32 };
    let model = load(&archive, &settings, Some(weights))?;
    fs::create_dir_all(to.path()).map_err(Error::file(to.path(), "created"))?;
    for (from, to) in
        [(from.tokenizer(), to.tokenizer()), (from.data(), to.data()), (from.import(), to.import())]
    {
        if from.is_file() {
            fs::copy(&from, &to).map_err(Error::file(&from, "copied"))?;
        }
    }
    save(&model, &to, storage, &archive.metadata)?;
    to.save_format()?;
    // Last: with it there is a run.
    to.save_settings(&settings)?;
    Ok(model)
}

fn save(
    model: &Model,
    folder: &Folder,
    storage: Storage,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let int8: BTreeMap<String, Int8Values> = model.int8_values()?;
    let shapes: Vec<(&String, &Int8Values, [usize; 2], [usize; 2])> = int8
        .iter()
        .map(|(name, values)| (name, values, values.shape(), values.scales_shape()))
        .collect();
    let mut arrays = Vec::new();
    for (name, values, shape, scales_shape) in &shapes {
        let levels = Values::I8(values.levels());
        arrays.push(Array { name: (*name).clone(), shape, values: levels });
        let (name, values) = (format!("{name}{SCALES}"), Values::F16(values.scales()));
        arrays.push(Array { name, shape: scales_shape, values });
    }
    let others = model.views_but(|name| int8.contains_key(name));
    let bits = |value: &f32| match storage {
        Storage::F16 => f16_bits(*value),
        Storage::Bf16 | Storage::Int8 => bf16_bits(*value),
    };
    // Vectors are few, and what is kept of them counts more.
    let is_small = |shape: &[usize]| shape.len() < 2;
    let mut halves: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    if storage != Storage::Int8 {
        for view in others.iter().filter(|view| !is_small(&view.shape)) {
            let made: Vec<u16> = view.values().iter().map(bits).collect();
            if let (Storage::F16, Some(at)) =
                (storage, made.iter().position(|bits| bits & 0x7fff == 0x7c00))
            {
                let (name, found) = (&view.name, view.values()[at]);
                return Err(Error::Settings(format!(
                    "{name} holds {found}, more than f16 can; store it as bf16"
                )));
            }
            halves.insert(&view.name, made);
        }
    }
    for view in &others {
        let values = match (halves.get(view.name.as_str()), storage) {
            (None, _) => Values::F32(view.values()),
            (Some(bits), Storage::F16) => Values::F16(bits),
            (Some(bits), _) => Values::Bf16(bits),
        };
        arrays.push(Array { name: view.name.clone(), shape: &view.shape, values });
    }
    checkpoint::save(&folder.model(), arrays, metadata)
}
