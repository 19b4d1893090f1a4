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
    ///
    /// Matrices are gathered where they lie, one after the other, so that no second copy of the model stands beside it; what is
    /// short or not a parameter crosses together before.
    pub(crate) fn share_weights(&mut self) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let small = self.share_small()?;
        let (ranks, layout) = (&*self.ranks, &self.layout);
        let adapters = self.trainable.adapters.as_ref();
        let mut mapper = WeightMapper { ranks, layout, adapters, small, at: 0, failed: Ok(()) };
        let model = self.model.take().expect("there between updates");
        self.model = Some(model.map(&mut mapper));
        mapper.failed
    }

    /// The short parameters of all ranks, by their numbers, and the matrices of adapters in their places.
    fn share_small(&mut self) -> Result<HashMap<usize, Vec<f32>>, Error> {
        let (ranks, layout) = (&*self.ranks, &self.layout);
        let small = |rank| {
            let learned = layout.learned(rank).into_iter();
            learned.filter(|learned| !layout.is_gathered_in_place(learned.parameter))
        };
        let mut own = Vec::new();
        // Views share the weights, which could then not be changed in place.
        let views = self.model().views();
        for Learned { name, parameter, part, .. } in small(ranks.rank()) {
            let adapters = self.trainable.adapters.as_ref();
            let values = match adapters.and_then(|all| all.matrix(&name)) {
                Some(matrix) => &matrix[part],
                None => &views[parameter].values()[part],
            };
            own.extend_from_slice(values);
        }
        drop(views);
        let owned = |rank| small(rank).map(|learned| learned.part.len()).sum();
        let counts: Vec<usize> = (0..ranks.size()).map(owned).collect();
        let all = exchange::collect(ranks, &own, &counts, To::All)?;
        let mut rest = all.as_slice();
        let mut parameters = HashMap::new();
        for Learned { name, parameter, length, .. } in small(0) {
            let (values, after) = rest.split_at(length);
            rest = after;
            let adapters = self.trainable.adapters.as_mut();
            match adapters.and_then(|all| all.matrix_mut(&name)) {
                Some(matrix) => matrix.copy_from_slice(values),
                None => drop(parameters.insert(parameter, values.to_vec())),
            }
        }
        Ok(parameters)
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

/// Puts the weights of all ranks into a model.
struct WeightMapper<'a> {
    ranks: &'a dyn Ranks,
    layout: &'a Layout,
    adapters: Option<&'a Adapters>,
    small: HashMap<usize, Vec<f32>>,
    at: usize,
    failed: Result<(), Error>,
}

impl ModuleMapper for WeightMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let at = self.at;
        self.at += 1;
        let known = match self.layout.learning(at) {
            Learning::Not => return param,
            Learning::Whole => self.small.remove(&at),
            Learning::Adapted(_) => {
                self.adapters.and_then(|adapters| adapters.merged(self.layout.name(at)))
            }
        };
        if self.failed.is_err() || known.is_none() && !self.layout.is_gathered_in_place(at) {
            return param;
        }
        param.map(|tensor| {
            let (shape, device) = (tensor.shape(), tensor.device());
            let values = known.unwrap_or_else(|| {
                let data = tensor.into_data();
                let mut values: Vec<f32> = data.try_into_vec().expect("parameters are f32");
                let part = |rank| self.layout.part(rank, at).len();
                let counts: Vec<usize> = (0..self.ranks.size()).map(part).collect();
                self.failed = exchange::share(self.ranks, &mut values, &counts);
                values
            });
            Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
        })
    }
}
