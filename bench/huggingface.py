"""Tiny random-weight models of every family, written by transformers, for the importer's tests.

    python bench/huggingface.py fixtures/families [NAME …]

Each folder gets `config.json` and `model.safetensors` as `save_pretrained` writes them and `golden.safetensors`:
`input_ids` [2, 40] i32 and `logits`; `decoder_input_ids` for encoder-decoders; `hidden` instead of logits where
there is no head; `token_type_ids` and `logits_types` where there are token types. Weights are drawn so that
conventions show: the table printed says how much of the largest logit changes without positions and by each fault
of `families.py`.
All values have 8 significant bits, so the f16 and bf16 files hold the same numbers, and git packs them well.
"""

import copy
import inspect
import json
import shutil
import sys
import zlib
from pathlib import Path
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file

from families import FAMILIES, REFUSED

LENGTH, TARGET = 40, 24
SMALLEST = 1.5e-4  # of the largest logit: what a fault must change (the two GELUs lie within 5e-4 of each other)
NOISE = 1e-5  # of the largest logit: what f64 may change

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


def rounded(x):
    """To a multiple of 2^-10 with 8 significant bits: exact in bf16 and, below 64, in f16."""
    return (x * 1024).round().div(1024).to(torch.bfloat16).to(torch.float32)


def sinusoidal(model, name):
    owner = model.get_submodule(name.rpartition(".")[0])
    return "Sinusoid" in type(owner).__name__


@torch.no_grad()
def draw(model, seed):
    """Matrices that keep their input's size, gains and biases away from 1 and 0, tables of positions that matter."""
    dice = torch.Generator().manual_seed(seed)
    tables = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, torch.nn.Embedding)}
    tables |= {name for name, _ in model.named_parameters() if name.endswith(("mask_emb", "seg_embed"))}
    for name, p in model.named_parameters():
        if sinusoidal(model, name):
            continue
        noise = torch.randn(p.shape, generator=dice)
        if p.dim() < 2:
            p.add_(0.3 * noise)
        elif name in tables:
            # Some multiply embeddings by the root of the width.
            scaled = getattr(model.config, "scale_embedding", False) or model.config.model_type.startswith("gemma")
            p.copy_(0.8 * noise / (p.shape[1] ** 0.5 if scaled and "position" not in name else 1.0))
        else:
            # transformers' Conv1D and XLNet keep [from, to]; torch's linear maps [to, from].
            turned = type(model.get_submodule(name.rpartition(".")[0])).__name__ in ("Conv1D", "XLNetRelativeAttention")
            p.copy_(1.3 * noise / (p.shape[0] if turned else p.shape[1]) ** 0.5)
            if name.endswith("Attention.q.weight"):  # T5 does not divide its scores.
                p.div_(model.config.d_kv**0.5)
        p.copy_(rounded(p))
    for name, b in model.named_buffers():
        if name == "final_logits_bias":
            b.copy_(rounded(0.3 * torch.randn(b.shape, generator=dice)))
    return model


def build(kind, config):
    made = getattr(transformers, kind)
    config = made.config_class(**copy.deepcopy(config))
    try:
        return made._from_config(config, attn_implementation="eager").eval()
    except ValueError:  # Has one implementation only.
        return made(config).eval()


@torch.no_grad()
def run(model, inputs):
    cached = "use_cache" in inspect.signature(model.forward).parameters
    out = model(**inputs, **({"use_cache": False} if cached else {}))
    return out.logits if "logits" in out else out.last_hidden_state


def inputs(model, seed):
    """Ids above the special ones, so that no position is skipped as padding."""
    dice = torch.Generator().manual_seed(seed + 1)
    size = model.config.vocab_size
    made = {"input_ids": torch.randint(5, size - 1, (2, LENGTH), generator=dice)}
    if model.config.is_encoder_decoder:
        made["decoder_input_ids"] = torch.randint(5, size - 1, (2, TARGET), generator=dice)
    return made


def share(a, b):
    """The largest difference, of the largest logit."""
    return ((a - b).abs().max() / a.abs().max()).item()


