"""The official ONNX operator test vectors, as far as the words of a call can express them.

They are in `fixtures/onnx` of the repository.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import whatwhere

FOLDER = Path(__file__).parents[3] / "fixtures" / "onnx"
NAMES = sorted(path.stem for path in FOLDER.glob("test_*.json"))
# Expected numbers are f32 near 1 computed in another order, or rounded to f16 on the way.
SINGLE, HALF = 1e-5, 2e-3
HALVES = ["softmax_precision", "fp16"]
UNLIMITED = 1 << 40

SKIPPED = {
    "test_flexattention_prob_mod": "scales weights after the softmax, for which there is no setting",
    "test_linear_attention": "its gates and state are arrays; the words of mixing are a layer's, which makes them of tokens",
    "test_rotary_embedding": "turns by given tables of cosines; the words know a base",
}
# The graph of these is not stored; the numbers say what it adds to the scores.
GRAPHS = {
    "test_flexattention_causal_mask": lambda q, k: np.where(k > q, -np.inf, 0.0),
    "test_flexattention_relative_positional": lambda q, k: q - k,
    "test_flexattention_score_mod": lambda q, k: 0.5 + 0.0 * (q + k),
}


def stored(path):
    """The arrays of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "BOOL": np.bool_}
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[8 + size :][slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def load(name):
    described = json.loads((FOLDER / f"{name}.json").read_text())
    arrays = stored(FOLDER / f"{name}.safetensors")
    tensors = {}
    for names, prefix in [(described["inputs"], "in"), (described["outputs"], "out")]:
        present = [name for name in names if name]
        tensors |= {name: arrays[f"{prefix}{i}"] for i, name in enumerate(present)}
    return described["attrs"], tensors


def by_head(array, heads):
    """Three sizes are (batch, length, heads · dim)."""
    if array.ndim == 3:
        array = array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)
    return array.astype(np.float32)


def pattern(attributes, past, queries, lengths):
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    left, right = (UNLIMITED if side < 0 else side for side in (left, right))
    is_causal = attributes.get("is_causal", 0) == 1
    if lengths is None:
        window = {"kind": "window", "left": left, "right": right}
        return {"kind": "and", "of": ["causal", window]} if is_causal else window

    def sees(batch, head, query, key):
        # The last query stands at the last key that is no padding.
        query = query - past + lengths[batch] - queries
        visible = (key < lengths[batch]) & (key >= query - left) & (key <= query + right)
        return visible & (key <= query) if is_causal else visible

    return sees


def test_there_are_as_many_vectors_as_were_looked_at():
    assert len(NAMES) == 57


@pytest.mark.parametrize("name", NAMES)
def test_vector_is_met(name):
    for start, reason in SKIPPED.items():
        if name.startswith(start):
            pytest.skip(reason)
    attributes, tensors = load(name)
    q = by_head(tensors["Q"], attributes.get("q_num_heads"))
    k, v = (by_head(tensors[x], attributes.get("kv_num_heads")) for x in ("K", "V"))
    past = 0
    if "past_key" in tensors:
        past = tensors["past_key"].shape[2]
        k = np.concatenate([tensors["past_key"], k], axis=2)
        v = np.concatenate([tensors["past_value"], v], axis=2)
    queries, keys = q.shape[2], k.shape[2]
    mask = tensors.get("attn_mask")
    if name in GRAPHS:
        mask = GRAPHS[name](np.arange(queries)[:, None], np.arange(keys)).astype(np.float32)
    out, weights = whatwhere.attention(
        q,
        k,
        v,
        pattern=pattern(attributes, past, queries, tensors.get("nonpad_kv_seqlen")),
        attn_mask=mask,
        scale=attributes.get("scale"),
        soft_cap=attributes.get("softcap") or None,
        enable_gqa=True,
        first_query=past,
        return_weights=True,
    )
    expected = tensors["Y"]
    if expected.ndim == 3:
        out = out.swapaxes(1, 2).reshape(expected.shape)
    bound = HALF if any(half in name for half in HALVES) else SINGLE
    np.testing.assert_allclose(out, expected, rtol=bound, atol=bound)
    if attributes.get("qk_matmul_output_mode") == 3:
        np.testing.assert_allclose(weights, tensors["qk_matmul_output"], rtol=bound, atol=bound)
