//! Settings of a model, from one definition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_attention::{
    AttentionSettings, Pattern,
    pattern::{And, Causal},
};
use whatwhere_settings::{Refuses, schema::in_order};

use crate::Error;

mod attention;
mod check;
mod choice;
mod recurrent;
mod site;

pub use choice::{Activation, Family, Init, NormKind, NormPlace, Pooling, Recompute, ResidualKind};
pub use recurrent::{Attends, Recurrent};
pub use site::Site;

/// Everything that makes a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct ModelSettings {
    /// Which stacks there are; default `decoder`.
    pub family: Family,
    /// The predecessor in place of a Transformer: a GRU or an LSTM carries a state from token to token, and settings of norms,
    /// feed-forward, positions and self-attention have no meaning; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrent: Option<Recurrent>,
    /// Whether a recurrent encoder reads both ways, each with half the width; default false.
    #[serde(skip_serializing_if = "is_default")]
    pub bidirectional: bool,
    /// When a recurrent decoder attends to the source, as `cross` says, by default with one head and the score it was published
    /// with; default `none`.
    #[serde(skip_serializing_if = "is_default")]
    pub attends: Attends,
    /// With `attends = "after"`, whether what was joined goes into the next step, too; default false.
    #[serde(skip_serializing_if = "is_default")]
    pub input_feeding: bool,
    /// Tokens that can be told apart; default 0, which a run replaces by its tokenizer's.
    pub vocabulary: usize,
    /// Width of embeddings and of the residual stream between layers; default 256.
    pub width: usize,
    /// Blocks of the stack, and of the decoder where there are two; default 6.
    pub layers: usize,
    /// Blocks of the encoder where there are two stacks; default `layers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_layers: Option<usize>,
    /// What keeps the residual stream's scale; default `rms`.
    pub norm: NormKind,
    /// Where norms stand: before each sublayer, after it, or of what it gives; default `pre`.
    pub norm_place: NormPlace,
    /// Whether norms of kind `layer` have a bias; default `bias`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_bias: Option<bool>,
    /// Added under the root of every norm, QK-norm's too; default 1e-5.
    pub epsilon: f64,
    /// Whether a norm stands before the first layer's attention; ModernBERT has none there. Default true.
    pub first_norm: bool,
    /// Whether the feed-forward follows attention or stands beside it; default `sequential`.
    pub residual: ResidualKind,
    /// The feed-forward's activation; default `gelu`.
    pub activation: Activation,
    /// Whether the feed-forward is `down(activation(gate(x)) · up(x))`, with a third matrix, as GLU; `swiglu` always is.
    /// Default false.
    pub gated: bool,
    /// Width inside the feed-forward; default 4 × width, with a gate 8/3 × width rounded up to a multiple of 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_forward: Option<usize>,
    /// Whether feed-forward and norms have a bias; attention has its own setting. Default false.
    pub bias: bool,
    /// Width of the embeddings, where it is another than `width`: a projection stands between, as in ALBERT. Default `width`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_width: Option<usize>,
    /// With `embedding_width`, whether positions are added and embeddings normalized before the projection (ALBERT) or after
    /// it (OPT-350m); default true.
    pub project_positions: bool,
    /// Whether embeddings, positions and types added, are normalized, as in BERT; default false.
    pub embedding_norm: bool,
    /// Kinds of tokens, such as BERT's two segments, each with a vector that is added to the embedding; default 0.
    pub token_types: usize,
    /// Whether the output shares the embeddings' weights; default true.
    pub tied: bool,
    /// Whether logits have a bias; default false.
    pub output_bias: bool,
    /// Whether a linear layer, the activation and a norm stand before the logits, as in BERT; default false.
    pub output_transform: bool,
    /// Bound on the logits, `cap · tanh(logit / cap)`, as in Gemma 2; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_soft_cap: Option<f32>,
    /// Classes that a text is told as, by a linear layer of one pooled state in place of logits of tokens; default 0, which a
    /// run of `classify` replaces by its data's.
    #[serde(skip_serializing_if = "is_default")]
    pub classes: usize,
    /// With `classes`, how the states of a text become one vector; default `mean` in an encoder, `last` in a decoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Whether embeddings are multiplied by √width, as in 2017; default as the encoding was published: true with
    /// `sinusoidal`, otherwise false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_embeddings: Option<bool>,
    /// Share of the residual stream dropped in training, after embeddings and after each sublayer; default 0.
    pub dropout: f32,
    /// Whether all layers of a stack are one block's parameters, as in ALBERT; default false.
    pub share_layers: bool,
    /// Whether all layers of a stack share what the first learns of positions, as T5 its table; default false.
    pub share_positions: bool,
    /// Hidden states of earlier segments that a decoder keeps and attends to, as Transformer-XL; default 0.
    pub segment_memory: usize,
    /// How weights start; default `scaled`.
    pub init: Init,
    /// Activation checkpointing: what the backward pass computes again instead of keeping it. Less memory, more time, the same
    /// numbers; default `none`.
    pub recompute: Recompute,
    /// Attention of every layer, as `AttentionSettings` without its width; default that of its site: the pattern is
    /// `causal` in a decoder and `full` in an encoder.
    #[schemars(with = "AttentionSettings")]
    pub attention: toml::Table,
    /// What the encoder's attention has otherwise; default nothing.
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "AttentionSettings")]
    pub encoder: toml::Table,
    /// What the attention to the encoder has otherwise; its pattern is `full` and its position `none` by default.
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "AttentionSettings")]
    pub cross: toml::Table,
    /// What layers have otherwise, in turn: layer `i` takes entry `i mod n`; default nothing.
    /// For windows with a full layer between them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<AttentionSettings>")]
    pub alternate: Vec<toml::Table>,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            family: Family::Decoder,
            recurrent: None,
            bidirectional: false,
            attends: Attends::None,
            input_feeding: false,
            vocabulary: 0,
            width: 256,
            layers: 6,
            encoder_layers: None,
            norm: NormKind::Rms,
            norm_place: NormPlace::Pre,
            norm_bias: None,
            epsilon: 1e-5,
            first_norm: true,
            residual: ResidualKind::Sequential,
            activation: Activation::Gelu,
            gated: false,
            feed_forward: None,
            bias: false,
            embedding_width: None,
            project_positions: true,
            embedding_norm: false,
            token_types: 0,
            tied: true,
            output_bias: false,
            output_transform: false,
            output_soft_cap: None,
            classes: 0,
            pooling: None,
            scale_embeddings: None,
            dropout: 0.0,
            share_layers: false,
            share_positions: false,
            segment_memory: 0,
            init: Init::default(),
            recompute: Recompute::None,
            attention: toml::Table::new(),
            encoder: toml::Table::new(),
            cross: toml::Table::new(),
            alternate: Vec::new(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ModelSettings {
    /// Reads and checks TOML.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let settings: Self = toml::from_str(text).map_err(Error::unreadable)?;
        settings.check()?;
        Ok(settings)
    }

    /// Width inside the feed-forward.
    pub fn feed_forward_width(&self) -> usize {
        self.feed_forward.unwrap_or(match self.is_gated() {
            true => (self.width * 8).div_ceil(3).next_multiple_of(8),
            false => self.width * 4,
        })
    }

    /// Whether the feed-forward has a gate.
    pub fn is_gated(&self) -> bool {
        self.gated || self.activation == Activation::Swiglu
    }

    /// Channels of an embedding.
    pub fn embedding_channels(&self) -> usize {
        self.embedding_width.unwrap_or(self.width)
    }

    /// Channels of what logits are made of: as many as embeddings have, unless hidden states are projected directly.
    pub fn output_channels(&self) -> usize {
        if self.tied || self.output_transform { self.embedding_channels() } else { self.width }
    }

    /// Whether hidden states are projected to the embeddings' width, with nothing else between them and the logits.
    pub fn projects_output(&self) -> bool {
        self.embedding_width.is_some() && self.tied && !self.output_transform && self.classes == 0
    }

    /// How the states of a text become one vector, with the default of the family.
    pub fn pools(&self) -> Pooling {
        self.pooling.unwrap_or(match self.family {
            Family::Decoder => Pooling::Last,
            Family::Encoder | Family::EncoderDecoder => Pooling::Mean,
        })
    }

    /// Blocks of the encoder; a recurrent model has none.
    pub fn encoder_depth(&self) -> usize {
        match (self.recurrent, self.family) {
            (Some(_), _) | (_, Family::Decoder) => 0,
            (None, Family::Encoder) => self.layers,
            (None, Family::EncoderDecoder) => self.encoder_layers.unwrap_or(self.layers),
        }
    }

    /// Blocks of the decoder; a recurrent model has none.
    pub fn decoder_depth(&self) -> usize {
        match (self.recurrent, self.family) {
            (Some(_), _) | (_, Family::Encoder) => 0,
            (None, Family::Decoder | Family::EncoderDecoder) => self.layers,
        }
    }

    /// Refuses settings out of range, and attention that does not fit its place.
    pub fn check(&self) -> Result<(), Error> {
        // Far beyond any model: products of sizes stay within 64 bits, and layers are gone through one by one.
        for (setting, found, most) in [
            ("width", self.width, 1 << 20),
            ("layers", self.layers, 10_000),
            ("encoder_layers", self.encoder_layers.unwrap_or(1), 10_000),
            ("feed_forward", self.feed_forward.unwrap_or(1), 1 << 24),
            ("embedding_width", self.embedding_width.unwrap_or(1), 1 << 20),
            ("token_types", self.token_types.max(1), 1 << 20),
        ] {
            if !(1..=most).contains(&found) {
                let reason = format!("expected at least 1 and at most {most}");
                return Err(Error::setting(setting, found, reason));
            }
        }
        self.check_recurrent()?;
        self.check_norms()?;
        self.check_ends()?;
        self.check_classes()?;
        self.check_sharing()?;
        if self.encoder_layers.is_some() && self.family != Family::EncoderDecoder {
            let reason = "only family = \"encoder_decoder\" has two stacks; use layers";
            return Err(Error::setting("encoder_layers", self.encoder_depth(), reason));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let reason = "a rate is at least 0 and below 1";
            return Err(Error::setting("dropout", self.dropout, reason));
        }
        if self.segment_memory > 0 && self.family != Family::Decoder {
            let reason = "only a decoder reads segment after segment";
            return Err(Error::setting("segment_memory", self.segment_memory, reason));
        }
        for layer in 0..self.encoder_depth() {
            self.attention(Site::Encoder, layer)?;
        }
        for layer in 0..self.decoder_depth() {
            let settings = self.attention(Site::Decoder, layer)?;
            let needs = [settings.pattern.needs_documents(), settings.pattern.needs_tokens()];
            if self.segment_memory > 0 && needs.contains(&true) {
                let reason = "with document, or tokens that are global: kept segments do not say where documents start and which tokens they had; use one of them";
                return Err(Error::setting("segment_memory", self.segment_memory, reason));
            }
            if self.segment_memory > 0
                && let Some(position) = settings.position.iter().find(|p| p.embeds())
            {
                let reason = format!(
                    "with {}: positions of kept segments are known by distance only; use a relative encoding",
                    position.name()
                );
                return Err(Error::setting("segment_memory", self.segment_memory, reason));
            }
            if !settings.pattern.is_causal() {
                return Err(sees_later(&settings.pattern));
            }
            if self.family == Family::EncoderDecoder {
                let cross = self.attention(Site::Cross, layer)?;
                if cross.pattern.needs_tokens() {
                    let reason = "tokens that are global stand in one sequence, and here are two; list positions";
                    return Err(Error::setting("cross.pattern", cross.pattern.name(), reason));
                }
            }
        }
        Ok(())
    }
}

