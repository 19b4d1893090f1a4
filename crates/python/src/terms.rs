//! From the words of a score and of encodings to the terms of a call, and from its gradients back to the arrays.

use std::{f64::consts::TAU, mem::take, ops::Range, sync::Arc};

use whatwhere_kernels::attention::{
    self as kernels, Angles, Attention, Bias, Buckets, Feature, FeatureKind, Focus, Gradients,
    Relative, Shape, alibi_slopes,
};

use crate::{
    Error,
    arrays::Arrays,
    call::{Call, Moment},
    heads::{check_share, share_of},
    settings::{
        Alibi, Array, Delta, Layout, Magnitude, Pattern, Polar, Position, Rotary, Score, Settings,
        Shaw, SingleAngle, T5, Table, TransformerXl,
    },
};

/// More angles than this are a mistake in the places of a call: a table of 2²⁸ values is 1 GiB.
const MOST_ANGLES: usize = 1 << 28;

/// Which gradient belongs to an array.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    Score,
    QueryBias,
    Delta(usize),
    Bias(usize),
    /// The slopes of the first heads; the others have none.
    Slopes(usize, usize),
    BiasQuery(usize),
    Values,
    Centers,
}

impl Slot {
    pub(crate) fn take(self, gradients: &mut Gradients) -> Vec<f32> {
        match self {
            Slot::Score => take(&mut gradients.score),
            Slot::QueryBias => take(&mut gradients.query_bias),
            Slot::Delta(feature) => take(&mut gradients.features[feature]),
            Slot::Bias(bias) => take(&mut gradients.biases[bias].table),
            Slot::Slopes(bias, heads) => {
                let mut slopes = take(&mut gradients.biases[bias].table);
                slopes.truncate(heads);
                slopes
            }
            Slot::BiasQuery(bias) => take(&mut gradients.biases[bias].query_bias),
            Slot::Values => take(&mut gradients.relative_values),
            Slot::Centers => take(&mut gradients.centers),
        }
    }
}

/// What a call borrows and nobody handed in.
pub(crate) struct Made {
    /// One table for each encoding that turns channels.
    angles: Vec<Arc<Angles>>,
    /// ALiBi's, one for each head.
    slopes: Vec<f32>,
}

impl Made {
    pub(crate) fn new(
        call: &Call,
        shape: &Shape,
        moment: &Moment,
        arrays: &Arrays,
    ) -> Result<Self, Error> {
        let start = moment.first_query.min(moment.first_key);
        let end = (moment.first_query.saturating_add(shape.queries))
            .max(moment.first_key.saturating_add(shape.keys));
        let mut made = Self { angles: Vec::new(), slopes: Vec::new() };
        for position in &call.settings.position {
            let (frequencies, amplitude) = match position {
                Position::Rotary(rotary) => {
                    let width = rotary_channels(rotary, shape)?.len();
                    rotary.scaling.frequencies(rotary.base, width, end)
                }
                Position::Polar(polar) => {
                    let width = polar_channels(polar, shape)?.len();
                    (Angles::polar_frequencies(width, polar.base), 1.0)
                }
                Position::SingleAngle(SingleAngle { period: 0 }) => {
                    let reason = "a period has at least one place";
                    return Err(Error::setting("position.period", 0, reason));
                }
                Position::SingleAngle(single) => {
                    (vec![TAU / single.period as f64; shape.head_dim], 1.0)
                }
                Position::Alibi(alibi) => {
                    made.slopes = slopes(alibi, shape, arrays)?;
                    continue;
                }
                _ => continue,
            };
            if (end - start).saturating_mul(frequencies.len()) > MOST_ANGLES {
                let found = format!("{:?}", start..end);
                let reason = "first_query and first_key are too far apart for a table of angles";
                return Err(Error::setting("places", found, reason));
            }
            made.angles.push(Angles::kept(&frequencies, start..end, amplitude));
        }
        Ok(made)
    }
}

/// The terms under construction, and which array each came from.
pub(crate) struct Terms<'b> {
    pub(crate) attention: Attention<'b>,
    pub(crate) slots: Vec<Option<Slot>>,
    angles: std::slice::Iter<'b, Arc<Angles>>,
}

