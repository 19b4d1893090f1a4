//! Where a model's attentions are, and their heads.

use whatwhere_transformer::{Family, ModelSettings, Site};

use crate::turn::Heads;

/// An attention's place in the model, and its heads.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// What the names of its parameters begin with.
    pub(crate) prefix: String,
    pub(crate) heads: Heads,
    /// Whether queries and keys are of one sequence.
    pub(crate) own: bool,
}

/// All attentions of a model.
pub(crate) fn attentions(settings: &ModelSettings) -> Vec<Place> {
    let mut out = Vec::new();
    let mut add = |site: Site, depth: usize, name: &str| {
        for layer in 0..if settings.share_layers { depth.min(1) } else { depth } {
            let Ok(own) = settings.attention(site, layer) else { continue };
            let head_dim = own.head_dim.unwrap_or(settings.width / own.heads.max(1));
            let kv_heads = own.kv_heads.unwrap_or(own.heads);
            out.push(Place {
                prefix: name.replace("{}", &layer.to_string()),
                heads: Heads { heads: own.heads, kv_heads, head_dim },
                own: site != Site::Cross,
            });
        }
    };
    add(Site::Encoder, settings.encoder_depth(), "encoder.blocks.{}.attention");
    add(Site::Decoder, settings.decoder_depth(), "decoder.blocks.{}.attention");
    if settings.family == Family::EncoderDecoder {
        add(Site::Cross, settings.decoder_depth(), "decoder.blocks.{}.cross.attention");
    }
    out
}
