//! How tokens are cut: into chunks, which are worked on at a time, and segments, which are tasks for threads.

use std::ops::Range;

use super::{LinearAttention, LinearState, state::Sums};
use crate::{
    attention::Shape,
    memory::scratch::Scratch,
    parallel,
    tile::{TILE, chunks_per_head},
};

/// Tokens per chunk: short ones carry the sums often, long ones compare many pairs. Of 24, 36, 48, 64, 72 and 96, 48 is
/// the quickest or close to it for 32 to 128 channels; it is also a multiple of the 12 rows of the matrix product.
const CHUNK: usize = TILE / 2;
/// Least chunks per segment: 384 tokens of 64 channels take 0.1 ms, many times what a task costs.
const LEAST_CHUNKS: usize = 8;
/// Multiplications by `S` below which a call stays on one thread: they are 0.06 ms of work, and threads cost 0.02 ms.
const SHARED: usize = 1 << 20;

/// Some tokens of one key head, or of the query heads that read it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The key head's index over all sequences.
    pub(super) kv_head: usize,
    pub(super) tokens: Range<usize>,
}

impl Segment {
    /// Its chunks: their tokens, and where these lie in the segment.
    pub(super) fn chunks(
        &self,
    ) -> impl DoubleEndedIterator<Item = (Range<usize>, Range<usize>)> + use<> {
        let Range { start, end } = self.tokens;
        (start..end).step_by(CHUNK).map(move |first| {
            let last = (first + CHUNK).min(end);
            (first..last, first - start..last - start)
        })
    }
}

impl LinearAttention<'_> {
    /// Cuts the tokens of a head into ranges of whole chunks; at least one, which may be empty.
    pub(super) fn cuts(&self, tokens: usize) -> Vec<Range<usize>> {
        let wanted = chunks_per_head(self.kv_heads());
        let length = tokens.div_ceil(CHUNK).div_ceil(wanted).max(LEAST_CHUNKS) * CHUNK;
        let count = tokens.div_ceil(length).max(1);
        (0..count).map(|i| i * length..((i + 1) * length).min(tokens)).collect()
    }

    /// The segments of all key heads, `[key heads, cuts]`.
    pub(super) fn segments(&self, cuts: &[Range<usize>]) -> impl Iterator<Item = Segment> {
        (0..self.kv_heads()).flat_map(move |kv_head| {
            cuts.iter().map(move |tokens| Segment { kv_head, tokens: tokens.clone() })
        })
    }

    /// Shares out `[batch, heads, queries, width]` over the segments: one slice for each head that reads theirs.
    pub(super) fn share_queries<'o>(
        &self,
        mut values: &'o mut [f32],
        cuts: &[Range<usize>],
        width: usize,
    ) -> Vec<Vec<&'o mut [f32]>> {
        let group = self.shape.group();
        let mut shares: Vec<Vec<_>> = Vec::new();
        shares.resize_with(self.kv_heads() * cuts.len(), || Vec::with_capacity(group));
        for of_head in shares.chunks_exact_mut(cuts.len()) {
            for _ in 0..group {
                for (share, tokens) in of_head.iter_mut().zip(cuts) {
                    share.push(values.split_off_mut(..tokens.len() * width).unwrap_or_default());
                }
            }
        }
        shares
    }

    /// Shares out `[batch, kv_heads, keys, width]` over the segments.
    pub(super) fn share_keys<'o>(
        &self,
        mut values: &'o mut [f32],
        cuts: &[Range<usize>],
        width: usize,
    ) -> Vec<&'o mut [f32]> {
        let lengths = (0..self.kv_heads()).flat_map(|_| cuts.iter().map(ExactSizeIterator::len));
        lengths.map(|length| values.split_off_mut(..length * width).unwrap_or_default()).collect()
    }

    /// Adds the sums of every segment to the state of its key head, in order, and returns what the state was
    /// before each, `[key heads, cuts]`. `add` adds a chunk of a key head to its sums.
    pub(super) fn scan(
        &self,
        state: &mut LinearState,
        cuts: &[Range<usize>],
        add: impl Fn(usize, &Range<usize>, &mut Sums, &mut Scratch) + Sync,
    ) -> LinearState {
        let mut starts = LinearState::zeros(&self.shape, self.kv_heads() * cuts.len());
        if cuts.is_empty() {
            return starts;
        }
        let tasks = self.segments(cuts).zip(starts.heads_mut(&self.shape)).collect();
        self.run(tasks, |(segment, mut sums): (Segment, Sums), scratch| {
            for (tokens, _) in segment.chunks() {
                add(segment.kv_head, &tokens, &mut sums, scratch);
            }
        });
        let mut starts_of_heads = starts.heads_mut(&self.shape);
        for mut total in state.heads_mut(&self.shape) {
            for mut start in starts_of_heads.by_ref().take(cuts.len()) {
                start.pass(&mut total);
            }
        }
        drop(starts_of_heads);
        starts
    }

    /// Runs tasks on threads, or one after the other if the call is small.
    pub(super) fn run<T: Send>(&self, tasks: Vec<T>, work: impl Fn(T, &mut Scratch) + Sync) {
        let Shape { batch, heads, queries, keys, head_dim, value_dim, .. } = self.shape;
        let sizes = [batch, heads, queries.max(keys), head_dim, value_dim];
        if sizes.iter().fold(1usize, |all, &size| all.saturating_mul(size)) < SHARED {
            parallel::run(vec![tasks], |tasks, scratch| {
                tasks.into_iter().for_each(|task| work(task, scratch));
            });
        } else {
            parallel::run(tasks, work);
        }
    }
}
