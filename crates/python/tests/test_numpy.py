"""Attention on NumPy arrays: the same numbers, the log-sum, the weights, decoding, and the interpreter's lock."""

import threading
import time

import numpy as np
import pytest
import torch

import whatwhere
import whatwhere.torch

EXACT = dict(rtol=0, atol=2e-6)  # f32 weights and sums of order 1


def arrays(seed, *shapes):
    generator = np.random.default_rng(seed)
    made = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]
    return made[0] if len(made) == 1 else made


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_numpy_and_torch_give_the_same_bits():
    q, k, v, table = arrays(1, (2, 4, 130, 8), (2, 2, 130, 8), (2, 2, 130, 6), (4, 32))
    words = lambda table: dict(
        pattern={"kind": "window", "left": 40},
        position=["rotary", {"kind": "t5", "table": table}],
        enable_gqa=True,
        dropout_p=0.2,
        seed=7,
    )
    ours = whatwhere.attention(q, k, v, **words(table))
    theirs = whatwhere.torch.attention(*map(torch.from_numpy, (q, k, v)), **words(torch.from_numpy(table)))
    assert np.array_equal(ours, theirs.numpy())


def test_general_and_transformer_xl_are_formed_in_numpy_too():
    q, k, v, w, p, u, d = arrays(2, *[(1, 2, 30, 4)] * 3, (2, 4, 4), (6, 8), (2, 4), (2, 4))
    words = lambda w, p, u, d: dict(
        score={"kind": "general", "weight": w},
        position={"kind": "transformer_xl", "projection": p, "content": u, "distance": d},
    )
    ours = whatwhere.attention(q, k, v, **words(w, p, u, d))
    theirs = whatwhere.torch.attention(
        *map(torch.from_numpy, (q, k, v)), **words(*map(torch.from_numpy, (w, p, u, d)))
    )
    np.testing.assert_allclose(ours, theirs.numpy(), **EXACT)


def test_lse_and_weights_are_those_of_the_scores():
    q, k, v = arrays(3, (2, 3, 100, 8), (2, 3, 120, 8), (2, 3, 120, 8))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8, dtype=np.float32)
    out, lse, weights = whatwhere.attention(
        q, k, v, pattern="full", return_lse=True, return_weights=[99, 0, 5]
    )
    np.testing.assert_allclose(lse, np.log(np.exp(scores).sum(-1)), **EXACT)
    np.testing.assert_allclose(weights, softmax(scores)[:, :, [99, 0, 5]], **EXACT)
    np.testing.assert_allclose(out[:, :, [99, 0, 5]], weights @ v, rtol=0, atol=1e-5)
    alone = whatwhere.attention(q, k, v, pattern="full", return_weights=True)
    assert len(alone) == 2 and alone[1].shape == (2, 3, 100, 120)


def test_a_mask_hides_tiles_and_single_pairs():
    q, k, v = arrays(4, (2, 2, 300, 8), (2, 2, 400, 8), (2, 2, 400, 8))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8, dtype=np.float32)
    mask = np.zeros((2, 1, 300, 400), dtype=bool)
    mask[0, :, :200, :150] = True  # whole tiles, some empty, some full, some partly visible
    mask[1] = np.random.default_rng(5).random((1, 300, 400)) < 0.3
    weights = softmax(np.where(mask, scores, -np.inf)[:, :, :200])
    out = whatwhere.attention(q, k, v, pattern="full", attn_mask=mask)
    np.testing.assert_allclose(out[:, :, :200], weights @ v, rtol=0, atol=1e-5)
    assert (out[0, :, 200:] == 0).all()


def test_decoding_token_by_token_equals_one_pass():
    q, k, v = arrays(6, *[(2, 4, 60, 8)] * 3)
    for words in [
        dict(position="rotary"),
        dict(position=["polar", "alibi"], pattern={"kind": "window", "left": 10}),
        dict(pattern={"kind": "strided", "stride": 5}, position="single_angle"),
    ]:
        whole = whatwhere.attention(q, k, v, **words)
        for i in range(60):
            seen = slice(0, i + 1)
            one = whatwhere.attention(q[:, :, i : i + 1], k[:, :, seen], v[:, :, seen], first_query=i, **words)
            np.testing.assert_allclose(one[:, :, 0], whole[:, :, i], rtol=0, atol=1e-5)
        # A cache that has dropped what the window cannot reach.
        if "pattern" in words and words["pattern"]["kind"] == "window":
            late = whatwhere.attention(
                q[:, :, 59:], k[:, :, 45:], v[:, :, 45:], first_query=59, first_key=45, **words
            )
            np.testing.assert_allclose(late[:, :, 0], whole[:, :, 59], rtol=0, atol=1e-5)


def test_padding_and_documents_cut_what_is_seen():
    q, k, v = arrays(7, *[(2, 2, 50, 8)] * 3)
    out = whatwhere.attention(q, k, v, pattern="full", key_lengths=np.array([50, 20]))
    short = whatwhere.attention(q[1:], k[1:, :, :20], v[1:, :, :20], pattern="full")
    np.testing.assert_allclose(out[1:], short, rtol=0, atol=1e-5)
    documents = [[0, 30], [10, 20]]
    out = whatwhere.attention(q, k, v, pattern={"kind": "and", "of": ["causal", "document"]}, documents=documents)
    for batch, starts in [(0, [0, 30, 50]), (1, [0, 10, 20, 50])]:
        for start, end in zip(starts, starts[1:]):
            part = slice(batch, batch + 1), slice(None), slice(start, end)
            np.testing.assert_allclose(out[part], whatwhere.attention(q[part], k[part], v[part]), rtol=0, atol=1e-5)


def test_inputs_in_any_order_of_memory_are_read_and_left_alone():
    x = arrays(8, (2, 50, 3, 4, 8))
    kept = x.copy()
    q, k, v = (x[:, :, i].swapaxes(1, 2) for i in range(3))
    plain = [np.ascontiguousarray(part) for part in (q, k, v)]
    assert np.array_equal(whatwhere.attention(q, k, v), whatwhere.attention(*plain))
    mask = np.random.default_rng(9).random((50, 50)) < 0.7
    assert np.array_equal(
        whatwhere.attention(q, k, v, attn_mask=mask.T), whatwhere.attention(q, k, v, attn_mask=mask.T.copy())
    )
    plain[0].flags.writeable = False
    whatwhere.attention(*plain)
    assert np.array_equal(x, kept)


def test_no_queries_and_no_keys_give_empty_and_zero():
    q, k = arrays(10, (1, 2, 0, 4), (1, 2, 5, 4))
    assert whatwhere.attention(q, k, k).shape == (1, 2, 0, 4)
    assert (whatwhere.attention(k, q, q) == 0).all()


def test_other_threads_run_while_the_kernels_do():
    q = arrays(11, (1, 4, 3000, 64))
    whatwhere.attention(q[:, :, :64], q[:, :, :64], q[:, :, :64])
    spent = []

    def work():
        start = time.perf_counter()
        whatwhere.attention(q, q, q, pattern="full")
        spent.append(time.perf_counter() - start)

    thread = threading.Thread(target=work)
    ticks = [time.perf_counter()]
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.0005)
    longest = max(b - a for a, b in zip(ticks, ticks[1:]))
    assert longest < 0.7 * spent[0], f"held for {longest:.3f} s of {spent[0]:.3f} s"


@pytest.mark.parametrize("module", ["whatwhere", "whatwhere._numpy", "whatwhere.torch"])
def test_examples_in_the_docs_are_true(module):
    import doctest
    import importlib

    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0 and found.failed == 0