impl<'b> Terms<'b> {
    pub(crate) fn new(
        settings: &Settings,
        shape: Shape,
        moment: &Moment,
        arrays: &Arrays<'b>,
        made: &'b Made,
        pattern: &'b dyn kernels::pattern::Pattern,
    ) -> Result<Self, Error> {
        let mut attention = Attention::new(shape, pattern);
        attention.first_query = moment.first_query;
        attention.first_key = moment.first_key;
        attention.soft_cap = settings.soft_cap;
        attention.dropout = moment.dropout.map(|(rate, seed)| kernels::Dropout { rate, seed });
        let slots = vec![None; arrays.len()];
        let mut terms = Self { attention, slots, angles: made.angles.iter() };
        terms.score(&settings.score, arrays)?;
        terms.refuse_repeats(&settings.position)?;
        for position in &settings.position {
            terms.position(position, arrays, made)?;
        }
        if let Pattern::Predicted(predicted) = &settings.pattern {
            let (centers, _) = arrays.get("pattern.centers", predicted.centers, "")?;
            let deviation = predicted.radius as f32 / 2.0;
            terms.attention.focus = Some(Focus { centers, deviation });
            terms.from(predicted.centers, Slot::Centers);
        }
        if let Some(index) = moment.bias {
            let (values, found) = arrays.at(index)?;
            let [a, b, c, d] = *found else {
                let (found, expected) = (found.to_vec(), "four sizes".into());
                return Err(Error::Shape { what: "attn_mask", found, expected });
            };
            let learned = moment.bias_learned;
            let slot = terms.bias(Bias::Dense { values, shape: [a, b, c, d], learned });
            terms.slots[index] = learned.then_some(slot);
        }
        Ok(terms)
    }

    fn from(&mut self, array: Option<Array>, slot: Slot) {
        if let Some(array) = array {
            self.slots[array.index] = Some(slot);
        }
    }

    fn bias(&mut self, bias: Bias<'b>) -> Slot {
        self.attention.biases.push(bias);
        Slot::Bias(self.attention.biases.len() - 1)
    }

    fn score(&mut self, score: &Score, arrays: &Arrays<'b>) -> Result<(), Error> {
        let Shape { heads, head_dim, .. } = self.attention.shape;
        self.attention.score = match score {
            Score::ScaledDot(scaled) => match scaled.scale {
                Some(scale) => kernels::Score::Dot { scale },
                None => kernels::Score::scaled_dot(head_dim),
            },
            Score::Dot(dot) => kernels::Score::Dot { scale: dot.scale },
            Score::General(general) => {
                let found = if general.weight.is_some() { "an array" } else { "none" };
                let reason = "multiply the queries by it and take scaled_dot";
                return Err(Error::setting("score.weight", found, reason));
            }
            Score::Cosine(cosine) => kernels::Score::Cosine { scale: cosine.scale },
            Score::Additive(additive) => {
                let (sizes, names) = ([heads, head_dim], "[heads, head_dim]");
                let weight = arrays.shaped("score.weight", additive.weight, &sizes, names)?;
                self.from(additive.weight, Slot::Score);
                kernels::Score::Additive { weight }
            }
        };
        Ok(())
    }

    /// The factor on the scores, which relative keys share.
    fn scale(&self) -> f32 {
        match self.attention.score {
            kernels::Score::Dot { scale } | kernels::Score::Cosine { scale } => scale,
            kernels::Score::Additive { .. } => 1.0,
        }
    }

    fn refuse_repeats(&self, positions: &[Position]) -> Result<(), Error> {
        for (i, position) in positions.iter().enumerate() {
            if positions[..i].iter().any(|other| other.name() == position.name()) {
                let reason = "an encoding can be listed once";
                return Err(Error::combination(position.name(), position.name(), reason));
            }
        }
        Ok(())
    }

    fn position(
        &mut self,
        position: &Position,
        arrays: &Arrays<'b>,
        made: &'b Made,
    ) -> Result<(), Error> {
        match position {
            Position::NoPosition(_) => Ok(()),
            Position::Sinusoidal(_) | Position::Learned(_) => {
                let reason = "is added to embeddings, once, before the first layer; add it to the input of your model";
                Err(Error::setting("position", position.name(), reason))
            }
            Position::Shaw(shaw) => self.shaw(shaw, arrays),
            Position::TransformerXl(xl) => self.transformer_xl(xl, arrays),
            Position::Rotary(rotary) => self.rotary(rotary),
            Position::Polar(polar) => self.polar(polar, arrays),
            Position::SingleAngle(_) => {
                let Shape { heads, head_dim, .. } = self.attention.shape;
                let kind =
                    FeatureKind::Polar { magnitude: kernels::Magnitude::Softplus, delta: None };
                self.feature(kind, 0..head_dim, 0..heads);
                Ok(())
            }
            Position::Alibi(alibi) => {
                let heads = share_of(alibi.heads, self.attention.shape.heads).len();
                let Slot::Bias(bias) = self.bias(Bias::Slopes { slopes: &made.slopes }) else {
                    return Ok(());
                };
                self.from(alibi.slopes, Slot::Slopes(bias, heads));
                Ok(())
            }
            Position::T5(t5) => self.t5(t5, arrays),
            Position::Table(table) => self.table(table, arrays),
        }
    }

