"""What makes no sense is a ValueError that says what was found and what would be right, never an abort."""

import numpy as np
import pytest
import torch

import whatwhere
import whatwhere.torch

Q = torch.zeros(2, 4, 10, 8)
MANY = 1 << 62

CASES = [
    (dict(score="sclaed_dot"), "unknown variant `sclaed_dot`, expected one of `scaled_dot`, `dot`, `general`"),
    (dict(score="additive"), "score.weight = none: hand in an array, [heads, head_dim]"),
    (dict(score={"kind": "additive", "weight": torch.zeros(8, 4)}), "score.weight has shape [8, 4], expected"),
    (dict(score={"kind": "general"}), "general needs an array `weight`"),
    (dict(score={"kind": "general", "weight": torch.zeros(4, 8, 7)}), "score.weight has shape [4, 8, 7]"),
    (dict(score={"kind": "dot", "scale": 2.0}, scale=1.0), "scale = 1.0 and score.scale = 2.0"),
    (dict(score={"kind": "additive", "weight": torch.zeros(4, 8)}, scale=1.0), "scale with additive"),
    (
        dict(score={"kind": "additive", "weight": torch.zeros(4, 8)}, position="rotary"),
        "tanh(q + k) does not depend on the distance after a rotation",
    ),
    (dict(score=3), "score is a int, expected a name or a dictionary"),
    (dict(scale=float("inf")), "score.scale = inf, expected a finite number"),
    (dict(soft_cap=-1.0), "soft_cap = -1: a cap is above 0"),
    (dict(pattern="causl"), "unknown variant `causl`"),
    (dict(pattern={"kind": "window", "lfet": 3}), "unknown field `lfet`, expected `left` or `right`"),
    (dict(pattern={"kind": "window", "left": 0}), "pattern.left = 0"),
    (dict(pattern={"kind": "window", "left": -1}), "expected usize"),
    (dict(pattern={"kind": "strided", "stride": 0}), "stride is 0"),
    (dict(pattern={"kind": "fixed", "stride": 2, "summary": 3}), "summary = 3"),
    (dict(pattern={"kind": "random", "block": 0}), "pattern.block = 0"),
    (dict(pattern={"kind": "random", "block": 1, "count": MANY, "length": MANY}), "keys = "),
    (dict(pattern="document"), "the call must say where documents start"),
    (dict(pattern="document", documents=[[3, 1]]), "ascending order"),
    (dict(pattern="predicted"), "pattern.centers = none"),
    (dict(pattern={"kind": "and", "of": []}), "expected at least one pattern"),
    (dict(pattern={"kind": "or", "of": ["predicted"]}), "predicted with or"),
    (dict(pattern={"kind": "prefix", "length": [1, 2, 3]}), "list of prefix lengths has 3 values, expected 2"),
    (dict(pattern=lambda b, h, q, k: (k - q)), "something else than an array of booleans"),
    (dict(pattern=lambda b, h, q, k: (k <= q)[:5]), "mask size = 5"),
    (dict(is_causal=False), "is_causal=False with pattern='causal'"),
    (dict(key_lengths=[1, 2, 3]), "list of key lengths has 3 values, expected 2"),
    (dict(key_lengths=[1, -2]), "key_lengths = -2"),
    (dict(position="rotry"), "unknown variant `rotry`, expected one of `none`"),
    (dict(position="sinusoidal"), "is added to embeddings"),
    (dict(position={"kind": "learned", "length": 5}), "is added to embeddings"),
    (dict(position={"kind": "rotary", "bas": 3}), "unknown field `bas`"),
    (dict(position={"kind": "rotary", "base": 1}), "position.base = 1: the base is above 1"),
    (dict(position={"kind": "rotary", "channels": 0.4}), "rotary rotates pairs, but 3 channels"),
    (dict(position={"kind": "rotary", "heads": 2.0}), "position.heads = 2: a share is above 0 and at most 1"),
    (dict(position={"kind": "rotary", "scaling": {"kind": "linear", "factor": 0.5}}), "a factor is 1 or more"),
    (dict(position={"kind": "rotary", "scaling": "yarn"}), "missing field `factor`"),
    (dict(position=["rotary", "polar"]), "both rotate the same channels of the same heads"),
    (dict(position=["alibi", "alibi"]), "alibi with alibi: an encoding can be listed once"),
    (dict(position="rotary", first_query=1 << 31), "too far apart"),
    (dict(position={"kind": "polar", "delta": torch.zeros(8)}), "position.delta has shape [8], expected"),
    (dict(position={"kind": "polar", "delta": "uniform"}), "yours to draw"),
    (dict(position={"kind": "single_angle", "period": 0}), "position.period = 0"),
    (dict(position={"kind": "t5"}), "position.table = none"),
    (dict(position={"kind": "t5", "table": torch.zeros(32, 4)}), "position.table has shape [32, 4]"),
    (dict(position={"kind": "t5", "table": torch.zeros(4, 1)}), "position.buckets = 1: expected 2 or more"),
    (dict(position={"kind": "t5", "table": [[0.0] * 32] * 4}), "unknown field `table`"),
    (dict(position={"kind": "t5", "table": [0]}), "unknown field `table`"),
    (dict(position={"kind": "t5", "table": np.zeros((4, 32), np.float32)}), "position.table is a ndarray, expected a torch.Tensor"),
    (dict(position={"kind": "t5", "table": torch.zeros(4, 32).double()}), "position.table is torch.float64"),
    (dict(position={"kind": "table", "table": torch.zeros(4, 3), "left": 3}), "position.left = 3"),
    (dict(position={"kind": "alibi", "slopes": torch.zeros(3)}), "position.slopes has shape [3]"),
    (dict(position={"kind": "alibi", "learned": True}), "position.learned"),
    (dict(position={"kind": "rotary", "table": torch.zeros(3)}), "unknown field `table`, rotary takes no array"),
    (dict(position={"kind": "t5", "table": torch.zeros(4, 32), "tabel": torch.zeros(3)}), "unknown field `tabel`"),
    (dict(position="shaw"), "hand in keys, values or both"),
    (dict(position={"kind": "shaw", "keys": torch.zeros(4, 4, 8)}), "position.keys has shape [4, 4, 8]"),
    (dict(position={"kind": "shaw", "keys": torch.zeros(4, 5, 8), "reach": MANY}), "position.keys has shape [4, 5, 8]"),
    (dict(position={"kind": "shaw", "keys": torch.zeros(4, 5, 8), "reach": 1 << 63}), "too large"),
    (dict(position="transformer_xl"), "transformer_xl needs an array `projection`"),
    (dict(position={"kind": "transformer_xl", "projektion": 1}), "unknown field `projektion`"),
    (dict(position={"kind": object()}), "expected a number, a word or an array"),
    (dict(mixing="linaer"), "unknown variant `linaer`, expected one of `softmax`, `linear`"),
    (dict(mixing="linear", position="alibi"), "linear with alibi"),
    (dict(mixing={"kind": "linear", "feature_map": "identity"}), "mixing.feature_map = identity"),
    (dict(mixing={"kind": "linear", "feature_map": "cosine"}), "unknown variant `cosine`"),
    (dict(mixing="retention", pattern="causal"), "retention with arrays: its gates are a layer's"),
    (dict(mixing="linear", pattern="window"), "linear with window"),
    (dict(mixing="linear", score="cosine"), "linear with cosine"),
    (dict(mixing="linear", soft_cap=1.0), "linear with soft_cap"),
    (dict(mixing="linear", dropout_p=0.1), "linear with dropout_p"),
    (dict(mixing="linear", attn_mask=torch.zeros(10, 10)), "linear with attn_mask"),
    (dict(mixing="linear", first_query=3), "linear with first_query"),
    (dict(mixing="linear", return_weights=True), "linear with return_weights"),
    (dict(attn_mask=torch.zeros(9, 10)), "dense bias size = 9"),
    (dict(attn_mask=torch.zeros(9, 10, dtype=torch.bool)), "mask size = 9"),
    (dict(attn_mask=torch.zeros(1, 1, 1, 10, 10)), "attn_mask has 5 sizes"),
    (dict(attn_mask=torch.zeros(10, 10, dtype=torch.int32)), "attn_mask is torch.int32"),
    (dict(dropout_p=1.0), "dropout_p = 1.0 is outside [0, 1)"),
    (dict(first_query=-1), "first_query = -1"),
    (dict(first_query=1.5), "first_query = 1.5, expected a whole number"),
    (dict(return_weights=[10]), "10"),
    (dict(return_weights=[-1]), "return_weights = -1"),
]