@torch.no_grad()
def without_positions(model, given):
    """The same model that knows no places: tables and rotations zero, slopes zero."""
    model = copy.deepcopy(model)
    words = ("position_embeddings", "embed_positions", "wpe", "relative_attention_bias", "rel_embeddings", "inv_freq")
    words += ("rel_attn.r", "r_r_bias", "embed_positions.weights", "embed_positions.embed_positions")
    for name, value in list(model.named_parameters()) + list(model.named_buffers()):
        if name.removesuffix(".weight").endswith(words):
            value.zero_()
    if "position_ids" in inspect.signature(model.forward).parameters and not model.config.is_encoder_decoder:
        given = given | {"position_ids": torch.zeros_like(given["input_ids"])}
    places = "transformers.models.{0}.modeling_{0}.{1}"
    bloom = places.format("bloom", "_get_alibi_slopes")
    mpt = places.format("mpt", "build_mpt_alibi_tensor")
    with (
        mock.patch(bloom, lambda heads, device: torch.zeros(heads)),
        mock.patch(mpt, lambda heads, length, *_, **__: torch.zeros(heads, 1, length)),
    ):
        return run(model, given)


def measure(name, model, given, truth, kind, config, faults):
    """What each fault changes; at least `SMALLEST`, and rounding at most `NOISE`."""
    changes = {"positions": share(truth, without_positions(model, given))}
    for fault, change in faults.items():
        wrong = build(kind, config | change)
        wrong.load_state_dict(model.state_dict(), strict=True)
        changes[fault] = share(truth, run(wrong, given))
    try:
        exact = run(copy.deepcopy(model).double(), given).float()
        noise = share(truth, exact)
    except RuntimeError:  # Mixes in f32 of its own.
        noise = float("nan")
    print(f"{name:20} largest {truth.abs().max():6.2f}  f64 {noise:.0e} ", end="")
    print(", ".join(f"{fault} {change:.2g}" for fault, change in changes.items()), flush=True)
    for fault, change in changes.items():
        assert change > SMALLEST, f"{name}: {fault} does not show"
    assert not noise > NOISE, f"{name}: rounding shows"


def old_rope(config, parameters, theta="rope_theta", part="partial_rotary_factor"):
    """One kind of rotary positions at the top level; `type` was the older name of `rope_type`."""
    parameters = dict(parameters)
    config[theta] = parameters.pop("rope_theta")
    if "partial_rotary_factor" in parameters:
        config[part] = parameters.pop("partial_rotary_factor")
    kind = parameters.pop("rope_type")
    name = "type" if kind in ("dynamic", "longrope") else "rope_type"
    return None if kind == "default" else {name: kind} | parameters


def old_spelling(config):
    """config.json as transformers 4 wrote it, which most models on the hub still have."""
    config = dict(config)
    parameters = config.pop("rope_parameters")
    kind = config["model_type"]
    if kind == "gemma3_text":
        config["rope_scaling"] = old_rope(config, parameters["full_attention"])
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = 3
        config.pop("_sliding_window_pattern")
    elif kind == "modernbert":
        config["global_rope_theta"] = parameters["full_attention"]["rope_theta"]
        config["local_rope_theta"] = parameters["sliding_attention"]["rope_theta"]
        config["global_attn_every_n_layers"] = 3
    elif kind == "gpt_neox":
        old_rope(config, parameters, "rotary_emb_base", "rotary_pct")
    else:
        config["rope_scaling"] = old_rope(config, parameters)
    config.pop("layer_types", None)
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.44.0"
    return config


def write(folder, name):
    kind, config, faults = FAMILIES[name]
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    model = draw(build(kind, config), seed)
    given = inputs(model, seed)
    truth = run(model, given)
    measure(name, model, given, truth, kind, config, faults)

    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    golden = {key: value.to(torch.int32) for key, value in given.items()}
    golden["hidden" if kind == "BertModel" else "logits"] = truth.contiguous()
    if name in ("bert", "roformer"):
        types = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(2, -1).contiguous()
        golden["token_type_ids"] = types.to(torch.int32)
        golden["logits_types"] = run(model, given | {"token_type_ids": types})
        assert share(truth, golden["logits_types"]) > SMALLEST, f"{name}: types do not show"
    save_file(golden, folder / "golden.safetensors")

    again = type(model).from_pretrained(folder, attn_implementation=model.config._attn_implementation).eval()
    assert torch.equal(run(again, given), truth), f"{name}: the saved model differs"
    if "rope_parameters" in json.loads((folder / "config.json").read_text()):
        write_old_spelling(folder, type(model), given, truth)
    if name == "llama":
        write_other_files(folder, model)
    if name in AS_ON_THE_HUB:
        write_as_on_the_hub(folder, type(model), given, truth)


