//! What fits together, said a second time, for the kernels' own checks to be held against.

use std::ops::Range;

use whatwhere_kernels::attention::{
    Attention, Bias, FeatureKind, Focus, Inputs, Relative, Score, Shape,
};

use crate::draw::{AngleTable, Tables};

/// Whether everything about a call fits together: the rules again, in numbers that cannot overflow.
pub(crate) fn fits(attention: &Attention, inputs: &Inputs, tables: &Tables) -> bool {
    let Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim } = attention.shape;
    let sizes_fit = [batch, heads, kv_heads, head_dim, value_dim].iter().all(|&size| size > 0)
        && heads % kv_heads == 0
        && addressable(&[batch, heads, queries.max(1), head_dim.max(value_dim)])
        && addressable(&[batch, kv_heads, keys.max(1), head_dim.max(value_dim)]);
    let inputs_fit = is_product(inputs.q, &[batch, heads, queries, head_dim])
        && is_product(inputs.k, &[batch, kv_heads, keys, head_dim])
        && is_product(inputs.v, &[batch, kv_heads, keys, value_dim]);
    let below = |first: usize, count: usize| first as u128 + count as u128 <= u32::MAX.into();
    let places_fit = below(attention.first_query, queries) && below(attention.first_key, keys);
    let per_channel = |values: &[f32]| is_product(values, &[heads, head_dim]);
    let score_fits = match attention.score {
        Score::Dot { scale } | Score::Cosine { scale } => scale.is_finite(),
        Score::Additive { weight } => per_channel(weight) && attention.features.is_empty(),
    };
    let positive = |x: f32| x > 0.0 && x.is_finite();
    let focus_fits = attention.focus.is_none_or(|Focus { centers, deviation }| {
        is_product(centers, &[batch, heads, queries]) && positive(deviation)
    });
    sizes_fit
        && inputs_fit
        && places_fit
        && score_fits
        && focus_fits
        && attention.query_bias.is_none_or(per_channel)
        && attention.soft_cap.is_none_or(positive)
        && attention.dropout.is_none_or(|dropout| dropout.rate >= 0.0 && dropout.rate < 1.0)
        && attention.relative_values.is_none_or(|vectors| vectors_fit(&vectors, heads, value_dim))
        && attention.biases.iter().all(|bias| bias_fits(bias, &attention.shape))
        && features_fit(attention, tables)
}

fn addressable(sizes: &[usize]) -> bool {
    product(sizes).saturating_mul(4) <= isize::MAX as u128
}

fn is_product(values: &[f32], sizes: &[usize]) -> bool {
    values.len() as u128 == product(sizes)
}

pub(crate) fn product(sizes: &[usize]) -> u128 {
    // A 0 counts before what would be too large for 128 bits.
    if sizes.contains(&0) {
        return 0;
    }
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size as u128))
}

fn vectors_fit(vectors: &Relative<&[f32]>, heads: usize, width: usize) -> bool {
    let Relative { table, per_head, left, right } = *vectors;
    let tables = if per_head { heads as u128 } else { 1 };
    let count = left as u128 + 1 + right as u128;
    table.len() as u128 == (tables * count).saturating_mul(width as u128)
}

fn bias_fits(bias: &Bias<&[f32]>, shape: &Shape) -> bool {
    let Shape { batch, heads, queries, keys, head_dim, .. } = *shape;
    match *bias {
        Bias::ByDistance { table, left, right } => {
            let vectors = Relative { table, per_head: true, left, right };
            vectors_fit(&vectors, heads, 1)
        }
        Bias::Relative { vectors, query_bias, scale } => {
            vectors_fit(&vectors, heads, head_dim)
                && query_bias.is_none_or(|bias| is_product(bias, &[heads, head_dim]))
                && scale.is_finite()
        }
        Bias::Dense { values, shape, .. } => {
            let sizes = shape.iter().zip([batch, heads, queries, keys]);
            sizes.clone().all(|(&size, whole)| size == 1 || size == whole)
                && is_product(values, &shape)
        }
    }
}

fn features_fit(attention: &Attention, tables: &Tables) -> bool {
    let Shape { heads, head_dim, .. } = attention.shape;
    let inside = |range: &Range<usize>, end: usize| range.start <= range.end && range.end <= end;
    let each = attention.features.iter().all(|feature| {
        let width = feature.channels.len();
        let AngleTable { frequencies, positions, .. } = tables.of(&feature.angles);
        let kind_fits = match feature.kind {
            FeatureKind::Rotary { .. } => width % 2 == 0 && *frequencies == width / 2,
            FeatureKind::Polar { delta, .. } => {
                *frequencies == width
                    && delta.is_none_or(|delta| is_product(delta, &[heads, width]))
            }
        };
        let covers = |call: Range<usize>| {
            *frequencies == 0
                || call.is_empty()
                || positions.start <= call.start && call.end <= positions.end
        };
        inside(&feature.channels, head_dim)
            && inside(&feature.heads, heads)
            && kind_fits
            && covers(attention.query_positions())
            && covers(attention.key_positions())
    });
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
    let apart = attention.features.iter().enumerate().all(|(i, a)| {
        let others = &attention.features[..i];
        !others.iter().any(|b| meet(&a.channels, &b.channels) && meet(&a.heads, &b.heads))
    });
    each && apart
}
