//! Settings of an attention layer, from one definition: Rust, TOML and the compatibility table all read it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::{OneOrList, Refuses, name_or_bool, one_or_list, schema::in_order};

use crate::{
    Error, Mixing, Pattern, Position, QkNorm, QkNormKind, Score, heads::Heads, mixing::Softmax,
    pattern::Causal, position::Rotary, score::ScaledDot,
};

/// Everything that makes an attention layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct AttentionSettings {
    /// Width of the model; default 256. In a model's settings it is the model's.
    #[schemars(skip)]
    pub width: usize,
    /// Query heads; default 8.
    pub heads: usize,
    /// Key and value heads, a divisor of `heads`: 1 is multi-query, between is grouped; default `heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// Width of one head; default `width / heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Which projections stand around the call; default `all`, in a recurrent model as the score was published: `compared`
    /// for one that is no product, `none` for products.
    pub projections: Projections,
    /// Which projections have a bias; default `none`.
    #[serde(deserialize_with = "name_or_bool")]
    pub bias: AttentionBias,
    /// QK-norm: over what queries and keys are normalized before they are compared; default `none`.
    #[serde(deserialize_with = "name_or_bool")]
    pub qk_norm: QkNorm,
    /// What QK-norm takes away; default `rms`.
    pub qk_norm_kind: QkNormKind,
    /// Added under the root of QK-norm; default 1e-5. In a model's settings it is the model's.
    #[schemars(skip)]
    pub epsilon: f64,
    /// How alike a query and a key are; default `scaled_dot`.
    pub score: Score,
    /// Bound on the compared score; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f32>,
    /// Which keys a query may see; default `causal`.
    pub pattern: Pattern,
    /// What a token knows of its position, one encoding or several; default `rotary`.
    #[serde(deserialize_with = "one_or_list")]
    #[schemars(with = "OneOrList<Position>")]
    pub position: Vec<Position>,
    /// How weights are made of scores; default `softmax`.
    pub mixing: Mixing,
    /// Share of weights dropped in training; default 0.
    pub dropout: f32,
}

/// Which projections of an attention have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttentionBias {
    /// None.
    #[default]
    None,
    /// Those of queries, keys and values (Qwen 2).
    Qkv,
    /// All, the output's too.
    All,
}

/// Which projections an attention has; what has none is taken as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Projections {
    /// Of queries, keys, values and the output.
    #[default]
    All,
    /// Of queries and keys: Bahdanau's W and U; values are mixed as they are.
    Compared,
    /// None: Luong's dot and general scores compare states.
    None,
}

impl From<bool> for AttentionBias {
    fn from(is_there: bool) -> Self {
        if is_there { Self::All } else { Self::None }
    }
}

impl Default for AttentionSettings {
    fn default() -> Self {
        Self {
            width: 256,
            heads: 8,
            kv_heads: None,
            head_dim: None,
            projections: Projections::All,
            bias: AttentionBias::None,
            qk_norm: QkNorm::None,
            qk_norm_kind: QkNormKind::Rms,
            epsilon: 1e-5,
            score: ScaledDot::default().into(),
            soft_cap: None,
            pattern: Causal::default().into(),
            position: vec![Rotary::default().into()],
            mixing: Softmax::default().into(),
            dropout: 0.0,
        }
    }
}

impl AttentionSettings {
    /// Whether a cache of the layer holds the same for tokens that are read together and one by one, and can give back
    /// the last of them: not where mixing keeps sums, and not where angles follow the length.
    pub fn can_roll_back(&self) -> bool {
        self.mixing.has_scores() && !self.position.iter().any(Position::follows_length)
    }

