//! Beam search: several beginnings side by side, the likeliest kept.
//!
//! A hypothesis counts by `log p / ((5 + length) / 6)^α`, the length penalty of GNMT (Wu et al. 2016,
//! <https://arxiv.org/abs/1609.08144>).

use rayon::prelude::*;
use whatwhere_settings::Refuses;

use super::logits;
use crate::{Error, Model, Sequences};

/// How wide to search and when to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beam {
    /// Beginnings kept for each source.
    pub width: usize,
    /// α of the length penalty: 0 favours short ones.
    pub length_penalty: f32,
    /// Tokens at the most.
    pub limit: usize,
    /// The token that begins every target.
    pub begin: u32,
    /// The token that ends it.
    pub end: u32,
    /// The token that every target has after the one that begins it, such as its language, if any.
    pub forced: Option<u32>,
    /// A token that no target has, such as padding, if any.
    pub never: Option<u32>,
}

/// A target that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Without the tokens that begin and end it.
    pub tokens: Vec<u32>,
    /// The sum of the tokens' log-probabilities.
    pub log_probability: f64,
    /// The same, over the length penalty.
    pub score: f64,
}

/// One source's search.
struct Search {
    /// Its index among the sources.
    source: usize,
    /// Tokens so far, with the one that begins, and their log-probability.
    open: Vec<(Vec<u32>, f64)>,
    done: Vec<Hypothesis>,
}

impl Beam {
    /// The best targets of every source, best first, at most `width` each.
    pub fn search(
        &self,
        model: &Model,
        sources: &Sequences,
    ) -> Result<Vec<Vec<Hypothesis>>, Error> {
        if self.width == 0 {
            return Err(Error::setting("beam", 0, "expected at least 1"));
        }
        let count = sources.dims()[0];
        let mut found = vec![Vec::new(); count];
        let mut searches: Vec<Search> = (0..count)
            .map(|source| Search { source, open: vec![(vec![self.begin], 0.0)], done: Vec::new() })
            .collect();
        let mut state = model.start(Some(sources))?;
        for length in 1..=self.limit {
            let rows: Vec<&[u32]> = searches
                .iter()
                .flat_map(|search| &search.open)
                .map(|(tokens, _)| &tokens[tokens.len() - 1..])
                .collect();
            let mut logits = logits(model, &rows, 1, &mut state)?;
            logits.iter_mut().for_each(|logits| self.restrict(logits, length));
            let mut row = 0;
            let mut own = |search: &Search| {
                let first = row;
                row += search.open.len();
                (first, &logits[first..row])
            };
            let found_logits: Vec<(usize, &[Vec<f32>])> = searches.iter().map(&mut own).collect();
            let parents: Vec<Vec<usize>> = searches
                .par_iter_mut()
                .zip(found_logits)
                .map(|(search, (first, logits))| {
                    let parents = self.advance(search, logits, length);
                    parents.into_iter().map(|parent| first + parent).collect()
                })
                .collect();
            let order = parents.concat();
            searches.retain_mut(|search| {
                let goes_on = !search.open.is_empty();
                if !goes_on {
                    found[search.source] = std::mem::take(&mut search.done);
                }
                goes_on
            });
            if searches.is_empty() {
                break;
            }
            state.reorder(&order)?;
        }
        for mut search in searches {
            self.close(&mut search);
            found[search.source] = search.done;
        }
        Ok(found)
    }

