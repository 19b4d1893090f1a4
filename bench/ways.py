"""The rivals: for each kind of attention, the ways a torch user can compute it.

A way takes a dict of tensors (`q`, `k`, `v` as [1, heads, length, head_dim], what is learned besides, and
constants) and returns the output. Masks, distances and angles are constants: they are made once, not timed.
"""

import math

import torch
import torch.nn.functional as F

import biased
from biased import CHUNK, HIDDEN, compiled, explicit

WINDOW = 256  # keys a query sees, itself included
BASE = 10_000.0  # of the frequencies


def ways(kind, tensors):
    """The ways to compute a kind, by name; its constants join `tensors`."""
    places = torch.arange(tensors["q"].shape[2])
    constants, found = KINDS[kind]
    tensors |= constants(places)
    if kind == "causal bf16":
        for name, tensor in tensors.items():
            tensors[name] = tensor.detach().bfloat16().requires_grad_(tensor.requires_grad)
    return found


# Plain attention.


def nothing(places):
    return {}


def causal(t):
    return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=True)


def full(t):
    return F.scaled_dot_product_attention(t["q"], t["k"], t["v"])


# Window: the last WINDOW keys.


def window_mask(places):
    back = places[:, None] - places
    mask = (back >= 0) & (back < WINDOW)
    return {"mask": mask, "bias": torch.zeros(mask.shape).masked_fill(~mask, HIDDEN)}


def window_sdpa(t):
    return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], attn_mask=t["mask"])


def window_explicit(t):
    """Head by head: the scores of all heads would need several times 2 GB."""
    heads = zip(t["q"].unbind(1), t["k"].unbind(1), t["v"].unbind(1))
    return torch.stack([explicit(q, k, v, t["bias"]) for q, k, v in heads], 1)


def window_blocks_mask(places):
    back = WINDOW + torch.arange(WINDOW)[:, None] - torch.arange(2 * WINDOW)
    mask = ((back >= 0) & (back < WINDOW)).repeat(len(places) // WINDOW, 1, 1, 1)
    mask[0, :, :, :WINDOW] = False  # no keys before the first
    return {"blocks_mask": mask}  # [blocks, 1, WINDOW, 2·WINDOW]


def window_blocks(t):
    """Blocks of WINDOW queries, each against its own block of keys and the one before."""

    def blocks(x):
        return x[0].unflatten(1, (-1, WINDOW)).transpose(0, 1)  # [blocks, heads, WINDOW, head_dim]

    def pairs(x):
        here = blocks(x)
        before = torch.cat([torch.zeros_like(here[:1]), here[:-1]])
        return torch.cat([before, here], 2)

    out = F.scaled_dot_product_attention(
        blocks(t["q"]), pairs(t["k"]), pairs(t["v"]), attn_mask=t["blocks_mask"]
    )
    return out.transpose(0, 1).flatten(1, 2)[None]


# Rotary (half-split) and PoPE.


def rotary_angles(places):
    half = torch.arange(32, dtype=torch.float64)
    angles = places[:, None] * BASE ** (-half / 32)
    angles = torch.cat([angles, angles], -1)
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def rotary(t):
    def turn(x):
        first, second = x.chunk(2, -1)
        return x * t["cos"] + torch.cat([-second, first], -1) * t["sin"]

    return F.scaled_dot_product_attention(turn(t["q"]), turn(t["k"]), t["v"], is_causal=True)


def polar_angles(places):
    channels = torch.arange(64, dtype=torch.float64)
    angles = places[:, None] * BASE ** (-channels / 64)
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def polar(t):
    """Magnitude and phase as twice as many channels; values are padded, as flash attention wants equal widths."""
    cos, sin = t["cos"], t["sin"]
    size = F.softplus(t["q"])
    q = torch.cat([size * cos, size * sin], -1)
    delta = t["delta"].clamp(-2 * math.pi, 0)[:, None]  # [heads, 1, head_dim]
    size, delta_cos, delta_sin = F.softplus(t["k"]), delta.cos(), delta.sin()
    # cos(a + δ) by its parts: a itself has too few digits in f32 at far places.
    turned = [cos * delta_cos - sin * delta_sin, sin * delta_cos + cos * delta_sin]
    k = torch.cat([size * turned[0], size * turned[1]], -1)
    dim = t["v"].shape[-1]
    v = F.pad(t["v"], (0, dim))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=dim**-0.5)
    return out[..., :dim]


# Additive score, every query sees every key.


def additive(t):
    """All heads at once; only compiled, as every tensor of n×n×d would need 2 GB."""
    return additive_broadcast(t["q"], t["k"], t["v"], t["weight"][:, None, None, :])


