//! Ranks: processes, on one machine or on many, that train one model together.
//!
//! The micro-batches of an update are the leaves of one fixed tree (`tree.rs`). A rank sums the gradients of whole subtrees,
//! ranks exchange the sums of their shards (`exchange.rs`), each finishes the tree over its own shard and updates it, and all
//! gather the weights. What is added to what never depends on how many ranks there are, so neither do the bits; and what the
//! optimizer remembers is divided among them (ZeRO-1, Rajbhandari et al. 2020, <https://arxiv.org/abs/1910.02054>).
//!
//! [`Ranks`] is all that is asked of a library; [`Alone`] is the answer without one. [`join`] finds the ranks that `mpirun` or
//! `srun` started, where the feature `mpi` is there.

#[cfg(any(test, feature = "mpi"))]
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only MPI starts ranks on machines"))]
mod cores;
pub(crate) mod exchange;
mod facts;
mod join;
pub(crate) mod layout;
#[cfg(feature = "mpi")]
mod mpi;
pub(crate) mod sharing;
pub mod threads;
pub(crate) mod tree;

use std::fmt;

use bytemuck::Pod;
use whatwhere_data::BatchSize;
use whatwhere_settings::Refuses;

use crate::{Error, RunSettings};

pub(crate) use facts::compare;
pub use join::{Joined, PATIENCE, join};

/// What ranks ask of the library that connects them. Calls are collective: all ranks make the same ones in the same order.
///
/// Bytes of different ranks follow each other without gaps, as many as the counts say.
pub trait Ranks: fmt::Debug + Send + Sync {
    /// This process, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// To each rank its part of `send`, from each its part of `receive`.
    fn all_to_all(
        &self,
        send: &[u8],
        sent: &[usize],
        receive: &mut [u8],
        received: &[usize],
    ) -> Result<(), Error>;

    /// What every rank has, in their order.
    fn all_gather(&self, own: &[u8], all: &mut [u8], counts: &[usize]) -> Result<(), Error>;

    /// What rank 0 has.
    fn broadcast(&self, data: &mut [u8]) -> Result<(), Error>;

    /// Ends all ranks at once, with this code.
    fn abort(&self, code: i32) -> !;
}

/// One process by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_to_all(
        &self,
        send: &[u8],
        _: &[usize],
        receive: &mut [u8],
        _: &[usize],
    ) -> Result<(), Error> {
        receive.copy_from_slice(send);
        Ok(())
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8], _: &[usize]) -> Result<(), Error> {
        all.copy_from_slice(own);
        Ok(())
    }

    fn broadcast(&self, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}

/// The values of all ranks, of which each has so many.
pub(crate) fn gather<T: Pod>(
    ranks: &dyn Ranks,
    own: &[T],
    counts: &[usize],
) -> Result<Vec<T>, Error> {
    let mut all = vec![T::zeroed(); counts.iter().sum()];
    let counts: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
    ranks.all_gather(bytemuck::cast_slice(own), bytemuck::cast_slice_mut(&mut all), &counts)?;
    Ok(all)
}

/// The text of each rank.
pub(crate) fn gather_texts(ranks: &dyn Ranks, own: &str) -> Result<Vec<String>, Error> {
    let lengths = gather(ranks, &[own.len() as u64], &vec![1; ranks.size()])?;
    let lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
    let all = gather(ranks, own.as_bytes(), &lengths)?;
    let mut rest = all.as_slice();
    let texts = lengths.iter().map(|length| {
        let (text, after) = rest.split_at(*length);
        rest = after;
        String::from_utf8_lossy(text).into_owned()
    });
    Ok(texts.collect())
}

