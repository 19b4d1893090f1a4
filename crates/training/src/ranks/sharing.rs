//! What ranks hold together of a learner: the same weights everywhere, what the optimizer remembers in shards.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};
use whatwhere_transformer::{Model, Parameter};

use super::{
    Ranks,
    exchange::{self, To},
    layout::{Layout, Learned, Learning},
};
use crate::{
    Error,
    finetune::lora::{Adapters, DOWN},
    learner::Learner,
};

/// The weights that rank 0 has, in a model that is built everywhere.
pub(crate) fn broadcast_model(ranks: &dyn Ranks, model: Model) -> Result<Model, Error> {
    if ranks.size() == 1 {
        return Ok(model);
    }
    let mut parameters = model.parameters();
    for Parameter { values, .. } in &mut parameters {
        ranks.broadcast(bytemuck::cast_slice_mut(values))?;
    }
    match ranks.rank() {
        0 => Ok(model),
        _ => Ok(model.with_parameters(parameters)?),
    }
}

/// What the optimizer remembers, whole: for each of its slots all that is learned.
pub(crate) enum Slots<'a> {
    Own(&'a HashMap<String, Vec<Vec<f32>>>),
    Gathered { places: HashMap<String, Range<usize>>, values: Vec<Vec<f32>> },
}

impl Slots<'_> {
    /// The slots of what is called so; none before the first update.
    pub(crate) fn of(&self, name: &str) -> Vec<&[f32]> {
        match self {
            Self::Own(slots) => slots.get(name).into_iter().flatten().map(Vec::as_slice).collect(),
            Self::Gathered { places, values } => {
                let place = places.get(name);
                place.map_or(Vec::new(), |at| values.iter().map(|all| &all[at.clone()]).collect())
            }
        }
    }
}

impl Learner {
    /// After an update of shards: all weights to all ranks.
    pub(crate) fn share_weights(&mut self) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let mut own = Vec::new();
        // Views share the weights, which the update then could not change in place.
        let views = self.model().views();
        for Learned { name, parameter, part, .. } in self.layout.learned(self.ranks.rank()) {
            let adapters = self.trainable.adapters.as_ref();
            let values = match adapters.and_then(|all| all.matrix(&name)) {
                Some(matrix) => &matrix[part],
                None => &views[parameter].values()[part],
            };
            own.extend_from_slice(values);
        }
        drop(views);
        let all = exchange::collect(&*self.ranks, &own, &self.layout.counts(), To::All)?;
        let mut rest = all.as_slice();
        let mut whole: HashMap<usize, &[f32]> = HashMap::new();
        for Learned { name, parameter, length, .. } in self.layout.learned(0) {
            let (values, after) = rest.split_at(length);
            rest = after;
            let adapters = self.trainable.adapters.as_mut();
            match adapters.and_then(|all| all.matrix_mut(&name)) {
                Some(matrix) => matrix.copy_from_slice(values),
                None => drop(whole.insert(parameter, values)),
            }
        }
        let adapters = self.trainable.adapters.as_ref();
        let mut mapper = WeightMapper { layout: &self.layout, adapters, whole, at: 0 };
        let model = self.model.take().expect("there between updates");
        self.model = Some(model.map(&mut mapper));
        Ok(())
    }

    /// The adapters that rank 0 has.
    pub(crate) fn broadcast_adapters(&mut self) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        for adapter in self.trainable.adapters.iter_mut().flat_map(|all| all.by_name.values_mut()) {
            for matrix in [&mut adapter.down, &mut adapter.up] {
                self.ranks.broadcast(bytemuck::cast_slice_mut(matrix))?;
            }
        }
        Ok(())
    }

    /// Whole slots on rank 0, nothing on the others.
    pub(crate) fn gather_slots(&self) -> Result<Slots<'_>, Error> {
        let ranks = &*self.ranks;
        if ranks.size() == 1 {
            return Ok(Slots::Own(&self.optimizer.slots));
        }
        let learned = self.layout.learned(ranks.rank());
        let counts = self.layout.counts();
        let mut values = Vec::new();
        for slot in 0..self.optimizer.slots_each() {
            let mut own: Vec<f32> = Vec::new();
            for Learned { name, .. } in learned.iter().filter(|learned| !learned.part.is_empty()) {
                own.extend_from_slice(&self.optimizer.slots[name][slot]);
            }
            values.push(exchange::collect(ranks, &own, &counts, To::First)?);
        }
        let mut start = 0;
        let places = learned.into_iter().map(|Learned { name, length, .. }| {
            start += length;
            (name, start - length..start)
        });
        let places = if ranks.rank() == 0 { places.collect() } else { HashMap::new() };
        Ok(Slots::Gathered { places, values })
    }

    /// Keeps of whole slots, which rank 0 has, what is this rank's. `slots` is empty elsewhere.
    pub(crate) fn scatter_slots(
        &mut self,
        slots: &HashMap<String, Vec<Vec<f32>>>,
    ) -> Result<(), Error> {
        let is_first = self.ranks.rank() == 0;
        let each = self.optimizer.slots_each();
        for Learned { name, length, part, .. } in self.layout.learned(self.ranks.rank()) {
            let mut own = Vec::with_capacity(each);
            for slot in 0..each {
                let mut values = match slots.get(&name).and_then(|slots| slots.get(slot)) {
                    Some(values) if values.len() == length => Cow::Borrowed(values.as_slice()),
                    _ if is_first => {
                        let found = format!("no slot {slot} of {length} values for {name}");
                        return Err(Error::Settings(found));
                    }
                    _ => Cow::Owned(vec![0.0; length]),
                };
                self.ranks.broadcast(bytemuck::cast_slice_mut(values.to_mut()))?;
                own.push(values[part.clone()].to_vec());
            }
            if !part.is_empty() {
                self.optimizer.slots.insert(name, own);
            }
        }
        Ok(())
    }
}

impl Adapters {
    /// A matrix by its parameter's name and its own.
    fn matrix(&self, name: &str) -> Option<&[f32]> {
        let (parameter, matrix) = name.rsplit_once('.')?;
        let adapter = self.by_name.get(parameter)?;
        Some(if matrix == DOWN { &adapter.down } else { &adapter.up })
    }

    fn matrix_mut(&mut self, name: &str) -> Option<&mut [f32]> {
        let (parameter, matrix) = name.rsplit_once('.')?;
        let adapter = self.by_name.get_mut(parameter)?;
        Some(if matrix == DOWN { &mut adapter.down } else { &mut adapter.up })
    }
}

/// Puts gathered weights into a model.
struct WeightMapper<'a> {
    layout: &'a Layout,
    adapters: Option<&'a Adapters>,
    whole: HashMap<usize, &'a [f32]>,
    at: usize,
}

impl ModuleMapper for WeightMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let at = self.at;
        self.at += 1;
        let values = match self.layout.learning(at) {
            Learning::Not => None,
            Learning::Whole => self.whole.get(&at).map(|values| values.to_vec()),
            Learning::Adapted(_) => {
                self.adapters.and_then(|adapters| adapters.merged(self.layout.name(at)))
            }
        };
        let Some(values) = values else { return param };
        param.map(|tensor| {
            let (shape, device) = (tensor.shape(), tensor.device());
            Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
        })
    }
}