@pytest.mark.parametrize("words, message", CASES, ids=[message[:40] for _, message in CASES])
def test_words_without_meaning_are_refused(words, message):
    with pytest.raises(ValueError) as refusal:
        whatwhere.torch.attention(Q, Q, Q, **words)
    assert message in str(refusal.value)


TENSORS = [
    ((Q.double(), Q, Q), "query is torch.float64, expected torch.float32"),
    ((Q, Q.half(), Q), "key is torch.float16"),
    ((Q.to("meta"), Q, Q), "query is on meta, expected cpu"),
    ((Q[0], Q, Q), "query has 3 sizes, expected 4"),
    ((Q, Q[:, :2], Q[:, :2]), "query has 4 heads and key 2: set enable_gqa=True"),
    ((Q, Q[:1], Q), "key has shape [1, 4, 10, 8]"),
    ((Q, Q, Q[:, :, :9]), "value has shape [2, 4, 9, 8]"),
    ((Q, Q[..., :7], Q), "key has shape [2, 4, 10, 7]"),
    ((Q[:0], Q[:0], Q[:0]), "batch is 0"),
    ((Q.numpy(), Q, Q), "query is a ndarray, expected a torch.Tensor"),
]


@pytest.mark.parametrize("tensors, message", TENSORS, ids=[message for _, message in TENSORS])
def test_tensors_that_do_not_fit_are_refused(tensors, message):
    with pytest.raises(ValueError) as refusal:
        whatwhere.torch.attention(*tensors)
    assert message in str(refusal.value)


def test_grouped_heads_must_divide():
    with pytest.raises(ValueError, match="heads = 4 is not a multiple of kv_heads = 3"):
        whatwhere.torch.attention(Q, Q[:, :3], Q[:, :3], enable_gqa=True)


def test_numpy_refuses_other_types_and_dropout_without_a_seed():
    q = np.zeros((1, 1, 4, 4))
    with pytest.raises(ValueError, match="query is float64, expected float32"):
        whatwhere.attention(q, q, q)
    with pytest.raises(ValueError, match="query is a list"):
        whatwhere.attention(q.tolist(), q, q)
    q = q.astype(np.float32)
    with pytest.raises(ValueError, match="dropout_p needs a seed"):
        whatwhere.attention(q, q, q, dropout_p=0.5)
