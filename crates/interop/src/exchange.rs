//! Tensors of theirs as parameters of ours, by the table of a family; [`crate::give`] goes back.

use std::collections::{BTreeMap, BTreeSet};

use whatwhere_transformer::{ModelSettings, Parameter, Site};

use crate::{
    Error,
    error::Result,
    places::attentions,
    table::{Fill, Names, Row, at, fits},
    tensors::{Array, Tensors, count},
    turn::{Heads, Turn},
};

/// Where tensors come from.
pub(crate) trait Source {
    /// Name and shape of each.
    fn shapes(&self) -> BTreeMap<&str, &[usize]>;
    /// The values of one that is there.
    fn read(&self, name: &str) -> Result<Array>;
}

impl Source for Tensors {
    fn shapes(&self) -> BTreeMap<&str, &[usize]> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.shape[..])).collect()
    }

    fn read(&self, name: &str) -> Result<Array> {
        Tensors::read(self, name)
    }
}

impl Source for BTreeMap<String, Array> {
    fn shapes(&self) -> BTreeMap<&str, &[usize]> {
        self.iter().map(|(name, array)| (name.as_str(), &array.shape[..])).collect()
    }

    fn read(&self, name: &str) -> Result<Array> {
        Ok(self[name].clone())
    }
}

/// A tensor of theirs, which may be one for each head, and what is made of it.
struct Step<'a> {
    row: &'a Row,
    theirs: String,
    parts: Vec<String>,
    /// Groups of names of ours, each of all of the tensor.
    ours: Vec<Vec<String>>,
}

/// Values beyond what a file holds that a model may have: fills, and tensors that are copied to every layer.
const MORE: usize = 1 << 20;

/// Our model's parameters from their tensors; `each` hears how many of how many are done. Nothing is made before it is known
/// that every tensor is there, and that they are as large as the settings ask for.
pub(crate) fn take(
    names: &Names,
    source: &impl Source,
    settings: &ModelSettings,
    each: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Parameter>> {
    let there = source.shapes();
    fits_at_all(settings, &there)?;
    let wanted: BTreeMap<String, Vec<usize>> = settings.shapes()?.into_iter().collect();
    let (steps, fills) = steps(names, &there, settings, &wanted)?;
    bounded(&steps, &there, &wanted)?;
    let mut taken: BTreeMap<String, Parameter> = BTreeMap::new();
    let mut used: BTreeSet<String> = BTreeSet::new();
    for Step { row, theirs, parts, ours } in steps {
        let mut array = source.read(&parts[0])?;
        for part in &parts[1..] {
            let Array { shape, values } = source.read(part)?;
            // One without sizes is refused for its shape.
            if let Some(rows) = array.shape.first_mut() {
                *rows += shape.first().copied().unwrap_or(0);
            }
            array.values.extend(values);
        }
        used.extend(parts);
        for ours in ours {
            for parameter in turn(row, &theirs, &array, &ours, settings, &wanted)? {
                taken.insert(parameter.name.clone(), parameter);
            }
        }
        each(taken.len(), wanted.len());
    }
    for (name, fill) in fills {
        let shape = wanted[&name].clone();
        let values = fill.values(shape.iter().product());
        taken.entry(name.clone()).or_insert(Parameter { name, shape, values });
    }
    let spare = |name: &str| names.0.iter().any(|row| row.spare && fits(&row.theirs, name));
    if let Some((name, shape)) =
        there.iter().find(|(name, _)| !used.contains(**name) && !spare(name))
    {
        let expected = "no such tensor: nothing in a model of these settings is made of it";
        return Err(Error::tensor(*name, format!("shape {shape:?}"), expected));
    }
    Ok(taken.into_values().collect())
}

/// Parameters that no tensor has, and what is written into them.
type Filled = Vec<(String, Fill)>;

/// What is read, and what is filled in. Refuses a model of which a tensor is missing.
fn steps<'a>(
    names: &'a Names,
    there: &BTreeMap<&str, &[usize]>,
    settings: &ModelSettings,
    wanted: &BTreeMap<String, Vec<usize>>,
) -> Result<(Vec<Step<'a>>, Filled)> {
    let (mut steps, mut fills) = (Vec::new(), Vec::new());
    let mut made: BTreeSet<String> = BTreeSet::new();
    let mut missing: BTreeMap<String, String> = BTreeMap::new();
    for row in &names.0 {
        for (theirs, groups) in pairs(row, settings) {
            let ours: Vec<Vec<String>> = groups
                .into_iter()
                .filter(|ours| ours.iter().all(|name| wanted.contains_key(name)))
                .collect();
            if let Some(fill) = row.fill {
                made.extend(ours.iter().flatten().cloned());
                fills.extend(ours.into_iter().flatten().map(|name| (name, fill)));
                continue;
            }
            let parts: Vec<String> = match theirs.contains("{h}") {
                false => vec![theirs.clone()],
                true => (0..)
                    .map(|head| theirs.replace("{h}", &head.to_string()))
                    .take_while(|name| there.contains_key(name.as_str()))
                    .collect(),
            };
            if !parts.first().is_some_and(|name| there.contains_key(name.as_str())) {
                missing.extend(ours.into_iter().flatten().map(|name| (name, theirs.clone())));
            } else if !ours.is_empty() {
                made.extend(ours.iter().flatten().cloned());
                steps.push(Step { row, theirs, parts, ours });
            }
        }
    }
    match wanted.iter().find(|(name, _)| !made.contains(*name)) {
        None => Ok((steps, fills)),
        Some((name, shape)) => {
            let theirs = missing.get(name).cloned().unwrap_or_else(|| format!("for {name}"));
            let expected = format!("one for {name}, whose shape is {shape:?}");
            Err(Error::tensor(theirs, "nothing", expected))
        }
    }
}