/// Refuses a decoder's pattern, and says how to have the part of it that a decoder may see.
fn sees_later(pattern: &Pattern) -> Error {
    let name = pattern.name();
    let joined = And { of: vec![Causal::default().into(), pattern.clone()] };
    let instead = match Pattern::from(joined).check() {
        Err(_) => "use a causal one".into(),
        Ok(()) => format!(
            "use a causal one, or both: {{ kind = \"and\", of = [\"causal\", \"{name}\"] }}"
        ),
    };
    let reason = format!("sees later tokens, which a decoder has to predict; {instead}");
    Error::setting("attention.pattern", name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_and_layers_have_their_own_attention() {
        let settings = ModelSettings::from_toml(
            "family = 'encoder_decoder'\nattention = { position = 'polar', heads = 4 }\ncross = { score = 'additive' }\n\
             alternate = [{ pattern = 'window' }, {}]",
        )
        .unwrap();
        let at = |site, layer| settings.attention(site, layer).unwrap();
        assert_eq!(at(Site::Decoder, 0).pattern.name(), "window");
        assert_eq!(at(Site::Decoder, 1).pattern.name(), "causal");
        assert_eq!(at(Site::Encoder, 1).pattern.name(), "full");
        let cross = at(Site::Cross, 0);
        assert_eq!((cross.score.name(), cross.position[0].name()), ("additive", "none"));
        assert_eq!(cross.heads, 4);
    }

    #[test]
    fn refusals_name_what_was_found_and_what_would_be_right() {
        let cases = [
            ("width = 0", "width = 0: expected at least 1"),
            ("feed_forward = 0", "feed_forward = 0: expected at least 1"),
            ("layers = 1000000000", "layers = 1000000000: expected at least 1 and at most 10000"),
            ("famly = 'decoder'", "unknown field `famly`"),
            ("family = 'coder'", "expected one of `decoder`, `encoder`, `encoder_decoder`"),
            ("attention = { width = 3 }", "set model.width"),
            ("attention = { postion = 'none' }", "unknown field `postion`"),
            ("attention = { pattern = 'full' }", "attention.pattern = full: sees later tokens"),
            ("attention = { pattern = 'random' }", "of = [\"causal\", \"random\"]"),
            ("attention = { pattern = 'predicted' }", "has to predict; use a causal one"),
            ("attention = { heads = 7 }", "heads = 7: does not divide width = 256"),
            ("family = 'encoder'\nsegment_memory = 3", "only a decoder reads segment"),
            (
                "segment_memory = 3\nattention = { position = 'learned' }",
                "segment_memory = 3: with learned",
            ),
            (
                "segment_memory = 3\nattention = { pattern = { kind = 'and', of = ['causal', { kind = 'global', tokens = [3] }] } }",
                "which tokens they had",
            ),
            (
                "attention = { pattern = { kind = 'global', tokens = ['.'] } }",
                "attention.pattern = global: sees later tokens",
            ),
            (
                "family = 'encoder_decoder'\ncross = { pattern = { kind = 'global', tokens = [3] } }",
                "cross.pattern = global: tokens that are global stand in one sequence",
            ),
            ("encoder_layers = 3", "only family = \"encoder_decoder\""),
            ("dropout = 1.0", "dropout = 1"),
        ];
        for (text, expected) in cases {
            let message = ModelSettings::from_toml(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn written_settings_read_back_the_same() {
        let settings = ModelSettings::from_toml(
            "activation = 'swiglu'\nattention = { position = ['polar', 'alibi'] }\nalternate = [{ pattern = 'window' }]",
        )
        .unwrap();
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(ModelSettings::from_toml(&text).unwrap(), settings);
    }
}