    fn feature(
        &mut self,
        kind: FeatureKind<'b>,
        channels: Range<usize>,
        heads: Range<usize>,
    ) -> usize {
        let angles = self.angles.next().expect("one table was made for each encoding that turns");
        self.attention.features.push(Feature { kind, channels, heads, angles });
        self.attention.features.len() - 1
    }

    fn rotary(&mut self, rotary: &Rotary) -> Result<(), Error> {
        let shape = self.attention.shape;
        let layout = match rotary.layout {
            Layout::Interleaved => kernels::Layout::Interleaved,
            Layout::HalfSplit => kernels::Layout::HalfSplit,
        };
        let channels = rotary_channels(rotary, &shape)?;
        self.feature(FeatureKind::Rotary { layout }, channels, share_of(rotary.heads, shape.heads));
        Ok(())
    }

    fn polar(&mut self, polar: &Polar, arrays: &Arrays<'b>) -> Result<(), Error> {
        let shape = self.attention.shape;
        let channels = polar_channels(polar, &shape)?;
        let magnitude = match polar.magnitude {
            Magnitude::Softplus => kernels::Magnitude::Softplus,
            Magnitude::Relu => kernels::Magnitude::Relu,
            Magnitude::Identity => kernels::Magnitude::Identity,
        };
        let array = match polar.delta {
            Delta::Array(array) => Some(array),
            Delta::Word(_) => None,
        };
        let delta = match array {
            Some(_) => {
                let (sizes, names) = ([shape.heads, channels.len()], "[heads, channels]");
                Some(arrays.shaped("position.delta", array, &sizes, names)?)
            }
            None => None,
        };
        let heads = share_of(polar.heads, shape.heads);
        let feature = self.feature(FeatureKind::Polar { magnitude, delta }, channels, heads);
        self.from(array, Slot::Delta(feature));
        Ok(())
    }

    fn t5(&mut self, t5: &T5, arrays: &Arrays<'b>) -> Result<(), Error> {
        let names = "[heads, buckets]";
        let (_, found) = arrays.get("position.table", t5.table, names)?;
        let count = t5.buckets.or(found.get(1).copied()).unwrap_or(0);
        let sizes = [self.attention.shape.heads, count];
        let table = arrays.shaped("position.table", t5.table, &sizes, names)?;
        let T5 { max_distance, bidirectional, .. } = *t5;
        let buckets = Buckets { count, max_distance, bidirectional };
        let slot = self.bias(Bias::Buckets { table, buckets });
        self.from(t5.table, slot);
        Ok(())
    }

    fn table(&mut self, by_distance: &Table, arrays: &Arrays<'b>) -> Result<(), Error> {
        let names = "[heads, left + 1 + right]";
        let (_, found) = arrays.get("position.table", by_distance.table, names)?;
        let (left, right) = reach(by_distance.left, found.get(1))?;
        let sizes = [self.attention.shape.heads, left + 1 + right];
        let table = arrays.shaped("position.table", by_distance.table, &sizes, names)?;
        let slot = self.bias(Bias::Table { table, left, right });
        self.from(by_distance.table, slot);
        Ok(())
    }

    fn shaw(&mut self, shaw: &Shaw, arrays: &Arrays<'b>) -> Result<(), Error> {
        if shaw.keys.is_none() && shaw.values.is_none() {
            let reason = "hand in keys, values or both, [heads or 1, 2·reach + 1, head_dim]";
            return Err(Error::setting("position.keys", "none", reason));
        }
        let Shape { head_dim, value_dim, .. } = self.attention.shape;
        let scale = self.scale();
        if shaw.keys.is_some() {
            let vectors = self.by_distance("position.keys", shaw, shaw.keys, head_dim, arrays)?;
            let slot = self.bias(Bias::Relative { vectors, query_bias: None, scale });
            self.from(shaw.keys, slot);
        }
        if shaw.values.is_some() {
            let values =
                self.by_distance("position.values", shaw, shaw.values, value_dim, arrays)?;
            self.attention.relative_values = Some(values);
            self.from(shaw.values, Slot::Values);
        }
        Ok(())
    }

