"""The rivals with learned biases: T5's buckets, ALiBi's slopes, Shaw's keys and values. All causal."""

import math

import torch
import torch.nn.functional as F

HIDDEN = float("-inf")
CHUNK = 256  # queries worked on at a time where a way goes chunk by chunk
REACH = 16  # Shaw's clipping distance
BUCKETS, MAX_DISTANCE = 32, 128  # T5's


def compiled(way):
    """The way under torch.compile, for the shapes of its first call."""
    return torch.compile(way, dynamic=False)


# Attention with a learned bias [heads, length, length] that is −∞ above the diagonal.


def sdpa_biased(bias):
    # A mask that needs a gradient takes SDPA's unfused path.
    def way(t):
        return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], attn_mask=bias(t)[None])

    return way


def explicit(q, k, v, bias):
    q = q * q.shape[-1] ** -0.5
    return (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v


def explicit_biased(bias):
    return lambda t: explicit(t["q"], t["k"], t["v"], bias(t))


def chunked_biased(bias):
    """Chunks of queries see no keys beyond their last, which saves the upper half."""

    def way(t):
        whole = bias(t)
        parts = []
        for start in range(0, whole.shape[1], CHUNK):
            end = start + CHUNK
            q, k, v = t["q"][:, :, start:end], t["k"][:, :, :end], t["v"][:, :, :end]
            parts.append(explicit(q, k, v, whole[:, start:end, :end]))
        return torch.cat(parts, 2)

    return way


def biased(bias, name):
    return {
        f"SDPA, {name}": sdpa_biased(bias),
        f"explicit, {name}": explicit_biased(bias),
        f"chunks, {name}": chunked_biased(bias),
        f"compiled SDPA, {name}": compiled(sdpa_biased(bias)),
        f"compiled explicit, {name}": compiled(explicit_biased(bias)),
        f"compiled chunks, {name}": compiled(chunked_biased(bias)),
    }


# T5: a learned value per head and bucket of distances.


def t5_constants(places):
    between = places - places[:, None]
    distances = torch.arange(1 - len(places), len(places))
    return {
        "buckets": t5_bucket(between),
        "future": between > 0,
        "diagonal_buckets": t5_bucket(distances),
        "diagonal_future": distances > 0,
    }


def t5_bucket(distance):
    """The published rule, for decoders."""
    back, exact = (-distance).clamp(min=0), BUCKETS // 2
    log = torch.log(back.float() / exact) / math.log(MAX_DISTANCE / exact) * (BUCKETS - exact)
    return torch.where(back < exact, back, (exact + log.long()).clamp(max=BUCKETS - 1))


def t5_gathered(t):
    return t["table"][:, t["buckets"]].masked_fill(t["future"], HIDDEN)


def t5_unfolded(t):
    """One value per diagonal first, then a view of it for each row: a smaller gather."""
    diagonals = t["table"][:, t["diagonal_buckets"]].masked_fill(t["diagonal_future"], HIDDEN)
    return diagonals.unfold(-1, t["q"].shape[2], 1).flip(1)


T5 = biased(t5_unfolded, "unfolded") | {
    "explicit, gathered": explicit_biased(t5_gathered),
    "compiled explicit, gathered": compiled(explicit_biased(t5_gathered)),
}


# ALiBi with learned slopes.


def alibi_constants(places):
    back = (places[:, None] - places).float()
    return {
        "back": back.clamp(min=0),
        "mask": torch.zeros_like(back).masked_fill(back < 0, HIDDEN),
        # Centred, which halves the largest score and with it the rounding.
        "places": places.float() - len(places) / 2,
    }


def alibi_bias(t):
    return t["mask"] - t["slopes"][:, None, None] * t["back"]


def alibi_channels(t):
    """−slope·(i − j) is slope·j up to a constant of the row, so one more channel carries it through flash
    attention; 8 more keep the rows aligned. Costs precision: scores grow with the length."""
    q, k, v = t["q"], t["k"], t["v"]
    scale = q.shape[-1] ** -0.5
    places = (t["slopes"][:, None] * t["places"] / scale)[None, :, :, None]  # [1, heads, length, 1]
    wide_q = torch.cat([q, torch.ones_like(q[..., :1]), torch.zeros_like(q[..., :7])], -1)
    wide_k = torch.cat([k, places, torch.zeros_like(k[..., :7])], -1)
    wide_v = F.pad(v, (0, 8))
    out = F.scaled_dot_product_attention(wide_q, wide_k, wide_v, is_causal=True, scale=scale)
    return out[..., : v.shape[-1]]


ALIBI = biased(alibi_bias, "bias") | {
    "SDPA, channels": alibi_channels,
    "compiled SDPA, channels": compiled(alibi_channels),
}


# Shaw: learned key and value vectors by clipped distance, shared by the heads.


def shaw_constants(places):
    between = places - places[:, None]
    length = len(places)
    # The last REACH diagonals, row by row, with the distances −REACH + 1 … 0; not before the first key.
    near = places[:, None] + torch.arange(1 - REACH, 1)  # [length, REACH]
    return {
        "index": (between.clamp(-REACH, REACH) + REACH)[None, None],
        "future": between > 0,
        "by_distance": (torch.arange(1 - length, 1).clamp(min=-REACH) + REACH),
        "near_inside": (near >= 0).flatten().nonzero()[:, 0],
        "near_place": (near + length * places[:, None])[near >= 0],
    }


def shaw_gather(t):
    """Compares with every vector of the table and gathers by distance; weights are summed by distance."""
    q, index = t["q"] * t["q"].shape[-1] ** -0.5, t["index"]
    compared = q @ t["keys"].T  # [1, heads, length, 2·REACH + 1]
    index = index.expand(*q.shape[:2], -1, -1)
    scores = q @ t["k"].transpose(-1, -2) + compared.gather(-1, index)
    weights = scores.masked_fill(t["future"], HIDDEN).softmax(-1)
    by_distance = torch.zeros_like(compared).scatter_add(-1, index, weights)
    return weights @ t["v"] + by_distance @ t["values"]


def shaw_skew(t):
    """Compares with a vector for each distance and shifts the rows (Music Transformer); the weights back."""
    q = t["q"] * t["q"].shape[-1] ** -0.5
    length = q.shape[2]
    by_distance = q @ t["keys"][t["by_distance"]].T  # [1, heads, length, length]
    skewed = F.pad(by_distance, (1, 0)).view(*q.shape[:2], length + 1, length)[:, :, 1:]
    scores = q @ t["k"].transpose(-1, -2) + skewed
    weights = scores.masked_fill(t["future"], HIDDEN).softmax(-1)
    flat = F.pad(weights.flatten(2), (length, 0))
    unskewed = flat.view(*q.shape[:2], length, length + 1)[..., 1:]
    return weights @ t["v"] + unskewed @ t["values"][t["by_distance"]]


def shaw_band(t):
    """Keys further back than REACH share one vector; only the diagonals nearer than that differ."""
    q = t["q"] * t["q"].shape[-1] ** -0.5
    heads, length = q.shape[1], q.shape[2]
    compared = q @ t["keys"][: REACH + 1].T  # distances −REACH … 0
    far, near = compared[..., :1], compared[..., 1:] - compared[..., :1]
    scores = (q @ t["k"].transpose(-1, -2) + far).view(heads, length * length)
    near = near.reshape(heads, length * REACH).index_select(1, t["near_inside"])
    scores = scores.index_add(1, t["near_place"], near).view(1, heads, length, length)
    weights = scores.masked_fill(t["future"], HIDDEN).softmax(-1)
    near = weights.view(heads, length * length).index_select(1, t["near_place"])
    near = torch.zeros(heads, length * REACH).index_copy(1, t["near_inside"], near)
    near = near.view(1, heads, length, REACH)
    by_distance = torch.cat([1 - near.sum(-1, keepdim=True), near], -1)
    return weights @ t["v"] + by_distance @ t["values"][: REACH + 1]


SHAW = {
    "gather": shaw_gather,
    "skew": shaw_skew,
    "band": shaw_band,
    "compiled gather": compiled(shaw_gather),
    "compiled skew": compiled(shaw_skew),
    "compiled band": compiled(shaw_band),
}
