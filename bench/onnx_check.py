"""Does onnxruntime give our logits?

    WHATWHERE_ONNX_CASES=FOLDER cargo test --release --test imported onnx
    python bench/onnx_check.py FOLDER

The test writes a folder for each case: a run, its ONNX graphs, and `case.json` with token ids and our logits. Logits must
agree to 1e-4 of the largest, at once and with past keys and values: some tokens, then one after the other. Prints the
cases that differ and the largest difference of the others; exits with 1 if one differs.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

CLOSE = 1e-4  # of the largest logit


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def past_of(model, batch):
    """Keys and values of no tokens."""
    empty = {}
    for port in model.get_inputs():
        if port.name.startswith("past_key_values"):
            _, heads, _, width = port.shape
            empty[port.name] = np.zeros((batch, heads, 0, width), np.float32)
    return empty


def step(model, ids, past, more):
    names = [port.name for port in model.get_outputs()]
    given = dict(zip(names, model.run(None, {"input_ids": ids, **past, **more}), strict=True))
    kept = {name.replace("present", "past_key_values"): v for name, v in given.items() if name.startswith("present")}
    return given["logits"], kept


def check(folder):
    """The largest differences, at once and in steps, of the largest logit."""
    case = json.loads((folder / "case.json").read_text())
    want = np.array(case["logits"], np.float32).reshape(case["sizes"])
    ids, more, largest = np.array(case["ids"], np.int64), {}, np.abs(want).max()
    if case["family"] == "encoder":
        model = session(folder / "onnx/model.onnx")
        return np.abs(model.run(["logits"], {"input_ids": ids})[0] - want).max() / largest, 0.0
    if case["family"] == "encoder_decoder":
        source = np.array(case["sources"], np.int64)
        (states,) = session(folder / "onnx/encoder_model.onnx").run(None, {"input_ids": source})
        model, more = session(folder / "onnx/decoder_model.onnx"), {"encoder_hidden_states": states}
    else:
        model = session(folder / "onnx/model.onnx")
    empty = past_of(model, len(ids))
    whole, _ = step(model, ids, empty, more)
    at_once = np.abs(whole - want).max() / largest
    if case["follows_length"]:  # Earlier tokens were read in a shorter text.
        return at_once, 0.0
    first = min(4, ids.shape[1])
    told, past = step(model, ids[:, :first], empty, more)
    parts = [told]
    for place in range(first, ids.shape[1]):
        told, past = step(model, ids[:, place : place + 1], past, more)
        parts.append(told)
    return at_once, np.abs(np.concatenate(parts, 1) - want).max() / largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    folders = sorted(path.parent for path in given.folder.glob("*/case.json"))
    if not folders:
        sys.exit(f"no cases in {given.folder}")
    wrong, most = 0, 0.0
    for folder in folders:
        try:
            apart = max(check(folder))
        except Exception as error:  # noqa: BLE001: what onnxruntime refuses is a case that differs
            print(f"{folder.name}: {str(error).strip().splitlines()[0][:300]}")
            wrong += 1
            continue
        if not apart <= CLOSE:
            print(f"{folder.name}: differs by {apart:.1e} of the largest logit")
            wrong += 1
        else:
            most = max(most, apart)
    print(f"{len(folders) - wrong} of {len(folders)} cases, largest difference {most:.1e} of the largest logit")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
