//! Attention and feed-forward side by side: GPT-NeoX with a norm each, GPT-J and Phi 1 and 2 with one for both. StableLM can
//! have either form.

use super::{Family, llama};
use crate::{
    error::Result,
    huggingface::{
        config::Config,
        rotary::{Rope, rotary},
        settings::Settings,
    },
    table::Names,
    turn::Split,
};

pub(super) const NEOX: Family =
    Family { types: &["gpt_neox"], prefix: "gpt_neox.", settings: neox, names: neox_names };
pub(super) const GPTJ: Family =
    Family { types: &["gptj"], prefix: "transformer.", settings: gptj, names: gptj_names };
pub(super) const PHI: Family =
    Family { types: &["phi"], prefix: "model.", settings: phi, names: phi_names };
pub(super) const STABLELM: Family =
    Family { types: &["stablelm"], prefix: "model.", settings: stablelm, names: stablelm_names };

fn neox(config: &Config) -> Result<Settings> {
    let share = config.number("rotary_pct", 0.25)?;
    let base = config.number("rotary_emb_base", 10_000.0)?;
    let position = rotary(config, Rope { base, share, ..Rope::default() })?;
    let parallel = config.flag("use_parallel_residual", true)?;
    let activation = config.word_if("hidden_act")?.unwrap_or("gelu".into());
    let bias = config.flag("attention_bias", true)?;
    // The family has no grouped heads, whatever a file says.
    config.understood(&["max_position_embeddings", "num_key_value_heads"]);
    Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", config.count("hidden_size")?)
        .set("layers", config.count("num_hidden_layers")?)
        .set("norm", "layer")
        .set("bias", true)
        .set("feed_forward", config.count("intermediate_size")?)
        .set("tied", config.flag("tie_word_embeddings", false)?)
        .set("residual", if parallel { "parallel_two_norms" } else { "sequential" })
        .epsilon(config.number("layer_norm_eps", 1e-5)?)
        .set("attention.heads", config.count("num_attention_heads")?)
        .set("attention.bias", bias)
        .set("attention.position", position)
        .activation(config, "hidden_act", &activation, false)
}

fn neox_names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("gpt_neox.layers.{}", "decoder.blocks.{}");
    let qkv = format!("{block}.attention.query_key_value");
    Ok(Names::default()
        .keep("gpt_neox.embed_in.weight", "embedding.weight")
        .norm(&format!("{block}.input_layernorm"), &format!("{ours}.attention_norm"))
        .norm(&format!("{block}.post_attention_layernorm"), &format!("{ours}.feed_forward_norm"))
        .qkv(&qkv, &format!("{ours}.attention"), Split::ByHead)
        .linear(&format!("{block}.attention.dense"), &format!("{ours}.attention.output"))
        .linear(&format!("{block}.mlp.dense_h_to_4h"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.mlp.dense_4h_to_h"), &format!("{ours}.feed_forward.down"))
        .norm("gpt_neox.final_layer_norm", "decoder.norm")
        .untied("embed_out.weight", "output.weight")
        .ignore("gpt_neox.layers.{}.attention.bias")
        .ignore("gpt_neox.layers.{}.attention.masked_bias")
        .ignore("gpt_neox.layers.{}.attention.rotary_emb.inv_freq"))
}

fn gptj(config: &Config) -> Result<Settings> {
    let (width, heads) = (config.count("n_embd")?, config.count("n_head")?);
    let head_dim = width / heads.max(1);
    let turned = config.count_if("rotary_dim")?.unwrap_or(head_dim);
    config.understood(&["n_positions", "n_ctx", "rotary", "scale_attn_weights"]);
    let activation = config.word_if("activation_function")?.unwrap_or("gelu_new".into());
    let position = Settings::kind("rotary").set("layout", "interleaved").set_unless(
        "channels",
        1.0,
        turned as f64 / head_dim as f64,
    );
    Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("n_layer")?)
        .set("norm", "layer")
        .set("bias", true)
        .set("feed_forward", config.count_if("n_inner")?.unwrap_or(4 * width))
        .set("tied", config.flag("tie_word_embeddings", false)?)
        .set("residual", "parallel")
        .set("output_bias", true)
        .epsilon(config.number("layer_norm_epsilon", 1e-5)?)
        .set("attention.heads", heads)
        .set("attention.position", position)
        .activation(config, "activation_function", &activation, false)
}

