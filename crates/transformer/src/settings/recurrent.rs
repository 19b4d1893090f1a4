//! Recurrent models: what they are made of, and which settings of Transformers have no meaning in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::layer;
use whatwhere_settings::Refuses;

use super::{ModelSettings, Site};
use crate::{Error, Family};

/// What carries a state from token to token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recurrent {
    /// Gated recurrent units, Cho et al. 2014, <https://arxiv.org/abs/1406.1078>: `h = (1 − z) ∘ h + z ∘ tanh(x + r ∘ (U h))`.
    Gru,
    /// Long short-term memory, Hochreiter and Schmidhuber 1997: a cell `c = f ∘ c + i ∘ g` beside the state `h = o ∘ tanh(c)`.
    Lstm,
}

impl Recurrent {
    /// The kernels' cell.
    pub(crate) fn cell(self) -> layer::Cell {
        match self {
            Self::Gru => layer::Cell::Gru,
            Self::Lstm => layer::Cell::Lstm,
        }
    }

    /// The choice's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gru => "gru",
            Self::Lstm => "lstm",
        }
    }
}

/// When the decoder of a recurrent model attends to its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attends {
    /// Never: the last state of the source is all it knows (Cho et al. 2014; Sutskever et al. 2014, <https://arxiv.org/abs/1409.3215>).
    #[default]
    None,
    /// Before each step, by the state before; what is found goes into the recurrence; `additive` by default (Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>).
    Before,
    /// After each step, by the new state; what is found joins it behind the recurrence; `dot` by default (Luong et al. 2015, <https://arxiv.org/abs/1508.04025>).
    After,
}

impl Attends {
    /// The score that it was published with.
    pub(super) fn score(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Before => Some("additive"),
            Self::After => Some("dot"),
        }
    }
}

/// Settings that a recurrent model does not have, and why.
const WITHOUT_MEANING: [(&str, &str); 19] = [
    ("norm", NO_NORM),
    ("norm_place", NO_NORM),
    ("norm_bias", NO_NORM),
    ("first_norm", NO_NORM),
    ("embedding_norm", NO_NORM),
    ("residual", "a recurrence has no residual stream; leave it out"),
    ("activation", NO_FEED_FORWARD),
    ("gated", NO_FEED_FORWARD),
    ("feed_forward", NO_FEED_FORWARD),
    ("bias", "gates always have biases; those of attention are model.cross.bias"),
    ("project_positions", NO_POSITIONS),
    ("share_positions", NO_POSITIONS),
    ("output_transform", "its norm and activation are a Transformer's; leave it out"),
    ("share_layers", "layers of a recurrence are its own; leave it out"),
    (
        "segment_memory",
        "a state goes from token to token, and no hidden states are kept; leave it out",
    ),
    ("recompute", "every state is made of the one before, so all are kept; leave it out"),
    ("encoder", NO_SELF_ATTENTION),
    ("alternate", NO_SELF_ATTENTION),
    ("epsilon", "only norms of queries and keys have it here; set model.cross.qk_norm, too"),
];
const NO_NORM: &str = "a recurrence has no norms: its gates bound the state; leave it out";
const NO_FEED_FORWARD: &str = "a recurrence has no feed-forward; leave it out";
const NO_POSITIONS: &str = "order is in the recurrence, and no positions are added; leave it out";
const NO_SELF_ATTENTION: &str =
    "a recurrence has no self-attention; attention to the source is model.cross";

impl ModelSettings {
    /// Layers of the recurrent encoder.
    pub fn recurrent_encoder_layers(&self) -> usize {
        match (self.recurrent, self.family) {
            (None, _) | (_, Family::Decoder) => 0,
            (Some(_), Family::Encoder | Family::EncoderDecoder) => self.layers,
        }
    }

    /// Layers of the recurrent decoder.
    pub fn recurrent_decoder_layers(&self) -> usize {
        match (self.recurrent, self.family) {
            (None, _) | (_, Family::Encoder) => 0,
            (Some(_), Family::Decoder | Family::EncoderDecoder) => self.layers,
        }
    }

    /// Weights that a token meets in the matrices of a recurrent encoder and decoder, those of attention aside.
    pub fn recurrent_weights(&self) -> [usize; 2] {
        let Some(kind) = self.recurrent else { return [0; 2] };
        let (gates, width) = (kind.cell().gates(), self.width);
        let stack = |layers: usize, own: usize| -> usize {
            let from = |layer: usize| if layer == 0 { self.embedding_channels() } else { width };
            (0..layers).map(|layer| gates * own * (from(layer) + own)).sum()
        };
        let encoder = match self.bidirectional {
            true => 2 * stack(self.recurrent_encoder_layers(), width / 2),
            false => stack(self.recurrent_encoder_layers(), width),
        };
        let join = if self.attends == Attends::None { 0 } else { 2 * width * width };
        let feeds = self.attends == Attends::Before || self.input_feeding;
        let feed = if feeds { gates * width * width } else { 0 };
        [encoder, stack(self.recurrent_decoder_layers(), width) + join + feed]
    }

