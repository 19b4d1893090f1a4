//! From the words of a score and of encodings to the terms of a call, and from its gradients back to the arrays.

use std::{f64::consts::TAU, mem::take, ops::Range, sync::Arc};

use whatwhere_attention::{
    Position, Score,
    position::{Alibi, Polar, Rotary, RotaryLayout, Shaw, T5},
};
use whatwhere_kernels::attention::{
    self as kernels, Angles, Attention, Bias, Buckets, Feature, FeatureKind, Focus, Gradients,
    Relative, Shape, alibi_slopes,
};
use whatwhere_settings::Refuses;

use crate::{
    Error,
    arrays::Arrays,
    call::Moment,
    settings::{Array, Distances, Encoding, Settings, Table, Word},
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
    /// One table for each encoding that rotates channels.
    angles: Vec<Arc<Angles>>,
    /// ALiBi's, one for each head.
    slopes: Vec<f32>,
}

impl Made {
    pub(crate) fn new(
        encodings: &[Encoding],
        shape: &Shape,
        moment: &Moment,
        arrays: &Arrays,
    ) -> Result<Self, Error> {
        let start = moment.first_query.min(moment.first_key);
        let end = (moment.first_query.saturating_add(shape.queries))
            .max(moment.first_key.saturating_add(shape.keys));
        let mut made = Self { angles: Vec::new(), slopes: Vec::new() };
        for encoding in encodings {
            let Encoding::Position(word) = encoding else { continue };
            let (frequencies, amplitude) = match &word.choice {
                Position::Rotary(rotary) => {
                    let width = rotary.channels.of(shape.head_dim).len();
                    rotary.scaling.frequencies(rotary.base, width, end)
                }
                Position::Polar(polar) => {
                    let width = polar.channels.of(shape.head_dim).len();
                    (Angles::polar_frequencies(width, polar.base), 1.0)
                }
                Position::SingleAngle(single) => {
                    (vec![TAU / single.period as f64; shape.head_dim], 1.0)
                }
                Position::Alibi(alibi) => {
                    made.slopes = slopes(alibi, word.array("slopes"), shape, arrays)?;
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
        encodings: &[Encoding],
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
        for encoding in encodings {
            match encoding {
                Encoding::Position(word) => terms.position(word, arrays, made)?,
                Encoding::Table(table) => terms.table(table, arrays)?,
                Encoding::Distances(distances) => terms.distances(distances, arrays)?,
            }
        }
        if let Some(deviation) = settings.pattern.choice.deviation() {
            let array = settings.pattern.array("centers");
            let (centers, _) = arrays.get("pattern.centers", array, "")?;
            terms.attention.focus = Some(Focus { centers, deviation });
            terms.from(array, Slot::Centers);
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

    fn score(&mut self, word: &Word<Score>, arrays: &Arrays<'b>) -> Result<(), Error> {
        let Shape { heads, head_dim, .. } = self.attention.shape;
        let mut known: &[&str] = &[];
        self.attention.score = match &word.choice {
            Score::ScaledDot(_) => kernels::Score::scaled_dot(head_dim),
            Score::Dot(dot) => kernels::Score::Dot { scale: dot.scale },
            Score::General(_) => {
                let reason = "multiply the queries by its weight and take scaled_dot";
                return Err(Error::setting("score", "general", reason));
            }
            Score::Cosine(cosine) => kernels::Score::Cosine { scale: cosine.scale },
            Score::Additive(_) => {
                known = &["weight"];
                let (sizes, names) = ([heads, head_dim], "[heads, head_dim]");
                let array = word.array("weight");
                let weight = arrays.shaped("score.weight", array, &sizes, names)?;
                self.from(array, Slot::Score);
                kernels::Score::Additive { weight }
            }
        };
        word.check_arrays(word.choice.name(), known)
    }

    /// The factor on the scores, which relative keys share.
    fn scale(&self) -> f32 {
        match self.attention.score {
            kernels::Score::Dot { scale } | kernels::Score::Cosine { scale } => scale,
            kernels::Score::Additive { .. } => 1.0,
        }
    }

    fn position(
        &mut self,
        word: &Word<Position>,
        arrays: &Arrays<'b>,
        made: &'b Made,
    ) -> Result<(), Error> {
        let mut known: &[&str] = &[];
        match &word.choice {
            Position::Shaw(shaw) => {
                known = &["keys", "values"];
                self.shaw(shaw, word, arrays)?;
            }
            Position::Rotary(rotary) => self.rotary(rotary),
            Position::Polar(polar) => {
                known = &["delta"];
                self.polar(polar, word.array("delta"), arrays)?;
            }
            Position::SingleAngle(_) => {
                let Shape { heads, head_dim, .. } = self.attention.shape;
                let magnitude = kernels::Magnitude::Softplus;
                let kind = FeatureKind::Polar { magnitude, delta: None };
                self.feature(kind, 0..head_dim, 0..heads);
            }
            Position::Alibi(alibi) => {
                known = &["slopes"];
                let heads = alibi.heads.of(self.attention.shape.heads).len();
                if let Slot::Bias(bias) = self.bias(Bias::Slopes { slopes: &made.slopes }) {
                    self.from(word.array("slopes"), Slot::Slopes(bias, heads));
                }
            }
            Position::T5(t5) => {
                known = &["table"];
                self.t5(t5, word.array("table"), arrays)?;
            }
            // Nothing to add; those of embeddings and Transformer-XL's own words were refused before.
            Position::NoPosition(_)
            | Position::Sinusoidal(_)
            | Position::Learned(_)
            | Position::TransformerXl(_) => {}
        }
        word.check_arrays(word.choice.name(), known)
    }

    fn feature(
        &mut self,
        kind: FeatureKind<'b>,
        channels: Range<usize>,
        heads: Range<usize>,
    ) -> usize {
        let angles = self.angles.next().expect("one table was made for each encoding that rotates");
        self.attention.features.push(Feature { kind, channels, heads, angles });
        self.attention.features.len() - 1
    }

    fn rotary(&mut self, rotary: &Rotary) {
        let shape = self.attention.shape;
        let layout = match rotary.layout {
            RotaryLayout::Interleaved => kernels::Layout::Interleaved,
            RotaryLayout::HalfSplit => kernels::Layout::HalfSplit,
        };
        let channels = rotary.channels.of(shape.head_dim);
        self.feature(FeatureKind::Rotary { layout }, channels, rotary.heads.of(shape.heads));
    }

    fn polar(
        &mut self,
        polar: &Polar,
        array: Option<Array>,
        arrays: &Arrays<'b>,
    ) -> Result<(), Error> {
        let shape = self.attention.shape;
        let channels = polar.channels.of(shape.head_dim);
        let delta = match array {
            Some(_) => {
                let (sizes, names) = ([shape.heads, channels.len()], "[heads, channels]");
                Some(arrays.shaped("position.delta", array, &sizes, names)?)
            }
            None => None,
        };
        let kind = FeatureKind::Polar { magnitude: polar.magnitude.into(), delta };
        let feature = self.feature(kind, channels, polar.heads.of(shape.heads));
        self.from(array, Slot::Delta(feature));
        Ok(())
    }

    fn t5(&mut self, t5: &T5, array: Option<Array>, arrays: &Arrays<'b>) -> Result<(), Error> {
        let T5 { buckets: count, max_distance, bidirectional } = *t5;
        let (sizes, names) = ([self.attention.shape.heads, count], "[heads, buckets]");
        let table = arrays.shaped("position.table", array, &sizes, names)?;
        let buckets = Buckets { count, max_distance, bidirectional };
        let slot = self.bias(Bias::Buckets { table, buckets });
        self.from(array, slot);
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

    fn shaw(
        &mut self,
        shaw: &Shaw,
        word: &Word<Position>,
        arrays: &Arrays<'b>,
    ) -> Result<(), Error> {
        let Shape { head_dim, value_dim, .. } = self.attention.shape;
        let (keys, values) = (word.array("keys"), word.array("values"));
        if keys.is_some() {
            let vectors = self.by_distance("position.keys", shaw, keys, head_dim, arrays)?;
            let scale = self.scale();
            let slot = self.bias(Bias::Relative { vectors, query_bias: None, scale });
            self.from(keys, slot);
        }
        if values.is_some() {
            let table = self.by_distance("position.values", shaw, values, value_dim, arrays)?;
            self.attention.relative_values = Some(table);
            self.from(values, Slot::Values);
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
        let Shaw { reach, per_head, .. } = *shaw;
        let count = reach.checked_mul(2).and_then(|two| two.checked_add(1));
        let count = count.ok_or(whatwhere_kernels::Error::TooLarge)?;
        let heads = if per_head { self.attention.shape.heads } else { 1 };
        let table = arrays.shaped(setting, array, &[heads, count, width], names)?;
        Ok(Relative { table, per_head, left: reach, right: reach })
    }

    fn distances(&mut self, xl: &Distances, arrays: &Arrays<'b>) -> Result<(), Error> {
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

fn slopes(
    alibi: &Alibi,
    array: Option<Array>,
    shape: &Shape,
    arrays: &Arrays,
) -> Result<Vec<f32>, Error> {
    let heads = alibi.heads.of(shape.heads).len();
    let mut slopes = match array {
        Some(_) => arrays.shaped("position.slopes", array, &[heads], "[heads]")?.to_vec(),
        None => alibi_slopes(heads),
    };
    slopes.resize(shape.heads, 0.0);
    Ok(slopes)
}
