//! What trained heads do, measured: where their weight goes, and what the model loses without them.
//!
//! A head's weight on keys of a kind (the previous token, what followed an earlier occurrence, …) is a mean over the queries
//! that have such a key, beside what a uniform head would give them; queries that see one key only say nothing. [`Role`]s
//! are named by a threshold on the two. [`ablation`] removes heads and measures the loss.

pub mod ablation;
mod role;
mod spread;
mod weights;

use serde::Serialize;
use whatwhere_data::{Batch, Error as DataError, Watch, Work};
use whatwhere_kernels::attention::Attention;
use whatwhere_training::{Folder, Run, trainer};
use whatwhere_transformer::{AttentionInput, Head, Site};

pub use ablation::{Ablation, Pruned};
pub use role::{Figure, LEAST, Role, THRESHOLD};
pub use spread::{LONGEST_SPREAD, Shares};

use crate::{Error, extrapolate::corpus_of, show::Reading};

/// What the heads of a run do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadsReport {
    /// Every head, in the order they are computed in.
    pub heads: Vec<HeadFigures>,
    /// What the model loses without them, if it was asked for.
    #[serde(flatten)]
    pub ablation: Option<Ablation>,
}

/// What one head does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadFigures {
    /// `encoder`, `decoder`, or `cross`, from the decoder to the encoder.
    pub site: &'static str,
    /// From 0.
    pub layer: usize,
    /// From 0.
    pub head: usize,
    /// What it does most, if that passes the threshold.
    pub role: Option<Role>,
    /// On the key just before the query.
    pub previous: Option<Figure>,
    /// On the first key.
    pub first: Option<Figure>,
    /// On the query's own position.
    pub itself: Option<Figure>,
    /// On the offset, key minus query, that has most, among those that half of the queries have.
    pub offset: Option<(i64, Figure)>,
    /// On keys that followed an earlier occurrence of the query's token.
    pub induction: Option<Figure>,
    /// On earlier occurrences of the query's token.
    pub same_token: Option<Figure>,
    /// Of a closing bracket, on the opening one that it matches; nothing if the text has none.
    pub bracket: Option<Figure>,
    /// Mean entropy in nats, and that of a uniform head.
    pub entropy: [f64; 2],
    /// What the spread of its scores comes from; nothing where positions are mixed into content, or nothing spreads.
    pub shares: Option<Shares>,
    /// Nats per token by which the loss grows without it.
    pub loss_without: Option<f64>,
}

impl HeadFigures {
    /// Where it stands, in short: `decoder 0.3`.
    pub fn name(&self) -> String {
        format!("{} {}.{}", self.site, self.layer, self.head)
    }
}

/// The site in a word.
pub(crate) fn site(site: Site) -> &'static str {
    match site {
        Site::Encoder => "encoder",
        Site::Decoder => "decoder",
        Site::Cross => "cross",
    }
}

/// Measures every head of a run over a text it has read, and, on `batches`, the loss without each, if there are any.
/// A break of `watch` ends it with [`DataError::Interrupted`].
pub fn measure(
    reading: &Reading,
    batches: Option<&[Batch]>,
    watch: Watch,
) -> Result<HeadsReport, Error> {
    let short = shorter(reading)?;
    let shares = short.as_ref().unwrap_or(reading);
    let of = reading.seen().len() as u64;
    let mut heads = Vec::new();
    for (done, (seen, short)) in reading.seen().iter().zip(shares.seen()).enumerate() {
        if watch(Work { what: "layers", done: done as u64, of }).is_break() {
            return Err(DataError::Interrupted.into());
        }
        let mut found = layer(reading, seen)?;
        for (head, shares) in found.iter_mut().zip(spread::shares(shares, short)?) {
            head.shares = shares;
        }
        heads.extend(found);
    }
    let model = reading.run().model();
    let ablation = batches.map(|batches| ablation::measure(model, batches, watch)).transpose()?;
    if let Some(ablation) = &ablation {
        let all = model.heads();
        for head in &mut heads {
            // Layers that share their weights lose a head together.
            let own = all.iter().filter(|other| site(other.site) == head.site);
            let layers = own.map(|other| other.layer + 1).max().unwrap_or(1);
            let is_it = |other: &Head| {
                (site(other.site), other.layer, other.head)
                    == (head.site, head.layer % layers, head.head)
            };
            let loss = all.iter().position(is_it).map(|index| ablation.without[index]);
            head.loss_without = loss.map(|loss| loss - ablation.loss);
        }
    }
    Ok(HeadsReport { heads, ablation })
}

/// The beginning of a text that is too long to hold the terms of all pairs.
fn shorter<'a>(reading: &Reading<'a>) -> Result<Option<Reading<'a>>, Error> {
    let longest = reading.seen().iter().map(|seen| reading.keys(seen.site).len()).max();
    let longest = longest.unwrap_or(0).max(reading.queries(Site::Decoder).len());
    (longest > LONGEST_SPREAD).then(|| reading.beginning(LONGEST_SPREAD)).transpose()
}

fn layer(reading: &Reading, seen: &AttentionInput) -> Result<Vec<HeadFigures>, Error> {
    let look = reading.attention(seen).look(seen.input.clone())?;
    let (call, inputs): (Attention, _) = (look.call(), look.inputs());
    let kernels = |error: whatwhere_kernels::Error| Error::Attention(error.into());
    let made = call.forward(&inputs).map_err(kernels)?;
    let inspection = call.inspect(&inputs, &made).map_err(kernels)?;
    let wanted = weights::Wanted::new(reading, seen.site);
    let sums = weights::of_heads(&call, &inspection, &wanted).map_err(kernels)?;
    let figures = sums.into_iter().enumerate().map(|(head, sums)| {
        let stands = Head { site: seen.site, layer: seen.layer, head };
        sums.figures(stands)
    });
    Ok(figures.collect())
}

/// Batches of what a run held out, at the most so many.
pub fn held_out(run: &Run, folder: &Folder, most: usize) -> Result<Vec<Batch>, Error> {
    let (corpus, split) = corpus_of(folder, None)?;
    let batches = trainer::batches(&run.settings, &corpus, split)?;
    Ok(batches.evaluation(Some(most)).collect::<Result<_, _>>()?)
}

/// The beginning of what a run held out, as text: a window, or source and target of a pair.
pub fn sample(run: &Run, folder: &Folder) -> Result<(String, Option<String>), Error> {
    let (corpus, split) = corpus_of(folder, None)?;
    if let Some(pair) = corpus.pairs(split).and_then(|pairs| pairs.iter().next()) {
        return Ok((pair.source_text.clone(), Some(pair.target_text.clone())));
    }
    let batches = trainer::batches(&run.settings, &corpus, split)?;
    let Some(batch) = batches.evaluation(Some(1)).next().transpose()? else {
        return Err(Error::Request("the run held nothing out, expected a text".into()));
    };
    let tokenizer = run.tokenizer()?;
    let decode = |tokens: &[u32]| tokenizer.decode(tokens);
    let length = batch.lengths.first().map_or(0, |length| *length);
    Ok(match &batch.source {
        Some(source) => {
            let words = decode(&source.tokens[..source.lengths[0]]);
            (words, Some(decode(&batch.targets[..length])))
        }
        None if tokenizer.mask().is_some() && batch.labels.is_none() => {
            (decode(&batch.targets[..length]), None)
        }
        None => (decode(&batch.tokens[..length]), None),
    })
}
