//! Telling classes: the states of a text become one vector, and a linear layer makes logits of classes of it.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};
use whatwhere_attention::{Path, projected::Project};
use whatwhere_settings::Refuses;

use crate::{Error, Mode, Model, Pooling, Sequences, fused};

impl Model {
    /// Logits of classes for each sequence, `[batch, classes]`; refuses a model without classes.
    pub fn classify(&self, tokens: &Sequences, mode: Mode) -> Result<Tensor<2>, Error> {
        let pooled = self.pooled(tokens, mode)?;
        self.class_logits(pooled, mode.path)
    }

    /// One vector for each sequence, `[batch, width]`, made of the last layer's states by the model's pooling. Padding does
    /// not count.
    pub fn pooled(&self, tokens: &Sequences, mode: Mode) -> Result<Tensor<2>, Error> {
        let [batch, length] = tokens.dims();
        let lengths = tokens.lengths.clone().unwrap_or_else(|| vec![length; batch]);
        let spans = spans(self.settings().pools(), &lengths)?;
        let states = self.hidden(None, tokens, mode)?;
        Ok(match mode.path {
            Path::Composed => None,
            Path::Auto | Path::Fused => fused::pool(states.clone(), spans.clone()),
        }
        .unwrap_or_else(|| composed(states, &spans)))
    }

    /// Logits of classes from pooled states, `[batch, classes]`.
    pub fn class_logits(&self, pooled: Tensor<2>, path: Path) -> Result<Tensor<2>, Error> {
        let Some(classifier) = &self.classifier else {
            let reason = "the model predicts tokens and knows no classes; train it with objective = \"classify\"";
            return Err(Error::setting("classes", 0, reason));
        };
        Ok(classifier.project(pooled.unsqueeze_dim(0), self.way(path)).squeeze_dim(0))
    }

    /// Refuses to predict tokens where classes are told.
    pub(crate) fn require_tokens(&self) -> Result<(), Error> {
        if self.classifier.is_none() {
            return Ok(());
        }
        let reason = "the model tells classes of texts and predicts no tokens; ask it to classify";
        Err(Error::setting("classes", self.settings().classes, reason))
    }
}

/// The positions of each row that make its vector.
fn spans(pooling: Pooling, lengths: &[usize]) -> Result<Vec<Range<usize>>, Error> {
    if lengths.contains(&0) {
        return Err(Error::Input("a text without a token, expected at least 1".into()));
    }
    let span = |length: &usize| match pooling {
        Pooling::Mean => 0..*length,
        Pooling::First => 0..1,
        Pooling::Last => length - 1..*length,
    };
    Ok(lengths.iter().map(span).collect())
}

/// The same by the framework's operations.
fn composed(states: Tensor<3>, spans: &[Range<usize>]) -> Tensor<2> {
    let [batch, length, _] = states.dims();
    let mut shares = vec![0f32; batch * length];
    for (row, span) in spans.iter().enumerate() {
        shares[row * length..][span.clone()].fill(1.0 / span.len() as f32);
    }
    let shares = TensorData::new(shares, [batch, length, 1]);
    let shares = Tensor::<3>::from_data(shares, &states.device());
    (states * shares).sum_dim(1).squeeze_dim(1)
}