/// The values of all tensors.
fn held(there: &BTreeMap<&str, &[usize]>) -> usize {
    let counts = there.values().map(|shape| count(shape).unwrap_or(usize::MAX));
    counts.fold(0, usize::saturating_add)
}

/// Refuses sizes that no model of so few values has, before a list of all its parameters is made of them: every attention
/// has more than one value for each channel of the stream and of its heads.
fn fits_at_all(settings: &ModelSettings, there: &BTreeMap<&str, &[usize]>) -> Result<()> {
    let all = attentions(settings);
    let channels = |Heads { heads, head_dim, .. }: Heads| heads.saturating_mul(head_dim);
    let each = all.iter().map(|place| channels(place.heads).max(settings.width));
    let held = held(there);
    let is_beyond = |count: usize| count > held;
    let count = there.len();
    // The output's bias is made with the list; the table of embeddings has a row for each of its values.
    if settings.output_bias && is_beyond(settings.vocabulary) {
        let vocabulary = settings.vocabulary;
        return Err(Error::Refused(format!(
            "the model is said to have {vocabulary} tokens, and its files hold {held} values in {count} tensors, fewer than one for each"
        )));
    }
    if !is_beyond(each.fold(0, usize::saturating_add)) {
        return Ok(());
    }
    let (layers, width) = (all.len(), settings.width);
    let Heads { heads, head_dim, .. } = all[0].heads;
    Err(Error::Refused(format!(
        "the model is said to have {layers} attentions of width {width} with {heads} heads of {head_dim} channels, and its \
         files hold {held} values in {count} tensors, fewer than one for each channel"
    )))
}

/// Refuses a model whose parameters are many more than its files hold; a tensor of another shape than it should have is named.
fn bounded(
    steps: &[Step],
    there: &BTreeMap<&str, &[usize]>,
    wanted: &BTreeMap<String, Vec<usize>>,
) -> Result<()> {
    let asked = wanted.values().map(|shape| count(shape).unwrap_or(usize::MAX));
    let (asked, held) = (asked.fold(0, usize::saturating_add), held(there));
    if asked <= held.saturating_mul(4).saturating_add(MORE) {
        return Ok(());
    }
    for Step { row, theirs, parts, ours } in steps.iter().filter(|step| step.parts.len() == 1) {
        for ours in ours {
            let shapes: Vec<&[usize]> = ours.iter().map(|name| &wanted[name][..]).collect();
            let (found, expected) = (there[parts[0].as_str()], their_shape(row, &shapes));
            if let Some(expected) = expected.filter(|expected| expected != found) {
                let (found, expected) = (format!("shape {found:?}"), format!("shape {expected:?}"));
                return Err(Error::tensor(theirs, found, expected));
            }
        }
    }
    Err(Error::Refused(format!(
        "the model is said to have {asked} values, and its files hold {held}, expected about as many"
    )))
}

