//! From the words of a score and of encodings to the terms of a call, and from its gradients back to the arrays.

use std::{borrow::Cow, f64::consts::TAU, ops::Range, sync::Arc};

use whatwhere_attention::{
    Position, Score,
    position::{Alibi, Polar, Rotary, RotaryLayout, Shaw, T5},
};
use whatwhere_kernels::attention::{
    self as kernels, Angles, Attention, Bias, Buckets, Feature, FeatureKind, Focus, Gradients,
    Relative, Shape, alibi_backward, alibi_slopes, alibi_table, pattern::Pattern as Visible,
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

/// The values of a term, and where they came from.
pub(crate) struct Source<'b> {
    values: Cow<'b, [f32]>,
    /// Of which array; none where nobody handed them in or they do not learn.
    array: Option<(usize, Origin)>,
}

/// How values were made of an array.
enum Origin {
    /// As they are.
    Itself,
    /// A table by distance of the slopes of some heads; the others have none.
    Slopes { heads: Range<usize>, left: usize, right: usize },
    /// A table by distance of buckets.
    Buckets { buckets: Buckets, left: usize, right: usize },
}

impl Origin {
    /// The gradient of the array from that of the values.
    fn backward(&self, d: &[f32]) -> Vec<f32> {
        match self {
            Self::Itself => d.to_vec(),
            Self::Slopes { heads, left, right } => {
                alibi_backward(d, *left, *right)[heads.clone()].to_vec()
            }
            Self::Buckets { buckets, left, right } => buckets.backward(d, *left, *right),
        }
    }
}

/// An array as it is.
fn itself(values: &[f32], array: Option<Array>) -> Source<'_> {
    let array = array.map(|array| (array.index, Origin::Itself));
    Source { values: values.into(), array }
}

/// A call over values that know their arrays.
pub(crate) struct Terms<'b> {
    call: kernels::Call<Source<'b>, &'b dyn Visible>,
}

impl<'b> Terms<'b> {
    pub(crate) fn new(
        settings: &Settings,
        encodings: &[Encoding],
        shape: Shape,
        moment: &Moment,
        arrays: &Arrays<'b>,
        pattern: &'b dyn Visible,
    ) -> Result<Self, Error> {
        let mut call = kernels::Call::new(shape, pattern);
        call.first_query = moment.first_query;
        call.first_key = moment.first_key;
        call.soft_cap = settings.soft_cap;
        call.dropout = moment.dropout.map(|(rate, seed)| kernels::Dropout { rate, seed });
        let mut terms = Self { call };
        terms.score(&settings.score, arrays)?;
        for encoding in encodings {
            match encoding {
                Encoding::Position(word) => terms.position(word, arrays)?,
                Encoding::Table(table) => terms.table(table, arrays)?,
                Encoding::Distances(distances) => terms.distances(distances, arrays)?,
            }
        }
        if let Some(deviation) = settings.pattern.choice.deviation() {
            let array = settings.pattern.array("centers");
            let (centers, _) = arrays.get("pattern.centers", array, "")?;
            terms.call.focus = Some(Focus { centers: itself(centers, array), deviation });
        }
        if let Some(index) = moment.bias {
            let (values, found) = arrays.at(index)?;
            let [a, b, c, d] = *found else {
                let (found, expected) = (found.to_vec(), "four sizes".into());
                return Err(Error::Shape { what: "attn_mask", found, expected });
            };
            let learned = moment.bias_learned;
            let array = learned.then_some((index, Origin::Itself));
            let values = Source { values: values.into(), array };
            terms.call.biases.push(Bias::Dense { values, shape: [a, b, c, d], learned });
        }
        Ok(terms)
    }

