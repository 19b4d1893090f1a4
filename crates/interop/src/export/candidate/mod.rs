//! Configs that a run's settings could have: what each family would say if nothing stood against it. Whether it means the
//! same model is found out by reading it.

mod encoders;

use serde_json::{Map, Value, json};
use whatwhere_transformer::{Activation, Family, ModelSettings, NormPlace, ResidualKind, Site};

use super::rotary;
use crate::{Error, error::Result};

/// What the families ask for, in JSON.
struct Seen<'a> {
    settings: &'a ModelSettings,
    /// Attention of each layer of the stack that the family is about.
    layers: Vec<Value>,
    activation: &'static str,
}

/// A config for each family that has these stacks.
pub(super) fn all(settings: &ModelSettings) -> Result<Vec<Map<String, Value>>> {
    let (site, depth) = match settings.family {
        Family::Encoder => (Site::Encoder, settings.encoder_depth()),
        _ => (Site::Decoder, settings.decoder_depth()),
    };
    let mut layers = Vec::with_capacity(depth);
    for layer in 0..depth {
        let own = settings.attention(site, layer)?;
        layers.push(serde_json::to_value(&own).map_err(|e| Error::Refused(e.to_string()))?);
    }
    let activation = match settings.activation {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Silu | Activation::Swiglu => "silu",
    };
    let seen = Seen { settings, layers, activation };
    let configs = match settings.family {
        Family::Decoder => seen.decoders(),
        Family::Encoder => seen.encoders(),
        Family::EncoderDecoder => seen.pairs()?,
    };
    let whole = |config: Value| {
        let mut whole =
            json!({ "vocab_size": settings.vocabulary, "tie_word_embeddings": settings.tied });
        extend(&mut whole, config);
        whole.as_object().cloned().unwrap_or_default()
    };
    let configs = configs.into_iter().filter(|config| seen.rotates_as(config));
    Ok(configs.map(whole).collect())
}

fn extend(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut all = json!({});
    parts.into_iter().for_each(|part| extend(&mut all, part));
    all
}

/// The first encoding of a layer.
fn position(layer: &Value) -> &Value {
    if layer["position"].is_array() { &layer["position"][0] } else { &layer["position"] }
}

fn slides(layer: &Value) -> bool {
    layer["pattern"]["kind"] == "window"
}