    /// Reads and checks TOML.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let settings: Self = toml::from_str(text).map_err(Error::unreadable)?;
        settings.check()?;
        Ok(settings)
    }

    /// The resolved sizes.
    pub fn sizes(&self) -> Result<Heads, Error> {
        let Self { width, heads, .. } = *self;
        if width == 0 {
            return Err(Error::setting("width", 0, "expected at least 1"));
        }
        if heads == 0 {
            return Err(Error::setting("heads", 0, "expected at least 1"));
        }
        let head_dim = match self.head_dim {
            Some(0) => return Err(Error::setting("head_dim", 0, "expected at least 1")),
            Some(head_dim) => head_dim,
            None if width % heads == 0 => width / heads,
            None => {
                let fitting: Vec<String> =
                    (1..=width.min(64)).filter(|h| width % h == 0).map(|h| h.to_string()).collect();
                let reason = format!(
                    "does not divide width = {width}; use one of {}, or set head_dim",
                    fitting.join(", ")
                );
                return Err(Error::setting("heads", heads, reason));
            }
        };
        let kv_heads = self.kv_heads.unwrap_or(heads);
        if kv_heads == 0 || heads % kv_heads != 0 {
            let reason = format!("does not divide heads = {heads}");
            return Err(Error::setting("kv_heads", kv_heads, reason));
        }
        Ok(Heads { width, heads, kv_heads, head_dim })
    }

    /// Weights of all projections, those of a mixing's gates too.
    pub fn projection_weights(&self) -> Result<usize, Error> {
        let sizes = self.sizes()?;
        let Heads { width, heads, kv_heads, head_dim } = sizes;
        let compared = width * (heads + kv_heads) * head_dim;
        let gates = self.mixing.weights(&sizes);
        Ok(match self.projections {
            Projections::All => 2 * compared + gates,
            Projections::Compared => compared + gates,
            Projections::None => gates,
        })
    }

    /// Refuses settings out of range, and choices that have no meaning together.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = self.sizes()?;
        self.score.check()?;
        self.pattern.check()?;
        self.mixing.check()?;
        for position in &self.position {
            position.check(&sizes)?;
        }
        if let Some(cap) = self.soft_cap
            && !(cap > 0.0 && cap.is_finite())
        {
            return Err(Error::setting("soft_cap", cap, "a cap is above 0"));
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return Err(Error::setting("epsilon", self.epsilon, "expected at least 0"));
        }
        if self.qk_norm == QkNorm::None && self.qk_norm_kind != QkNormKind::Rms {
            let reason = "without a norm it has no meaning; set qk_norm, too";
            return Err(Error::setting("qk_norm_kind", "layer", reason));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::setting(
                "dropout",
                self.dropout,
                "a rate is at least 0 and below 1",
            ));
        }
        self.check_projections(&sizes)?;
        self.check_positions(&sizes)?;
        self.check_mixing(&sizes)
    }

    /// Refuses sizes that only projections could change, and what goes through projections that are not there.
    fn check_projections(&self, sizes: &Heads) -> Result<(), Error> {
        let name = match self.projections {
            Projections::All => return Ok(()),
            Projections::Compared => "compared",
            Projections::None => "none",
        };
        let refuse = |reason: &str| Err(Error::setting("projections", name, reason));
        if sizes.heads * sizes.head_dim != sizes.width || sizes.kv_heads != sizes.heads {
            return refuse(
                "states that are not projected are cut into heads as they are; leave kv_heads and head_dim out",
            );
        }
        match (self.projections, self.bias) {
            (_, AttentionBias::None) | (Projections::Compared, AttentionBias::Qkv) => {}
            (Projections::Compared, _) => {
                return refuse(
                    "there is no projection of the output to have a bias; use bias = \"qkv\"",
                );
            }
            _ => return refuse("there is no projection to have a bias; use bias = \"none\""),
        }
        match self.position.iter().find(|position| position.projects()) {
            None => Ok(()),
            Some(position) => {
                let reason =
                    "its vectors go through the layer's projections; use projections = \"all\"";
                Err(Error::combination(position.name(), "projections", reason))
            }
        }
    }

    /// Whether nothing needs tensors between the projections: self-attention is then one operation on the CPU.
    pub fn is_plain(&self) -> bool {
        self.projections == Projections::All
            && self.qk_norm == QkNorm::None
            && self.pattern.deviation().is_none()
            && !self.score.changes_queries()
            && !self.position.iter().any(Position::asks_keys)
            && self.mixing.has_scores()
    }

    fn check_positions(&self, sizes: &Heads) -> Result<(), Error> {
        for (i, position) in self.position.iter().enumerate() {
            if position.rotates(sizes) && !self.score.is_product() {
                let reason = "tanh(q + k) does not depend on the distance after a rotation";
                return Err(Error::combination(position.name(), self.score.name(), reason));
            }
            for other in &self.position[..i] {
                if position.name() == other.name() {
                    let reason = "an encoding can be listed once";
                    return Err(Error::combination(position.name(), other.name(), reason));
                }
                if position.channels(sizes).overlaps(&other.channels(sizes)) {
                    let reason = "both rotate the same channels of the same heads; give each its share, such as heads = 0.5 and heads = [0.5, 1.0]";
                    return Err(Error::combination(other.name(), position.name(), reason));
                }
            }
        }
        Ok(())
    }

    fn check_mixing(&self, sizes: &Heads) -> Result<(), Error> {
        let mixing = self.mixing.name();
        if self.mixing.has_scores() {
            return Ok(());
        }
        if self.score != Self::default().score {
            let reason = "without scores there is none to choose; leave it at scaled_dot";
            return Err(Error::combination(mixing, self.score.name(), reason));
        }
        if !self.pattern.is_whole() {
            let reason = "its state sums all keys, or all up to the query; use full or causal";
            return Err(Error::combination(mixing, self.pattern.name(), reason));
        }
        if self.mixing.is_causal() && !self.pattern.is_causal() {
            let reason = "its state is carried from token to token, so none sees a later one; use causal, and another mixing in an encoder";
            return Err(Error::combination(mixing, self.pattern.name(), reason));
        }
        for position in &self.position {
            let refuse = |reason| Err(Error::combination(mixing, position.name(), reason));
            if position.adds_to_scores() {
                return refuse(
                    "without scores there is nothing to add to; use an encoding that rotates, or one of embeddings",
                );
            }
            if let Some(reason) = self.mixing.refuses_rotation()
                && position.rotates(sizes)
            {
                return refuse(reason);
            }
            if position.follows_length() {
                return refuse(
                    "its state sums keys that are turned already, and angles would follow the length; use another scaling",
                );
            }
            if self.mixing.makes_magnitudes() && position.has_own_magnitude() {
                return refuse(
                    "its feature map makes the magnitudes; leave position.magnitude out",
                );
            }
        }
        if self.soft_cap.is_some() {
            return Err(Error::combination(
                mixing,
                "soft_cap",
                "without scores there is nothing to cap",
            ));
        }
        if self.dropout > 0.0 {
            return Err(Error::combination(
                mixing,
                "dropout",
                "without weights there is nothing to drop",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        AttentionSettings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn names_tables_and_lists_are_read() {
        let settings = AttentionSettings::from_toml(
            "position = ['polar', { kind = 'alibi', heads = 0.5 }]\npattern = { kind = 'window', left = 7 }",
        )
        .unwrap();
        assert_eq!(settings.position.len(), 2);
        assert_eq!(settings.pattern.reach(), Some(7));
    }

    #[test]
    fn booleans_of_earlier_versions_are_read() {
        let settings = AttentionSettings::from_toml("bias = true\nqk_norm = true").unwrap();
        assert_eq!((settings.bias, settings.qk_norm), (AttentionBias::All, QkNorm::Head));
        let settings = AttentionSettings::from_toml("bias = false\nqk_norm = false").unwrap();
        assert_eq!(settings, AttentionSettings::default());
    }

    #[test]
    fn written_settings_read_back_the_same() {
        for position in Position::all() {
            for pattern in Pattern::all() {
                let settings = AttentionSettings {
                    position: vec![position.clone()],
                    pattern,
                    ..Default::default()
                };
                let text = toml::to_string(&settings).unwrap();
                assert_eq!(toml::from_str::<AttentionSettings>(&text).unwrap(), settings, "{text}");
            }
        }
    }

    #[test]
    fn refusals_name_what_was_found_and_what_would_be_right() {
        let cases = [
            ("heads = 6", "heads = 6: does not divide width = 256; use one of 1, 2, 4, 8"),
            ("kv_heads = 3", "kv_heads = 3: does not divide heads = 8"),
            ("position = 'rotry'", "unknown variant `rotry`, expected one of `none`, `sinusoidal`"),
            ("position = { kind = 'rotary', bas = 3 }", "unknown field `bas`, expected"),
            ("wdith = 3", "unknown field `wdith`"),
            ("head_dim = 7", "head_dim = 7: rotary rotates pairs"),
            ("pattern = { kind = 'window', left = 0 }", "pattern.left = 0"),
            ("pattern = { kind = 'predicted', radius = 0 }", "pattern.radius = 0"),
            (
                "pattern = { kind = 'and', of = ['causal', 'predicted'] }",
                "predicted with and: its center is a share of all keys",
            ),
            ("score = 'additive'", "rotary with additive"),
            ("position = ['rotary', 'polar']", "rotary with polar: both rotate the same channels"),
            ("mixing = 'linear'\nposition = 't5'", "linear with t5"),
            ("mixing = 'linear'\nposition = 'none'\npattern = 'window'", "linear with window"),
            ("dropout = 1.0", "dropout = 1"),
            ("epsilon = -1.0", "epsilon = -1: expected at least 0"),
            ("qk_norm_kind = 'layer'", "qk_norm_kind = layer: without a norm"),
            ("bias = 'kv'", "unknown variant `kv`, expected one of `none`, `qkv`, `all`"),
            ("soft_cap = -1.0", "soft_cap = -1"),
            (
                "projections = 'none'\nhead_dim = 8",
                "projections = none: states that are not projected",
            ),
            ("projections = 'compared'\nkv_heads = 2", "projections = compared: states that"),
            ("projections = 'none'\nbias = 'qkv'", "there is no projection to have a bias"),
            ("projections = 'compared'\nbias = true", "no projection of the output to have a bias"),
            ("projections = 'none'\nposition = 'disentangled'", "disentangled with projections"),
        ];
        for (text, expected) in cases {
            let message = refusal(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
