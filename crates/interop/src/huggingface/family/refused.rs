//! Families that are refused by name, and why.

const REFUSED: &[(&[&str], &str)] = &[
    (
        &[
            "mixtral",
            "qwen2_moe",
            "qwen3_moe",
            "olmoe",
            "gpt_oss",
            "phimoe",
            "granitemoe",
            "dbrx",
            "jamba",
            "jetmoe",
            "llama4",
            "llama4_text",
            "switch_transformers",
            "nllb-moe",
            "grok-1",
            "minimax",
            "glm4_moe",
            "ernie4_5_moe",
        ],
        "a mixture of experts: a token takes some of many feed-forwards, ours takes the one there is",
    ),
    (
        &["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "longcat_flash", "minicpm3"],
        "multi-head latent attention: keys and values are made of a shared compressed vector",
    ),
    (
        &[
            "whisper",
            "wav2vec2",
            "hubert",
            "wavlm",
            "speech_to_text",
            "seamless_m4t",
            "moonshine",
            "musicgen",
            "bark",
        ],
        "audio: its encoder reads sound, ours tokens",
    ),
    (
        &["big_bird", "bigbird_pegasus"],
        "block-sparse attention that counts the first block twice where its random blocks are empty: no pattern says that",
    ),
    (
        &[
            "mamba",
            "mamba2",
            "falcon_mamba",
            "rwkv",
            "recurrent_gemma",
            "xlstm",
            "zamba",
            "zamba2",
            "bamba",
        ],
        "a recurrent state instead of attention",
    ),
    (
        &[
            "clip",
            "vit",
            "llava",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3_vl",
            "gemma3",
            "gemma3n",
            "mllama",
            "idefics",
            "paligemma",
            "blip",
        ],
        "made for pictures: its text model alone may be one that is known (gemma3_text)",
    ),
    (&["reformer"], "attention by hashing of what tokens say"),
    (
        &["funnel", "canine", "perceiver"],
        "made of sequences that change their length from layer to layer",
    ),
    (
        &["deberta"],
        "the first DeBERTa, whose queries, keys and values are one matrix with biases of their own; deberta-v2 is read",
    ),
    (&["umt5"], "a T5 with a table of buckets in every layer, which is not written yet"),
];

/// Why a family is refused, if it is.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}