    /// Values for each token that the backward pass of a recurrent encoder and decoder keeps, and the most that one layer's
    /// needs beside them.
    pub fn recurrent_activations(&self) -> [[usize; 2]; 2] {
        let Some(kind) = self.recurrent else { return [[0; 2]; 2] };
        let (gates, width) = (kind.cell().gates(), self.width);
        // Gates as asked and as they were, what stands beside them, and states as they come out and go on.
        let layer = 2 * gates * width + 4 * width;
        let encoder = self.recurrent_encoder_layers();
        let decoder = self.recurrent_decoder_layers();
        let joined = if self.attends == Attends::None { 0 } else { 8 * width };
        let feeds = self.attends == Attends::Before || self.input_feeding;
        let fed = if feeds { 2 * gates * width } else { 0 };
        let most = |layers: usize| if layers > 0 { 2 * gates * width + 4 * width } else { 0 };
        [[encoder * layer, most(encoder)], [decoder * layer + joined + fed, most(decoder)]]
    }

    /// Refuses what has no meaning in a recurrent model, or without one.
    pub(super) fn check_recurrent(&self) -> Result<(), Error> {
        let attends = match self.attends {
            Attends::None => None,
            Attends::Before => Some("before"),
            Attends::After => Some("after"),
        };
        if self.recurrent.is_none() {
            let reason = "only a recurrent model has it; set model.recurrent, or leave it out";
            if let Some(attends) = attends {
                return Err(Error::setting("attends", attends, reason));
            }
            for (setting, is_set) in
                [("bidirectional", self.bidirectional), ("input_feeding", self.input_feeding)]
            {
                if is_set {
                    return Err(Error::setting(setting, true, reason));
                }
            }
            return Ok(());
        }
        let written = |settings: &Self| {
            toml::Table::try_from(settings).map_err(|e| Error::unreadable(e.to_string()))
        };
        let (own, default) = (written(self)?, written(&Self::default())?);
        for (setting, reason) in WITHOUT_MEANING {
            let has_norms = setting == "epsilon" && self.has_cross_norms();
            if own.get(setting) != default.get(setting) && !has_norms {
                let found = own.get(setting).map_or_else(String::new, toml::Value::to_string);
                return Err(Error::setting(setting, found, reason));
            }
        }
        if self.encoder_layers.is_some_and(|layers| layers != self.layers) {
            let reason = "a recurrent decoder starts with the states of the encoder's layers; use as many, or leave it out";
            return Err(Error::setting("encoder_layers", self.encoder_layers.unwrap_or(0), reason));
        }
        if self.bidirectional && self.family == Family::Decoder {
            let reason = "a decoder reads from the left only; leave it out";
            return Err(Error::setting("bidirectional", true, reason));
        }
        if self.bidirectional && !self.width.is_multiple_of(2) {
            let reason = "each direction has half of it; use an even number";
            return Err(Error::setting("width", self.width, reason));
        }
        if self.input_feeding && self.attends != Attends::After {
            let reason = "it feeds what attends = \"after\" joins; use both";
            return Err(Error::setting("input_feeding", true, reason));
        }
        self.check_attends(attends)
    }

    fn check_attends(&self, attends: Option<&str>) -> Result<(), Error> {
        let of_own = ["pattern", "position", "mixing"].iter();
        if let Some((key, found)) =
            of_own.filter_map(|key| self.attention.get_key_value(*key)).next()
        {
            let setting = match key.as_str() {
                "pattern" => "attention.pattern",
                "position" => "attention.position",
                _ => "attention.mixing",
            };
            return Err(Error::setting(setting, found, NO_SELF_ATTENTION));
        }
        let Some(attends) = attends else {
            let tables = [("attention", &self.attention), ("cross", &self.cross)];
            return match tables.into_iter().find(|(_, table)| !table.is_empty()) {
                None => Ok(()),
                Some((setting, table)) => {
                    let reason = "nothing attends to anything; set model.attends, or leave it out";
                    Err(Error::setting(setting, toml::Value::Table(table.clone()), reason))
                }
            };
        };
        if self.family != Family::EncoderDecoder {
            let reason = "there is no source to attend to; use family = \"encoder_decoder\"";
            return Err(Error::setting("attends", attends, reason));
        }
        let cross = self.attention(Site::Cross, 0)?;
        if cross.pattern.needs_tokens() {
            let reason =
                "tokens that are global stand in one sequence, and here are two; list positions";
            return Err(Error::setting("cross.pattern", cross.pattern.name(), reason));
        }
        Ok(())
    }