/// The text that rank 0 has.
pub fn broadcast_text(ranks: &dyn Ranks, own: &str) -> Result<String, Error> {
    let mut length = [own.len() as u64];
    ranks.broadcast(bytemuck::cast_slice_mut(&mut length))?;
    let mut text = own.as_bytes().to_vec();
    text.resize(length[0] as usize, 0);
    ranks.broadcast(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Whether any rank says so; the answer is the same for all.
pub(crate) fn any(ranks: &dyn Ranks, own: bool) -> Result<bool, Error> {
    match ranks.size() {
        1 => Ok(own),
        size => Ok(gather(ranks, &[u8::from(own)], &vec![1; size])?.contains(&1)),
    }
}

/// Goes on only if all ranks can. A rank that could have hears of those that cannot, so that all end in the same place.
pub fn agree<T, E>(ranks: &dyn Ranks, own: Result<T, E>) -> Result<T, E>
where
    E: fmt::Display + From<Error>,
{
    if ranks.size() == 1 {
        return own;
    }
    let said = own.as_ref().err().map_or(String::new(), |error| format!("{error:#}"));
    let all = gather_texts(ranks, &said)?;
    let value = own?;
    match all.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        None => Ok(value),
        Some((rank, said)) => Err(Error::Rank { rank, said }.into()),
    }
}

/// Refuses what ranks cannot share.
pub(crate) fn check(settings: &RunSettings, ranks: usize) -> Result<(), Error> {
    let training = &settings.training;
    if ranks == 1 {
        return Ok(());
    }
    if settings.model.segment_memory > 0 {
        let reason = format!(
            "each batch goes on from the states of the one before, so {ranks} ranks have nothing to share; use one rank, or 0"
        );
        return Err(Error::setting("model.segment_memory", settings.model.segment_memory, reason));
    }
    if training.accumulate >= ranks as u64 {
        return Ok(());
    }
    let each = match training.batch {
        BatchSize::Rows(rows) => rows,
        BatchSize::Tokens { tokens } => tokens,
    };
    let all = each as u64 * training.accumulate;
    let right = (ranks as u64..=all).find(|parts| all.is_multiple_of(*parts)).map(|parts| {
        let batch = match training.batch {
            BatchSize::Rows(_) => format!("{}", all / parts),
            BatchSize::Tokens { .. } => format!("{{ tokens = {} }}", all / parts),
        };
        format!("training.batch = {batch} and training.accumulate = {parts} read the same tokens")
    });
    let right = right.unwrap_or_else(|| format!("use at most {all} ranks"));
    let reason =
        format!("fewer micro-batches than the {ranks} ranks that would share them; {right}");
    Err(Error::setting("training.accumulate", training.accumulate, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_cannot_share_is_refused_with_what_would_be_right() {
        let refusal = |changes: &[&str], ranks| {
            let changes: Vec<String> = changes.iter().map(|&change| change.into()).collect();
            let settings = RunSettings::read("", &changes).unwrap();
            check(&settings, ranks).map_err(|e| e.to_string())
        };
        let few = refusal(&["training.batch=8"], 3).unwrap_err();
        assert!(few.contains("training.accumulate = 1: fewer micro-batches than the 3 ranks"));
        assert!(few.contains("training.batch = 2 and training.accumulate = 4 read the same"));
        let tokens = refusal(&["training.batch={tokens=4096}"], 4).unwrap_err();
        assert!(tokens.contains("training.batch = { tokens = 1024 }"), "{tokens}");
        let many = refusal(&["training.batch=2"], 3).unwrap_err();
        assert!(many.contains("use at most 2 ranks"), "{many}");
        let memory = ["model.segment_memory=8", "training.accumulate=4"];
        assert!(refusal(&memory, 2).unwrap_err().contains("model.segment_memory = 8"));
        assert!(refusal(&memory, 1).is_ok() && refusal(&["training.accumulate=4"], 4).is_ok());
    }

    #[test]
    fn all_ranks_hear_of_one_that_cannot_go_on() {
        let heard = threads::each(3, |ranks| {
            let own = match ranks.rank() {
                1 => Err(Error::Settings("no data here".into())),
                rank => Ok(rank),
            };
            agree(ranks, own).map_err(|e| e.to_string())
        });
        assert_eq!(heard[0], Err("rank 1: no data here".into()));
        assert_eq!(heard[1], Err("no data here".into()));
        assert_eq!(heard[2], heard[0]);
        let agreed = threads::each(3, |ranks| agree(ranks, Ok::<_, Error>(ranks.rank())).unwrap());
        assert_eq!(agreed, [0, 1, 2]);
    }
}
