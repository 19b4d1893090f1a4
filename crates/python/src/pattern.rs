//! From the words of a pattern to the kernels' pattern.

use whatwhere_attention::pattern::PatternContext;
use whatwhere_kernels::attention::{Shape, pattern as kernels};

use crate::{Error, arrays::Arrays, call::CallArgs, mask::Mask, settings::Settings};

/// The pattern of a call: the one asked for, padding hidden, and what a mask hides.
pub(crate) fn build<'a>(
    settings: &Settings,
    shape: &Shape,
    args: &CallArgs,
    arrays: &Arrays<'a>,
    mask: Option<Mask<'a>>,
) -> Result<Box<dyn kernels::Pattern + 'a>, Error> {
    let word = &settings.pattern;
    let sizes = [shape.batch, shape.heads, shape.queries];
    let (known, centers): (&[&str], _) = match word.choice.deviation() {
        None => (&[], None),
        Some(_) => {
            let names = "[batch, heads, queries]";
            let centers = arrays.shaped("pattern.centers", word.array("centers"), &sizes, names)?;
            (&["centers"], Some((centers, sizes)))
        }
    };
    word.check_arrays(word.choice.name(), known)?;
    let context = PatternContext {
        heads: shape.heads,
        documents: args.documents.as_deref(),
        tokens: None,
        first_query: args.first_query,
        centers,
    };
    let mut built: Box<dyn kernels::Pattern + 'a> = word.choice.build(&context)?;
    if let Some(lengths) = &args.key_lengths {
        built = Box::new(kernels::And(kernels::KeyLengths::new(lengths.clone())?, built));
    }
    if let Some(mask) = mask {
        built = Box::new(kernels::And(built, mask));
    }
    Ok(built)
}
