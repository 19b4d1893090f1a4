//! What crosses between ranks in an update: sums of gradients on the way to their owners, weights on the way back.

use std::{borrow::Cow, ops::Range};

use whatwhere_attention::bridge::Operand;
use whatwhere_kernels::{Pooled, layer::add_to};

use super::{
    Ranks,
    layout::Layout,
    tree::{self, Node},
};
use crate::{Error, optimizer::GradientBuffers};

/// Values of a shard that are exchanged at a time, 1 MiB from each rank to each: buffers stay small beside a model, and every
/// message is long enough for a network.
const BUCKET: usize = 1 << 18;

/// The gradients of the own shard, summed over all ranks in the order of the tree. `own` are the sums over this rank's subtrees.
pub(crate) fn reduce(
    ranks: &dyn Ranks,
    layout: &Layout,
    leaves: usize,
    mut own: Vec<(Node, GradientBuffers)>,
) -> Result<GradientBuffers, Error> {
    let (rank, size) = (ranks.rank(), ranks.size());
    if size == 1 {
        return Ok(own.pop().map(|(_, gradients)| gradients).unwrap_or_default());
    }
    let nodes: Vec<Vec<Node>> =
        (0..size).map(|of| tree::subtrees(leaves, &tree::held(leaves, of, size))).collect();
    let longest = (0..size).map(|of| layout.shard(of).len()).max().unwrap_or_default();
    let mut shard = Shard::new(layout, rank);
    let (mut send, mut receive) = (Vec::new(), Vec::new());
    for first in (0..longest).step_by(BUCKET) {
        let bucket = |of: usize| bucket(layout.shard(of), first);
        send.clear();
        for to in 0..size {
            for (_, gradients) in &own {
                copy(layout, gradients, bucket(to), &mut send);
            }
        }
        let length = bucket(rank).len();
        let sent: Vec<usize> = (0..size).map(|to| bucket(to).len() * own.len()).collect();
        let received: Vec<usize> = nodes.iter().map(|nodes| length * nodes.len()).collect();
        receive.resize(received.iter().sum(), 0.0);
        all_to_all(ranks, &send, &sent, &mut receive, &received)?;
        if length > 0 {
            let known: Vec<&Node> = nodes.iter().flatten().collect();
            shard.put(layout, bucket(rank), &finish(leaves, &known, &receive, length));
        }
    }
    let names = own.first().map(|(_, gradients)| gradients.names.clone()).unwrap_or_default();
    Ok(shard.gradients(names))
}

/// Values of a shard from the `first` on, as many as a bucket has.
fn bucket(shard: Range<usize>, first: usize) -> Range<usize> {
    let start = (shard.start + first).min(shard.end);
    start..(start + BUCKET).min(shard.end)
}

/// Copies a stretch of all gradients.
fn copy(layout: &Layout, gradients: &GradientBuffers, stretch: Range<usize>, into: &mut Vec<f32>) {
    for (parameter, part) in layout.meeting(stretch) {
        into.extend_from_slice(&gradients.values[parameter].values()[part]);
    }
}

/// The sum over the whole tree, of the sums over `known` nodes that lie one after the other.
fn finish<'a>(leaves: usize, known: &[&Node], sums: &'a [f32], length: usize) -> Cow<'a, [f32]> {
    let mut find = |node: &Node| {
        let at = known.iter().position(|known| *known == node)?;
        Some(Cow::Borrowed(&sums[at * length..(at + 1) * length]))
    };
    let mut add = |sum: &mut Cow<[f32]>, more: Cow<[f32]>| {
        add_to(sum.to_mut(), &more).expect("as many values");
    };
    tree::sum(&(0..leaves), &mut find, &mut add)
}

/// Sums of a shard, by the parameters it has parts of.
struct Shard(Vec<(Range<usize>, Pooled)>);

impl Shard {
    fn new(layout: &Layout, rank: usize) -> Self {
        let part = |parameter| layout.part(rank, parameter);
        let buffer = |part: Range<usize>| (part.clone(), Pooled::uncleared(part.len()));
        Self((0..layout.len()).map(part).map(buffer).collect())
    }

    /// Takes the sums of a stretch of all gradients that lies in the shard.
    fn put(&mut self, layout: &Layout, stretch: Range<usize>, sums: &[f32]) {
        let mut rest = sums;
        for (parameter, part) in layout.meeting(stretch) {
            let (values, after) = rest.split_at(part.len());
            let (whole, buffer) = &mut self.0[parameter];
            buffer[part.start - whole.start..part.end - whole.start].copy_from_slice(values);
            rest = after;
        }
    }

    fn gradients(self, names: Vec<String>) -> GradientBuffers {
        let (parts, buffers): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        let values = buffers.into_iter().map(Operand::of).collect();
        GradientBuffers { values, parts, names, ..GradientBuffers::default() }
    }
}

