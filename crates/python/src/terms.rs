//! From the words of a call and the arrays handed in to the kernels' call, and from its gradients back to the arrays.

use std::borrow::Cow;

use whatwhere_attention::slot::{Owner, Slot};
use whatwhere_kernels::attention::{
    self as kernels, Attention, Bias, Columns, Focus, Gradients, Shape, pattern::Pattern as Visible,
};
use whatwhere_settings::Refuses;

use crate::{
    Error,
    arrays::Arrays,
    call::CallArgs,
    settings::{Array, Resolved, Settings, Table},
};

/// The values of a term, and where they came from.
pub(crate) struct Source<'b> {
    values: Cow<'b, [f32]>,
    /// Of which array; none where nobody handed them in or they do not learn.
    array: Option<Array>,
    /// How they are made of it, and of how many rows; the array itself if absent.
    columns: Option<(Columns, usize)>,
}

impl Source<'_> {
    /// The gradient of the array from that of the values.
    fn backward(&self, d: &[f32]) -> Vec<f32> {
        match &self.columns {
            None => d.to_vec(),
            Some((columns, rows)) => columns.backward(*rows, d),
        }
    }
}

/// An array as it is.
fn itself(values: &[f32], array: Option<Array>) -> Source<'_> {
    Source { values: values.into(), array, columns: None }
}

/// A call over values that know their arrays.
pub(crate) struct Terms<'b> {
    call: kernels::Call<Source<'b>, &'b dyn Visible>,
}

impl<'b> Terms<'b> {
    pub(crate) fn new(
        settings: &Settings,
        resolved: &Resolved,
        shape: Shape,
        args: &CallArgs,
        arrays: &Arrays<'b>,
        pattern: &'b dyn Visible,
    ) -> Result<Self, Error> {
        let slots = resolved.settings.call(shape, args.first_query, args.first_key)?;
        settings.score.check_arrays(settings.score.choice.name(), &names(&slots, Owner::Score))?;
        for (i, word) in resolved.words.iter().enumerate() {
            word.check_arrays(word.choice.name(), &names(&slots, Owner::Position(i)))?;
        }
        let sources = slots.values().into_iter().map(|slot| {
            let (word, setting) = match slot.owner {
                Some(Owner::Position(i)) => (resolved.words[i].array(slot.array), "position"),
                _ => (settings.score.array(slot.array), "score"),
            };
            source(slot, &format!("{setting}.{}", slot.array), word, shape.heads, arrays)
        });
        let mut sources = sources.collect::<Result<Vec<_>, Error>>()?.into_iter();
        let mut call = slots.map(pattern, |_| sources.next().expect("one for each slot"));
        call.dropout = args.dropout.map(|(rate, seed)| kernels::Dropout { rate, seed });
        for table in &resolved.tables {
            call.biases.push(by_distance(table, shape.heads, arrays)?);
        }
        if let Some(deviation) = settings.pattern.choice.deviation() {
            let array = settings.pattern.array("centers");
            let (centers, _) = arrays.get("pattern.centers", array, "")?;
            call.focus = Some(Focus { centers: itself(centers, array), deviation });
        }
        if let Some(index) = args.bias {
            call.biases.push(mask(index, args.bias_learned, arrays)?);
        }
        Ok(Self { call })
    }

    /// The call on its values.
    pub(crate) fn attention(&self) -> Attention<'_> {
        self.call.map(self.call.pattern, |source| &*source.values)
    }

    /// The gradients of `count` arrays, none for an array that has no gradient.
    pub(crate) fn of_arrays(&self, gradients: &Gradients, count: usize) -> Vec<Option<Vec<f32>>> {
        let mut of_arrays = vec![None; count];
        for (source, d) in self.call.values().into_iter().zip(gradients.learned.values()) {
            if let Some(array) = source.array {
                of_arrays[array.index] = Some(source.backward(d));
            }
        }
        of_arrays
    }
}

/// The names of the arrays that a choice takes.
fn names(slots: &kernels::Call<Slot, ()>, owner: Owner) -> Vec<&'static str> {
    let own = |slot: &&Slot| slot.owner == Some(owner);
    slots.values().into_iter().filter(own).map(|slot| slot.array).collect()
}

/// What a slot holds: of the array that was handed in, or its default.
fn source<'b>(
    slot: &Slot,
    setting: &str,
    array: Option<Array>,
    heads: usize,
    arrays: &Arrays<'b>,
) -> Result<Source<'b>, Error> {
    let values: Cow<'b, [f32]> = match (&slot.default, array) {
        (Some(default), None) => default.clone().into(),
        _ => arrays.shaped(setting, array, &slot.sizes, slot.names)?.into(),
    };
    let Some(columns) = &slot.columns else { return Ok(Source { values, array, columns: None }) };
    let rows = values.len() / columns.width;
    let table = columns.table(heads, &values).into();
    Ok(Source { values: table, array, columns: Some((columns.clone(), rows)) })
}

fn by_distance<'b>(
    word: &Table,
    heads: usize,
    arrays: &Arrays<'b>,
) -> Result<Bias<Source<'b>>, Error> {
    let names = "[heads, left + 1 + right]";
    let (_, found) = arrays.get("position.table", word.table, names)?;
    let (left, count) = (word.left, found.get(1).copied().unwrap_or(0));
    let Some(right) = count.checked_sub(1).and_then(|others| others.checked_sub(left)) else {
        let reason = format!("the table has {count} distances, expected more than left");
        return Err(Error::setting("position.left", left, reason));
    };
    let table = arrays.shaped("position.table", word.table, &[heads, count], names)?;
    Ok(Bias::ByDistance { table: itself(table, word.table), left, right })
}

/// A mask of numbers, which are added.
fn mask<'b>(index: usize, learned: bool, arrays: &Arrays<'b>) -> Result<Bias<Source<'b>>, Error> {
    let (values, found) = arrays.at(index)?;
    let [a, b, c, d] = *found else {
        let (found, expected) = (found.to_vec(), "four sizes".into());
        return Err(Error::Shape { what: "attn_mask".into(), found, expected });
    };
    let values = itself(values, learned.then_some(Array { index }));
    Ok(Bias::Dense { values, shape: [a, b, c, d], learned })
}
