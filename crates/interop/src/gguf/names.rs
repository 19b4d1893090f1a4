//! The second table of names: a tensor of GGUF, the one of transformers that it is, and what llama.cpp's converter did to it.

use crate::huggingface::family;

/// What the converter did, to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    /// Rows of each head were put into pairs side by side.
    Permuted,
    /// 1 was added.
    PlusOne,
    /// A matrix `[from, to]` was transposed.
    Transposed,
    /// Queries, keys and values of each head were put into all queries, all keys, all values.
    Thirds,
}

/// An architecture: its name in GGUF, the `model_type`, and the rows `(theirs, of transformers, done)`; `{}` is a layer.
pub(super) struct Architecture {
    pub(super) name: &'static str,
    pub(super) model_type: &'static str,
    pub(super) rows: &'static [(&'static str, &'static str, Done)],
}

use Done::{Nothing, Permuted, PlusOne, Thirds, Transposed};

pub(super) const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", model_type: "llama", rows: LLAMA },
    Architecture { name: "qwen2", model_type: "qwen2", rows: QWEN },
    Architecture { name: "qwen3", model_type: "qwen3", rows: QWEN },
    Architecture { name: "stablelm", model_type: "stablelm", rows: QWEN },
    Architecture { name: "olmo", model_type: "olmo", rows: OLMO },
    Architecture { name: "olmo2", model_type: "olmo2", rows: OLMO2 },
    Architecture { name: "phi3", model_type: "phi3", rows: PHI3 },
    Architecture { name: "gemma", model_type: "gemma", rows: GEMMA },
    Architecture { name: "gemma2", model_type: "gemma2", rows: GEMMA2 },
    Architecture { name: "gemma3", model_type: "gemma3_text", rows: GEMMA2 },
    Architecture { name: "gpt2", model_type: "gpt2", rows: GPT2 },
    Architecture { name: "gptneox", model_type: "gpt_neox", rows: NEOX },
    Architecture { name: "phi2", model_type: "phi", rows: PHI2 },
    Architecture { name: "bloom", model_type: "bloom", rows: BLOOM },
    Architecture { name: "mpt", model_type: "mpt", rows: MPT },
    Architecture { name: "bert", model_type: "bert", rows: BERT },
];

/// Architectures of llama.cpp that are refused, and the `model_type` whose reason is theirs.
const REFUSED: &[(&str, &str)] = &[
    ("arctic", "mixtral"),
    ("bailingmoe", "mixtral"),
    ("bailingmoe2", "mixtral"),
    ("dbrx", "dbrx"),
    ("deepseek", "mixtral"),
    ("deepseek2", "deepseek_v2"),
    ("dots1", "mixtral"),
    ("ernie4_5-moe", "ernie4_5_moe"),
    ("gemma3n", "gemma3n"),
    ("glm4moe", "glm4_moe"),
    ("gpt-oss", "gpt_oss"),
    ("granitemoe", "granitemoe"),
    ("grok", "grok-1"),
    ("hunyuan-moe", "mixtral"),
    ("jamba", "jamba"),
    ("llama4", "llama4"),
    ("mamba", "mamba"),
    ("mamba2", "mamba2"),
    ("minicpm3", "minicpm3"),
    ("minimax-m2", "minimax"),
    ("nomic-bert-moe", "mixtral"),
    ("olmoe", "olmoe"),
    ("phimoe", "phimoe"),
    ("qwen2moe", "qwen2_moe"),
    ("qwen2vl", "qwen2_vl"),
    ("qwen3moe", "qwen3_moe"),
    ("qwen3vl", "qwen3_vl"),
    ("rwkv6", "rwkv"),
    ("rwkv7", "rwkv"),
];

/// Why an architecture is refused by name, if it is.
pub(super) fn refusal(name: &str) -> Option<&'static str> {
    let (_, like) = REFUSED.iter().find(|(known, _)| *known == name)?;
    family::refusal(like)
}

type Rows = &'static [(&'static str, &'static str, Done)];

const LLAMA: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Permuted),
    ("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", Permuted),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Permuted),
    ("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", Permuted),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias", Nothing),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", Nothing),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
    ("blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias", Nothing),
    ("blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias", Nothing),
    ("blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias", Nothing),
];

const QWEN: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", Nothing),
    ("output_norm.bias", "model.norm.bias", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_norm.bias", "model.layers.{}.input_layernorm.bias", Nothing),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Nothing),
    ("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", Nothing),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Nothing),
    ("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", Nothing),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", Nothing),
    ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", Nothing),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", Nothing),
    ("blk.{}.ffn_norm.bias", "model.layers.{}.post_attention_layernorm.bias", Nothing),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const OLMO: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Permuted),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Permuted),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const OLMO2: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Nothing),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Nothing),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", Nothing),
    ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", Nothing),
    (
        "blk.{}.post_attention_norm.weight",
        "model.layers.{}.post_attention_layernorm.weight",
        Nothing,
    ),
    ("blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight", Nothing),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const PHI3: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const GEMMA: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", PlusOne),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", PlusOne),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Nothing),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Nothing),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", PlusOne),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const GEMMA2: Rows = &[
    ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", PlusOne),
    ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", PlusOne),
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output_norm.weight", "model.norm.weight", PlusOne),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", PlusOne),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Nothing),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Nothing),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", Nothing),
    (
        "blk.{}.post_attention_norm.weight",
        "model.layers.{}.post_attention_layernorm.weight",
        PlusOne,
    ),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight", PlusOne),
    ("blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight", PlusOne),
    ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", Nothing),
];

