//! Configs as they are published: the facts that their makers' files hold, key by key.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use whatwhere_interop::import;

/// What an import says of a config: nothing if all of it is understood, and only its tensors are missing.
fn refusal(config: &Value) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let said = import(folder.path(), &folder.path().join("run"), &mut |_, _| {}).unwrap_err();
    let said = said.to_string();
    (!said.contains("found neither model.safetensors nor")).then_some(said)
}

fn joined(mut config: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(more);
    config
}

fn smollm2() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
        "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
        "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
        "rms_norm_eps": 1e-5, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
        "transformers.js_config": { "kv_cache_dtype": { "q4f16": "float16", "fp16": "float16" } },
        "use_cache": true, "vocab_size": 49152,
    })
}

fn qwen2_5() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
        "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936,
    })
}

fn phi3_mini() -> Value {
    json!({
        "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "auto_map": { "AutoConfig": "configuration_phi3.Phi3Config" }, "bos_token_id": 1, "embd_pdrop": 0.0,
        "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
        "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32064,
    })
}

fn phi4_mini() -> Value {
    // A divisor for each pair of 96 channels that rotate; theirs are others.
    let (short, long) = (vec![1.0; 48], vec![1.5; 48]);
    joined(
        phi3_mini(),
        json!({
            "eos_token_id": 199999, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false,
            "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 24,
            "num_key_value_heads": 8, "pad_token_id": 199999, "partial_rotary_factor": 0.75,
            "rope_scaling": { "long_factor": long, "short_factor": short, "type": "longrope" },
            "sliding_window": 262144, "tie_word_embeddings": true, "vocab_size": 200064,
        }),
    )
}

fn gemma2_9b() -> Value {
    json!({
        "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
        "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "gemma2",
        "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096,
        "sliding_window_size": 4096, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 256000,
    })
}

fn gpt2_medium() -> Value {
    json!({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16,
        "n_layer": 24, "n_positions": 1024, "n_special": 0, "predict_special_tokens": true,
        "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": { "text-generation": { "do_sample": true, "max_length": 50 } },
        "vocab_size": 50257,
    })
}

fn modernbert_base() -> Value {
    json!({
        "architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": false,
        "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281, "decoder_bias": true,
        "deterministic_flash_attn": false, "embedding_dropout": 0.0, "eos_token_id": 50282,
        "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": false,
        "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0,
        "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-5, "local_attention": 128,
        "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0,
        "model_type": "modernbert", "norm_bias": false, "norm_eps": 1e-5, "num_attention_heads": 12,
        "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
        "sep_token_id": 50282, "tie_word_embeddings": true, "torch_dtype": "float32", "vocab_size": 50368,
    })
}

fn pegasus_xsum() -> Value {
    json!({
        "activation_dropout": 0.1, "activation_function": "relu", "add_bias_logits": false,
        "add_final_layer_norm": true, "architectures": ["PegasusForConditionalGeneration"],
        "attention_dropout": 0.1, "bos_token_id": 0, "classif_dropout": 0.0, "classifier_dropout": 0.0,
        "d_model": 1024, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096, "decoder_layerdrop": 0.0,
        "decoder_layers": 16, "decoder_start_token_id": 0, "dropout": 0.1, "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0, "encoder_layers": 16, "eos_token_id": 1,
        "extra_pos_embeddings": 0, "force_bos_token_to_be_generated": false, "forced_eos_token_id": 1,
        "init_std": 0.02, "is_encoder_decoder": true, "length_penalty": 0.6, "max_length": 64,
        "max_position_embeddings": 512, "model_type": "pegasus", "normalize_before": true,
        "normalize_embedding": false, "num_beams": 8, "num_hidden_layers": 16, "pad_token_id": 0,
        "scale_embedding": true, "static_position_embeddings": true, "vocab_size": 96103,
    })
}

