//! Where the weight of a head goes: sums over rows of the map, a few of them held at a time.

use std::collections::HashMap;

use rayon::prelude::*;
use whatwhere_kernels::{
    Error,
    attention::{Attention, Inspection, pattern::Pair},
};
use whatwhere_transformer::{Head, Site};

use super::{Figure, HeadFigures, Role, site};
use crate::show::Reading;

/// Rows of the map that are held at once.
const ROWS: usize = 64;

/// Keys that a query might look for.
pub(super) struct Wanted {
    /// Of queries and keys, which are the same; nothing between two sequences.
    tokens: Vec<u32>,
    /// Where each token stands, ascending.
    positions: HashMap<u32, Vec<usize>>,
    /// Opening brackets of a closing one.
    brackets: HashMap<usize, Vec<usize>>,
}

impl Wanted {
    pub(super) fn new(reading: &Reading, site: Site) -> Self {
        let tokens = if site == Site::Cross { &[][..] } else { reading.queries(site) };
        let mut positions: HashMap<u32, Vec<usize>> = HashMap::new();
        for (position, token) in tokens.iter().enumerate() {
            positions.entry(*token).or_default().push(position);
        }
        let tokenizer = reading.run().tokenizer().ok();
        let text = |token: &u32| tokenizer.map_or(String::new(), |all| all.token(*token));
        let texts = tokens.iter().map(text);
        Self { tokens: tokens.to_vec(), positions, brackets: brackets(texts) }
    }

    /// Where the query's token stood before.
    fn earlier(&self, query: usize) -> &[usize] {
        let all = self.tokens.get(query).and_then(|token| self.positions.get(token));
        all.map_or(&[], |all| &all[..all.partition_point(|position| *position < query)])
    }
}

/// For each token with closing brackets, the tokens of the opening ones that they match.
fn brackets(texts: impl Iterator<Item = String>) -> HashMap<usize, Vec<usize>> {
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut found: HashMap<usize, Vec<usize>> = HashMap::new();
    for (position, text) in texts.enumerate() {
        for letter in text.chars() {
            let opening = match letter {
                '(' | '[' | '{' => {
                    open.push((letter, position));
                    continue;
                }
                ')' => '(',
                ']' => '[',
                '}' => '{',
                _ => continue,
            };
            if let Some((_, start)) = open.pop_if(|(last, _)| *last == opening)
                && start < position
            {
                found.entry(position).or_default().push(start);
            }
        }
    }
    found
}

/// The sums of every head of a call.
pub(super) fn of_heads(
    call: &Attention,
    inspection: &Inspection,
    wanted: &Wanted,
) -> Result<Vec<Sums>, Error> {
    let heads = 0..call.shape.heads;
    heads.into_par_iter().map(|head| of_head(call, inspection, head, wanted)).collect()
}

fn of_head(
    call: &Attention,
    inspection: &Inspection,
    head: usize,
    wanted: &Wanted,
) -> Result<Sums, Error> {
    let (queries, keys) = (call.shape.queries, call.shape.keys);
    let mut sums = Sums::new(queries, keys);
    let mut hidden = vec![0.0; keys];
    for start in (0..queries).step_by(ROWS) {
        let rows = start..(start + ROWS).min(queries);
        let map = inspection.tile(0, head, rows.clone(), 0..keys)?;
        for (query, weights) in rows.zip(map.chunks_exact(keys)) {
            hidden.fill(0.0);
            let position = call.first_query + query;
            let first = Pair { batch: 0, head, query: position, key: call.first_key };
            call.pattern.hide(first, &mut hidden);
            sums.add(query, &Row { weights, hidden: &hidden }, wanted);
        }
    }
    Ok(sums)
}

/// The weights of a query, and which keys it does not see.
struct Row<'a> {
    weights: &'a [f32],
    /// −∞ where a key is hidden.
    hidden: &'a [f32],
}

impl Row<'_> {
    fn sees(&self, key: usize) -> bool {
        self.hidden.get(key).is_some_and(|hidden| hidden.is_finite())
    }
}

/// A [`Figure`] being made.
#[derive(Clone, Copy, Default)]
struct Sum {
    weight: f64,
    uniform: f64,
    queries: usize,
}

