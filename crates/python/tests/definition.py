"""The definition of every choice in torch's float64: all scores stored, nothing clever. Tests compare against it."""

import math

import torch
import torch.nn.functional as F


def attend(q, k, v, *, score, sees, position, soft_cap=None, bias=None, first_query=0, first_key=0):
    """`sees` is a boolean (batch, heads, queries, keys); settings are dictionaries with tensors in them."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    heads, dim = q.shape[1], q.shape[3]
    query_places = torch.arange(first_query, first_query + q.shape[2])
    key_places = torch.arange(first_key, first_key + k.shape[2])
    distance = key_places - query_places[:, None]  # (queries, keys)

    kind = score["kind"]
    if kind == "general":
        q = q @ score["weight"]
    scale = score.get("scale", {"dot": 1.0, "cosine": 10.0, "additive": 1.0}.get(kind, dim**-0.5))
    raw = q
    turned_q, turned_k = q, k
    for one in position:
        if one["kind"] == "transformer_xl":
            turned_q = turned_q + one["content"][:, None]
    for one in position:
        if one["kind"] in FEATURES:
            turned_q = FEATURES[one["kind"]](one, turned_q, query_places, False)
            turned_k = FEATURES[one["kind"]](one, turned_k, key_places, True)
    if kind == "additive":
        total = torch.tanh(turned_q[..., :, None, :] + turned_k[..., None, :, :])
        scores = (total * score["weight"][:, None, None]).sum(-1)
    else:
        if kind == "cosine":
            turned_q, turned_k = F.normalize(turned_q, dim=-1), F.normalize(turned_k, dim=-1)
        scores = scale * turned_q @ turned_k.transpose(-1, -2)
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    for one in position:
        if one["kind"] in BIASES:
            scores = scores + BIASES[one["kind"]](one, raw, distance, scale, heads)
    if bias is not None:
        scores = scores + bias
    weights = scores.masked_fill(~sees, -math.inf).softmax(-1)
    weights = torch.where(sees.any(-1, keepdim=True), weights, 0.0)
    mixed = weights
    out = mixed @ v
    for one in position:
        if one["kind"] == "shaw" and "values" in one:
            vectors = one["values"][:, clip(distance, one["values"])]  # (heads or 1, queries, keys, dim)
            out = out + (mixed[..., None] * vectors).sum(-2)
    return out


def share(settings, name, count):
    return round(settings.get(name, 1.0) * count)


def scaled(settings, half, dim, length):
    """Frequencies and amplitude of rotary; in these tests queries and keys end at the same position."""
    base, scaling = settings.get("base", 10_000.0), settings.get("scaling", {"kind": "none"})
    kind, factor, trained = scaling["kind"], scaling.get("factor", 1.0), scaling.get("length", 1)
    if kind == "dynamic_ntk":
        factor = factor * max(length, trained) / trained - (factor - 1)
    if kind in ("ntk", "dynamic_ntk"):
        base = base * factor ** (dim / (dim - 2))
    plain = base ** (-2 * half / dim)
    turns = trained * plain / (2 * math.pi)
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        smooth = ((turns - 1) / (4 - 1)).clamp(0, 1)
        return (1 - smooth) * plain / factor + smooth * plain, 1.0
    if kind == "yarn":
        pair = lambda turns: dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), dim - 1)
        ramp = ((half - low) / (high - low)).clamp(0, 1)
        return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1
    return plain, 1.0


def turn(settings, x, positions, is_key):
    dim, heads = share(settings, "channels", x.shape[3]), share(settings, "heads", x.shape[1])
    half = torch.arange(dim // 2, dtype=torch.float64)
    frequencies, amplitude = scaled(settings, half, dim, int(positions.max()) + 1)
    angle = positions[:, None] * frequencies
    part = x[:, :heads, :, :dim]
    if settings.get("layout", "half_split") == "half_split":
        a, b = part[..., : dim // 2], part[..., dim // 2 :]
    else:
        a, b = part[..., 0::2], part[..., 1::2]
    cos, sin = amplitude * angle.cos(), amplitude * angle.sin()
    turned = (a * cos - b * sin, a * sin + b * cos)
    if settings.get("layout", "half_split") == "half_split":
        turned = torch.cat(turned, -1)
    else:
        turned = torch.stack(turned, -1).flatten(-2)
    first = torch.cat([turned, x[:, :heads, :, dim:]], -1)
    return torch.cat([first, x[:, heads:]], 1)


def polarise(settings, x, positions, is_key):
    dim, heads = share(settings, "channels", x.shape[3]), share(settings, "heads", x.shape[1])
    if settings["kind"] == "single_angle":
        angle = (positions * 2 * math.pi / settings.get("period", 1024))[:, None].expand(-1, dim)
    else:
        channels = torch.arange(dim, dtype=torch.float64)
        angle = positions[:, None] * settings.get("base", 10_000.0) ** (-channels / dim)
    if is_key and "delta" in settings:
        angle = angle + settings["delta"][:heads].clamp(-2 * math.pi, 0)[:, None]
    magnitude = {"softplus": F.softplus, "relu": F.relu, "identity": lambda x: x}
    part = magnitude[settings.get("magnitude", "softplus")](x[:, :heads, :, :dim])
    first = torch.cat([part * angle.cos(), part * angle.sin(), x[:, :heads, :, dim:]], -1)
    rest = F.pad(x[:, heads:], (0, dim))
    return torch.cat([first, rest], 1)


FEATURES = {"rotary": turn, "polar": polarise, "single_angle": polarise}


def alibi(settings, q, distance, scale, heads):
    slopes = F.pad(settings["slopes"], (0, heads - len(settings["slopes"])))
    return -slopes[:, None, None] * distance.abs()


def t5(settings, q, distance, scale, heads):
    count, far, upper = settings["table"].shape[1], -distance, 0
    if settings.get("bidirectional", False):
        count //= 2
        upper, far = (distance > 0) * count, distance.abs()
    far, exact = far.clamp(min=0), count // 2
    ratio = math.log(settings.get("max_distance", 128) / exact)
    large = exact + (torch.log(far.float() / exact) / ratio * (count - exact)).clamp(min=0).long()
    return settings["table"][:, upper + torch.where(far < exact, far, large.clamp(max=count - 1))]


def table(settings, q, distance, scale, heads):
    left, count = settings.get("left", 0), settings["table"].shape[1]
    return settings["table"][:, distance.clamp(-left, count - 1 - left) + left]


def clip(distance, vectors):
    reach = vectors.shape[1] // 2
    return distance.clamp(-reach, reach) + reach


def shaw(settings, q, distance, scale, heads):
    if "keys" not in settings:
        return 0.0
    vectors = settings["keys"][:, clip(distance, settings["keys"])]  # (heads or 1, queries, keys, dim)
    return scale * (q[..., None, :] * vectors).sum(-1)


def transformer_xl(settings, q, distance, scale, heads):
    width = settings["projection"].shape[0]
    limit = settings.get("clamp", 0) or 10**9
    back = (-distance).clamp(-limit, limit)
    waves = back[..., None] * 10_000.0 ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    waves = torch.cat([waves.sin(), waves.cos()], -1)
    vectors = (waves @ settings["projection"]).unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)
    return scale * ((q + settings["distance"][:, None])[..., None, :] * vectors).sum(-1)


BIASES = {"alibi": alibi, "t5": t5, "table": table, "shaw": shaw, "transformer_xl": transformer_xl}