    fn by_distance(
        &self,
        setting: &'static str,
        shaw: &Shaw,
        array: Option<Array>,
        width: usize,
        arrays: &Arrays<'b>,
    ) -> Result<Relative<'b>, Error> {
        let names = "[heads or 1, 2·reach + 1, width of a head]";
        let (table, found) = arrays.get(setting, array, names)?;
        let heads = self.attention.shape.heads;
        let per_head = shaw.per_head.unwrap_or(found.first() != Some(&1));
        let reach = shaw.reach.unwrap_or(found.get(1).map_or(0, |count| count / 2));
        let count = reach.checked_mul(2).and_then(|two| two.checked_add(1));
        let count = count.ok_or(whatwhere_kernels::Error::TooLarge)?;
        arrays.shaped(setting, array, &[if per_head { heads } else { 1 }, count, width], names)?;
        Ok(Relative { table, per_head, left: reach, right: reach })
    }

    fn transformer_xl(&mut self, xl: &TransformerXl, arrays: &Arrays<'b>) -> Result<(), Error> {
        let Shape { heads, head_dim, .. } = self.attention.shape;
        let (sizes, names) = ([heads, head_dim], "[heads, head_dim]");
        let content = arrays.shaped("position.content", xl.content, &sizes, names)?;
        let distance = arrays.shaped("position.distance", xl.distance, &sizes, names)?;
        let (table, found) = arrays.get("position.table", xl.table, "")?;
        let (left, right) = reach(xl.left, found.get(1))?;
        let vectors = Relative { table, per_head: true, left, right };
        let scale = self.scale();
        self.attention.query_bias = Some(content);
        let slot = self.bias(Bias::Relative { vectors, query_bias: Some(distance), scale });
        self.from(xl.content, Slot::QueryBias);
        self.from(xl.table, slot);
        if let Slot::Bias(bias) = slot {
            self.from(xl.distance, Slot::BiasQuery(bias));
        }
        Ok(())
    }
}

/// Distances to either side, of `count` in all of which `left` are on one.
fn reach(left: usize, count: Option<&usize>) -> Result<(usize, usize), Error> {
    let count = count.copied().unwrap_or(0);
    match count.checked_sub(1).and_then(|others| others.checked_sub(left)) {
        Some(right) => Ok((left, right)),
        None => {
            let reason = format!("the table has {count} distances, expected more than left");
            Err(Error::setting("position.left", left, reason))
        }
    }
}

fn slopes(alibi: &Alibi, shape: &Shape, arrays: &Arrays) -> Result<Vec<f32>, Error> {
    check_share("position.heads", alibi.heads)?;
    let heads = share_of(alibi.heads, shape.heads).len();
    let mut slopes = match alibi.slopes {
        Some(_) => arrays.shaped("position.slopes", alibi.slopes, &[heads], "[heads]")?.to_vec(),
        None => alibi_slopes(heads),
    };
    slopes.resize(shape.heads, 0.0);
    Ok(slopes)
}

fn rotary_channels(rotary: &Rotary, shape: &Shape) -> Result<Range<usize>, Error> {
    check_share("position.channels", rotary.channels)?;
    check_share("position.heads", rotary.heads)?;
    let channels = share_of(rotary.channels, shape.head_dim);
    let width = channels.len();
    if !width.is_multiple_of(2) || width == 0 {
        let reason = format!(
            "rotary turns pairs, but {width} channels of a head would turn; use an even head_dim or another position.channels"
        );
        return Err(Error::setting("head_dim", shape.head_dim, reason));
    }
    check_base(rotary.base)?;
    rotary.scaling.check()?;
    Ok(channels)
}

fn polar_channels(polar: &Polar, shape: &Shape) -> Result<Range<usize>, Error> {
    check_share("position.channels", polar.channels)?;
    check_share("position.heads", polar.heads)?;
    let channels = share_of(polar.channels, shape.head_dim);
    if channels.is_empty() {
        return Err(Error::setting("position.channels", polar.channels, "leaves no channel"));
    }
    check_base(polar.base)?;
    Ok(channels)
}

fn check_base(base: f64) -> Result<(), Error> {
    if base.is_nan() || base <= 1.0 {
        return Err(Error::setting("position.base", base, "the base is above 1"));
    }
    Ok(())
}
