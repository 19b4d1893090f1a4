//! The loss without each head, and with ever fewer of them.
//!
//! A head is removed by zeroing its rows of the output projection, as Michel et al. 2019 mask it,
//! <https://arxiv.org/abs/1905.10650>; nothing is trained anew.

use serde::{Serialize, Serializer};
use whatwhere_data::{Batch, Error as DataError, SourceSide, Watch, Work};
use whatwhere_training::evaluate_batches;
use whatwhere_transformer::{Family, Head, Model, Site};

use super::site;
use crate::{
    Error,
    show::{Reading, document_starts},
};

/// In a text for an encoder, of so many tokens one is hidden.
const HIDDEN: usize = 7;

/// Losses of a model without some heads, in nats per token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ablation {
    /// With all heads.
    pub loss: f64,
    /// Tokens that were predicted.
    pub tokens: u64,
    /// Without each head alone, in the order of [`Model::heads`].
    #[serde(skip)]
    pub without: Vec<f64>,
    /// Heads removed one after the other, the one whose absence alone harms least first; the first entry has all heads.
    pub pruning: Vec<Pruned>,
}

/// A step of pruning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pruned {
    /// Heads that are left.
    pub heads: usize,
    /// The head that was removed last.
    #[serde(serialize_with = "name")]
    pub removed: Option<Head>,
    /// Loss without all that were removed.
    pub loss: f64,
}

fn name<S: Serializer>(head: &Option<Head>, serializer: S) -> Result<S::Ok, S::Error> {
    let name = head.map(|Head { site: at, layer, head }| format!("{} {layer}.{head}", site(at)));
    name.serialize(serializer)
}

/// Measures a model without each of its heads, then with ever fewer of them.
pub fn measure(model: &Model, batches: &[Batch], watch: Watch) -> Result<Ablation, Error> {
    let heads = model.heads();
    let of = 2 * heads.len() as u64 + 1;
    let mut done = 0;
    let mut loss = |removed: &[Head]| -> Result<_, Error> {
        if watch(Work { what: "losses without heads", done, of }).is_break() {
            return Err(DataError::Interrupted.into());
        }
        done += 1;
        Ok(evaluate_batches(&model.without_heads(removed)?, batches)?)
    };
    let whole = loss(&[])?;
    let mut without = Vec::with_capacity(heads.len());
    for head in &heads {
        without.push(loss(&[*head])?.loss);
    }
    let mut order: Vec<usize> = (0..heads.len()).collect();
    order.sort_by(|a, b| without[*a].total_cmp(&without[*b]));
    let order: Vec<Head> = order.into_iter().map(|index| heads[index]).collect();
    let mut pruning = vec![Pruned { heads: heads.len(), removed: None, loss: whole.loss }];
    for count in 1..=order.len() {
        let loss = loss(&order[..count])?.loss;
        pruning.push(Pruned { heads: order.len() - count, removed: Some(order[count - 1]), loss });
    }
    Ok(Ablation { loss: whole.loss, tokens: whole.tokens, without, pruning })
}

/// A text as batches: windows of the trained length, one in each; for an encoder every seventh token is hidden, for an
/// encoder-decoder the target is predicted.
pub fn batches_of(reading: &Reading) -> Result<Vec<Batch>, Error> {
    let run = reading.run();
    let family = run.model().family();
    let (site, ahead) = match family {
        Family::Encoder => (Site::Encoder, 0),
        Family::Decoder | Family::EncoderDecoder => (Site::Decoder, 1),
    };
    let mut all = reading.queries(site).to_vec();
    let source = match family {
        Family::EncoderDecoder => {
            all.extend(run.tokenizer()?.end());
            let tokens = reading.keys(Site::Cross).to_vec();
            Some(SourceSide { length: tokens.len(), lengths: vec![tokens.len()], tokens })
        }
        Family::Encoder | Family::Decoder => None,
    };
    if all.len() <= ahead {
        let found = all.len();
        return Err(Error::Request(format!("found {found} token, expected 2 to predict one")));
    }
    let mask = run.tokenizer()?.mask();
    let predicted = all.len() - ahead;
    let length = match source {
        Some(_) => predicted,
        None => run.settings.training.length.min(predicted),
    };
    let windows = (0..predicted).step_by(length);
    let batch = |start: usize| {
        let end = (start + length).min(predicted);
        let mut tokens = all[start..end].to_vec();
        let targets = all[start + ahead..end + ahead].to_vec();
        let mut weights = vec![1.0; tokens.len()];
        if let (Family::Encoder, Some(mask)) = (family, mask) {
            let last = tokens.len() - 1;
            for (position, (token, weight)) in tokens.iter_mut().zip(&mut weights).enumerate() {
                let hides = position % HIDDEN == last.min(HIDDEN / 2);
                *weight = if hides && *token != mask { 1.0 } else { 0.0 };
                *token = if hides { mask } else { *token };
            }
        }
        Batch {
            rows: 1,
            length: tokens.len(),
            lengths: vec![tokens.len()],
            documents: vec![document_starts(run, &tokens)],
            tokens,
            targets,
            weights,
            prefixes: None,
            source: source.clone(),
            labels: None,
        }
    };
    let batches: Vec<Batch> = windows.map(batch).collect();
    Ok(batches.into_iter().filter(|batch| batch.weights.iter().any(|w| *w > 0.0)).collect())
}
