"""Does another program give our logits for a model we exported?

    python bench/export_check.py WHATWHERE RUN EXPORTED

`WHATWHERE` is the command, `RUN` a run folder, `EXPORTED` the same model for others: a folder for transformers, or a
`.gguf` file for llama.cpp (the wheel `xllamacpp`). Random ids go through both; logits must agree to 1e-4 of the
largest (llama.cpp tells log-probabilities: those of every token after three prompts). Prints one line; exits with 1
if they differ.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

CLOSE = 1e-4  # of the largest logit
IN_LOGARITHMS = 1e-3  # absolute; for F32 files, as llama.cpp rounds activations to its weights' types


def ours(command, run, lines):
    """Our logits: one line of ids per sequence, `source|target` for encoder-decoders."""
    told = subprocess.run(
        [command, "logits", run, "--json"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if told.returncode != 0:
        sys.exit(f"whatwhere logits failed: {told.stderr.strip()}")
    return [np.array(json.loads(line)["logits"], np.float32) for line in told.stdout.splitlines()]


def vocabulary(command, run, both):
    return ours(command, run, ["1|1" if both else "1"])[0].shape[-1]


def transformers_logits(folder, sequences):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    config = json.loads((folder / "config.json").read_text())
    kind = "AutoModelForSeq2SeqLM" if config.get("is_encoder_decoder") else "AutoModelForCausalLM"
    kind = getattr(transformers, (config.get("architectures") or [kind])[0])
    model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {key: sorted(names) for key, names in report.items() if names and key != "error_msgs"}
    assert not wrong, f"transformers says: {wrong}"
    model.eval()
    for source, target in sequences:
        given = {"input_ids": torch.tensor([source])}
        given |= {"decoder_input_ids": torch.tensor([target])} if target else {}
        with torch.no_grad():
            yield model(**given).logits[0].numpy()


def llama_cpp(path, sequences, size):
    """Log-probabilities of every token after each sequence, by id."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = 256
    settings.n_parallel = 1
    settings.warmup = False
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)
    for ids in sequences:
        asked = {"prompt": ids, "max_tokens": 1, "logprobs": size, "temperature": 1.0, "cache_prompt": False}
        told = server.handle_completions(asked)
        told = json.loads(told) if isinstance(told, str) else told
        if "choices" not in told:
            sys.exit(f"llama.cpp says: {told}")
        yield {t["id"]: t["logprob"] for t in told["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}


def drawn(size, both, length):
    dice = random.Random(17)
    ids = [[dice.randrange(size) for _ in range(length)] for _ in range(4)]
    return [(ids[0], ids[1]), (ids[2], ids[3])] if both else [(ids[0], None), (ids[1], None)]


def line(source, target):
    return " ".join(map(str, source)) + ("|" + " ".join(map(str, target)) if target else "")


def check_logits(given, both, theirs):
    size = vocabulary(given.whatwhere, given.run, both)
    sequences = drawn(size, both, given.length)
    told = ours(given.whatwhere, given.run, [line(*sequence) for sequence in sequences])
    apart, largest = 0.0, 0.0
    for a, b in zip(told, theirs(sequences), strict=True):
        assert a.shape == b.shape, f"ours are {a.shape}, theirs {b.shape}"
        apart, largest = max(apart, np.abs(a - b).max()), max(largest, np.abs(a).max())
    print(f"{given.exported}: largest logit {largest:.4g}, difference {apart / largest:.1e} of it")
    return apart <= CLOSE * largest


def check_probabilities(given):
    size = vocabulary(given.whatwhere, given.run, False)
    ids = drawn(size, False, given.length)[0][0]
    prompts = [ids[:n] for n in (2, given.length // 2, given.length)]
    told = ours(given.whatwhere, given.run, [line(prompt, None) for prompt in prompts])
    apart = 0.0
    for a, b in zip(told, llama_cpp(given.exported, prompts, size), strict=True):
        last = a[-1].astype(np.float64)
        last -= last.max() + np.log(np.exp(last - last.max()).sum())
        assert len(b) == size, f"llama.cpp tells {len(b)} of {size} tokens"
        apart = max([apart] + [abs(last[i] - p) for i, p in b.items()])
    print(f"{given.exported}: largest difference of a log-probability {apart:.1e}")
    return apart <= IN_LOGARITHMS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whatwhere")
    parser.add_argument("run")
    parser.add_argument("exported", type=Path)
    parser.add_argument("--length", type=int, default=24, help="ids in a sequence (24)")
    given = parser.parse_args()
    if given.exported.suffix == ".gguf":
        same = check_probabilities(given)
    else:
        both = json.loads((given.exported / "config.json").read_text()).get("is_encoder_decoder", False)
        same = check_logits(given, both, lambda sequences: transformers_logits(given.exported, sequences))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
