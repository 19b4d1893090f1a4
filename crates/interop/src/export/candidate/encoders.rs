//! Encoders and encoder-decoders.

use serde_json::{Value, json};
use whatwhere_transformer::Site;

use super::{Seen, joined, position};
use crate::error::Result;

impl Seen<'_> {
    pub(super) fn encoders(&self) -> Vec<Value> {
        let settings = self.settings;
        let bert = joined([
            self.sizes(),
            json!({
                "hidden_act": self.activation, "layer_norm_eps": settings.epsilon,
                "type_vocab_size": settings.token_types, "max_position_embeddings": self.length(),
            }),
        ]);
        // Heads of masked language models have a transform; without one there is a stack alone.
        let head = if settings.output_transform { "ForMaskedLM" } else { "Model" };
        let like = |name: &str, class: &str, more: Value| {
            let named = json!({ "model_type": name, "architectures": [format!("{class}{head}")] });
            joined([bert.clone(), named, more])
        };
        let narrow = json!({ "embedding_size": settings.embedding_channels() });
        let base = |is_sliding: bool| self.rotary(is_sliding)["rope_theta"].clone();
        let side = self.layers.iter().find_map(|layer| layer["pattern"]["left"].as_u64());
        let wide = |layer: &Value| layer["pattern"]["left"].as_u64().unwrap_or(1) * 2;
        let windows: Vec<u64> = self.layers.iter().map(wide).collect();
        vec![
            json!({
                "model_type": "distilbert", "architectures": [format!("DistilBert{head}")],
                "dim": settings.width, "n_layers": settings.layers, "n_heads": self.heads(),
                "hidden_dim": settings.feed_forward_width(), "activation": self.activation,
                "max_position_embeddings": self.length(),
            }),
            like("bert", "Bert", json!({})),
            like("roformer", "RoFormer", narrow.clone()),
            like("albert", "Albert", narrow),
            like(
                "longformer",
                "Longformer",
                json!({
                    "attention_window": windows, "pad_token_id": 1,
                    "max_position_embeddings": self.length() + 2,
                }),
            ),
            like("deberta-v2", "DebertaV2", self.disentangled()),
            joined([
                self.sizes(),
                json!({
                    "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"],
                    "hidden_activation": self.activation, "norm_eps": settings.epsilon,
                    "norm_bias": settings.norm_bias.unwrap_or(settings.bias), "layer_types": self.layer_types(),
                    "local_attention": side.unwrap_or(64) * 2, "global_rope_theta": base(false),
                    "local_rope_theta": base(true), "pad_token_id": null,
                }),
            ]),
            json!({
                "model_type": "xlnet", "architectures": ["XLNetLMHeadModel"], "d_model": settings.width,
                "n_layer": settings.layers, "n_head": self.heads(), "d_head": self.head_dim(),
                "d_inner": settings.feed_forward_width(), "ff_activation": self.activation,
                "layer_norm_eps": settings.epsilon, "attn_type": "bi", "untie_r": true,
            }),
        ]
    }

    /// What DeBERTa says of its positions.
    fn disentangled(&self) -> Value {
        let listed = match &self.layers[0]["position"] {
            Value::Array(listed) => listed.as_slice(),
            one => std::slice::from_ref(one),
        };
        let of = |kind: &str| listed.iter().find(|position| position["kind"] == kind);
        let Some(own) = of("disentangled") else { return json!({}) };
        let is = |key: &str| own[key] == true;
        let terms = [("c2p", "content_to_position"), ("p2c", "position_to_content")];
        let asked: Vec<&str> =
            terms.into_iter().filter(|(_, key)| is(key)).map(|(term, _)| term).collect();
        json!({
            "relative_attention": true, "pos_att_type": asked, "share_att_key": is("shared_projections"),
            "norm_rel_ebd": if is("norm") { "layer_norm" } else { "none" },
            "position_buckets": match own["buckets"].as_i64() { None | Some(0) => -1, Some(buckets) => buckets },
            "max_relative_positions": own["length"], "position_biased_input": of("learned").is_some(),
            "max_position_embeddings": of("learned").map_or(&own["length"], |learned| &learned["length"]),
        })
    }

    pub(super) fn pairs(&self) -> Result<Vec<Value>> {
        let settings = self.settings;
        let encoder_heads = settings.attention(Site::Encoder, 0)?.heads;
        let (width, inner) = (settings.width, settings.feed_forward_width());
        let (layers, encoder_layers) = (settings.layers, settings.encoder_depth());
        let bart = json!({
            "is_encoder_decoder": true, "d_model": width, "encoder_layers": encoder_layers, "decoder_layers": layers,
            "encoder_attention_heads": encoder_heads, "decoder_attention_heads": self.heads(),
            "encoder_ffn_dim": inner, "decoder_ffn_dim": inner, "activation_function": self.activation,
            "scale_embedding": settings.scales_embeddings()?, "max_position_embeddings": self.length(),
            "num_hidden_layers": layers, "pad_token_id": 1,
        });
        let first = position(&self.layers[0])["first"].as_u64().unwrap_or(0);
        let like = |name: &str, class: &str| {
            let named = json!({ "model_type": name, "architectures": [class] });
            joined([bart.clone(), named])
        };
        let buckets = position(&self.layers[0]);
        let form = match (settings.is_gated(), self.activation) {
            (true, "gelu_new") => "gated-gelu".into(),
            (true, name) => format!("gated-{name}"),
            (false, name) => name.to_owned(),
        };
        let t5 = json!({
            "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true,
            "d_model": width, "d_kv": self.head_dim(), "d_ff": inner, "num_layers": encoder_layers,
            "num_decoder_layers": layers, "num_heads": self.heads(), "layer_norm_epsilon": settings.epsilon,
            "relative_attention_num_buckets": buckets["buckets"],
            "relative_attention_max_distance": buckets["max_distance"], "feed_forward_proj": form,
            // Nothing is divided by √width before the logits.
            "scale_decoder_outputs": false,
        });
        let m2m = joined([
            like("m2m_100", "M2M100ForConditionalGeneration"),
            json!({ "pad_token_id": first.max(1) - 1 }),
        ]);
        Ok(vec![
            t5,
            like("bart", "BartForConditionalGeneration"),
            like("mbart", "MBartForConditionalGeneration"),
            like("marian", "MarianMTModel"),
            like("pegasus", "PegasusForConditionalGeneration"),
            m2m,
        ])
    }
}
