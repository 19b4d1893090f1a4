//! Turns: what stands between a tensor of theirs and a parameter of ours. Each can be undone, so one table imports and exports.

use crate::tensors::Array;

/// One change of a tensor on its way to us.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Turn {
    /// `[to, from]` becomes `[from, to]`.
    Transpose,
    /// `w` becomes `1 + w`: norms that learn the distance from 1 (Gemma).
    PlusOne,
    /// Every value times a constant: a factor that others apply elsewhere (T5's `width^−½` before the scores).
    Times(f32),
    /// Without the first rows: places that no token has (OPT, BART: 2, RoBERTa: padding + 1).
    DropRows(usize),
    /// All sizes but the first become one: `[width, heads, head_dim]` of XLNet.
    Flatten,
    /// All sizes but the first become one, and then the matrix is transposed.
    FlattenTranspose,
    /// `[1, n]` becomes `[n]`.
    Squeeze,
    /// Rows of each head go from pairs side by side to pairs half a head apart, as GGUF stores Llama's queries and keys.
    Unpermute,
}

/// How one tensor of theirs is several of ours, cut along the first size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Queries, keys and values of each key head together, `[kv_heads, heads/kv_heads + 2, head_dim]` (GPT-NeoX, BLOOM).
    ByHead,
    /// All queries, then all keys, then all values (GPT-2, MPT, Phi-3).
    ByThird,
    /// Equal parts, one for each name (gate and up of Phi-3).
    Equal,
}

/// Sizes of the layer's heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl Turn {
    /// Their tensor as ours; `None` if its shape does not allow it.
    pub(crate) fn take(&self, mut array: Array, heads: Heads) -> Option<Array> {
        match self {
            Self::Transpose => return transpose(&array),
            Self::PlusOne => array.values.iter_mut().for_each(|value| *value += 1.0),
            Self::Times(factor) => array.values.iter_mut().for_each(|value| *value *= factor),
            Self::DropRows(rows) => {
                let row: usize = array.shape.get(1..)?.iter().product();
                if array.shape[0] < *rows {
                    return None;
                }
                array.values.drain(..rows * row);
                array.shape[0] -= rows;
            }
            Self::Flatten => array.shape = flat(&array.shape)?,
            Self::FlattenTranspose => {
                array.shape = flat(&array.shape)?;
                return transpose(&array);
            }
            Self::Squeeze => {
                if array.shape.first() != Some(&1) || array.shape.len() != 2 {
                    return None;
                }
                array.shape.remove(0);
            }
            Self::Unpermute => return permute(&array, heads.head_dim, true),
        }
        Some(array)
    }

    /// The shape of theirs that ours becomes again.
    pub(crate) fn give_shape(&self, mut shape: Vec<usize>, heads: Heads) -> Option<Vec<usize>> {
        match self {
            Self::Transpose => shape.reverse(),
            Self::PlusOne | Self::Times(_) | Self::Unpermute => {}
            Self::DropRows(rows) => *shape.first_mut()? += rows,
            Self::Flatten => return unflat(&shape, heads),
            Self::FlattenTranspose => {
                shape.reverse();
                return unflat(&shape, heads);
            }
            Self::Squeeze => shape.insert(0, 1),
        }
        Some(shape)
    }

    /// Ours as theirs again.
    pub(crate) fn give(&self, mut array: Array, heads: Heads) -> Option<Array> {
        match self {
            Self::Transpose => return transpose(&array),
            Self::PlusOne => array.values.iter_mut().for_each(|value| *value -= 1.0),
            Self::Times(factor) => {
                array.values.iter_mut().for_each(|value| *value = divided(*value, *factor));
            }
            Self::DropRows(rows) => {
                let row: usize = array.shape.get(1..)?.iter().product();
                array.values.splice(..0, std::iter::repeat_n(0.0, rows * row));
                array.shape[0] += rows;
            }
            Self::Flatten => array.shape = unflat(&array.shape, heads)?,
            Self::FlattenTranspose => {
                array = transpose(&array)?;
                array.shape = unflat(&array.shape, heads)?;
            }
            Self::Squeeze => array.shape.insert(0, 1),
            Self::Unpermute => return permute(&array, heads.head_dim, false),
        }
        Some(array)
    }
}

/// The number that times the factor is the value to the last bit, if there is one.
fn divided(value: f32, factor: f32) -> f32 {
    let near = value / factor;
    let all = [near, near.next_up(), near.next_down()];
    all.into_iter().find(|near| near * factor == value).unwrap_or(near)
}

fn flat(shape: &[usize]) -> Option<Vec<usize>> {
    let (first, rest) = shape.split_first()?;
    Some(vec![*first, rest.iter().product()])
}

fn unflat(shape: &[usize], heads: Heads) -> Option<Vec<usize>> {
    let Heads { heads, head_dim, .. } = heads;
    (shape.get(1) == Some(&(heads * head_dim))).then(|| vec![shape[0], heads, head_dim])
}

fn transpose(array: &Array) -> Option<Array> {
    let [rows, columns] = array.shape[..] else { return None };
    let mut values = vec![0.0; array.values.len()];
    // In tiles, so that both sides stay in the cache.
    const TILE: usize = 32;
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for row in top..(top + TILE).min(rows) {
                for column in left..(left + TILE).min(columns) {
                    values[column * rows + row] = array.values[row * columns + column];
                }
            }
        }
    }
    Some(Array { shape: vec![columns, rows], values })
}

