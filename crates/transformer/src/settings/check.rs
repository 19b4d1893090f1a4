//! What makes no sense together, with the reason.

use whatwhere_settings::Refuses;

use super::{ModelSettings, NormKind, NormPlace, Pooling, ResidualKind, Site};
use crate::{Error, Family};

impl ModelSettings {
    /// Norms, and what stands between them.
    pub(super) fn check_norms(&self) -> Result<(), Error> {
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return Err(Error::setting("epsilon", self.epsilon, "expected at least 0"));
        }
        if self.norm_bias == Some(true) && self.norm == NormKind::Rms {
            let reason = "an rms norm has no bias; use norm = \"layer\"";
            return Err(Error::setting("norm_bias", true, reason));
        }
        let stands_before = matches!(self.norm_place, NormPlace::Pre | NormPlace::Both);
        if !self.first_norm && !stands_before {
            let reason = "no norm stands before a sublayer; use norm_place = \"pre\" or \"both\"";
            return Err(Error::setting("first_norm", false, reason));
        }
        let Some(name) = self.residual.parallel_name() else { return Ok(()) };
        if !stands_before {
            let reason = "needs a norm before its sublayers; use norm_place = \"pre\" or \"both\"";
            return Err(Error::setting("residual", name, reason));
        }
        if self.family == Family::EncoderDecoder {
            let reason =
                "leaves no place between the two for attention to the encoder; use sequential";
            return Err(Error::setting("residual", name, reason));
        }
        if !self.first_norm && self.residual == ResidualKind::Parallel {
            let reason = "first_norm = false would leave the feed-forward without a norm; use parallel_two_norms";
            return Err(Error::setting("residual", name, reason));
        }
        Ok(())
    }

    /// Embeddings and logits.
    pub(super) fn check_ends(&self) -> Result<(), Error> {
        if let Some(cap) = self.output_soft_cap
            && !(cap > 0.0 && cap.is_finite())
        {
            return Err(Error::setting("output_soft_cap", cap, "a cap is above 0"));
        }
        Ok(())
    }

    /// What tells classes.
    pub(super) fn check_classes(&self) -> Result<(), Error> {
        if self.pooling == Some(Pooling::First) && self.family == Family::Decoder {
            let reason =
                "the first token of a decoder sees nothing but itself; use \"mean\" or \"last\"";
            return Err(Error::setting("pooling", "first", reason));
        }
        if self.classes == 0 {
            return Ok(());
        }
        let reason = match (self.classes, self.family) {
            (1, _) => "expected at least 2: one class leaves nothing to tell",
            (found, _) if found > 1 << 20 => "expected at most 1048576",
            (_, Family::EncoderDecoder) => {
                "a text is read by one stack; use family = \"encoder\" or \"decoder\""
            }
            _ if self.segment_memory > 0 => {
                "a text has no segments before it; use segment_memory = 0"
            }
            _ => return Ok(()),
        };
        Err(Error::setting("classes", self.classes, reason))
    }

    /// Layers that share parameters.
    pub(super) fn check_sharing(&self) -> Result<(), Error> {
        if self.share_layers && !self.alternate.is_empty() {
            let reason = "layers that alternate are not one block; use one of the two";
            return Err(Error::setting("share_layers", true, reason));
        }
        if self.share_layers && !self.first_norm {
            let reason = "first_norm = false makes the first layer another than the rest; use one of the two";
            return Err(Error::setting("share_layers", true, reason));
        }
        let stacks = [(Site::Encoder, self.encoder_depth()), (Site::Decoder, self.decoder_depth())];
        for (site, depth) in stacks.into_iter().filter(|_| self.share_positions) {
            for layer in 1..depth {
                if self.attention(site, layer)?.position != self.attention(site, 0)?.position {
                    let reason = "layers that alternate have other encodings; use one of the two";
                    return Err(Error::setting("share_positions", true, reason));
                }
            }
        }
        Ok(())
    }
}

impl ResidualKind {
    /// Its name, if attention and feed-forward stand side by side.
    fn parallel_name(self) -> Option<&'static str> {
        match self {
            Self::Sequential => None,
            Self::Parallel => Some("parallel"),
            Self::ParallelTwoNorms => Some("parallel_two_norms"),
        }
    }
}
