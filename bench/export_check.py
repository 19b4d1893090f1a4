"""Does another program give our logits for a model we exported?

    python bench/export_check.py WHATWHERE RUN EXPORTED

`WHATWHERE` is the command, `RUN` a run folder, `EXPORTED` the same model for others: a folder for transformers, a folder
with ONNX graphs for onnxruntime, or a `.gguf` file for llama.cpp (`llama-cpp-python`). Random ids go through both; logits
must agree to 1e-4 of the largest, with llama.cpp to 1e-2, because it takes GELU from a table of 16 bits and rounds
activations to its weights' types. Prints one line; exits with 1 if they differ.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

CLOSE = 1e-4  # of the largest logit
ROUNDED = 1e-2  # the same, for llama.cpp
# What transformers makes itself (sinusoids), or has although nothing that we say reaches it: logits decide.
MADE_THERE = ["embed_positions.weight", "_global.", "pooler."]


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
    wrong = {key: sorted(name for name in names if not any(part in name for part in MADE_THERE))
             for key, names in report.items() if key != "error_msgs"}
    wrong = {key: names for key, names in wrong.items() if names}
    assert not wrong, f"transformers says: {wrong}"
    model.eval()
    for source, target in sequences:
        given = {"input_ids": torch.tensor([source])}
        given |= {"decoder_input_ids": torch.tensor([target])} if target else {}
        with torch.no_grad():
            out = model(**given)
            if not hasattr(out, "logits"):  # A stack without a head: its states against its own embeddings.
                yield (out.last_hidden_state[0] @ model.get_input_embeddings().weight.T).numpy()
            else:
                yield out.logits[0].numpy()


def llama_cpp_logits(path, sequences):
    import llama_cpp

    f32 = 0  # GGML_TYPE_F32, for keys and values
    model = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, verbose=False, type_k=f32, type_v=f32)
    for source, _ in sequences:
        model.reset()
        model.eval(source)
        yield np.array(model.scores[: len(source)], np.float32)


def onnx_logits(folder, sequences):
    import onnx_check

    both = (folder / "encoder_model.onnx").is_file()
    model = onnx_check.session(folder / ("decoder_model.onnx" if both else "model.onnx"))
    for source, target in sequences:
        source, more = np.array([source], np.int64), {}
        if both:
            (states,) = onnx_check.session(folder / "encoder_model.onnx").run(None, {"input_ids": source})
            source, more = np.array([target], np.int64), {"encoder_hidden_states": states}
        given = {"input_ids": source, **onnx_check.past_of(model, 1), **more}
        yield model.run(["logits"], given)[0][0]


def drawn(size, both, length):
    dice = random.Random(17)
    # The first ids may be padding, which some families do not count as positions.
    ids = [[dice.randrange(5, size) for _ in range(length)] for _ in range(4)]
    return [(ids[0], ids[1]), (ids[2], ids[3])] if both else [(ids[0], None), (ids[1], None)]


def line(source, target):
    return " ".join(map(str, source)) + ("|" + " ".join(map(str, target)) if target else "")


def apart(command, run, theirs, both=False, length=24):
    """The largest difference, of the largest logit, and that logit."""
    size = vocabulary(command, run, both)
    sequences = drawn(size, both, length)
    told = ours(command, run, [line(*sequence) for sequence in sequences])
    far, largest = 0.0, 0.0
    for a, b in zip(told, theirs(sequences), strict=True):
        assert a.shape == b.shape, f"ours are {a.shape}, theirs {b.shape}"
        far, largest = max(far, np.abs(a - b).max()), max(largest, np.abs(a).max())
    return far / largest, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whatwhere")
    parser.add_argument("run")
    parser.add_argument("exported", type=Path)
    parser.add_argument("--length", type=int, default=24, help="ids in a sequence (24)")
    given = parser.parse_args()
    path, both, close = given.exported, False, CLOSE
    if path.suffix == ".gguf":
        theirs, close = (lambda sequences: llama_cpp_logits(path, sequences)), ROUNDED
    elif list(path.glob("*.onnx")):
        theirs, both = (lambda sequences: onnx_logits(path, sequences)), (path / "encoder_model.onnx").is_file()
    else:
        both = json.loads((path / "config.json").read_text()).get("is_encoder_decoder", False)
        theirs = lambda sequences: transformers_logits(path, sequences)  # noqa: E731
    far, largest = apart(given.whatwhere, given.run, theirs, both, given.length)
    print(f"{path}: largest logit {largest:.4g}, difference {far:.1e} of it")
    sys.exit(0 if far <= close else 1)


if __name__ == "__main__":
    main()
