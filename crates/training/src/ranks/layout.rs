//! Who owns which of a model's learned values: the shards of ZeRO-1.
//!
//! Gradients of all parameters lie one after the other; ranks own stretches of about equal length, cut only where a chunk of a
//! parameter begins, or a parameter that its optimizer needs whole. Sums of squares and updates are formed chunk by chunk in any
//! case, so where the cuts lie changes no bit.

use std::ops::Range;

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::Tensor,
};
use whatwhere_transformer::{Model, ParameterPath};

use crate::{
    finetune::{
        Trainable,
        lora::{DOWN, UP},
    },
    optimizer::{CHUNK, Optimizer},
};

/// How a parameter learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Learning {
    /// Not at all.
    Not,
    /// By itself.
    Whole,
    /// By an adapter with so many values in its two matrices.
    Adapted([usize; 2]),
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    learning: Learning,
}

/// What is learned: a parameter, or a matrix of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    /// Of the parameter, with the matrix after it.
    pub(crate) name: String,
    /// The parameter's number.
    pub(crate) parameter: usize,
    /// Its values.
    pub(crate) length: usize,
    /// Those that the rank in question owns.
    pub(crate) part: Range<usize>,
}

/// Parameters in the model's order, and the cuts between ranks.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    entries: Vec<Entry>,
    /// Where each parameter's gradient begins, and the end of the last.
    starts: Vec<usize>,
    /// Where each rank's shard begins, and the end of the last.
    cuts: Vec<usize>,
}

impl Layout {
    pub(crate) fn new(
        model: &Model,
        trainable: &Trainable,
        optimizer: &Optimizer,
        ranks: usize,
    ) -> Self {
        let path = ParameterPath::default();
        let (starts, entries) = (vec![0], Vec::new());
        let mut visitor =
            Visitor { path, trainable, optimizer, starts, entries, places: Vec::new() };
        model.visit(&mut visitor);
        let Visitor { starts, entries, places, .. } = visitor;
        let cuts = cuts(&places, starts[entries.len()], ranks);
        Self { entries, starts, cuts }
    }

    /// Where a rank's shard lies.
    pub(crate) fn shard(&self, rank: usize) -> Range<usize> {
        self.cuts[rank]..self.cuts[rank + 1]
    }

    /// The part of a parameter's values that a rank owns.
    pub(crate) fn part(&self, rank: usize, parameter: usize) -> Range<usize> {
        let (shard, start) = (self.shard(rank), self.starts[parameter]);
        let part = shard.start.max(start)..shard.end.min(self.starts[parameter + 1]);
        if part.is_empty() { 0..0 } else { part.start - start..part.end - start }
    }

    /// Parameters that meet a stretch, each with what of it does.
    pub(crate) fn meeting(
        &self,
        stretch: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let first = self.starts.partition_point(|start| *start <= stretch.start).max(1) - 1;
        let parameters = first..self.entries.len();
        let met = parameters.take_while(move |at| self.starts[*at] < stretch.end);
        met.map(move |at| {
            let (start, end) = (self.starts[at], self.starts[at + 1]);
            (at, stretch.start.max(start) - start..stretch.end.min(end) - start)
        })
    }

    /// [`Self::meeting`], of parameters that learn by themselves.
    pub(crate) fn whole(
        &self,
        stretch: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        self.meeting(stretch).filter(|(at, _)| *self.learning(*at) == Learning::Whole)
    }

    /// All parameters.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How a parameter learns.
    pub(crate) fn learning(&self, parameter: usize) -> &Learning {
        &self.entries[parameter].learning
    }

    /// The name of a parameter.
    pub(crate) fn name(&self, parameter: usize) -> &str {
        &self.entries[parameter].name
    }

    /// Sums of squares that a rank forms of a parameter's gradient: one for each chunk, none of adapters.
    pub(crate) fn chunks(&self, rank: usize, parameter: usize) -> usize {
        match self.learning(parameter) {
            Learning::Whole => self.part(rank, parameter).len().div_ceil(CHUNK),
            _ => 0,
        }
    }

    /// All that is learned, in order, with what a rank owns of it.
    pub(crate) fn learned(&self, rank: usize) -> Vec<Learned> {
        let mut all = Vec::new();
        for (parameter, Entry { name, learning }) in self.entries.iter().enumerate() {
            let part = self.part(rank, parameter);
            match learning {
                Learning::Not => {}
                Learning::Whole => {
                    let length = self.starts[parameter + 1] - self.starts[parameter];
                    all.push(Learned { name: name.clone(), parameter, length, part });
                }
                Learning::Adapted(lengths) => {
                    for (matrix, length) in [DOWN, UP].into_iter().zip(*lengths) {
                        // Who owns the gradient owns both matrices.
                        let part = if part.is_empty() { 0..0 } else { 0..length };
                        let name = format!("{name}.{matrix}");
                        all.push(Learned { name, parameter, length, part });
                    }
                }
            }
        }
        all
    }

    /// How much of what is learned each rank owns.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let owned = |rank| self.learned(rank).iter().map(|learned| learned.part.len()).sum();
        (0..self.cuts.len() - 1).map(owned).collect()
    }
}

/// Cuts at the first of `places` that leaves no less than its share to the ranks before.
fn cuts(places: &[usize], end: usize, ranks: usize) -> Vec<usize> {
    let cut = |rank: usize| {
        let wanted = (rank as u128 * end as u128 / ranks as u128) as usize;
        places.get(places.partition_point(|place| *place < wanted)).copied().unwrap_or(end)
    };
    (0..ranks).map(cut).chain([end]).collect()
}

struct Visitor<'a> {
    path: ParameterPath,
    trainable: &'a Trainable,
    optimizer: &'a Optimizer,
    starts: Vec<usize>,
    entries: Vec<Entry>,
    /// Where a cut may be.
    places: Vec<usize>,
}

impl ModuleVisitor for Visitor<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (value, name) = (param.val(), self.path.name());
        let shape = value.shape();
        let adapters = self.trainable.adapters.as_ref();
        let learning = match adapters.and_then(|all| all.by_name.get(&name)) {
            Some(adapter) => Learning::Adapted([adapter.down.len(), adapter.up.len()]),
            None if self.trainable.is_updated(&name) && value.is_require_grad() => Learning::Whole,
            None => Learning::Not,
        };
        let start = self.starts.last().copied().unwrap_or_default();
        let length = if learning == Learning::Not { 0 } else { shape.num_elements() };
        let is_cut =
            learning == Learning::Whole && !self.optimizer.needs_whole(&shape, self.path.role());
        let step = if is_cut { CHUNK } else { length.max(1) };
        self.places.extend((start..start + length).step_by(step));
        self.starts.push(start + length);
        self.entries.push(Entry { name, learning });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lie_where_they_may_and_shares_are_about_equal() {
        let places: Vec<usize> = (0..100).map(|chunk| chunk * 10).collect();
        for ranks in 1..=9 {
            let cuts = cuts(&places, 1000, ranks);
            assert_eq!((cuts[0], cuts[ranks]), (0, 1000));
            for pair in cuts.windows(2) {
                assert!(pair[0].is_multiple_of(10) && pair[1] >= pair[0], "{cuts:?}");
                assert!((pair[1] - pair[0]).abs_diff(1000 / ranks) <= 10, "{cuts:?}");
            }
        }
        // Fewer places than ranks: some own nothing.
        assert_eq!(super::cuts(&[0, 30], 40, 4), [0, 30, 30, 30, 40]);
    }
}
