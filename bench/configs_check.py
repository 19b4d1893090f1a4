"""Does an import of any config give transformers' logits, or a refusal?

    python bench/configs_check.py WHATWHERE [NAME …]

Takes the tiny models of `families.py`, changes one key of their config after the other, or leaves it out, lets transformers
make a model of it with random weights, and holds `whatwhere logits` of the imported model against its logits, which must
agree to 1e-4 of the largest unless the import refuses the config. Prints what differs, and how many were read, refused, or
refused by transformers itself; exits with 1 if one differs.
"""

import argparse
import copy
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import torch
import transformers

import huggingface
from families import FAMILIES

warnings.filterwarnings("ignore")

# Sizes of a vocabulary that other files go by, and what no logits depend on.
KEPT = {"architectures", "model_type", "transformers_version", "dtype", "vocab_size", "rope_parameters", "use_cache"}
ACTIVATIONS = ["relu", "gelu", "gelu_new", "silu", "gelu_pytorch_tanh", "quick_gelu", "gelu_fast", "tanh", "swish"]
FORMS = ["relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu", "gelu_new"]
DEEPEST = 6


def others(key, value):
    """Other values that a key could have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        sizes = [value + 3] if "token" in key else [value + 1, value * 2, max(value // 2, 1), 1]
        return [size for size in sizes if not (key.endswith(("layers", "layer")) and size > DEEPEST)]
    if isinstance(value, float):
        return [value * 2, value / 2 if value else 0.5]
    if value is None:
        return [1, 8, True, 0.5]
    if key == "feed_forward_proj":
        return FORMS
    if isinstance(value, str):
        return ACTIVATIONS if value in ACTIVATIONS else []
    if key == "layer_types":
        return [value[::-1], ["full_attention"] * len(value), ["sliding_attention"] * len(value)]
    if key == "pos_att_type":
        return [["p2c", "c2p"], ["p2c"], ["c2p"], []]
    return []


@torch.no_grad()
def logits(model, given):
    """What transformers tells; of a model without a head, its states by the embeddings."""
    truth = huggingface.run(model, given)
    if not model.get_output_embeddings():
        truth = truth @ model.get_input_embeddings().weight.T
    return truth


def made(kind, config, seed):
    """A model that transformers makes of a config, and what it is asked."""
    model = huggingface.draw(huggingface.build(kind, config), seed)
    given = huggingface.inputs(model, seed)
    longest = getattr(model.config, "max_seq_len", None) or huggingface.LENGTH
    return model, {key: ids[:, :longest] for key, ids in given.items()}


def ours(whatwhere, folder, given):
    """Our logits of a folder, or why there are none."""
    run = folder.with_name("run")
    shutil.rmtree(run, ignore_errors=True)
    done = subprocess.run([whatwhere, "import", folder, "--out", run], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    rows = [" ".join(map(str, row)) for row in given["input_ids"].tolist()]
    if "decoder_input_ids" in given:
        targets = given["decoder_input_ids"].tolist()
        rows = [f"{row}|{' '.join(map(str, target))}" for row, target in zip(rows, targets, strict=True)]
    done = subprocess.run(
        [whatwhere, "logits", run, "--json"], input="\n".join(rows) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None, done.stderr.strip()
    return torch.tensor([json.loads(line)["logits"] for line in done.stdout.splitlines()]), ""


def outcome(whatwhere, place, kind, config, seed, without=None):
    try:
        model, given = made(kind, config, seed)
        shutil.rmtree(place, ignore_errors=True)
        model.save_pretrained(place)
        if without is not None:
            path = place / "config.json"
            said = json.loads(path.read_text())
            said.pop(without)
            path.write_text(json.dumps(said))
            model = type(model).from_pretrained(place, attn_implementation="eager").eval()
        truth = logits(model, given)
    except Exception as error:  # noqa: BLE001: what transformers refuses is no config
        return "no config", str(error)
    if not truth.isfinite().all():
        return "no config", "logits are not finite"
    found, said = ours(whatwhere, place, given)
    if found is None:
        return ("DIFFERS" if "panicked" in said else "refused"), said
    far = huggingface.share(truth, found) if found.shape == truth.shape else float("inf")
    return ("agrees" if far <= 1e-4 else "DIFFERS"), f"{far:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whatwhere")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        for name in asked.names or FAMILIES:
            kind, config, _ = FAMILIES[name]
            seed = zlib.crc32(name.encode())
            full = getattr(transformers, kind).config_class(**copy.deepcopy(config)).to_dict()
            tried = [(f"{key} = {other!r}", config | {key: other}, None)
                     for key, value in full.items() if key not in KEPT for other in others(key, value) if other != value]  # fmt: skip
            tried += [(f"without {key}", config, key) for key in full if key not in KEPT]
            counts = {}
            for what, changed, without in [("as it is", config, None), *tried]:
                state, said = outcome(asked.whatwhere, place, kind, changed, seed, without)
                counts[state] = counts.get(state, 0) + 1
                if state == "DIFFERS":
                    print(f"{name}: {what}: {said}")
            wrong += counts.get("DIFFERS", 0)
            print(f"{name}: " + ", ".join(f"{count} {state}" for state, count in counts.items()), flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