def write_old_spelling(folder, kind, given, truth):
    text = json.dumps(old_spelling(json.loads((folder / "config.json").read_text())), indent=2)
    (folder / "config.v4.json").write_text(text + "\n")
    config = kind.config_class.from_json_file(folder / "config.v4.json")
    again = kind.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    assert torch.equal(run(again, given), truth), f"{folder}: the old spelling differs"


def write_other_files(folder, model):
    """The same numbers in bf16, in f16 and in several files; the golden file is the first folder's."""
    for name, kind in [("bf16", torch.bfloat16), ("f16", torch.float16), ("sharded", torch.float32)]:
        other = folder.with_name(f"{folder.name}_{name}")
        shutil.rmtree(other, ignore_errors=True)
        short = copy.deepcopy(model).to(kind)
        for (key, a), b in zip(model.named_parameters(), short.parameters(), strict=True):
            assert torch.equal(a, b.float()), f"{key} is not exact in {name}"
        short.save_pretrained(other, **({"max_shard_size": "40KB"} if name == "sharded" else {}))


def bare(prefix):
    return lambda weights: {key.removeprefix(prefix): value for key, value in weights.items()}


def gpt2_as_on_the_hub(weights):
    mask = torch.ones(1, 1, 48, 48).tril()
    return bare("transformer.")(weights) | {f"h.{layer}.attn.bias": mask.clone() for layer in range(2)}


def bert_as_on_the_hub(weights):
    named = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
             for key, value in weights.items()}  # fmt: skip
    named |= {"bert.pooler.dense.weight": torch.ones(32, 32), "bert.pooler.dense.bias": torch.ones(32)}
    named |= {"cls.seq_relationship.weight": torch.ones(2, 32), "cls.seq_relationship.bias": torch.ones(2)}
    return named | {"cls.predictions.decoder.weight": named["bert.embeddings.word_embeddings.weight"].clone()}


def t5_as_on_the_hub(weights):
    tied = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    return weights | {key: weights["shared.weight"].clone() for key in tied}


def llama_as_on_the_hub(weights):
    old = "model.layers.{}.self_attn.rotary_emb.inv_freq"
    return weights | {old.format(layer): 10000.0 ** (-torch.arange(4) / 4) for layer in range(2)}


# Names as older versions left them in files people have: without prefix, with masks, gamma and beta, tied copies.
AS_ON_THE_HUB = {
    "gpt2": gpt2_as_on_the_hub,
    "llama": llama_as_on_the_hub,
    "bloom": bare("transformer."),
    "opt": bare("model."),
    "bert": bert_as_on_the_hub,
    "t5": t5_as_on_the_hub,
}


def write_as_on_the_hub(folder, kind, given, truth):
    other = folder.with_name(f"{folder.name}_hub")
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    config = json.loads((folder / "config.json").read_text())
    config |= {"n_ctx": config["n_positions"]} if folder.name == "gpt2" else {}
    (other / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = AS_ON_THE_HUB[folder.name](load_file(folder / "model.safetensors"))
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    again = kind.from_pretrained(other, attn_implementation="eager").eval()
    assert torch.equal(run(again, given), truth), f"{other}: differs"


def main():
    folder, *names = sys.argv[1:]
    folder = Path(folder)
    for name in names or FAMILIES:
        write(folder / name, name)
    if not names:
        for name, (kind, config) in REFUSED.items():
            made = getattr(transformers, kind)(**copy.deepcopy(config))
            made.architectures = None
            made.save_pretrained(folder / "refused" / name)


if __name__ == "__main__":
    main()