impl Sum {
    /// Adds a query's weight on those of `keys` that it sees, if any.
    fn add(&mut self, row: &Row, seen: usize, keys: impl Iterator<Item = usize>) {
        let (mut weight, mut count) = (0.0, 0usize);
        for key in keys.filter(|key| row.sees(*key)) {
            weight += f64::from(row.weights[key]);
            count += 1;
        }
        if count > 0 {
            self.weight += weight;
            self.uniform += count as f64 / seen as f64;
            self.queries += 1;
        }
    }

    fn figure(self) -> Option<Figure> {
        let count = self.queries as f64;
        let figure = || Figure {
            weight: self.weight / count,
            uniform: self.uniform / count,
            queries: self.queries,
        };
        (self.queries > 0).then(figure)
    }
}

/// What the weights of a head add up to.
pub(super) struct Sums {
    previous: Sum,
    first: Sum,
    itself: Sum,
    induction: Sum,
    same_token: Sum,
    bracket: Sum,
    /// By offset, key minus query, from `−(queries − 1)`.
    offsets: Vec<Sum>,
    queries: usize,
    entropy: [f64; 2],
    rows: usize,
}

impl Sums {
    fn new(queries: usize, keys: usize) -> Self {
        let none = Sum::default();
        Self {
            previous: none,
            first: none,
            itself: none,
            induction: none,
            same_token: none,
            bracket: none,
            offsets: vec![none; (queries + keys).saturating_sub(1)],
            queries,
            entropy: [0.0; 2],
            rows: 0,
        }
    }

    fn add(&mut self, query: usize, row: &Row, wanted: &Wanted) {
        let seen = row.hidden.iter().filter(|hidden| hidden.is_finite()).count();
        if seen < 2 {
            return;
        }
        self.rows += 1;
        self.previous.add(row, seen, query.checked_sub(1).into_iter());
        self.first.add(row, seen, std::iter::once(0));
        self.itself.add(row, seen, std::iter::once(query));
        let earlier = wanted.earlier(query);
        self.same_token.add(row, seen, earlier.iter().copied());
        let after =
            earlier.iter().map(|position| position + 1).filter(|position| *position != query);
        self.induction.add(row, seen, after);
        let brackets = wanted.brackets.get(&query).into_iter().flatten();
        self.bracket.add(row, seen, brackets.copied());
        for key in 0..row.weights.len() {
            self.offsets[key + self.queries - 1 - query].add(row, seen, std::iter::once(key));
        }
        let entropy = |weight: &f32| -f64::from(*weight) * f64::from(weight.ln());
        let own: f64 = row.weights.iter().filter(|weight| **weight > 0.0).map(entropy).sum();
        self.entropy[0] += own;
        self.entropy[1] += (seen as f64).ln();
    }

    pub(super) fn figures(self, stands: Head) -> HeadFigures {
        let half = self.rows.div_ceil(2).max(1);
        let frequent = (0i64..).zip(&self.offsets).filter(|(_, sum)| sum.queries >= half);
        let figures = frequent
            .filter_map(|(index, sum)| Some((index + 1 - self.queries as i64, sum.figure()?)));
        let offset = figures.max_by(|a, b| a.1.weight.total_cmp(&b.1.weight));
        let rows = self.rows.max(1) as f64;
        let mut figures = HeadFigures {
            site: site(stands.site),
            layer: stands.layer,
            head: stands.head,
            role: None,
            previous: self.previous.figure(),
            first: self.first.figure(),
            itself: self.itself.figure(),
            offset,
            induction: self.induction.figure(),
            same_token: self.same_token.figure(),
            bracket: self.bracket.figure(),
            entropy: self.entropy.map(|entropy| entropy / rows),
            shares: None,
            loss_without: None,
        };
        figures.role = Role::of(&figures);
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_match_across_tokens_and_kinds() {
        let found =
            brackets(["f(", "a[", "1", "])", ")", "{", ")", "}"].map(String::from).into_iter());
        assert_eq!(found[&3], [1, 0]);
        assert_eq!(found.get(&4), None, "nothing is open");
        // A bracket of another kind closes nothing.
        assert_eq!(found.get(&6), None);
        assert_eq!(found[&7], [5]);
        let found = brackets(["()", "(", "x", ")"].map(String::from).into_iter());
        assert_eq!(found.len(), 1, "brackets within a token need no head");
        assert_eq!(found[&3], [1]);
    }
}
