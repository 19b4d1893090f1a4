//! A call before there are numbers: the names of arrays where values will be.
//!
//! Settings lay out their whole call ([`AttentionSettings::call`](crate::AttentionSettings::call)); whoever has the arrays,
//! a layer its parameters, Python what it was handed, maps it to values.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use whatwhere_kernels::attention::{self as kernels, Angles, Columns, Shape};
use whatwhere_settings::Refuses;

use crate::{AttentionSettings, Error};

/// More numbers than this in a table are a mistake in the positions of a call: 2²⁸ are 1 GiB.
const MOST: usize = 1 << 28;

/// A call over the names of its arrays.
pub type Terms = kernels::Call<Slot, ()>;

/// A value of a call: an array that a choice learns, or what is made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Whose array it is; a choice that lays out its own part does not know.
    pub owner: Option<Owner>,
    /// Its name: a parameter's in a layer, a word's in Python.
    pub array: &'static str,
    /// Sizes of the array.
    pub sizes: Vec<usize>,
    /// The names of these sizes, for refusals and docs.
    pub names: &'static str,
    /// What else there is to know of the array, for docs.
    pub note: &'static str,
    /// Values where nobody has the array.
    pub default: Option<Vec<f32>>,
    /// How the value is made of the array; the array itself if absent.
    pub columns: Option<Columns>,
}

/// A choice of a call that has arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The score.
    Score,
    /// The encoding of this index.
    Position(usize),
}

impl Slot {
    /// An array by its name, with its sizes and their names, `"[heads, head_dim]"`.
    pub(crate) fn new(array: &'static str, sizes: &[usize], names: &'static str) -> Self {
        let sizes = sizes.to_vec();
        Self { owner: None, array, sizes, names, note: "", default: None, columns: None }
    }
}

impl AttentionSettings {
    /// The call of these settings over the names of what it learns; the pattern and dropout aside.
    pub fn call(&self, shape: Shape, first_query: usize, first_key: usize) -> Result<Terms, Error> {
        let mut call = Terms::new(shape, ());
        call.first_query = first_query;
        call.first_key = first_key;
        call.soft_cap = self.soft_cap;
        call.score = self.score.compare(&shape);
        call = owned(&call, Owner::Score);
        for (i, position) in self.position.iter().enumerate() {
            position.add_terms(&mut call)?;
            call = owned(&call, Owner::Position(i));
        }
        Ok(call)
    }
}

/// The call with an owner for what has none.
fn owned(call: &Terms, owner: Owner) -> Terms {
    call.map((), |slot| Slot { owner: slot.owner.or(Some(owner)), ..slot.clone() })
}

/// What is handed in with a choice where a layer has parameters.
#[derive(Clone, Debug, Default)]
pub struct Handed {
    /// The sizes of each array.
    pub arrays: BTreeMap<String, Vec<usize>>,
    /// The settings that were written down.
    pub settings: Vec<String>,
}

impl Handed {
    /// Whether an array was handed in.
    pub fn has(&self, array: &str) -> bool {
        self.arrays.contains_key(array)
    }

    /// One size of an array, unless the setting that says the same was written down.
    pub(crate) fn size(&self, array: &str, axis: usize, setting: &str) -> Option<usize> {
        let written = self.settings.iter().any(|name| name == setting);
        self.arrays.get(array).filter(|_| !written)?.get(axis).copied()
    }
}

/// Angles for all positions of a call, on a grid if there is one.
pub(crate) fn angles(
    call: &Terms,
    frequencies: &[f64],
    grid: Option<usize>,
    amplitude: f64,
) -> Result<Arc<Angles>, Error> {
    let positions = call.positions();
    check(&positions, frequencies.len())?;
    Ok(Angles::cached(frequencies, grid, positions, amplitude))
}

/// How far keys stand from queries to the left and to the right.
pub(crate) fn reach(call: &Terms) -> Result<(usize, usize), Error> {
    check(&call.positions(), 2 * call.shape.heads)?;
    Ok(call.reach())
}

fn check(positions: &Range<usize>, width: usize) -> Result<(), Error> {
    if positions.len().saturating_mul(width) <= MOST {
        return Ok(());
    }
    let reason = "the first query and the first key are too far apart for a table of all positions";
    Err(Error::setting("positions", format!("{positions:?}"), reason))
}