/// Rows within each head between pairs side by side and pairs half a head apart.
fn permute(array: &Array, head_dim: usize, to_halves: bool) -> Option<Array> {
    let rows = *array.shape.first()?;
    if head_dim == 0 || !head_dim.is_multiple_of(2) || !rows.is_multiple_of(head_dim) {
        return None;
    }
    let row = array.values.len() / rows.max(1);
    let mut values = Vec::with_capacity(array.values.len());
    for to in 0..rows {
        let (head, at) = (to / head_dim * head_dim, to % head_dim);
        let half = head_dim / 2;
        let from = head
            + match to_halves {
                true => at % half * 2 + at / half,
                false => at % 2 * half + at / 2,
            };
        values.extend_from_slice(&array.values[from * row..(from + 1) * row]);
    }
    Some(Array { shape: array.shape.clone(), values })
}

impl Split {
    /// The rows of each part, as ranges in their order in the tensor: part, rows.
    fn runs(self, parts: usize, rows: usize, heads: Heads) -> Option<Vec<(usize, usize)>> {
        let Heads { heads, kv_heads, head_dim } = heads;
        let runs = match self {
            Self::Equal => {
                if !rows.is_multiple_of(parts) {
                    return None;
                }
                (0..parts).map(|part| (part, rows / parts)).collect()
            }
            Self::ByThird => {
                vec![(0, heads * head_dim), (1, kv_heads * head_dim), (2, kv_heads * head_dim)]
            }
            Self::ByHead => {
                let group = heads / kv_heads;
                let one = [(0, group * head_dim), (1, head_dim), (2, head_dim)];
                std::iter::repeat_n(one, kv_heads).flatten().collect()
            }
        };
        let whole = runs.iter().map(|(_, rows)| rows).sum::<usize>() == rows;
        (whole && (self == Self::Equal || parts == 3)).then_some(runs)
    }

    /// One tensor as its parts.
    pub(crate) fn take(self, array: &Array, parts: usize, heads: Heads) -> Option<Vec<Array>> {
        let (rows, rest) = array.shape.split_first()?;
        let row: usize = rest.iter().product();
        let shape = [&[0], rest].concat();
        let mut out = vec![Array { shape, values: Vec::new() }; parts];
        let mut values = array.values.as_slice();
        for (part, rows) in self.runs(parts, *rows, heads)? {
            let (own, after) = values.split_at(rows * row);
            out[part].values.extend_from_slice(own);
            out[part].shape[0] += rows;
            values = after;
        }
        Some(out)
    }

    /// The parts as one tensor.
    pub(crate) fn give(self, parts: &[Array], heads: Heads) -> Option<Array> {
        let rows: usize = parts.iter().map(|part| part.shape.first()).sum::<Option<usize>>()?;
        let rest = &parts[0].shape[1..];
        let row: usize = rest.iter().product();
        let mut values = Vec::with_capacity(rows * row);
        let mut at = vec![0; parts.len()];
        for (part, rows) in self.runs(parts.len(), rows, heads)? {
            let next = at[part] + rows * row;
            values.extend_from_slice(parts[part].values.get(at[part]..next)?);
            at[part] = next;
        }
        Some(Array { shape: [&[rows], rest].concat(), values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { heads: 4, kv_heads: 2, head_dim: 6 };

    fn array(shape: &[usize]) -> Array {
        let count = shape.iter().product::<usize>();
        Array { shape: shape.to_vec(), values: (0..count).map(|i| i as f32).collect() }
    }

    #[test]
    fn every_turn_can_be_undone() {
        let cases: [(Turn, &[usize], &[usize]); 8] = [
            (Turn::Transpose, &[3, 40], &[40, 3]),
            (Turn::PlusOne, &[5], &[5]),
            (Turn::Times(0.5), &[2, 2], &[2, 2]),
            (Turn::DropRows(2), &[5, 3], &[3, 3]),
            (Turn::Flatten, &[5, 4, 6], &[5, 24]),
            (Turn::FlattenTranspose, &[5, 4, 6], &[24, 5]),
            (Turn::Squeeze, &[1, 7], &[7]),
            (Turn::Unpermute, &[24, 5], &[24, 5]),
        ];
        for (turn, theirs, ours) in cases {
            let taken = turn.take(array(theirs), HEADS).unwrap();
            assert_eq!(taken.shape, ours, "{turn:?}");
            assert_eq!(turn.give_shape(ours.to_vec(), HEADS).as_deref(), Some(theirs), "{turn:?}");
            let mut given = turn.give(taken, HEADS).unwrap();
            if let Turn::DropRows(rows) = turn {
                // What is dropped is written as zeros.
                given.values[..rows * 3].copy_from_slice(&array(theirs).values[..rows * 3]);
            }
            assert_eq!(given, array(theirs), "{turn:?}");
        }
    }

    #[test]
    fn splits_find_queries_keys_and_values_and_can_be_undone() {
        let rows = (4 + 2 + 2) * 6;
        let whole = array(&[rows, 2]);
        for split in [Split::ByThird, Split::ByHead] {
            let parts = split.take(&whole, 3, HEADS).unwrap();
            assert_eq!(parts.iter().map(|p| p.shape[0]).collect::<Vec<_>>(), [24, 12, 12]);
            assert_eq!(split.give(&parts, HEADS).unwrap(), whole);
        }
        let parts = Split::ByHead.take(&whole, 3, HEADS).unwrap();
        assert_eq!(parts[1].values[0], 24.0, "the first key stands after two queries");
        assert_eq!(parts[0].values[24], 48.0, "the third query stands after the first value");
        assert!(Split::ByThird.take(&array(&[rows + 1, 2]), 3, HEADS).is_none());
    }

    #[test]
    fn pairs_side_by_side_become_pairs_half_a_head_apart() {
        let rows = Turn::Unpermute.take(array(&[6, 1]), HEADS).unwrap();
        assert_eq!(rows.values, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    }
}
