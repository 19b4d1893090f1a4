"""Writes ONNX's own test vectors of LinearAttention in the form of `fixtures/onnx`.

pip install onnx==1.23.2 safetensors==0.8.0

    python bench/onnx_vectors.py fixtures/onnx

The package makes each case from a fixed seed when it is imported, and its reference operator computes the outputs. A file
that exists is held against what is made, and only a missing one is written: `--again` writes all.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from onnx import helper
from onnx.backend.test.case.node import _NodeTestCases, linear_attention
from safetensors.numpy import load_file, save_file

assert linear_attention, "importing it collects its cases"


def described(case):
    """What the operator is given, by name: an empty name stands for an absent input."""
    (node,) = case.model.graph.node
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in sorted(attributes.items())}
    return {"op": node.op_type, "attrs": attributes, "inputs": list(node.input), "outputs": list(node.output)}


def tensors(case):
    """Inputs and outputs in the order of their names; what is in f16 is stored as f32."""
    ((inputs, outputs),) = case.data_sets
    named = {f"in{i}": array for i, array in enumerate(inputs)} | {f"out{i}": array for i, array in enumerate(outputs)}
    return {name: np.ascontiguousarray(array, np.float32) for name, array in named.items()}


def main():
    """Writes what is missing, and says which cases there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--again", action="store_true", help="write files that exist, too")
    options = parser.parse_args()
    # The same calls written out as other operators say nothing new.
    cases = [case for case in _NodeTestCases if not case.name.endswith("_expanded")]
    assert len(cases) == 14, f"onnx 1.23.2 has 14 cases, this one {len(cases)}"
    for case in cases:
        made, path = tensors(case), options.folder / f"{case.name}.safetensors"
        if path.exists() and not options.again:
            stored = load_file(path)
            same = stored.keys() == made.keys() and all(np.array_equal(stored[name], made[name]) for name in made)
            assert same, f"{path} differs from what onnx makes"
            print(f"{case.name}: as it was")
            continue
        save_file(made, path)
        path.with_suffix(".json").write_text(json.dumps(described(case)))
        print(f"{case.name}: written")


if __name__ == "__main__":
    main()