impl Seen<'_> {
    fn heads(&self) -> u64 {
        self.layers[0]["heads"].as_u64().unwrap_or(1)
    }

    fn kv_heads(&self) -> u64 {
        self.layers[0]["kv_heads"].as_u64().unwrap_or(self.heads())
    }

    fn head_dim(&self) -> u64 {
        let width = self.settings.width as u64;
        self.layers[0]["head_dim"].as_u64().unwrap_or(width / self.heads().max(1))
    }

    /// Places of a table; what else there is does not ask.
    fn length(&self) -> u64 {
        position(&self.layers[0])["length"].as_u64().unwrap_or(1024)
    }

    fn share(&self) -> f64 {
        position(&self.layers[0])["channels"].as_f64().unwrap_or(1.0)
    }

    /// Whether transformers rotates as many channels under a name: most families rotate all of a head's, whatever the config says.
    fn rotates_as(&self, config: &Value) -> bool {
        const IN_PART: [&str; 5] = ["phi3", "phi", "stablelm", "gpt_neox", "gptj"];
        self.share() == 1.0
            || config["model_type"].as_str().is_some_and(|name| IN_PART.contains(&name))
    }

    /// Phi-3 reads all of its rotary encoding from one table.
    fn phi3(&self, mut config: Value) -> Value {
        let Some(table) = config.as_object_mut() else { return config };
        let mut rope = match table.remove("rope_scaling") {
            Some(Value::Object(scaling)) => scaling,
            _ => Map::from_iter([("rope_type".into(), "default".into())]),
        };
        let theta = table.remove("rope_theta").unwrap_or(json!(10000.0));
        table.remove("partial_rotary_factor");
        rope.extend([
            ("rope_theta".into(), theta),
            ("partial_rotary_factor".into(), self.share().into()),
        ]);
        if let Some(length) = rope.get("original_max_position_embeddings").cloned() {
            table.insert("original_max_position_embeddings".into(), length);
        }
        table.insert("rope_parameters".into(), rope.into());
        table.insert("pad_token_id".into(), Value::Null);
        config
    }

    /// The tokens that a window shows, the own one among them.
    fn window(&self) -> Option<u64> {
        let layer = self.layers.iter().find(|layer| slides(layer))?;
        Some(layer["pattern"]["left"].as_u64()? + 1)
    }

    fn layer_types(&self) -> Vec<&'static str> {
        let word =
            |layer: &Value| if slides(layer) { "sliding_attention" } else { "full_attention" };
        self.layers.iter().map(word).collect()
    }

    /// Rotary of the first layer of a kind, or of the first.
    fn rotary(&self, is_sliding: bool) -> Value {
        let layer = self.layers.iter().find(|layer| slides(layer) == is_sliding);
        let mut words = rotary::words(position(layer.unwrap_or(&self.layers[0])));
        if words.get("partial_rotary_factor").and_then(Value::as_f64) == Some(1.0) {
            words.remove("partial_rotary_factor");
        }
        Value::Object(words)
    }

    /// The sizes under the names that most families have.
    fn sizes(&self) -> Value {
        let settings = self.settings;
        json!({
            "hidden_size": settings.width, "num_hidden_layers": settings.layers,
            "num_attention_heads": self.heads(), "intermediate_size": settings.feed_forward_width(),
        })
    }

    fn decoders(&self) -> Vec<Value> {
        let settings = self.settings;
        let bias = self.layers[0]["bias"] == "all";
        let (epsilon, activation) = (settings.epsilon, self.activation);
        let grouped = json!({ "num_key_value_heads": self.kv_heads() });
        let llama = joined([
            self.sizes(),
            grouped.clone(),
            self.rotary(false),
            json!({ "head_dim": self.head_dim(), "hidden_act": activation, "rms_norm_eps": epsilon }),
        ]);
        let like = |name: &str, class: &str, more: Value| {
            let named =
                json!({ "model_type": name, "architectures": [format!("{class}ForCausalLM")] });
            joined([llama.clone(), named, more])
        };
        let windows = json!({
            "use_sliding_window": self.window().is_some(), "sliding_window": self.window(),
            "layer_types": self.layer_types(),
        });
        let share = json!({ "partial_rotary_factor": self.share() });
        let parallel = settings.residual != ResidualKind::Sequential;
        let mut all = vec![
            like("llama", "Llama", json!({ "attention_bias": bias, "mlp_bias": settings.bias })),
            like("mistral", "Mistral", json!({ "sliding_window": self.window() })),
            joined([like("qwen3", "Qwen3", json!({ "attention_bias": bias })), windows.clone()]),
            joined([like("qwen2", "Qwen2", json!({})), windows]),
            self.phi3(like("phi3", "Phi3", json!({ "sliding_window": self.window() }))),
            like("olmo2", "Olmo2", json!({ "attention_bias": bias })),
            like("olmo", "Olmo", json!({ "attention_bias": bias })),
            joined([
                like("stablelm", "StableLm", share.clone()),
                json!({
                    "layer_norm_eps": epsilon, "use_parallel_residual": parallel,
                    "use_qkv_bias": self.layers[0]["bias"] == "qkv",
                    "qk_layernorm": self.layers[0]["qk_norm"] != "none",
                }),
            ]),
        ];
        all.extend(self.gemmas(&llama, bias));
        let rope = joined([self.sizes(), self.rotary(false), json!({ "layer_norm_eps": epsilon })]);
        all.push(joined([
            rope.clone(),
            json!({
                "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "rotary_pct": self.share(),
                "use_parallel_residual": parallel, "attention_bias": bias, "hidden_act": activation,
            }),
            share.clone(),
        ]));
        all.push(joined([
            rope,
            grouped,
            share,
            json!({
                "model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_act": activation,
                "qk_layernorm": self.layers[0]["qk_norm"] != "none",
            }),
        ]));
        all.extend(self.older());
        all
    }

    fn gemmas(&self, llama: &Value, bias: bool) -> Vec<Value> {
        let settings = self.settings;
        // `gelu_new` by the name it has there.
        let activation =
            if self.activation == "gelu_new" { "gelu_pytorch_tanh" } else { self.activation };
        let scale = self.layers[0]["score"]["scale"].as_f64().unwrap_or(1.0);
        let both = json!({
            "query_pre_attn_scalar": scale.powi(-2).round() as u64, "sliding_window": self.window().unwrap_or(4096),
            "final_logit_softcapping": settings.output_soft_cap, "layer_types": self.layer_types(),
            "attn_logit_softcapping": self.layers[0]["soft_cap"],
        });
        let local =
            position(self.layers.iter().find(|layer| slides(layer)).unwrap_or(&self.layers[0]));
        let named = |name: &str, class: &str| {
            json!({
                "model_type": name, "architectures": [format!("{class}ForCausalLM")], "attention_bias": bias,
                "hidden_activation": activation, "hidden_act": activation,
            })
        };
        vec![
            joined([llama.clone(), named("gemma", "Gemma")]),
            joined([llama.clone(), named("gemma2", "Gemma2"), both.clone()]),
            joined([
                llama.clone(),
                named("gemma3_text", "Gemma3"),
                both,
                json!({ "rope_local_base_freq": local["base"] }),
            ]),
        ]
    }

    /// Families with names of their own for sizes.
    fn older(&self) -> Vec<Value> {
        let settings = self.settings;
        let (width, layers, heads) = (settings.width, settings.layers, self.heads());
        let (inner, length, activation) =
            (settings.feed_forward_width(), self.length(), self.activation);
        let epsilon = settings.epsilon;
        let turned = (self.share() * self.head_dim() as f64).round() as u64;
        vec![
            json!({
                "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_head": heads,
                "n_layer": layers, "n_inner": inner, "n_positions": length, "activation_function": activation,
                "layer_norm_epsilon": epsilon,
            }),
            json!({
                "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": width,
                "num_attention_heads": heads, "num_hidden_layers": layers, "ffn_dim": inner,
                "max_position_embeddings": length, "activation_function": activation,
                "word_embed_proj_dim": settings.embedding_channels(),
                "do_layer_norm_before": settings.norm_place == NormPlace::Pre,
            }),
            json!({
                "model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": width, "n_head": heads,
                "n_layer": layers, "layer_norm_epsilon": epsilon,
            }),
            json!({
                "model_type": "mpt", "architectures": ["MptForCausalLM"], "d_model": width, "n_heads": heads,
                "n_layers": layers, "expansion_ratio": inner / width.max(1), "no_bias": true,
                "layer_norm_epsilon": epsilon, "attn_config": { "alibi": true },
            }),
            json!({
                "model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": width, "n_head": heads,
                "n_layer": layers, "n_inner": inner, "n_positions": 1 << 20, "rotary_dim": turned,
                "activation_function": activation, "layer_norm_epsilon": epsilon,
            }),
        ]
    }
}