fn kobart() -> Value {
    json!({
        "activation_dropout": 0.0, "activation_function": "gelu", "add_bias_logits": false,
        "add_final_layer_norm": false, "architectures": ["BartModel"], "attention_dropout": 0.0,
        "author": "its author", "bos_token_id": 1, "classif_dropout": 0.1, "classifier_dropout": 0.1,
        "d_model": 768, "decoder_attention_heads": 16, "decoder_ffn_dim": 3072, "decoder_layerdrop": 0.0,
        "decoder_layers": 6, "decoder_start_token_id": 1, "do_blenderbot_90_layernorm": false, "dropout": 0.1,
        "encoder_attention_heads": 16, "encoder_ffn_dim": 3072, "encoder_layerdrop": 0.0, "encoder_layers": 6,
        "eos_token_id": 1, "extra_pos_embeddings": 2, "force_bos_token_to_be_generated": false,
        "forced_eos_token_id": 1, "gradient_checkpointing": false, "init_std": 0.02,
        "is_encoder_decoder": true, "kobart_version": 2.0, "max_position_embeddings": 1026,
        "model_type": "bart", "normalize_before": false, "normalize_embedding": true, "num_hidden_layers": 6,
        "pad_token_id": 3, "scale_embedding": false, "static_position_embeddings": false,
        "tokenizer_class": "PreTrainedTokenizerFast", "vocab_size": 30000,
    })
}

fn llama2(more: Value) -> Value {
    let llama2 = json!({
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 0, "pretraining_tp": 1,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
        "vocab_size": 32000,
    });
    joined(llama2, more)
}

/// YaRN's own models of Llama 2.
fn yarn(finetuned: bool) -> Value {
    let scaling = json!({
        "factor": 32.0, "finetuned": finetuned, "original_max_position_embeddings": 4096, "type": "yarn",
    });
    llama2(json!({ "max_position_embeddings": 131072, "rope_scaling": scaling }))
}

#[test]
fn published_configs_are_read() {
    for (name, config) in [
        ("SmolLM2-135M-Instruct", smollm2()),
        ("Qwen2.5-0.5B", qwen2_5()),
        ("Phi-3-mini-4k-instruct", phi3_mini()),
        ("Phi-4-mini-instruct", phi4_mini()),
        ("gemma-2-9b-it", gemma2_9b()),
        ("gpt2-medium", gpt2_medium()),
        ("ModernBERT-base", modernbert_base()),
        ("pegasus-xsum", pegasus_xsum()),
        ("kobart-base-v2", kobart()),
        ("Yarn-Llama-2-7b-128k", yarn(true)),
        ("unsloth", llama2(json!({ "unsloth_fixed": true, "unsloth_version": "2024.9" }))),
        ("version 5 as trained", llama2(json!({ "rope_parameters": { "rope_theta": 500000.0 } }))),
    ] {
        assert_eq!(refusal(&config), None, "{name}");
    }
}

/// One line for each model, which has its name and all of its config; lists of factors are others.
#[test]
fn published_configs_of_every_family_are_read() {
    let mut families = BTreeSet::new();
    for line in include_str!("published.jsonl").lines() {
        let published: Value = serde_json::from_str(line).unwrap();
        let config = &published["config"];
        assert_eq!(refusal(config), None, "{}", published["name"]);
        families.insert(config["model_type"].as_str().unwrap().to_owned());
    }
    assert!(families.len() >= 31, "{families:?}");
}

/// What transformers 4 wrote into the config of every model that had been changed for generation.
#[test]
fn keys_of_generation_are_harmless_in_every_family() {
    let generation: Value = serde_json::from_str(
        r#"{
        "return_dict": true, "output_hidden_states": false, "output_attentions": false, "torchscript": false,
        "torch_dtype": null, "use_bfloat16": false, "tf_legacy_loss": false, "pruned_heads": {}, "is_decoder": false,
        "cross_attention_hidden_size": null, "add_cross_attention": false, "tie_encoder_decoder": false,
        "max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
        "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
        "typical_p": 1.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
        "encoder_no_repeat_ngram_size": 0, "bad_words_ids": null, "num_return_sequences": 1,
        "chunk_size_feed_forward": 0, "output_scores": false, "return_dict_in_generate": false,
        "forced_bos_token_id": null, "forced_eos_token_id": null, "remove_invalid_values": false,
        "exponential_decay_length_penalty": null, "suppress_tokens": null, "begin_suppress_tokens": null,
        "renormalize_logits": false, "finetuning_task": null, "id2label": { "0": "A" }, "label2id": { "A": 0 },
        "tokenizer_class": null, "prefix": null, "task_specific_params": null, "problem_type": null,
        "xla_device": null, "_commit_hash": null, "model_max_length": 512, "tokenizer_name": "a/name",
        "custom_pipelines": {}, "sentence_transformers": { "version": "4.0.1" }
    }"#,
    )
    .unwrap();
    for line in include_str!("published.jsonl").lines() {
        let published: Value = serde_json::from_str(line).unwrap();
        let config = joined(published["config"].clone(), generation.clone());
        assert_eq!(refusal(&config), None, "{}", published["name"]);
    }
}