const GPT2: Rows = &[
    ("token_embd.weight", "transformer.wte.weight", Nothing),
    ("position_embd.weight", "transformer.wpe.weight", Nothing),
    ("output_norm.weight", "transformer.ln_f.weight", Nothing),
    ("output_norm.bias", "transformer.ln_f.bias", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("blk.{}.attn_norm.weight", "transformer.h.{}.ln_1.weight", Nothing),
    ("blk.{}.attn_norm.bias", "transformer.h.{}.ln_1.bias", Nothing),
    ("blk.{}.attn_qkv.weight", "transformer.h.{}.attn.c_attn.weight", Transposed),
    ("blk.{}.attn_qkv.bias", "transformer.h.{}.attn.c_attn.bias", Nothing),
    ("blk.{}.attn_output.weight", "transformer.h.{}.attn.c_proj.weight", Transposed),
    ("blk.{}.attn_output.bias", "transformer.h.{}.attn.c_proj.bias", Nothing),
    ("blk.{}.ffn_norm.weight", "transformer.h.{}.ln_2.weight", Nothing),
    ("blk.{}.ffn_norm.bias", "transformer.h.{}.ln_2.bias", Nothing),
    ("blk.{}.ffn_up.weight", "transformer.h.{}.mlp.c_fc.weight", Transposed),
    ("blk.{}.ffn_up.bias", "transformer.h.{}.mlp.c_fc.bias", Nothing),
    ("blk.{}.ffn_down.weight", "transformer.h.{}.mlp.c_proj.weight", Transposed),
    ("blk.{}.ffn_down.bias", "transformer.h.{}.mlp.c_proj.bias", Nothing),
];

const NEOX: Rows = &[
    ("token_embd.weight", "gpt_neox.embed_in.weight", Nothing),
    ("output.weight", "embed_out.weight", Nothing),
    ("output_norm.weight", "gpt_neox.final_layer_norm.weight", Nothing),
    ("output_norm.bias", "gpt_neox.final_layer_norm.bias", Nothing),
    ("blk.{}.attn_norm.weight", "gpt_neox.layers.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_norm.bias", "gpt_neox.layers.{}.input_layernorm.bias", Nothing),
    ("blk.{}.ffn_norm.weight", "gpt_neox.layers.{}.post_attention_layernorm.weight", Nothing),
    ("blk.{}.ffn_norm.bias", "gpt_neox.layers.{}.post_attention_layernorm.bias", Nothing),
    ("blk.{}.attn_qkv.weight", "gpt_neox.layers.{}.attention.query_key_value.weight", Thirds),
    ("blk.{}.attn_qkv.bias", "gpt_neox.layers.{}.attention.query_key_value.bias", Thirds),
    ("blk.{}.attn_output.weight", "gpt_neox.layers.{}.attention.dense.weight", Nothing),
    ("blk.{}.attn_output.bias", "gpt_neox.layers.{}.attention.dense.bias", Nothing),
    ("blk.{}.ffn_up.weight", "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", Nothing),
    ("blk.{}.ffn_up.bias", "gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", Nothing),
    ("blk.{}.ffn_down.weight", "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", Nothing),
    ("blk.{}.ffn_down.bias", "gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", Nothing),
];

const PHI2: Rows = &[
    ("token_embd.weight", "model.embed_tokens.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("output.bias", "lm_head.bias", Nothing),
    ("output_norm.weight", "model.final_layernorm.weight", Nothing),
    ("output_norm.bias", "model.final_layernorm.bias", Nothing),
    ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_norm.bias", "model.layers.{}.input_layernorm.bias", Nothing),
    ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Nothing),
    ("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", Nothing),
    ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Nothing),
    ("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", Nothing),
    ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Nothing),
    ("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", Nothing),
    ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.dense.weight", Nothing),
    ("blk.{}.attn_output.bias", "model.layers.{}.self_attn.dense.bias", Nothing),
    ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.fc1.weight", Nothing),
    ("blk.{}.ffn_up.bias", "model.layers.{}.mlp.fc1.bias", Nothing),
    ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.fc2.weight", Nothing),
    ("blk.{}.ffn_down.bias", "model.layers.{}.mlp.fc2.bias", Nothing),
];