def additive_broadcast(q, k, v, weight):
    scores = (torch.tanh(q[..., :, None, :] + k[..., None, :, :]) * weight).sum(-1)
    return scores.softmax(-1) @ v


def additive_product(q, k, v, weight):
    """The sum over channels as a matrix product, which saves one tensor of n×n×d."""
    scores = torch.tanh(q[..., :, None, :] + k[..., None, :, :]) @ weight
    return scores.softmax(-1) @ v


def by_head(head):
    def way(t):
        heads = zip(t["q"].unbind(1), t["k"].unbind(1), t["v"].unbind(1), t["weight"])
        return torch.stack([head(*one) for one in heads], 1)

    return way


# Linear mixing, causal.


def linear(t):
    """Chunk by chunk: the keys of earlier chunks as one summed matrix, those of the same chunk one by one."""

    def chunks(x):
        return x.unflatten(2, (-1, CHUNK))  # [1, heads, chunks, CHUNK, head_dim]

    q, k, v = chunks(F.elu(t["q"]) + 1), chunks(F.elu(t["k"]) + 1), chunks(t["v"])
    v = F.pad(v, (0, 1), value=1.0)  # the last channel sums the weights
    each = k.transpose(-1, -2) @ v  # [1, heads, chunks, head_dim, head_dim + 1]
    before = each.cumsum(2) - each
    mixed = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return (mixed[..., :-1] / (mixed[..., -1:] + 1e-6)).flatten(2, 3)


def turned_linear(t):
    """Rotary on the numerator; the denominator as it is."""

    def chunks(x):
        return x.unflatten(2, (-1, CHUNK))

    def turned(x):
        a, b = x.chunk(2, -1)
        return x * t["cos"] + torch.cat([-b, a], -1) * t["sin"]

    q, k = F.elu(t["q"]) + 1, F.elu(t["k"]) + 1
    sums = (q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6
    q, k, v = chunks(turned(q)), chunks(turned(k)), chunks(t["v"])
    each = k.transpose(-1, -2) @ v
    before = each.cumsum(2) - each
    mixed = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return mixed.flatten(2, 3) / sums


# Retention, causal.


def retention_constants(places):
    decay = torch.log1p(-(2.0 ** (-5 - torch.arange(8, dtype=torch.float64))))[:, None]
    within = torch.arange(CHUNK)
    back = (within[:, None] - within).tril()
    pairs = (back * decay[..., None]).exp().tril()
    up, down = ((within + 1) * decay).exp(), ((CHUNK - 1 - within) * decay).exp()
    every = (CHUNK * decay).exp()[..., None]
    names = {"pairs": pairs, "up": up[..., None], "down": down[..., None], "every": every}
    return {name: tensor.float() for name, tensor in names.items()}


def retention(t):
    """Chunk by chunk: the state fades from one to the next, the keys of the same chunk pair by pair."""
    q, k, v = ((t[name]).unflatten(2, (-1, CHUNK)).unbind(2) for name in "qkv")
    state, out = torch.zeros(1, 8, 64, 64), []
    for one_q, one_k, one_v in zip(q, k, v):
        one_q = one_q * 0.125
        inside = (one_q @ one_k.transpose(-1, -2)) * t["pairs"]
        out.append((one_q * t["up"]) @ state + inside @ one_v)
        state = state * t["every"] + (one_k * t["down"]).transpose(-1, -2) @ one_v
    return torch.cat(out, 2)


KINDS = {
    "causal": (nothing, {"SDPA": causal}),
    "causal bf16": (nothing, {"SDPA": causal}),
    "full": (nothing, {"SDPA": full}),
    "t5": (biased.t5_constants, biased.T5),
    "alibi": (biased.alibi_constants, biased.ALIBI),
    "shaw": (biased.shaw_constants, biased.SHAW),
    "window": (window_mask, {"SDPA, mask": window_sdpa, "explicit, mask": window_explicit}),
    "window in blocks": (window_blocks_mask, {"SDPA, blocks": window_blocks}),
    "rotary": (rotary_angles, {"SDPA": rotary, "compiled SDPA": compiled(rotary)}),
    "polar": (polar_angles, {"SDPA": polar, "compiled SDPA": compiled(polar)}),
    "additive": (
        nothing,
        {
            "broadcast, by head": by_head(additive_broadcast),
            "product, by head": by_head(additive_product),
        },
    ),
    "additive compiled": (nothing, {"compiled broadcast": compiled(additive)}),
    "linear": (nothing, {"chunks": linear, "compiled chunks": compiled(linear)}),
    "turned linear": (
        rotary_angles,
        {"chunks": turned_linear, "compiled chunks": compiled(turned_linear)},
    ),
    "retention": (
        retention_constants,
        {"chunks": retention, "compiled chunks": compiled(retention)},
    ),
}