#[test]
fn harmless_keys_are_refused_by_name_at_values_that_are_not() {
    let windows = |of: &str, window: usize| {
        let types = vec!["sliding_attention"; 2];
        json!({
            "model_type": of, "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "head_dim": 16,
            "num_hidden_layers": 2, "intermediate_size": 48, "max_position_embeddings": 64,
            "sliding_window": window, "layer_types": if of == "gemma3_text" { json!(types) } else { Value::Null },
        })
    };
    let longformer = |window: Value| {
        json!({
            "model_type": "longformer", "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2,
            "num_hidden_layers": 2, "intermediate_size": 48, "max_position_embeddings": 64,
            "attention_window": window,
        })
    };
    let without_nulls = |mut config: Value| {
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        config
    };
    for config in [
        windows("gemma3_text", 2),
        windows("mistral", 2),
        longformer(json!(4)),
        longformer(json!([2, 4])),
    ] {
        assert_eq!(refusal(&without_nulls(config)), None);
    }
    for (config, said) in [
        (joined(qwen2_5(), json!({ "use_mrope": true })), "use_mrope = true, expected false"),
        (joined(phi3_mini(), json!({ "attention_bias": true })), "attention_bias = true"),
        (joined(phi4_mini(), json!({ "full_attn_mod": 2 })), "full_attn_mod = 2, expected 1"),
        (joined(phi4_mini(), json!({ "interpolate_factor": 2 })), "interpolate_factor = 2"),
        (joined(phi4_mini(), json!({ "lm_head_bias": true })), "lm_head_bias = true"),
        (joined(phi4_mini(), json!({ "mlp_bias": true })), "mlp_bias = true, expected false"),
        (joined(gemma2_9b(), json!({ "sliding_window_size": 64 })), "sliding_window_size = 64"),
        (joined(gpt2_medium(), json!({ "n_special": 2 })), "n_special = 2, expected 0"),
        (
            joined(gpt2_medium(), json!({ "predict_special_tokens": false })),
            "predict_special_tokens",
        ),
        (joined(modernbert_base(), json!({ "layer_norm_eps": 1e-12 })), "layer_norm_eps = 1e-12"),
        (
            joined(modernbert_base(), json!({ "local_attention": "abc" })),
            "local_attention = \"abc\"",
        ),
        (joined(modernbert_base(), json!({ "local_attention": 0 })), "local_attention = 0"),
        (
            joined(kobart(), json!({ "do_blenderbot_90_layernorm": true })),
            "do_blenderbot_90_layernorm",
        ),
        (yarn(false), "rope_scaling.finetuned = false, expected true"),
        (llama2(json!({ "rope_parameters": { "factor": 4.0 } })), "rope_parameters.factor = 4.0"),
        (llama2(json!({ "rope_scaling": { "factor": 4.0 } })), "rope_scaling.rope_type = nothing"),
        (windows("gemma3_text", 0), "sliding_window = 0, expected at least 2"),
        (windows("gemma3_text", 1), "sliding_window = 1, expected at least 2"),
        (windows("mistral", 0), "sliding_window = 0, expected at least 2"),
        (longformer(json!(3)), "attention_window = 3, expected an even size"),
        (longformer(json!([2, 5])), "attention_window = [2,5], expected an even size"),
        (
            llama2(
                json!({ "rope_scaling": { "type": "linear", "factor": 2.0 }, "rope_parameters": { "rope_theta": 1e4 } }),
            ),
            "rope_scaling = {",
        ),
        (
            llama2(json!({ "partial_rotary_factor": 0.29 })),
            "would rotate, expected an even number of them",
        ),
    ] {
        let message = refusal(&without_nulls(config)).unwrap_or_default();
        assert!(message.contains(said), "{said}: {message}");
    }
}