    /// The call on its values.
    pub(crate) fn attention(&self) -> Attention<'_> {
        self.call.map(self.call.pattern, |source| &*source.values)
    }

    /// The gradients of `count` arrays, none for an array that has no gradient.
    pub(crate) fn of_arrays(&self, gradients: &Gradients, count: usize) -> Vec<Option<Vec<f32>>> {
        let mut of_arrays = vec![None; count];
        for (source, d) in self.call.values().into_iter().zip(gradients.learned.values()) {
            if let Some((index, origin)) = &source.array {
                of_arrays[*index] = Some(origin.backward(d));
            }
        }
        of_arrays
    }

    fn score(&mut self, word: &Word<Score>, arrays: &Arrays<'b>) -> Result<(), Error> {
        let Shape { heads, head_dim, .. } = self.call.shape;
        let mut known: &[&str] = &[];
        self.call.score = match &word.choice {
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
                kernels::Score::Additive { weight: itself(weight, array) }
            }
        };
        word.check_arrays(word.choice.name(), known)
    }

    fn position(&mut self, word: &Word<Position>, arrays: &Arrays<'b>) -> Result<(), Error> {
        let mut known: &[&str] = &[];
        match &word.choice {
            Position::Shaw(shaw) => {
                known = &["keys", "values"];
                self.shaw(shaw, word, arrays)?;
            }
            Position::Rotary(rotary) => self.rotary(rotary)?,
            Position::Polar(polar) => {
                known = &["delta"];
                self.polar(polar, word.array("delta"), arrays)?;
            }
            Position::SingleAngle(single) => {
                let Shape { heads, head_dim, .. } = self.call.shape;
                let magnitude = kernels::Magnitude::Softplus;
                let kind = FeatureKind::Polar { magnitude, delta: None };
                let frequencies = vec![TAU / single.period as f64; head_dim];
                self.feature(kind, 0..head_dim, 0..heads, (frequencies, 1.0))?;
            }
            Position::Alibi(alibi) => {
                known = &["slopes"];
                self.alibi(alibi, word.array("slopes"), arrays)?;
            }
            Position::T5(t5) => {
                known = &["table"];
                self.t5(t5, word.array("table"), arrays)?;
            }
            // Nothing to add; those of embeddings and of layers, and Transformer-XL's own words were refused before.
            Position::NoPosition(_)
            | Position::Sinusoidal(_)
            | Position::Learned(_)
            | Position::Disentangled(_)
            | Position::TransformerXl(_) => {}
        }
        word.check_arrays(word.choice.name(), known)
    }

    /// A feature with its frequencies and their amplitude.
    fn feature(
        &mut self,
        kind: FeatureKind<Source<'b>>,
        channels: Range<usize>,
        heads: Range<usize>,
        (frequencies, amplitude): (Vec<f64>, f64),
    ) -> Result<(), Error> {
        let places = self.places();
        if places.len().saturating_mul(frequencies.len()) > MOST_ANGLES {
            let reason = "first_query and first_key are too far apart for a table of angles";
            return Err(Error::setting("places", format!("{places:?}"), reason));
        }
        let angles: Arc<Angles> = Angles::kept(&frequencies, places, amplitude);
        self.call.features.push(Feature { kind, channels, heads, angles });
        Ok(())
    }

    /// Places from the first to the last; those of a call that is refused later may be too large to add up.
    fn places(&self) -> Range<usize> {
        let kernels::Call { shape, first_query, first_key, .. } = &self.call;
        let end =
            first_query.saturating_add(shape.queries).max(first_key.saturating_add(shape.keys));
        *first_query.min(first_key)..end
    }

    fn rotary(&mut self, rotary: &Rotary) -> Result<(), Error> {
        let shape = self.call.shape;
        let layout = match rotary.layout {
            RotaryLayout::Interleaved => kernels::Layout::Interleaved,
            RotaryLayout::HalfSplit => kernels::Layout::HalfSplit,
        };
        let channels = rotary.channels.of(shape.head_dim);
        let angles = rotary.scaling.frequencies(rotary.base, channels.len(), self.places().end);
        let heads = rotary.heads.of(shape.heads);
        self.feature(FeatureKind::Rotary { layout }, channels, heads, angles)
    }

    fn polar(
        &mut self,
        polar: &Polar,
        array: Option<Array>,
        arrays: &Arrays<'b>,
    ) -> Result<(), Error> {
        let shape = self.call.shape;
        let channels = polar.channels.of(shape.head_dim);
        let delta = match array {
            Some(_) => {
                let (sizes, names) = ([shape.heads, channels.len()], "[heads, channels]");
                Some(itself(arrays.shaped("position.delta", array, &sizes, names)?, array))
            }
            None => None,
        };
        let kind = FeatureKind::Polar { magnitude: polar.magnitude.into(), delta };
        let frequencies = Angles::polar_frequencies(channels.len(), polar.base);
        self.feature(kind, channels, polar.heads.of(shape.heads), (frequencies, 1.0))
    }

    fn alibi(
        &mut self,
        alibi: &Alibi,
        array: Option<Array>,
        arrays: &Arrays<'b>,
    ) -> Result<(), Error> {
        let heads = alibi.heads.of(self.call.shape.heads);
        let own = match array {
            Some(_) => arrays.shaped("position.slopes", array, &[heads.len()], "[heads]")?.to_vec(),
            None => alibi_slopes(heads.len()),
        };
        let mut slopes = vec![0.0; self.call.shape.heads];
        slopes[heads.clone()].copy_from_slice(&own);
        let (left, right) = self.reach()?;
        let table = Source {
            values: alibi_table(&slopes, left, right).into(),
            array: array.map(|array| (array.index, Origin::Slopes { heads, left, right })),
        };
        self.call.biases.push(Bias::ByDistance { table, left, right });
        Ok(())
    }

    fn t5(&mut self, t5: &T5, array: Option<Array>, arrays: &Arrays<'b>) -> Result<(), Error> {
        let T5 { buckets: count, max_distance, bidirectional } = *t5;
        let (sizes, names) = ([self.call.shape.heads, count], "[heads, buckets]");
        let values = arrays.shaped("position.table", array, &sizes, names)?;
        let buckets = Buckets { count, max_distance, bidirectional };
        buckets.check()?;
        let (left, right) = self.reach()?;
        let table = Source {
            values: buckets.table(values, left, right).into(),
            array: array.map(|array| (array.index, Origin::Buckets { buckets, left, right })),
        };
        self.call.biases.push(Bias::ByDistance { table, left, right });
        Ok(())
    }

    /// How far keys can stand from queries, refusing places too far apart for a table.
    fn reach(&self) -> Result<(usize, usize), Error> {
        let places = self.places();
        if places.len().saturating_mul(2 * self.call.shape.heads) > MOST_ANGLES {
            let reason = "first_query and first_key are too far apart for a table of distances";
            return Err(Error::setting("places", format!("{places:?}"), reason));
        }
        Ok(self.call.reach())
    }

    fn table(&mut self, by_distance: &Table, arrays: &Arrays<'b>) -> Result<(), Error> {
        let names = "[heads, left + 1 + right]";
        let (_, found) = arrays.get("position.table", by_distance.table, names)?;
        let (left, right) = reach(by_distance.left, found.get(1))?;
        let sizes = [self.call.shape.heads, left + 1 + right];
        let table = arrays.shaped("position.table", by_distance.table, &sizes, names)?;
        let table = itself(table, by_distance.table);
        self.call.biases.push(Bias::ByDistance { table, left, right });
        Ok(())
    }

    fn shaw(
        &mut self,
        shaw: &Shaw,
        word: &Word<Position>,
        arrays: &Arrays<'b>,
    ) -> Result<(), Error> {
        let Shape { head_dim, value_dim, .. } = self.call.shape;
        let (keys, values) = (word.array("keys"), word.array("values"));
        if keys.is_some() {
            let vectors = self.by_distance("position.keys", shaw, keys, head_dim, arrays)?;
            let scale = self.call.score.scale();
            self.call.biases.push(Bias::Relative { vectors, query_bias: None, scale });
        }
        if values.is_some() {
            let table = self.by_distance("position.values", shaw, values, value_dim, arrays)?;
            self.call.relative_values = Some(table);
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
    ) -> Result<Relative<Source<'b>>, Error> {
        let names = "[heads or 1, 2·reach + 1, width of a head]";
        let Shaw { reach, per_head, .. } = *shaw;
        let count = reach.checked_mul(2).and_then(|two| two.checked_add(1));
        let count = count.ok_or(whatwhere_kernels::Error::TooLarge)?;
        let heads = if per_head { self.call.shape.heads } else { 1 };
        let table = arrays.shaped(setting, array, &[heads, count, width], names)?;
        Ok(Relative { table: itself(table, array), per_head, left: reach, right: reach })
    }

    fn distances(&mut self, xl: &Distances, arrays: &Arrays<'b>) -> Result<(), Error> {
        let Shape { heads, head_dim, .. } = self.call.shape;
        let (sizes, names) = ([heads, head_dim], "[heads, head_dim]");
        let content = arrays.shaped("position.content", xl.content, &sizes, names)?;
        let distance = arrays.shaped("position.distance", xl.distance, &sizes, names)?;
        let (table, found) = arrays.get("position.table", xl.table, "")?;
        let (left, right) = reach(xl.left, found.get(1))?;
        let vectors = Relative { table: itself(table, xl.table), per_head: true, left, right };
        let (query_bias, scale) = (Some(itself(distance, xl.distance)), self.call.score.scale());
        self.call.query_bias = Some(itself(content, xl.content));
        self.call.biases.push(Bias::Relative { vectors, query_bias, scale });
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