fn gptj_names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("transformer.h.{}", "decoder.blocks.{}");
    Ok(Names::default()
        .keep("transformer.wte.weight", "embedding.weight")
        .norm(&format!("{block}.ln_1"), &format!("{ours}.attention_norm"))
        .attention(
            &format!("{block}.attn"),
            ["q_proj", "k_proj", "v_proj", "out_proj"],
            &format!("{ours}.attention"),
        )
        .linear(&format!("{block}.mlp.fc_in"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.mlp.fc_out"), &format!("{ours}.feed_forward.down"))
        .norm("transformer.ln_f", "decoder.norm")
        .untied("lm_head.weight", "output.weight")
        .keep("lm_head.bias", "output.bias")
        .ignore("transformer.h.{}.attn.bias")
        .ignore("transformer.h.{}.attn.masked_bias")
        .ignore("transformer.h.{}.attn.scale_attn")
        .ignore("transformer.h.{}.attn.embed_positions"))
}

fn phi(config: &Config) -> Result<Settings> {
    let (width, heads) = (config.count("hidden_size")?, config.count("num_attention_heads")?);
    let position = rotary(config, Rope { share: 0.5, ..Rope::default() })?;
    let normed = config.flag("qk_layernorm", false)?;
    config.understood(&["max_position_embeddings"]);
    let activation = config.word_if("hidden_act")?.unwrap_or("gelu_new".into());
    Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("num_hidden_layers")?)
        .set("norm", "layer")
        .set("bias", true)
        .set("feed_forward", config.count("intermediate_size")?)
        .set("tied", config.flag("tie_word_embeddings", false)?)
        .set("residual", "parallel")
        .set("output_bias", true)
        .epsilon(config.number("layer_norm_eps", 1e-5)?)
        .set("attention.heads", heads)
        .set("attention.kv_heads", config.count_if("num_key_value_heads")?.unwrap_or(heads))
        .set("attention.bias", true)
        .set_if("attention.qk_norm", normed.then_some("head"))
        .set_if("attention.qk_norm_kind", normed.then_some("layer"))
        .set("attention.position", position)
        .activation(config, "hidden_act", &activation, false)
}

fn phi_names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("model.layers.{}", "decoder.blocks.{}");
    let mut names = Names::default();
    for (part, own) in [("q", "query"), ("k", "key")] {
        let theirs = format!("{block}.self_attn.{part}_layernorm");
        names = names
            .keep(&format!("{theirs}.weight"), &format!("{ours}.attention.{own}_norm.gamma"))
            .keep(&format!("{theirs}.bias"), &format!("{ours}.attention.{own}_norm.beta"));
    }
    Ok(names
        .keep("model.embed_tokens.weight", "embedding.weight")
        .norm(&format!("{block}.input_layernorm"), &format!("{ours}.attention_norm"))
        .attention(
            &format!("{block}.self_attn"),
            ["q_proj", "k_proj", "v_proj", "dense"],
            &format!("{ours}.attention"),
        )
        .linear(&format!("{block}.mlp.fc1"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.mlp.fc2"), &format!("{ours}.feed_forward.down"))
        .norm("model.final_layernorm", "decoder.norm")
        .untied("lm_head.weight", "output.weight")
        .keep("lm_head.bias", "output.bias")
        .ignore("model.layers.{}.self_attn.rotary_emb.inv_freq"))
}

fn stablelm(config: &Config) -> Result<Settings> {
    let normed = config.flag("qk_layernorm", false)?;
    let bias = config.flag("use_qkv_bias", false)?;
    let parallel = config.flag("use_parallel_residual", false)?;
    let epsilon = config.number("layer_norm_eps", 1e-5)?;
    config.understood(&["rotary_scaling_factor"]);
    Ok(llama::common(config, Rope { share: 0.25, ..Rope::default() })?
        .set("norm", "layer")
        .set("norm_bias", true)
        .set("epsilon", epsilon)
        .set_if("residual", parallel.then_some("parallel"))
        .set_if("attention.qk_norm", normed.then_some("each_head"))
        .set_if("attention.qk_norm_kind", normed.then_some("layer"))
        .set_if("attention.bias", bias.then_some("qkv")))
}

fn stablelm_names(_config: &Config) -> Result<Names> {
    // A norm for each head, `{h}`, which is one gain of ours.
    let own = "decoder.blocks.{}.attention";
    let norms = "model.layers.{}.self_attn";
    Ok(llama::plain()
        .keep(
            &format!("{norms}.q_layernorm.norms.{{h}}.weight"),
            &format!("{own}.query_norm.gamma"),
        )
        .keep(&format!("{norms}.k_layernorm.norms.{{h}}.weight"), &format!("{own}.key_norm.gamma"))
        .fill(&format!("{own}.query_norm.beta"), 0.0)
        .fill(&format!("{own}.key_norm.beta"), 0.0))
}
