"""The tiny models `huggingface.py` writes: a class of transformers, its config, and faults that must show.

A fault is a change of the config a careless reader would make; the weights stay.
"""

V = 67  # vocabulary
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)

DECODER = dict(
    vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, **IDS,
)  # fmt: skip
ENCODER = dict(
    vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
SEQ2SEQ = dict(
    vocab_size=V, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=48, dropout=0.0,
    bos_token_id=0, pad_token_id=1, eos_token_id=2, forced_eos_token_id=2, decoder_start_token_id=2,
)  # fmt: skip
T5 = dict(
    vocab_size=V, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4, dropout_rate=0.0,
    relative_attention_num_buckets=8, relative_attention_max_distance=20, layer_norm_epsilon=1e-2,
    decoder_start_token_id=0,
)  # fmt: skip


def rope(kind, theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


def llama(**more):
    return DECODER | dict(rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=rope("default")) | more


EPS = "epsilon"
PLAIN = dict(rope_parameters=rope("default"))
BERT_EPS = {EPS: dict(layer_norm_eps=1e-5)}
YARN = rope("yarn", 100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=2.0, beta_slow=0.5)
WHOLE = dict(rope_parameters=rope("default", partial_rotary_factor=1.0))
TWO = [1.0, 1.3]
FACTORS = dict(short_factor=[1.0, 1.1, 1.4, 2.0], long_factor=[1.0, 1.5, 3.0, 6.0])

# name: (class, config, faults)
FAMILIES = {
    "gpt2": (
        "GPT2LMHeadModel",
        dict(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_inner=64, n_positions=48, layer_norm_epsilon=1e-2)
        | dict(bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        {EPS: dict(layer_norm_epsilon=1e-5), "gelu": dict(activation_function="gelu")},
    ),
    "llama": ("LlamaForCausalLM", llama(rms_norm_eps=1e-2), {EPS: dict(rms_norm_eps=1e-5)}),
    "llama_tied_bias": (
        "LlamaForCausalLM",
        llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        {"theta": dict(rope_parameters=rope("default", 500000.0))},
    ),
    "llama_head_dim": ("LlamaForCausalLM", llama(head_dim=12, num_key_value_heads=1), {}),
    "llama_linear": ("LlamaForCausalLM", llama(rope_parameters=rope("linear", factor=4.0)), {"scaling": PLAIN}),
    "llama_dynamic": (
        "LlamaForCausalLM",
        llama(max_position_embeddings=16, rope_parameters=rope("dynamic", factor=4.0)),
        {"scaling": PLAIN},
    ),
    "llama_yarn": (
        "LlamaForCausalLM",
        llama(rope_parameters=YARN | dict(truncate=False)),
        {
            "scaling": PLAIN,
            "truncate": dict(rope_parameters=YARN),
            "attention factor": dict(rope_parameters=YARN | dict(truncate=False, attention_factor=1.0)),
        },
    ),
    "llama_llama3": (
        "LlamaForCausalLM",
        llama(
            rope_parameters=rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
            )
        ),
        {"scaling": PLAIN},
    ),
    "llama_longrope": (
        "LlamaForCausalLM",
        llama(
            max_position_embeddings=192,
            rope_parameters=rope("longrope", original_max_position_embeddings=48, **FACTORS),
        ),
        {"scaling": PLAIN},
    ),
    "mistral": (
        "MistralForCausalLM",
        DECODER | dict(sliding_window=7, rms_norm_eps=1e-2),
        {EPS: dict(rms_norm_eps=1e-5), "window": dict(sliding_window=8), "no window": dict(sliding_window=None)},
    ),
    "qwen3": (
        "Qwen3ForCausalLM",
        DECODER | dict(head_dim=12, rms_norm_eps=1e-2, tie_word_embeddings=True),
        {EPS: dict(rms_norm_eps=1e-5)},
    ),
    "t5": ("T5ForConditionalGeneration", T5, {EPS: dict(layer_norm_epsilon=1e-6)}),
    "t5_v1_1": (
        "T5ForConditionalGeneration",
        T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False, relative_attention_max_distance=32),
        {"distance": dict(relative_attention_max_distance=128)},
    ),
    "qwen2": ("Qwen2ForCausalLM", DECODER | dict(rms_norm_eps=1e-2), {EPS: dict(rms_norm_eps=1e-6)}),
    "qwen2_window": (
        "Qwen2ForCausalLM",
        DECODER | dict(use_sliding_window=True, sliding_window=7, max_window_layers=1),
        {"no window": dict(use_sliding_window=False, layer_types=["full_attention"] * 2)},
    ),
    "phi": (
        "PhiForCausalLM",
        DECODER | dict(num_key_value_heads=4, intermediate_size=128, layer_norm_eps=1e-2)
        | dict(rope_parameters=rope("default", partial_rotary_factor=0.5)),
        {EPS: dict(layer_norm_eps=1e-5), "partial": WHOLE},
    ),  # fmt: skip
    "phi_qk_norm": (
        "PhiForCausalLM",
        DECODER | dict(qk_layernorm=True, rope_parameters=rope("default", partial_rotary_factor=0.5)),
        {},
    ),
    "phi3": (
        "Phi3ForCausalLM",
        DECODER | dict(sliding_window=9, rms_norm_eps=1e-2),
        {EPS: dict(rms_norm_eps=1e-5), "window": dict(sliding_window=10)},
    ),
    "phi3_longrope": (
        "Phi3ForCausalLM",
        DECODER | dict(original_max_position_embeddings=16, sliding_window=None)
        | dict(
            rope_parameters=rope("longrope", short_factor=TWO, long_factor=[1.5, 4.0], partial_rotary_factor=0.5)
        ),
        {
            "scaling": dict(rope_parameters=rope("default", partial_rotary_factor=0.5)),
            "short factors": dict(
                rope_parameters=rope("longrope", short_factor=TWO, long_factor=TWO, partial_rotary_factor=0.5)
            ),
        },
    ),  # fmt: skip
    "gemma": (
        "GemmaForCausalLM",
        DECODER | dict(head_dim=12, num_key_value_heads=1, rms_norm_eps=1e-2),
        {EPS: dict(rms_norm_eps=1e-6), "silu": dict(hidden_act="silu")},
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        DECODER | dict(head_dim=8, query_pre_attn_scalar=20, sliding_window=7, rms_norm_eps=1e-2)
        | dict(attn_logit_softcapping=3.0, final_logit_softcapping=5.0),
        {
            EPS: dict(rms_norm_eps=1e-6), "scale": dict(query_pre_attn_scalar=8), "window": dict(sliding_window=8),
            "soft cap": dict(attn_logit_softcapping=None), "last soft cap": dict(final_logit_softcapping=None),
        },
    ),  # fmt: skip
    "gemma3": (
        "Gemma3ForCausalLM",
        DECODER | dict(head_dim=8, query_pre_attn_scalar=20, sliding_window=7, rms_norm_eps=1e-2)
        | dict(num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"])
        | dict(
            rope_parameters=dict(
                sliding_attention=rope("default", 100.0), full_attention=rope("linear", 10000.0, factor=4.0)
            )
        ),
        {
            EPS: dict(rms_norm_eps=1e-6), "scale": dict(query_pre_attn_scalar=8), "window": dict(sliding_window=8),
            "one theta": dict(
                rope_parameters=dict(sliding_attention=rope("default"), full_attention=rope("linear", factor=4.0))
            ),
            "scaling": dict(
                rope_parameters=dict(sliding_attention=rope("default", 100.0), full_attention=rope("default"))
            ),
        },
    ),  # fmt: skip
    "neox": (
        "GPTNeoXForCausalLM",
        DECODER | dict(rope_parameters=rope("default", partial_rotary_factor=0.5), layer_norm_eps=1e-2),
        {EPS: dict(layer_norm_eps=1e-5), "sequential": dict(use_parallel_residual=False), "partial": WHOLE},
    ),
    "neox_sequential": (
        "GPTNeoXForCausalLM",
        DECODER | dict(use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False),
        {"parallel": dict(use_parallel_residual=True)},
    ),
    "gptj": (
        "GPTJForCausalLM",
        dict(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_inner=64, n_positions=48, rotary_dim=4)
        | dict(layer_norm_epsilon=1e-2, **IDS),
        {EPS: dict(layer_norm_epsilon=1e-5)},
    ),
    "olmo": ("OlmoForCausalLM", DECODER, {}),
    "olmo2": ("Olmo2ForCausalLM", DECODER | dict(rms_norm_eps=1e-2), {EPS: dict(rms_norm_eps=1e-5)}),
    "stablelm": (
        "StableLmForCausalLM",
        DECODER | dict(use_qkv_bias=True, layer_norm_eps=1e-2)
        | dict(rope_parameters=rope("default", partial_rotary_factor=0.25)),
        {EPS: dict(layer_norm_eps=1e-5)},
    ),  # fmt: skip
    "stablelm_parallel": (
        "StableLmForCausalLM",
        DECODER | dict(qk_layernorm=True, use_parallel_residual=True)
        | dict(rope_parameters=rope("default", partial_rotary_factor=0.5)),
        {},
    ),  # fmt: skip
    "opt": (
        "OPTForCausalLM",
        dict(vocab_size=V, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, dropout=0.0)
        | dict(max_position_embeddings=48, bos_token_id=2, eos_token_id=2, pad_token_id=1),
        {},
    ),
    "opt_350m": (
        "OPTForCausalLM",
        dict(vocab_size=V, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, dropout=0.0)
        | dict(max_position_embeddings=48, bos_token_id=2, eos_token_id=2, pad_token_id=1)
        | dict(word_embed_proj_dim=16, do_layer_norm_before=False),
        {},
    ),
    "bloom": (
        "BloomForCausalLM",
        dict(vocab_size=V, hidden_size=24, n_layer=2, n_head=6, layer_norm_epsilon=1e-2, **IDS),
        {EPS: dict(layer_norm_epsilon=1e-5)},
    ),
    "mpt": (
        "MptForCausalLM",
        dict(vocab_size=V, d_model=24, n_layers=2, n_heads=6, max_seq_len=48, layer_norm_epsilon=1e-2),
        {EPS: dict(layer_norm_epsilon=1e-5)},
    ),
    "bert": ("BertForMaskedLM", ENCODER | dict(layer_norm_eps=1e-2), BERT_EPS),
    "roberta": (
        "RobertaForMaskedLM",
        ENCODER | dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, type_vocab_size=1, layer_norm_eps=1e-5),
        {},
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        dict(vocab_size=V, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=48)
        | dict(dropout=0.0, attention_dropout=0.0),
        {},
    ),
    "minilm": ("BertModel", ENCODER | dict(num_attention_heads=2, layer_norm_eps=1e-12), {}),
    "albert": (
        "AlbertForMaskedLM",
        ENCODER | dict(embedding_size=16, num_hidden_layers=3, hidden_act="gelu_new", layer_norm_eps=1e-2),
        BERT_EPS | {"gelu": dict(hidden_act="gelu")},
    ),
    "roformer": ("RoFormerForMaskedLM", ENCODER | dict(layer_norm_eps=1e-2, pad_token_id=0), BERT_EPS),
    "longformer": (
        "LongformerForMaskedLM",
        ENCODER | dict(attention_window=[8, 4], type_vocab_size=1, layer_norm_eps=1e-2),
        BERT_EPS | {"window": dict(attention_window=[8, 8])},
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        dict(vocab_size=V, d_model=32, n_layer=2, n_head=4, d_inner=48, layer_norm_eps=1e-2, dropout=0.0)
        | dict(mem_len=None),
        BERT_EPS,
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        dict(vocab_size=V, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4)
        | dict(max_position_embeddings=64, local_attention=8, norm_eps=1e-2, pad_token_id=0, bos_token_id=1)
        | dict(eos_token_id=2, cls_token_id=1, sep_token_id=2)
        | dict(layer_types=["full_attention", "sliding_attention", "sliding_attention"])
        | dict(
            rope_parameters=dict(full_attention=rope("default", 160000.0), sliding_attention=rope("default", 100.0))
        ),
        {
            EPS: dict(norm_eps=1e-5), "window": dict(local_attention=10),
            "one theta": dict(
                rope_parameters=dict(full_attention=rope("default", 100.0), sliding_attention=rope("default", 100.0))
            ),
        },
    ),  # fmt: skip
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        ENCODER | dict(relative_attention=True, pos_att_type="c2p|p2c", position_buckets=8, share_att_key=True)
        | dict(norm_rel_ebd="layer_norm", position_biased_input=False, layer_norm_eps=1e-2, type_vocab_size=0),
        BERT_EPS | {"distance": dict(max_relative_positions=16), "no p2c": dict(pos_att_type="c2p")},
    ),  # fmt: skip
    "deberta_v2_plain": (
        "DebertaV2ForMaskedLM",
        ENCODER | dict(relative_attention=True, pos_att_type="c2p", max_relative_positions=12)
        | dict(share_att_key=False, type_vocab_size=2),
        {},
    ),  # fmt: skip
    "marian": (
        "MarianMTModel",
        SEQ2SEQ | dict(activation_function="swish", scale_embedding=True, bos_token_id=None, pad_token_id=V - 1)
        | dict(eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=V - 1),
        {"scale": dict(scale_embedding=False)},
    ),  # fmt: skip
    "bart": ("BartForConditionalGeneration", SEQ2SEQ, {"scale": dict(scale_embedding=True)}),
    "mbart": (
        "MBartForConditionalGeneration",
        SEQ2SEQ | dict(scale_embedding=True),
        {"scale": dict(scale_embedding=False)},
    ),
    "pegasus": (
        "PegasusForConditionalGeneration",
        SEQ2SEQ | dict(scale_embedding=True, activation_function="relu")
        | dict(bos_token_id=None, pad_token_id=0, eos_token_id=1, forced_eos_token_id=1, decoder_start_token_id=0),
        {"scale": dict(scale_embedding=False)},
    ),  # fmt: skip
    "m2m_100": (
        "M2M100ForConditionalGeneration",
        SEQ2SEQ | dict(scale_embedding=True, activation_function="relu"),
        {"scale": dict(scale_embedding=False)},
    ),
}  # fmt: skip