fn all_to_all(
    ranks: &dyn Ranks,
    send: &[f32],
    sent: &[usize],
    receive: &mut [f32],
    received: &[usize],
) -> Result<(), Error> {
    let bytes = |counts: &[usize]| -> Vec<usize> {
        counts.iter().map(|count| count * size_of::<f32>()).collect()
    };
    let receive = bytemuck::cast_slice_mut(receive);
    ranks.all_to_all(bytemuck::cast_slice(send), &bytes(sent), receive, &bytes(received))
}

/// Who gets what all ranks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    All,
    /// Rank 0; the others get nothing.
    First,
}

/// Values of a rank that are gathered at a time, 4 MiB.
const GATHERED: usize = 1 << 20;

/// The values of all ranks one after the other, of which each has so many.
pub(crate) fn collect(
    ranks: &dyn Ranks,
    own: &[f32],
    counts: &[usize],
    to: To,
) -> Result<Vec<f32>, Error> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let gets = to == To::All || rank == 0;
    let mut all = vec![0.0; if gets { counts.iter().sum() } else { 0 }];
    let mut received = Vec::new();
    for parts in rounds(counts) {
        let lengths: Vec<usize> = parts.iter().map(Range::len).collect();
        let own = &own[parts[rank].clone()];
        received.resize(if gets { lengths.iter().sum() } else { 0 }, 0.0);
        match to {
            To::All => all_gather(ranks, own, &mut received, &lengths)?,
            To::First => {
                let mut sent = vec![0; size];
                sent[0] = own.len();
                let lengths = if gets { lengths } else { vec![0; size] };
                all_to_all(ranks, own, &sent, &mut received, &lengths)?;
            }
        }
        let (mut rest, mut start) = (received.as_slice(), 0);
        for (part, count) in parts.iter().zip(counts).filter(|_| gets) {
            let (values, after) = rest.split_at(part.len());
            all[start + part.start..start + part.end].copy_from_slice(values);
            (rest, start) = (after, start + count);
        }
    }
    Ok(all)
}

/// Brings to every rank what the others own of all parameters' values, which lie by their numbers.
pub(crate) fn share(
    ranks: &dyn Ranks,
    layout: &Layout,
    values: &mut [Vec<f32>],
) -> Result<(), Error> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let shards: Vec<usize> = (0..size).map(|of| layout.shard(of).len()).collect();
    let (mut own, mut received) = (Vec::new(), Vec::new());
    for parts in rounds(&shards) {
        let stretch = |of: usize| {
            let start = layout.shard(of).start;
            layout.whole(start + parts[of].start..start + parts[of].end)
        };
        own.clear();
        for (parameter, part) in stretch(rank) {
            own.extend_from_slice(&values[parameter][part]);
        }
        let length = |of: usize| stretch(of).map(|(_, part)| part.len()).sum();
        let lengths: Vec<usize> = (0..size).map(length).collect();
        received.resize(lengths.iter().sum(), 0.0);
        all_gather(ranks, &own, &mut received, &lengths)?;
        let mut rest = received.as_slice();
        for (parameter, part) in (0..size).flat_map(stretch) {
            let (found, after) = rest.split_at(part.len());
            values[parameter][part].copy_from_slice(found);
            rest = after;
        }
    }
    Ok(())
}

/// Which stretch of each rank's values is gathered in each round.
fn rounds(counts: &[usize]) -> impl Iterator<Item = Vec<Range<usize>>> {
    let longest = counts.iter().copied().max().unwrap_or_default();
    (0..longest).step_by(GATHERED).map(|first| {
        let part = |&count: &usize| first.min(count)..(first + GATHERED).min(count);
        counts.iter().map(part).collect()
    })
}

fn all_gather(
    ranks: &dyn Ranks,
    own: &[f32],
    received: &mut [f32],
    lengths: &[usize],
) -> Result<(), Error> {
    let bytes: Vec<usize> = lengths.iter().map(|length| length * size_of::<f32>()).collect();
    ranks.all_gather(bytemuck::cast_slice(own), bytemuck::cast_slice_mut(received), &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::threads;

    #[test]
    fn values_arrive_in_the_order_of_ranks_however_many_rounds_it_takes() {
        // One rank has more than a bucket, one nothing.
        let counts = [3, (1 << 20) + 5, 0, 7];
        let value = |rank: usize, at: usize| (rank * 10_000_000 + at) as f32;
        let expected: Vec<f32> =
            (0..4).flat_map(|rank| (0..counts[rank]).map(move |at| value(rank, at))).collect();
        let all = threads::each(4, |ranks| {
            let rank = ranks.rank();
            let own: Vec<f32> = (0..counts[rank]).map(|at| value(rank, at)).collect();
            let get = |to| collect(ranks, &own, &counts, to).unwrap();
            [get(To::All), get(To::First)]
        });
        for (rank, [everywhere, first]) in all.into_iter().enumerate() {
            assert!(everywhere == expected);
            assert!(first == if rank == 0 { expected.as_slice() } else { &[] });
        }
    }
}