    /// Leaves the tokens that may come next.
    fn restrict(&self, logits: &mut [f32], length: usize) {
        match self.forced.filter(|_| length == 1) {
            Some(forced) => {
                let others = logits.iter_mut().enumerate().filter(|(i, _)| *i != forced as usize);
                others.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
            None => {
                let never = self.never.and_then(|never| logits.get_mut(never as usize));
                never.into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
            }
        }
    }

    /// Extends every open beginning by one token, and returns whose each new one is. Leaves none open when the search is
    /// decided.
    fn advance(&self, search: &mut Search, logits: &[Vec<f32>], length: usize) -> Vec<usize> {
        let mut candidates: Vec<(usize, u32, f64)> = Vec::new();
        for (parent, logits) in logits.iter().enumerate() {
            let log_total = log_sum_exp(logits);
            let before = search.open[parent].1;
            // Twice the width: even if half of them end, the beam stays full.
            candidates.extend(best(logits, 2 * self.width).into_iter().map(|token| {
                (parent, token, before + f64::from(logits[token as usize]) - log_total)
            }));
        }
        candidates.retain(|(.., log_probability)| *log_probability != f64::NEG_INFINITY);
        candidates.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        let mut open = Vec::with_capacity(self.width);
        let mut parents = Vec::with_capacity(self.width);
        for (rank, (parent, token, log_probability)) in candidates.into_iter().enumerate() {
            let tokens = &search.open[parent].0;
            if token == self.end {
                // An ending counts only if it is among the best of its step.
                if rank < self.width {
                    search.done.push(self.hypothesis(&tokens[1..], log_probability, length));
                }
            } else if open.len() < self.width {
                let mut tokens = tokens.clone();
                tokens.push(token);
                open.push((tokens, log_probability));
                parents.push(parent);
            }
        }
        search.open = open;
        search.done.sort_by(|a, b| b.score.total_cmp(&a.score));
        search.done.truncate(self.width);
        if self.is_decided(search) {
            search.open.clear();
            parents.clear();
        }
        parents
    }

    /// Whether no open beginning can still beat the worst of a full set of targets.
    fn is_decided(&self, search: &Search) -> bool {
        let (Some(worst), true) = (search.done.last(), search.done.len() == self.width) else {
            return false;
        };
        let hope = search.open.first().map_or(f64::NEG_INFINITY, |(_, log_probability)| {
            log_probability / self.penalty(self.limit)
        });
        worst.score >= hope
    }

    /// Takes open beginnings as they are when the limit is reached.
    fn close(&self, search: &mut Search) {
        if search.done.is_empty() {
            let open = std::mem::take(&mut search.open);
            search.done.extend(open.into_iter().map(|(tokens, log_probability)| {
                self.hypothesis(&tokens[1..], log_probability, self.limit)
            }));
            search.done.sort_by(|a, b| b.score.total_cmp(&a.score));
        }
    }

    fn hypothesis(&self, tokens: &[u32], log_probability: f64, length: usize) -> Hypothesis {
        let score = log_probability / self.penalty(length);
        Hypothesis { tokens: tokens.to_vec(), log_probability, score }
    }

    fn penalty(&self, length: usize) -> f64 {
        ((5.0 + length as f64) / 6.0).powf(f64::from(self.length_penalty))
    }
}

/// The tokens with the largest logits, best first, the lower of equal ones first.
fn best(logits: &[f32], count: usize) -> Vec<u32> {
    let mut best: Vec<u32> = Vec::with_capacity(count + 1);
    // Most are below the worst that is kept, which one comparison tells.
    let mut worst = f32::NEG_INFINITY;
    for (token, logit) in logits.iter().enumerate() {
        if best.len() == count && logit.total_cmp(&worst).is_le() {
            continue;
        }
        let at = best.partition_point(|other| logits[*other as usize].total_cmp(logit).is_ge());
        best.insert(at, token as u32);
        best.truncate(count);
        if let Some(last) = best.last() {
            worst = logits[*last as usize];
        }
    }
    best
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - peak).exp()).sum();
    f64::from(peak) + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_those_of_a_sort() {
        for (length, count) in [(1, 4), (5, 2), (100, 8), (8, 8)] {
            // Few values, so that many are equal.
            let logits: Vec<f32> = (0..length).map(|i| (i * 7919 % 13) as f32 - 6.0).collect();
            let mut sorted: Vec<u32> = (0..length as u32).collect();
            sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
            sorted.truncate(count);
            assert_eq!(best(&logits, count), sorted, "{count} of {length}");
        }
    }
}
