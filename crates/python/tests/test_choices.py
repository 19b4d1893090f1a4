"""Every choice against its definition in float64, output and gradients, at lengths around a tile (96)."""

import itertools

import pytest
import torch

import definition
import whatwhere.torch
from support import close, tensors
from whatwhere import _native, alibi_slopes

HEADS, DIM = 4, 8
# Scores of f32 at this size err by a few 1e-6, and a gradient sums some hundred of them.
OUT, GRADIENT = 2e-5, 2e-4


def learned(seed, *shape, low=False):
    values = tensors(seed, shape).detach() * 0.5
    return (-values.abs() if low else values).requires_grad_()


SCORES = {
    "scaled_dot": lambda: {"kind": "scaled_dot"},
    "dot": lambda: {"kind": "dot", "scale": 0.3},
    "cosine": lambda: {"kind": "cosine"},
    "general": lambda: {"kind": "general", "weight": learned(11, HEADS, DIM, DIM)},
    "additive": lambda: {"kind": "additive", "weight": learned(12, HEADS, DIM)},
}

POSITIONS = {
    "none": lambda: ["none"],
    "rotary": lambda: [{"kind": "rotary"}],
    "rotary interleaved, part": lambda: [
        {"kind": "rotary", "layout": "interleaved", "channels": 0.5, "heads": 0.5, "base": 100.0}
    ],
    "rotary linear": lambda: [{"kind": "rotary", "scaling": {"kind": "linear", "factor": 4.0}}],
    "rotary ntk": lambda: [{"kind": "rotary", "scaling": {"kind": "ntk", "factor": 4.0}}],
    "rotary dynamic_ntk": lambda: [
        {"kind": "rotary", "scaling": {"kind": "dynamic_ntk", "factor": 2.0, "length": 30}}
    ],
    "rotary yarn": lambda: [{"kind": "rotary", "scaling": {"kind": "yarn", "factor": 4.0, "length": 300}}],
    "rotary llama3": lambda: [{"kind": "rotary", "scaling": {"kind": "llama3", "factor": 8.0, "length": 60}}],
    "polar": lambda: [{"kind": "polar", "delta": learned(21, HEADS, DIM, low=True)}],
    "polar relu, part": lambda: [{"kind": "polar", "magnitude": "relu", "channels": 0.5, "heads": 0.5}],
    "polar identity": lambda: [
        {"kind": "polar", "magnitude": "identity", "delta": learned(22, HEADS, DIM, low=True)}
    ],
    "single_angle": lambda: [{"kind": "single_angle", "period": 50}],
    "alibi": lambda: [{"kind": "alibi", "slopes": torch.from_numpy(alibi_slopes(HEADS)).requires_grad_()}],
    "alibi, part": lambda: [{"kind": "alibi", "slopes": learned(23, HEADS // 2), "heads": 0.5}],
    "t5": lambda: [{"kind": "t5", "table": learned(24, HEADS, 32)}],
    "t5 bidirectional": lambda: [
        {"kind": "t5", "table": learned(25, HEADS, 16), "bidirectional": True, "max_distance": 40}
    ],
    "table": lambda: [{"kind": "table", "table": learned(26, HEADS, 12), "left": 8}],
    "shaw": lambda: [{"kind": "shaw", "keys": learned(27, HEADS, 9, DIM), "values": learned(28, HEADS, 9, DIM)}],
    "shaw, one table": lambda: [{"kind": "shaw", "values": learned(29, 1, 5, DIM), "reach": 2}],
    "transformer_xl": lambda: [
        {
            "kind": "transformer_xl",
            "projection": learned(30, 10, HEADS * DIM),
            "content": learned(31, HEADS, DIM),
            "distance": learned(32, HEADS, DIM),
        }
    ],
    "transformer_xl, clamp": lambda: [
        {
            "kind": "transformer_xl",
            "projection": learned(33, 10, HEADS * DIM),
            "content": learned(34, HEADS, DIM),
            "distance": learned(35, HEADS, DIM),
            "clamp": 7,
        }
    ],
    "several": lambda: [
        {"kind": "polar", "delta": learned(36, HEADS, DIM // 2, low=True), "channels": 0.5},
        {"kind": "t5", "table": learned(37, HEADS, 32)},
        {"kind": "alibi", "slopes": learned(38, HEADS)},
    ],
}

# Who sees whom, by positions; `random` and `predicted` have tests of their own.
PATTERNS = {
    "full": ("full", lambda q, k: (q >= 0) & (k >= 0)),
    "causal": ("causal", lambda q, k: k <= q),
    "causal, offset": ({"kind": "causal", "offset": -3}, lambda q, k: k <= q - 3),
    "window": ({"kind": "window", "left": 5, "right": 2}, lambda q, k: (k >= q - 5) & (k <= q + 2)),
    "dilated": (
        {"kind": "dilated", "left": 3, "right": 1, "step": 4},
        lambda q, k: ((q - k) % 4 == 0) & (k >= q - 12) & (k <= q + 4),
    ),
    "strided": ({"kind": "strided", "stride": 7}, lambda q, k: (k <= q) & ((q - k <= 7) | ((q - k) % 7 == 0))),
    "fixed": (
        {"kind": "fixed", "stride": 8, "summary": 2},
        lambda q, k: (k <= q) & ((q // 8 == k // 8) | (k % 8 >= 6)),
    ),
    "global": ({"kind": "global", "positions": 2}, lambda q, k: (q < 2) | (k < 2)),
    "global, listed": (
        {"kind": "global", "positions": [0, 50]},
        lambda q, k: (q == 0) | (q == 50) | (k == 0) | (k == 50),
    ),
    "prefix": ({"kind": "prefix", "length": 9}, lambda q, k: (k < 9) | (k <= q)),
    "document": ("document", lambda q, k: (q < 40) == (k < 40)),
    "and": ({"kind": "and", "of": ["causal", {"kind": "global", "positions": 3}]}, lambda q, k: (k <= q) & ((q < 3) | (k < 3))),
    "or": (
        {"kind": "or", "of": [{"kind": "window", "left": 4}, {"kind": "global", "positions": 1}]},
        lambda q, k: ((k <= q) & (k >= q - 4)) | (q < 1) | (k < 1),
    ),
    "function": (lambda b, h, q, k: (k <= q) & ((q + k) % 3 != h % 2), None),
}


def test_every_name_has_a_case():
    kinds = lambda cases: {name.split(",")[0].split(" ")[0] for name in cases}
    names = _native.names()
    assert kinds(SCORES) == set(names["score"])
    assert kinds(PATTERNS) - {"function"} == set(names["pattern"]) - {"random", "predicted"}
    assert kinds(POSITIONS) - {"several"} == set(names["position"]) - set(_native.only_of_layers())


def leaves(value):
    """The tensors in settings, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [leaf for part in value for leaf in leaves(part)] if not isinstance(value, (str, float, int)) else []


def in_double(value):
    if isinstance(value, torch.Tensor):
        return value.detach().double().requires_grad_()
    if isinstance(value, dict):
        return {name: in_double(part) for name, part in value.items()}
    return [in_double(part) for part in value] if isinstance(value, list) else value


def compare(score, pattern, position, queries, keys, *, kv_heads=HEADS, soft_cap=None, bias=None, first_query=0, first_key=0):
    words, sees = PATTERNS[pattern]
    q, k, v, d_out = tensors(
        queries + keys, (2, HEADS, queries, DIM), (2, kv_heads, keys, DIM), (2, kv_heads, keys, DIM), (2, HEADS, queries, DIM)
    )
    out = whatwhere.torch.attention(
        q, k, v,
        score=score, pattern=words, position=position, soft_cap=soft_cap, attn_mask=bias,
        enable_gqa=kv_heads != HEADS, first_query=first_query, first_key=first_key,
        documents=[[0, 40]] if pattern == "document" else None,
    )  # fmt: skip
    learns = [q, k, v, *leaves(score), *leaves(position), *leaves([bias] if bias is not None else [])]
    learns = [leaf for leaf in learns if leaf.requires_grad]
    found = torch.autograd.grad(out, learns, d_out)

    query = torch.arange(first_query, first_query + queries)[:, None]
    key = torch.arange(first_key, first_key + keys)
    if sees is None:
        head = torch.arange(HEADS)[:, None, None]
        visible = words(0, head, query, key).expand(2, HEADS, queries, keys)
    else:
        visible = sees(query, key).expand(2, HEADS, queries, keys)
    wide = in_double([q, k, v, score, position, bias])
    truth = definition.attend(
        *wide[:3],
        score=wide[3], sees=visible,
        position=[{"kind": one} if isinstance(one, str) else one for one in wide[4]],
        soft_cap=soft_cap, bias=wide[5], first_query=first_query, first_key=first_key,
    )  # fmt: skip
    close(out, truth, OUT, "out")
    wide_learns = [leaf for leaf in leaves([part for part in wide if part is not None]) if leaf.requires_grad]
    expected = torch.autograd.grad(truth, wide_learns, d_out.double(), allow_unused=True)
    assert len(found) == len(expected)
    for i, (ours, theirs) in enumerate(zip(found, expected)):
        close(ours, torch.zeros_like(ours) if theirs is None else theirs, GRADIENT, f"gradient {i}")


@pytest.mark.parametrize("length", [1, 95, 97])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_position_meets_its_definition(position, length):
    compare({"kind": "scaled_dot"}, "causal", POSITIONS[position](), length, length)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [1, 96, 130])
def test_every_pattern_meets_its_definition(pattern, length):
    compare({"kind": "scaled_dot"}, pattern, ["rotary"], length, length)


COMPARED_WITH = ["none", "rotary", "polar", "t5", "shaw", "transformer_xl"]


@pytest.mark.parametrize(
    "score, position", [(s, p) for s, p in itertools.product(SCORES, COMPARED_WITH) if (s, p) not in
                        [("additive", "rotary"), ("additive", "polar")]]
)  # fmt: skip
def test_every_score_meets_its_definition_under_every_kind_of_position(score, position):
    compare(SCORES[score](), "window", POSITIONS[position](), 50, 61, kv_heads=2, soft_cap=3.0)


@pytest.mark.parametrize("position", POSITIONS)
def test_places_may_start_anywhere(position):
    compare({"kind": "scaled_dot"}, "causal", POSITIONS[position](), 5, 40, first_query=37, first_key=2)


def test_a_learned_mask_has_a_gradient_of_its_own_shape():
    for shape in [(30, 41), (HEADS, 30, 41), (2, 1, 30, 41), (2, HEADS, 1, 1), (1, 1, 1, 41)]:
        compare({"kind": "scaled_dot"}, "full", [], 30, 41, bias=learned(40, *shape))


def test_random_blocks_are_those_its_weights_show():
    """The draws are the kernels' own; the numbers must be attention over whatever they show."""
    pattern = {"kind": "random", "block": 4, "count": 2, "length": 64, "seed": 3}
    q, k, v = tensors(1, *[(2, HEADS, 64, DIM)] * 3)
    out, weights = whatwhere.torch.attention(q, k, v, pattern=pattern, return_weights=True)
    sees = weights > 0
    assert (sees.sum(-1) == 8).all()
    assert not torch.equal(sees[0, 0], sees[0, 1]), "each head has its own draws"
    blocks = sees.unflatten(2, (16, 4)).unflatten(4, (16, 4))
    assert torch.equal(blocks.any(-1).any(3), blocks.all(-1).all(3))
    truth = definition.attend(q.double(), k.double(), v.double(), score={"kind": "scaled_dot"}, sees=sees, position=[])
    close(out, truth, OUT)


def test_predicted_centers_shape_the_weights_and_learn():
    radius, queries, keys = 6, 20, 70
    q, k, v = tensors(2, (2, HEADS, queries, DIM), (2, HEADS, keys, DIM), (2, HEADS, keys, DIM))
    centers = (torch.rand(2, HEADS, queries, generator=torch.Generator().manual_seed(0)) * keys).requires_grad_()
    out = whatwhere.torch.attention(q, k, v, pattern={"kind": "predicted", "radius": radius, "centers": centers})
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(out, [q, k, v, centers], d_out)

    wide = in_double([q, k, v, centers])
    far = torch.arange(keys) - wide[3][..., None]
    scores = (wide[0] @ wide[1].transpose(-1, -2) * DIM**-0.5).masked_fill(far.abs() > radius, -torch.inf)
    truth = (scores.softmax(-1) * torch.exp(-2 * far**2 / radius**2)) @ wide[2]
    close(out, truth, OUT)
    for ours, theirs in zip(found, torch.autograd.grad(truth, wide, d_out.double())):
        close(ours, theirs, GRADIENT)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("feature_map", ["elu", "relu", "exp", "softmax", "identity"])
def test_linear_mixing_is_turned_by_positions(feature_map, scale, causal):
    if feature_map == "identity" and scale is None:
        return
    q, k, v, d_out = tensors(3, (2, HEADS, 70, DIM), (2, 2, 70, DIM), (2, 2, 70, 5), (2, HEADS, 70, 5))
    delta = -torch.rand(HEADS, DIM // 2, generator=torch.Generator().manual_seed(0))
    delta.requires_grad_()
    out = whatwhere.torch.attention(
        q, k, v, enable_gqa=True, pattern="causal" if causal else "full",
        mixing={"kind": "linear", "feature_map": feature_map, **({} if scale is None else {"scale": scale})},
        position=[{"kind": "rotary", "channels": 0.5}, {"kind": "polar", "channels": [0.5, 1.0], "delta": delta}],
    )  # fmt: skip
    found = torch.autograd.grad(out, [q, k, v, delta], d_out)
    wide = in_double([q, k, v, delta])
    maps = {
        "elu": lambda x: torch.nn.functional.elu(x) + 1,
        "relu": torch.relu,
        "exp": torch.exp,
        "softmax": lambda x: x.softmax(-1),
        "identity": lambda x: x,
    }
    fq, fk = (maps[feature_map](x) for x in (wide[0], wide[1].repeat_interleave(2, 1)))
    half, place = DIM // 2, torch.arange(70, dtype=torch.float64)[:, None]

    def turned(x, phase):
        pair = place * 10_000 ** (-torch.arange(0, half, 2, dtype=torch.float64) / half)
        a, b = x[..., : half // 2], x[..., half // 2 : half]
        pairs = [a * pair.cos() - b * pair.sin(), a * pair.sin() + b * pair.cos()]
        one = place * 10_000 ** (-torch.arange(half, dtype=torch.float64) / half) + phase
        return torch.cat([*pairs, x[..., half:] * one.cos(), x[..., half:] * one.sin()], -1)

    weights = turned(fq, 0.0) @ turned(fk, wide[3][:, None]).transpose(-1, -2)
    plain = fq @ fk.transpose(-1, -2)
    if causal:
        weights, plain = weights.tril(), plain.tril()
    factor = 1 / (plain.sum(-1, keepdim=True) + 1e-6) if scale is None else scale
    truth = weights @ wide[2].repeat_interleave(2, 1) * factor
    close(out, truth, OUT)
    for ours, theirs in zip(found, torch.autograd.grad(truth, wide, d_out.double())):
        close(ours, theirs, GRADIENT)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_mixing_meets_its_definition(causal):
    q, k, v, d_out = tensors(3, (2, HEADS, 150, DIM), (2, 2, 150, DIM), (2, 2, 150, 5), (2, HEADS, 150, 5))
    out = whatwhere.torch.attention(
        q, k, v, mixing="linear", pattern="causal" if causal else "full", enable_gqa=True, key_lengths=[150, 70]
    )
    found = torch.autograd.grad(out, [q, k, v], d_out)
    wide = in_double([q, k, v])
    feature = lambda x: torch.nn.functional.elu(x) + 1
    weights = feature(wide[0]) @ feature(wide[1]).repeat_interleave(2, 1).transpose(-1, -2)
    weights = weights * (torch.arange(150) < torch.tensor([150, 70])[:, None])[:, None, None]
    weights = weights.tril() if causal else weights
    truth = weights / (weights.sum(-1, keepdim=True) + 1e-6) @ wide[2].repeat_interleave(2, 1)
    close(out, truth, OUT)
    for ours, theirs in zip(found, torch.autograd.grad(truth, wide, d_out.double())):
        close(ours, theirs, GRADIENT)