const BLOOM: Rows = &[
    ("token_embd.weight", "transformer.word_embeddings.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("token_embd_norm.weight", "transformer.word_embeddings_layernorm.weight", Nothing),
    ("token_embd_norm.bias", "transformer.word_embeddings_layernorm.bias", Nothing),
    ("output_norm.weight", "transformer.ln_f.weight", Nothing),
    ("output_norm.bias", "transformer.ln_f.bias", Nothing),
    ("blk.{}.attn_norm.weight", "transformer.h.{}.input_layernorm.weight", Nothing),
    ("blk.{}.attn_norm.bias", "transformer.h.{}.input_layernorm.bias", Nothing),
    ("blk.{}.attn_qkv.weight", "transformer.h.{}.self_attention.query_key_value.weight", Thirds),
    ("blk.{}.attn_qkv.bias", "transformer.h.{}.self_attention.query_key_value.bias", Thirds),
    ("blk.{}.attn_output.weight", "transformer.h.{}.self_attention.dense.weight", Nothing),
    ("blk.{}.attn_output.bias", "transformer.h.{}.self_attention.dense.bias", Nothing),
    ("blk.{}.ffn_norm.weight", "transformer.h.{}.post_attention_layernorm.weight", Nothing),
    ("blk.{}.ffn_norm.bias", "transformer.h.{}.post_attention_layernorm.bias", Nothing),
    ("blk.{}.ffn_up.weight", "transformer.h.{}.mlp.dense_h_to_4h.weight", Nothing),
    ("blk.{}.ffn_up.bias", "transformer.h.{}.mlp.dense_h_to_4h.bias", Nothing),
    ("blk.{}.ffn_down.weight", "transformer.h.{}.mlp.dense_4h_to_h.weight", Nothing),
    ("blk.{}.ffn_down.bias", "transformer.h.{}.mlp.dense_4h_to_h.bias", Nothing),
];

const MPT: Rows = &[
    ("token_embd.weight", "transformer.wte.weight", Nothing),
    ("output.weight", "lm_head.weight", Nothing),
    ("output_norm.weight", "transformer.norm_f.weight", Nothing),
    ("blk.{}.attn_norm.weight", "transformer.blocks.{}.norm_1.weight", Nothing),
    ("blk.{}.attn_qkv.weight", "transformer.blocks.{}.attn.Wqkv.weight", Nothing),
    ("blk.{}.attn_output.weight", "transformer.blocks.{}.attn.out_proj.weight", Nothing),
    ("blk.{}.ffn_norm.weight", "transformer.blocks.{}.norm_2.weight", Nothing),
    ("blk.{}.ffn_up.weight", "transformer.blocks.{}.ffn.up_proj.weight", Nothing),
    ("blk.{}.ffn_down.weight", "transformer.blocks.{}.ffn.down_proj.weight", Nothing),
];

const BERT: Rows = &[
    ("token_embd.weight", "bert.embeddings.word_embeddings.weight", Nothing),
    ("position_embd.weight", "bert.embeddings.position_embeddings.weight", Nothing),
    ("token_types.weight", "bert.embeddings.token_type_embeddings.weight", Nothing),
    ("token_embd_norm.weight", "bert.embeddings.LayerNorm.weight", Nothing),
    ("token_embd_norm.bias", "bert.embeddings.LayerNorm.bias", Nothing),
    ("blk.{}.attn_q.weight", "bert.encoder.layer.{}.attention.self.query.weight", Nothing),
    ("blk.{}.attn_q.bias", "bert.encoder.layer.{}.attention.self.query.bias", Nothing),
    ("blk.{}.attn_k.weight", "bert.encoder.layer.{}.attention.self.key.weight", Nothing),
    ("blk.{}.attn_k.bias", "bert.encoder.layer.{}.attention.self.key.bias", Nothing),
    ("blk.{}.attn_v.weight", "bert.encoder.layer.{}.attention.self.value.weight", Nothing),
    ("blk.{}.attn_v.bias", "bert.encoder.layer.{}.attention.self.value.bias", Nothing),
    ("blk.{}.attn_output.weight", "bert.encoder.layer.{}.attention.output.dense.weight", Nothing),
    ("blk.{}.attn_output.bias", "bert.encoder.layer.{}.attention.output.dense.bias", Nothing),
    (
        "blk.{}.attn_output_norm.weight",
        "bert.encoder.layer.{}.attention.output.LayerNorm.weight",
        Nothing,
    ),
    (
        "blk.{}.attn_output_norm.bias",
        "bert.encoder.layer.{}.attention.output.LayerNorm.bias",
        Nothing,
    ),
    ("blk.{}.ffn_up.weight", "bert.encoder.layer.{}.intermediate.dense.weight", Nothing),
    ("blk.{}.ffn_up.bias", "bert.encoder.layer.{}.intermediate.dense.bias", Nothing),
    ("blk.{}.ffn_down.weight", "bert.encoder.layer.{}.output.dense.weight", Nothing),
    ("blk.{}.ffn_down.bias", "bert.encoder.layer.{}.output.dense.bias", Nothing),
    ("blk.{}.layer_output_norm.weight", "bert.encoder.layer.{}.output.LayerNorm.weight", Nothing),
    ("blk.{}.layer_output_norm.bias", "bert.encoder.layer.{}.output.LayerNorm.bias", Nothing),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_architecture_has_a_reason() {
        for (name, _) in REFUSED {
            assert!(refusal(name).is_some(), "{name}");
            assert!(ARCHITECTURES.iter().all(|known| known.name != *name), "{name}");
        }
    }
}
