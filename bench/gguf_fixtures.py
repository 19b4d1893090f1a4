"""Tiny GGUF files out of `fixtures/families`, written by llama.cpp's own converter, for the importer's tests.

    python bench/gguf_fixtures.py LLAMA_CPP fixtures/families fixtures/gguf [--all]

`LLAMA_CPP` is a source tree of llama.cpp (the PyPI sdist `llama-cpp-python` has one under `vendor/`).
F32, F16 and BF16 files hold the numbers of the family's folder, so the truth is its `golden.safetensors`;
quantised ones come with `NAME.golden.safetensors`: transformers' logits with the dequantised weights.
`blocks.gguf` has a tensor of random blocks of each type, `blocks.safetensors` what the gguf package reads from it.
"""

import argparse
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

# Not GPT-2: llama.cpp takes a feed-forward of four widths for granted.
SMALL = ["llama", "llama_llama3", "qwen2", "qwen3", "phi", "phi3_longrope", "gemma2", "gemma3", "neox", "bloom", "minilm"]
MORE = ["llama_tied_bias", "llama_head_dim", "llama_linear", "mistral", "phi3", "gemma", "neox_sequential", "olmo", "olmo2"]
MORE += ["stablelm", "bert", "t5"]

# What GGUF does not say and llama.cpp takes for granted; these files have a golden file of their own.
TAKEN_FOR_GRANTED = {
    "gemma2": dict(query_pre_attn_scalar=8),  # The size of a head.
    "gemma3": dict(query_pre_attn_scalar=8, layer_types=["sliding_attention"] * 3),  # Every sixth layer is full.
    "mistral": dict(sliding_window=None),
    "phi3": dict(sliding_window=None),
    "t5": dict(relative_attention_max_distance=128),
}

MERGES = ["t h", "th e", "Ġ the", "i n", "a n", "Ġ a", "e r", "o n", "r e", "an d", "Ġ and", "in g"]


def vocabulary():
    """67 tokens of a byte-level BPE: five special ones, single characters, and what the merges make."""
    special = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
    single = list("abcdefghijklmnopqrstuvwxyz0123456789") + ["Ġ", "Ċ", ".", ",", "!", "?", "-", "'", ":", ";"]
    tokens = special + single + [merge.replace(" ", "") for merge in MERGES]
    tokens += [f"<extra_{i}>" for i in range(67 - len(tokens))]
    return tokens, [3] * 5 + [1] * (len(single) + len(MERGES)) + [3] * (67 - 5 - len(single) - len(MERGES))


def prepared(families, name, scratch):
    """A copy with a config the converter reads: transformers 4's spelling, and a tokenizer to count."""
    folder = shutil.copytree(families / name, scratch / name)
    if (folder / "config.v4.json").exists():
        shutil.move(folder / "config.v4.json", folder / "config.json")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary()[0]}, "added_tokens": []}))
    return folder


def converted(folder, out, kind):
    """`convert_hf_to_gguf.py`, with a vocabulary of our own in place of a known tokenizer's."""
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def set_vocab(self):
        tokens, types = vocabulary()
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("smollm")
        self.gguf_writer.add_token_list(tokens)
        self.gguf_writer.add_token_types(types)
        self.gguf_writer.add_token_merges(MERGES)
        self.gguf_writer.add_bos_token_id(1)
        self.gguf_writer.add_eos_token_id(2)
        self.gguf_writer.add_chat_template("{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}")

    # The file's own keys: transformers 5 would rename some the converter wants.
    config = ModelBase.load_hparams(folder, False) | json.loads((folder / "config.json").read_text())
    base = get_model_class(get_model_architecture(config, ModelType.TEXT))
    with torch.inference_mode(), mock.patch.object(base, "set_vocab", set_vocab):
        base(folder, kind, out, model_name=folder.name, hparams=config).write()
    return out


def read(path):
    """Tensor names to values and types."""
    from gguf import GGUFReader, dequantize

    def value(t):
        return np.asarray(dequantize(t.data, t.tensor_type), np.float32).reshape([int(n) for n in reversed(t.shape)])

    return {t.name: (value(t), t.tensor_type) for t in GGUFReader(path).tensors}


NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def llama_logits(path, config, ids):
    """transformers' logits for the numbers in a GGUF file of a Llama."""
    ends = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    ends |= {"output.weight": "lm_head.weight"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, (value, _) in read(path).items():
        if name in ends:
            state[ends[name]] = torch.from_numpy(value.copy())
            continue
        _, layer, role, _ = name.split(".")
        if role in heads:  # The converter swaps halves for pairs.
            value = value.reshape(heads[role], -1, 2, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        state[f"model.layers.{layer}.{NAMES[role]}.weight"] = torch.from_numpy(value.copy())
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    model.tie_weights()
    with torch.no_grad():
        return model(ids, use_cache=False).logits


def granted(families, name, out):
    """The logits of the family's numbers as llama.cpp understands its file."""
    folder = families / name
    given = {k: v.long() for k, v in load_file(folder / "golden.safetensors").items() if k.endswith("input_ids")}
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    config = kind.config_class.from_dict(config | TAKEN_FOR_GRANTED[name])
    model = kind.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(**given, use_cache=False).logits.contiguous()
    given = {key: value.to(torch.int32) for key, value in given.items()}
    save_file(given | {"logits": logits}, out / f"{name}_f16.golden.safetensors")


def golden(path, config, seed):
    ids = torch.randint(5, 66, (1, 24), generator=torch.Generator().manual_seed(seed))
    tensors = {"input_ids": ids.to(torch.int32), "logits": llama_logits(path, config, ids)}
    save_file(tensors, path.with_suffix(".golden.safetensors"))


def copied(source, out, pick):
    """The file with other types: `pick(name, value)` gives a type or blocks and their type."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, quantize

    reader = GGUFReader(source)
    writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        inner = {"sub_type": field.types[-1]} if field.types[0] == GGUFValueType.ARRAY else {}
        writer.add_key_value(key, field.contents(), field.types[0], **inner)
    for name, (value, _) in read(source).items():
        picked = pick(name, value)
        if isinstance(picked, tuple):
            writer.add_tensor(name, picked[0], raw_dtype=picked[1])
        else:
            writer.add_tensor(name, value if picked is None else quantize(value, picked), raw_dtype=picked)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def blocks(dice, kind, rows, columns, size):
    """Random blocks with values of about `size`; scales sane, everything else any bits."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Q

    length, bytes_ = GGML_QUANT_SIZES[kind]
    raw = dice.integers(0, 256, (rows * columns // length, bytes_), dtype=np.uint8)

    def put(at, scale):
        steps = (scale * dice.uniform(0.6, 1.4, len(raw))).astype(np.float16)
        raw[:, at : at + 2] = steps.view(np.uint8).reshape(-1, 2)
        return steps

    if kind == Q.Q4_K:  # d · scale · q − min · m
        steps = put(0, size / 258)
        raw[:, 2:4] = (7.5 * steps).astype(np.float16).view(np.uint8).reshape(-1, 2)
    elif kind == Q.Q6_K:  # The scale's f16 may be subnormal.
        put(208, size / 1367)
    elif kind == Q.Q8_0:
        put(0, size / 74)
    elif kind == Q.Q4_0:
        put(0, size / 4.6)
    elif kind == Q.Q4_1:
        steps = put(0, size / 4.6)
        raw[:, 2:4] = (-7.5 * steps).astype(np.float16).view(np.uint8).reshape(-1, 2)
    else:
        raise ValueError(kind)
    return raw.reshape(rows, -1)


def write_blocks(out):
    from gguf import GGMLQuantizationType as Q, GGUFWriter, quantize

    dice = np.random.default_rng(17)
    writer = GGUFWriter(out / "blocks.gguf", "llama")
    for kind in (Q.F32, Q.F16, Q.BF16):
        value = dice.standard_normal((3, 256)).astype(np.float32)
        writer.add_tensor(kind.name.lower(), quantize(value, kind), raw_dtype=kind)
    for kind in (Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q4_K, Q.Q6_K):
        writer.add_tensor(kind.name.lower(), blocks(dice, kind, 3, 512, 1.0), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    truth = {name: torch.from_numpy(value.copy()) for name, (value, _) in read(out / "blocks.gguf").items()}
    save_file(truth, out / "blocks.safetensors")


def write_k_quants(out, scratch):
    """A Llama of Q4_K, Q6_K and Q8_0 in the mixture of Q4_K_M; rows of a K type have 256 columns."""
    from gguf import GGMLQuantizationType as Q, LlamaFileType

    config = transformers.LlamaConfig(
        vocab_size=67, hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, head_dim=16,
        num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(17)
    transformers.LlamaForCausalLM(config).save_pretrained(scratch / "k")
    source = converted(scratch / "k", scratch / "k.gguf", LlamaFileType.ALL_F32)
    dice = np.random.default_rng(18)

    def pick(name, value):
        if value.ndim == 1:
            return (1 + 0.3 * dice.standard_normal(value.shape)).astype(np.float32), Q.F32
        kind = Q.Q6_K if "attn_v" in name or "ffn_down" in name or "token_embd" in name else Q.Q4_K
        kind = Q.Q8_0 if value.shape[1] % 256 else kind
        size = 0.15 if "token_embd" in name else 1.3 / value.shape[1] ** 0.5
        return blocks(dice, kind, *value.shape, size), kind

    golden(copied(source, out / "llama_q4_k_m.gguf", pick), config, 4)


def write_llamas(families, out):
    """Files of the same Llama in other types; rows that are no multiple of 32 stay F16."""
    from gguf import GGMLQuantizationType as Q, LlamaFileType

    folder = families / "llama"
    config = transformers.LlamaConfig.from_pretrained(folder)
    truth = load_file(folder / "golden.safetensors")
    f32 = converted(folder, out / "llama_f32.gguf", LlamaFileType.ALL_F32)
    converted(folder, out / "llama_bf16.gguf", LlamaFileType.MOSTLY_BF16)
    for kind in ("f32", "f16", "bf16"):
        logits = llama_logits(out / f"llama_{kind}.gguf", config, truth["input_ids"].long())
        assert torch.equal(logits, truth["logits"]), kind
    for kind in (Q.Q8_0, Q.Q4_0, Q.Q4_1):
        path = out / f"llama_{kind.name.lower()}.gguf"

        def pick(name, value, kind=kind):
            return None if value.ndim == 1 else kind if value.shape[1] % 32 == 0 else Q.F16

        golden(copied(f32, path, pick), config, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("families", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--all", action="store_true", help="also families that are not in the repository")
    given = parser.parse_args()
    sys.path[:0] = [str(given.llama_cpp), str(given.llama_cpp / "gguf-py")]
    logging.disable(logging.WARNING)
    from gguf import LlamaFileType

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for name in SMALL + (MORE if given.all else []):
            path = given.out / f"{name}_f16.gguf"
            converted(prepared(given.families, name, scratch), path, LlamaFileType.MOSTLY_F16)
            if name in TAKEN_FOR_GRANTED:
                granted(given.families, name, given.out)
            print(f"{path.stat().st_size:8} {path.name}", flush=True)
        write_llamas(given.families, given.out)
        write_k_quants(given.out, scratch)
    write_blocks(given.out)


if __name__ == "__main__":
    main()
