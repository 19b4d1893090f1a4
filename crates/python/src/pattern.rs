//! From the words of a pattern to the kernels' pattern.

use std::ops::Range;

use whatwhere_kernels::attention::{Shape, pattern as kernels};

use crate::{
    Error,
    arrays::Arrays,
    call::Moment,
    mask::Mask,
    settings::{Dilated, OneOrMany, Pattern, Predicted, Random, Window},
};

type Built<'a> = Box<dyn kernels::Pattern + 'a>;

/// The pattern of a call: the one asked for, padding hidden, and what a mask hides.
pub(crate) fn build<'a>(
    pattern: &Pattern,
    shape: &Shape,
    moment: &Moment,
    arrays: &Arrays<'a>,
    mask: Option<Mask<'a>>,
) -> Result<Built<'a>, Error> {
    let mut built = one(pattern, shape, moment, arrays)?;
    if let Some(lengths) = &moment.key_lengths {
        built = Box::new(kernels::And(kernels::KeyLengths::new(lengths.clone())?, built));
    }
    if let Some(mask) = mask {
        built = Box::new(kernels::And(built, mask));
    }
    Ok(built)
}

fn one<'a>(
    pattern: &Pattern,
    shape: &Shape,
    moment: &Moment,
    arrays: &Arrays<'a>,
) -> Result<Built<'a>, Error> {
    Ok(match pattern {
        Pattern::Full(_) => Box::new(kernels::Full),
        Pattern::Causal(causal) => Box::new(kernels::Causal { offset: causal.offset }),
        Pattern::Window(Window { left, right }) => {
            refuse_own_place(*left, *right)?;
            Box::new(kernels::Window { left: *left, right: *right })
        }
        Pattern::Dilated(Dilated { left, right, step }) => {
            refuse_own_place(*left, *right)?;
            Box::new(kernels::Dilated::new(*left, *right, *step)?)
        }
        Pattern::Strided(strided) => Box::new(kernels::Strided::new(strided.stride)?),
        Pattern::Fixed(fixed) => Box::new(kernels::Fixed::new(fixed.stride, fixed.summary)?),
        Pattern::Random(random) => Box::new(draw(random, shape)?),
        Pattern::Global(global) => match &global.places {
            OneOrMany::One(0) => {
                return Err(Error::setting("pattern.places", 0, "at least one place is global"));
            }
            OneOrMany::One(count) => Box::new(kernels::Global::first(*count)),
            OneOrMany::Many(places) => Box::new(kernels::Global::at(places.clone())),
        },
        Pattern::Prefix(prefix) => {
            let lengths = match &prefix.length {
                OneOrMany::One(length) => vec![*length],
                OneOrMany::Many(lengths) => lengths.clone(),
            };
            Box::new(kernels::Prefix::new(lengths)?)
        }
        Pattern::Document(_) => {
            let starts = moment.documents.clone().ok_or_else(|| {
                let reason = "the call must say where documents start (`documents`)";
                Error::setting("pattern", "document", reason)
            })?;
            Box::new(kernels::Documents::new(starts)?)
        }
        Pattern::Predicted(predicted) => Box::new(spans(predicted, shape, moment, arrays)?),
        Pattern::And(and) => {
            let mut parts = parts("and", &and.of, shape, moment, arrays)?.into_iter();
            let first = parts.next().unwrap_or_else(|| Box::new(kernels::Full));
            parts.fold(first, |joined, next| Box::new(kernels::And(joined, next)))
        }
        Pattern::Or(or) => {
            let mut parts = parts("or", &or.of, shape, moment, arrays)?.into_iter();
            let first = parts.next().unwrap_or_else(|| Box::new(kernels::Full));
            parts.fold(first, |joined, next| Box::new(kernels::Or(joined, next)))
        }
    })
}

fn parts<'a>(
    joint: &str,
    of: &[Pattern],
    shape: &Shape,
    moment: &Moment,
    arrays: &Arrays<'a>,
) -> Result<Vec<Built<'a>>, Error> {
    if of.is_empty() {
        return Err(Error::setting("pattern.of", "[]", "expected at least one pattern"));
    }
    let part = |part: &Pattern| {
        if matches!(part, Pattern::Predicted(_)) {
            let reason = "its center is a share of all keys, and its Gaussian weighs every key that is seen; use it alone";
            return Err(Error::combination(part.name(), joint, reason));
        }
        one(part, shape, moment, arrays)
    };
    of.iter().map(part).collect()
}

fn refuse_own_place(left: usize, right: usize) -> Result<(), Error> {
    if left == 0 && right == 0 {
        let reason = "a window of nothing but the own place mixes nothing; use 1 or more";
        return Err(Error::setting("pattern.left", 0, reason));
    }
    Ok(())
}

fn draw(random: &Random, shape: &Shape) -> Result<kernels::Random, Error> {
    let Random { block, count, length, seed } = *random;
    if block == 0 {
        return Err(Error::setting("pattern.block", 0, "a block has at least one place"));
    }
    if count == 0 {
        return Err(Error::setting("pattern.count", 0, "draw at least one block"));
    }
    let count = count.min(length.div_ceil(block));
    let drawn =
        kernels::Draw { heads: shape.heads, queries: length, keys: length, block, count, seed };
    Ok(kernels::Random::new(drawn)?)
}

/// The keys at most `radius` from each predicted place; the hard ends pass no gradient.
fn spans(
    predicted: &Predicted,
    shape: &Shape,
    moment: &Moment,
    arrays: &Arrays,
) -> Result<kernels::Spans, Error> {
    if predicted.radius == 0 {
        let reason = "the Gaussian has a deviation of radius / 2; use 1 or more";
        return Err(Error::setting("pattern.radius", 0, reason));
    }
    let sizes = [shape.batch, shape.heads, shape.queries];
    let centers =
        arrays.shaped("pattern.centers", predicted.centers, &sizes, "[batch, heads, queries]")?;
    let radius = predicted.radius as f32;
    // A place that is no number sees nothing.
    let span = |place: &f32| -> Range<usize> {
        (place - radius).ceil().max(0.0) as usize
            ..((place + radius).floor() + 1.0).max(0.0) as usize
    };
    let spans = centers.iter().map(span).collect();
    Ok(kernels::Spans::new(sizes, moment.first_query, spans)?)
}
