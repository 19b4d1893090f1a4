"""transformers' Llama with our weights, ready to write."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "attention_norm.gain": "input_layernorm.weight",
    "attention.query.weight": "self_attn.q_proj.weight",
    "attention.key.weight": "self_attn.k_proj.weight",
    "attention.value.weight": "self_attn.v_proj.weight",
    "attention.output.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.gain": "post_attention_layernorm.weight",
    "feed_forward.gate.weight": "mlp.gate_proj.weight",
    "feed_forward.up.weight": "mlp.up_proj.weight",
    "feed_forward.down.weight": "mlp.down_proj.weight",
}


def llama(settings, weights):
    config = LlamaConfig(
        vocab_size=settings["vocabulary"],
        hidden_size=settings["width"],
        intermediate_size=settings["feed_forward"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["attention"]["heads"],
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).eval()
    named = {
        "model.embed_tokens.weight": weights["embedding.weight"],
        "model.norm.weight": weights["decoder.norm.gain"],
        "lm_head.weight": weights["output.weight"].T.contiguous(),
    }
    for layer in range(settings["layers"]):
        for ours, theirs in NAMES.items():
            value = weights[f"decoder.blocks.{layer}.{ours}"]
            # Ours are [from, to], torch's [to, from].
            named[f"model.layers.{layer}.{theirs}"] = value.T.contiguous() if value.dim() == 2 else value
    model.load_state_dict(named, strict=True)
    return model.to(torch.float32)