# Config classes of what an importer must refuse by name, without weights.
REFUSED = {
    "mixtral": ("MixtralConfig", DECODER | dict(num_local_experts=4)),
    "qwen2_moe": ("Qwen2MoeConfig", DECODER | dict(num_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": ("Qwen3MoeConfig", DECODER | dict(num_experts=4, num_experts_per_tok=2)),
    "gpt_oss": ("GptOssConfig", DECODER | dict(num_local_experts=4)),
    "deepseek_v3": ("DeepseekV3Config", DECODER | dict(q_lora_rank=8, kv_lora_rank=8, n_routed_experts=4)),
    "big_bird": ("BigBirdConfig", ENCODER),
    "whisper": ("WhisperConfig", dict(d_model=24)),
    "mamba": ("MambaConfig", dict(hidden_size=32)),
    "olmo_clip_qkv": ("OlmoConfig", DECODER | dict(clip_qkv=8.0)),
    "mpt_clip_qkv": ("MptConfig", dict(d_model=24, n_heads=6, attn_config=dict(clip_qkv=8.0))),
    "roformer_rotary_value": ("RoFormerConfig", ENCODER | dict(rotary_value=True)),
    "deberta_v2_conv": ("DebertaV2Config", ENCODER | dict(relative_attention=True, conv_kernel_size=3)),
    "gemma3_vision": ("Gemma3Config", dict()),
    "llama_soft_cap": ("LlamaConfig", llama(attn_logit_softcapping=30.0)),
    "bert_decoder": ("BertConfig", ENCODER | dict(is_decoder=True)),
}