    fn has_cross_norms(&self) -> bool {
        [&self.attention, &self.cross].iter().any(|table| table.contains_key("qk_norm"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        let cases = [
            ("norm = 'layer'", "norm = \"layer\": a recurrence has no norms"),
            ("norm_place = 'post'", "norm_place = \"post\": a recurrence has no norms"),
            ("norm_bias = true", "norm_bias = true: "),
            ("first_norm = false", "first_norm = false: "),
            ("embedding_norm = true", "embedding_norm = true: "),
            ("epsilon = 0.1", "epsilon = 0.1: only norms of queries and keys"),
            ("residual = 'parallel'", "residual = \"parallel\": "),
            ("activation = 'relu'", "activation = \"relu\": a recurrence has no feed-forward"),
            ("gated = true", "gated = true: "),
            ("feed_forward = 8", "feed_forward = 8: "),
            ("bias = true", "bias = true: gates always have biases"),
            ("project_positions = false", "project_positions = false: "),
            ("output_transform = true", "output_transform = true: "),
            ("share_layers = true", "share_layers = true: "),
            ("share_positions = true", "share_positions = true: "),
            ("segment_memory = 4", "segment_memory = 4: "),
            ("recompute = 'block'", "recompute = \"block\": "),
            ("alternate = [{ heads = 2 }]", "alternate = "),
            (
                "attention = { position = 'rotary' }",
                "attention.position = \"rotary\": a recurrence has no self-attention",
            ),
            ("attention = { pattern = 'window' }", "attention.pattern = "),
            ("attention = { heads = 2 }", "attention = { heads = 2 }: nothing attends"),
            ("cross = { score = 'dot' }", "cross = { score = \"dot\" }: nothing attends"),
            ("attends = 'after'", "attends = after: there is no source"),
            ("bidirectional = true", "bidirectional = true: a decoder reads from the left"),
            ("input_feeding = true", "input_feeding = true: it feeds what attends"),
            (
                "family = 'encoder_decoder'\nencoder = { heads = 2 }",
                "encoder = { heads = 2 }: a recurrence has no",
            ),
            (
                "family = 'encoder_decoder'\nencoder_layers = 2",
                "encoder_layers = 2: a recurrent decoder starts",
            ),
            (
                "family = 'encoder_decoder'\nbidirectional = true\nwidth = 33",
                "width = 33: each direction has half",
            ),
            (
                "family = 'encoder_decoder'\nattends = 'before'\ninput_feeding = true",
                "it feeds what attends",
            ),
            (
                "family = 'encoder_decoder'\nattends = 'before'\ncross = { heads = 5 }",
                "heads = 5: does not divide",
            ),
            (
                "family = 'encoder_decoder'\nattends = 'after'\ncross.pattern = { kind = 'global', tokens = [3] }",
                "cross.pattern = global",
            ),
        ];
        for (text, expected) in cases {
            let text = format!("recurrent = 'gru'\n{text}");
            let message = ModelSettings::from_toml(&text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
        for (text, expected) in [
            ("attends = 'before'", "attends = before: only a recurrent model has it"),
            ("bidirectional = true", "bidirectional = true: only a recurrent"),
            ("input_feeding = true", "input_feeding = true: only a recurrent"),
            ("recurrent = 'rnn'", "unknown variant `rnn`, expected `gru` or `lstm`"),
        ] {
            let message = ModelSettings::from_toml(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn attention_is_projected_as_its_score_was_published() {
        use whatwhere_attention::Projections;
        let of = |cross: &str| {
            let text = format!(
                "recurrent = 'lstm'\nfamily = 'encoder_decoder'\nattends = 'after'\ncross = {{ {cross} }}"
            );
            let settings = ModelSettings::from_toml(&text).unwrap();
            let cross = settings.attention(Site::Cross, 0).unwrap();
            (cross.projections, cross.heads)
        };
        assert_eq!(of(""), (Projections::None, 1));
        assert_eq!(of("score = 'additive'"), (Projections::Compared, 1));
        assert_eq!(of("score = 'general'"), (Projections::None, 1));
        assert_eq!(of("score = 'dot', heads = 2, projections = 'all'"), (Projections::All, 2));
    }
}
