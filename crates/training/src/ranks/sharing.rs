//! What ranks hold together of a learner: the same weights everywhere, what the optimizer remembers in shards.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Shape, Tensor, TensorData},
};
use whatwhere_transformer::{Model, Parameter};

use super::{
    Ranks, agree,
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
    /// Weights are taken out of the model and put back, so that they are gathered where they lie: a copy of all of them would
    /// take at two ranks what the optimizer's shards save.
    pub(crate) fn share_weights(&mut self) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        self.share_adapters()?;
        let layout = &self.layout;
        let model = self.model.take().expect("there between updates");
        let mut taken = Taken { layout, values: Vec::new(), shapes: Vec::new() };
        let model = model.map(&mut taken);
        let Taken { mut values, shapes, .. } = taken;
        exchange::share(&*self.ranks, layout, &mut values)?;
        let adapters = self.trainable.adapters.as_ref();
        let values = values.into_iter().zip(shapes).enumerate();
        self.model = Some(model.map(&mut Put { layout, adapters, values }));
        Ok(())
    }

    /// After an update of shards: all matrices of adapters to all ranks.
    fn share_adapters(&mut self) -> Result<(), Error> {
        let Some(adapters) = &mut self.trainable.adapters else { return Ok(()) };
        let (ranks, layout) = (&*self.ranks, &self.layout);
        let matrices = |rank| {
            let learned = layout.learned(rank).into_iter();
            learned.filter(|learned| *layout.learning(learned.parameter) != Learning::Whole)
        };
        let mut own = Vec::new();
        for Learned { name, part, .. } in matrices(ranks.rank()) {
            own.extend_from_slice(&adapters.matrix(&name).expect("of an adapter")[part]);
        }
        let owned = |rank| matrices(rank).map(|learned| learned.part.len()).sum();
        let counts: Vec<usize> = (0..ranks.size()).map(owned).collect();
        let all = exchange::collect(ranks, &own, &counts, To::All)?;
        let mut rest = all.as_slice();
        for Learned { name, length, .. } in matrices(0) {
            let (values, after) = rest.split_at(length);
            rest = after;
            adapters.matrix_mut(&name).expect("of an adapter").copy_from_slice(values);
        }
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
        let each = self.optimizer.slots_each();
        let learned = self.layout.learned(self.ranks.rank());
        let of = |name: &str, slot: usize, length: usize| {
            let values = slots.get(name).and_then(|slots| slots.get(slot));
            values.filter(|values| values.len() == length)
        };
        // All of them, before the others wait for the first.
        let missing = learned
            .iter()
            .flat_map(|one| (0..each).map(move |slot| (one, slot)))
            .find(|(Learned { name, length, .. }, slot)| of(name, *slot, *length).is_none());
        let found = match missing.filter(|_| self.ranks.rank() == 0) {
            Some((Learned { name, length, .. }, slot)) => {
                Err(Error::Settings(format!("no slot {slot} of {length} values for {name}")))
            }
            None => Ok(()),
        };
        agree(&*self.ranks, found)?;
        for Learned { name, length, part, .. } in learned {
            let mut own = Vec::with_capacity(each);
            for slot in 0..each {
                let mut values = match of(&name, slot, length) {
                    Some(values) => Cow::Borrowed(values.as_slice()),
                    None => Cow::Owned(vec![0.0; length]),
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

/// Takes what is learned out of a model, by the numbers of parameters, and leaves nothing in its place.
struct Taken<'a> {
    layout: &'a Layout,
    values: Vec<Vec<f32>>,
    shapes: Vec<Shape>,
}

impl ModuleMapper for Taken<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.shapes.push(param.val().shape());
        if *self.layout.learning(self.values.len()) != Learning::Whole {
            self.values.push(Vec::new());
            return param;
        }
        param.map(|tensor| {
            let device = tensor.device();
            self.values.push(tensor.into_data().try_into_vec().expect("parameters are f32"));
            Tensor::from_data(TensorData::new(Vec::<f32>::new(), [0; D]), &device)
        })
    }
}

/// Puts it back, and what adapters make of the rest.
struct Put<'a, V> {
    layout: &'a Layout,
    adapters: Option<&'a Adapters>,
    values: V,
}

impl<V: Iterator<Item = (usize, (Vec<f32>, Shape))>> ModuleMapper for Put<'_, V> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (at, (values, shape)) = self.values.next().expect("one for each parameter");
        let values = match self.layout.learning(at) {
            Learning::Not => return param,
            Learning::Whole => values,
            Learning::Adapted(_) => {
                let merged = self.adapters.and_then(|all| all.merged(self.layout.name(at)));
                merged.expect("an adapter for what is adapted")
            }
        };
        param.map(|tensor| {
            Tensor::from_data(TensorData::new(values, shape), &tensor.device()).require_grad()
        })
    }
}