/// A row for each layer: the name of theirs, and the groups of names of ours that it makes.
pub(crate) fn pairs(row: &Row, settings: &ModelSettings) -> Vec<(String, Vec<Vec<String>>)> {
    let is_each = |name: &String| name.contains("{}");
    let group = |layer: usize| row.ours.iter().map(|name| at(name, layer)).collect::<Vec<_>>();
    if !row.ours.iter().any(is_each) {
        return vec![(
            row.theirs.clone(),
            if row.ours.is_empty() { vec![] } else { vec![group(0)] },
        )];
    }
    let layers = 0..settings.encoder_depth().max(settings.decoder_depth());
    if is_each(&row.theirs) || row.theirs.is_empty() {
        return layers.map(|layer| (at(&row.theirs, layer), vec![group(layer)])).collect();
    }
    vec![(row.theirs.clone(), layers.map(group).collect())]
}

/// One tensor of theirs as one or several of ours.
fn turn(
    row: &Row,
    theirs: &str,
    array: &Array,
    ours: &[String],
    settings: &ModelSettings,
    wanted: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<Parameter>> {
    let heads = heads(&ours[0], settings)?;
    let wrong = || {
        let shapes: Vec<&[usize]> = ours.iter().map(|name| &wanted[name][..]).collect();
        let expected = their_shape(row, &shapes)
            .map_or_else(|| format!("what becomes {shapes:?}"), |shape| format!("shape {shape:?}"));
        Error::tensor(theirs, format!("shape {:?}", array.shape), expected)
    };
    let whole = row.before.iter().try_fold(array.clone(), |array, turn| turn.take(array, heads));
    let whole = whole.ok_or_else(wrong)?;
    let parts = match row.split {
        None => vec![whole],
        Some(split) => split.take(&whole, ours.len(), heads).ok_or_else(wrong)?,
    };
    let mut out = Vec::with_capacity(ours.len());
    for (part, name) in parts.into_iter().zip(ours) {
        let part = row.after.iter().try_fold(part, |array, turn| turn.take(array, heads));
        let Array { shape, values } =
            part.filter(|part| part.shape == wanted[name]).ok_or_else(wrong)?;
        if values.iter().any(|value| value.is_nan()) {
            return Err(Error::tensor(theirs, "a value that is not a number (NaN)", "numbers"));
        }
        out.push(Parameter { name: name.clone(), shape, values });
    }
    Ok(out)
}

/// The shape their tensor would have, where it follows from ours.
fn their_shape(row: &Row, ours: &[&[usize]]) -> Option<Vec<usize>> {
    let back = |turns: &[Turn], shape: &[usize]| -> Option<Vec<usize>> {
        let mut shape = shape.to_vec();
        for turn in turns.iter().rev() {
            match turn {
                Turn::Transpose => shape.reverse(),
                Turn::DropRows(rows) => *shape.first_mut()? += rows,
                Turn::Squeeze => shape.insert(0, 1),
                Turn::PlusOne | Turn::Times(_) | Turn::Unpermute => {}
                Turn::Flatten | Turn::FlattenTranspose => return None,
            }
        }
        Some(shape)
    };
    let mut parts = ours.iter().map(|shape| back(&row.after, shape));
    let mut whole = parts.next()??;
    for part in parts {
        whole[0] += part?.first()?;
    }
    back(&row.before, &whole)
}

/// The heads of the attention that a parameter belongs to.
pub(crate) fn heads(name: &str, settings: &ModelSettings) -> Result<Heads> {
    let site = match name {
        name if name.starts_with("encoder.") => Site::Encoder,
        name if name.contains(".cross.") => Site::Cross,
        _ if settings.decoder_depth() == 0 => Site::Encoder,
        _ => Site::Decoder,
    };
    let layer = name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
    let found = settings.attention(site, layer)?;
    let heads = found.heads;
    let head_dim = found.head_dim.unwrap_or(settings.width / heads.max(1));
    Ok(Heads { heads, kv_heads: found.kv_heads.unwrap_or(heads), head_dim })
}
