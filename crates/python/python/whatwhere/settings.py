"""The choices of a call as types: what the dictionaries for `score`, `pattern` and `position` may hold.

The words, their meaning and their defaults are those of TOML. What TOML initialises is handed in here as an array
(`float32`; a tensor in `whatwhere.torch`, where it has a gradient). A choice without settings may be given by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Union

Array: TypeAlias = Any  # numpy.ndarray, or torch.Tensor in whatwhere.torch


class ScaledDot(TypedDict, total=False):
    """`q·k / √head_dim`."""

    kind: Literal["scaled_dot"]


class Dot(TypedDict, total=False):
    """`scale · q·k`, scale 1 unless set."""

    kind: Literal["dot"]
    scale: float


class General(TypedDict, total=False):
    """`qᵀ W k / √head_dim`; weight is (heads, head_dim, head_dim)."""

    kind: Literal["general"]
    weight: Array


class Additive(TypedDict, total=False):
    """`wᵀ tanh(q + k)`; weight is (heads, head_dim)."""

    kind: Literal["additive"]
    weight: Array


class Cosine(TypedDict, total=False):
    """`scale · q·k / (|q| |k|)`, scale 10 unless set."""

    kind: Literal["cosine"]
    scale: float


class Full(TypedDict, total=False):
    """Every query sees every key."""

    kind: Literal["full"]


class Causal(TypedDict, total=False):
    """`key ≤ query + offset`, offset 0 unless set."""

    kind: Literal["causal"]
    offset: int


class Window(TypedDict, total=False):
    """`left` keys before the query (128) and `right` after it (0)."""

    kind: Literal["window"]
    left: int
    right: int


class Dilated(TypedDict, total=False):
    """A window with gaps: `left` keys (64) before and `right` (0) after the query, `step` (2) places apart."""

    kind: Literal["dilated"]
    left: int
    right: int
    step: int


class Strided(TypedDict, total=False):
    """The last `stride` keys (128) and every `stride`-th before them, causal."""

    kind: Literal["strided"]
    stride: int


class Fixed(TypedDict, total=False):
    """The own block of `stride` keys (128) and the last `summary` (8) of every block before, causal."""

    kind: Literal["fixed"]
    stride: int
    summary: int


class Random(TypedDict, total=False):
    """`count` (3) blocks of `block` (64) keys for each block of queries, drawn among `length` (4096) places."""

    kind: Literal["random"]
    block: int
    count: int
    length: int
    seed: int


class Global(TypedDict, total=False):
    """The first `places` (1), or the places listed, see everything and are seen by all."""

    kind: Literal["global"]
    places: int | Sequence[int]


class Prefix(TypedDict, total=False):
    """The first `length` places (64; or one number for each sequence) are seen by all, the rest is causal."""

    kind: Literal["prefix"]
    length: int | Sequence[int]


class Document(TypedDict, total=False):
    """A query sees its own document; the call's `documents` say where they start."""

    kind: Literal["document"]


class Predicted(TypedDict, total=False):
    """Luong's local-p: `radius` (10) keys around centers (batch, heads, queries), weighed by a Gaussian."""

    kind: Literal["predicted"]
    radius: int
    centers: Array


class Joined(TypedDict, total=False):
    """What every part (`and`) or any part (`or`) shows."""

    kind: Literal["and", "or"]
    of: Sequence[str | Full | Causal | Window | Dilated | Strided | Fixed | Random | Global | Prefix | Document | Joined]


class NoPosition(TypedDict, total=False):
    """Nothing."""

    kind: Literal["none"]


class Scaling(TypedDict, total=False):
    """Rotary beyond the trained `length`."""

    kind: Literal["none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"]
    factor: float
    length: int
    fast: float
    slow: float
    low: float
    high: float


class Rotary(TypedDict, total=False):
    """Pairs of channels turn by `place · base^(−2i/width)`; `channels` and `heads` are shares from 0 to 1."""

    kind: Literal["rotary"]
    base: float
    layout: Literal["half_split", "interleaved"]
    channels: float
    heads: float
    scaling: str | Scaling


class Polar(TypedDict, total=False):
    """PoPE: `Σ μ(q_c) μ(k_c) cos(distance·θ_c + δ_c)`; delta is (heads, channels), or left out."""

    kind: Literal["polar"]
    base: float
    delta: Array
    magnitude: Literal["softplus", "relu", "identity"]
    channels: float
    heads: float


class SingleAngle(TypedDict, total=False):
    """PoPE's simplified form: one angle for all channels, `2π·place / period` (1024)."""

    kind: Literal["single_angle"]
    period: int


class Alibi(TypedDict, total=False):
    """`−slope · |distance|`; slopes are (heads that have one,), the paper's unless handed in."""

    kind: Literal["alibi"]
    slopes: Array
    heads: float


class T5(TypedDict, total=False):
    """A value per bucket of distances; table is (heads, buckets)."""

    kind: Literal["t5"]
    table: Array
    buckets: int
    max_distance: int
    bidirectional: bool


class Table(TypedDict, total=False):
    """`table[head, clamp(distance, −left, right) + left]`; table is (heads, left + 1 + right)."""

    kind: Literal["table"]
    table: Array
    left: int


class Shaw(TypedDict, total=False):
    """Vectors by clipped distance join keys and values; each table is (heads or 1, 2·reach + 1, head_dim)."""

    kind: Literal["shaw"]
    keys: Array
    values: Array
    reach: int
    per_head: bool


class TransformerXl(TypedDict, total=False):
    """`(q + u)·k + (q + v)·(W R)`: projection (width, heads · head_dim), content u and distance v (heads, head_dim)."""

    kind: Literal["transformer_xl"]
    projection: Array
    content: Array
    distance: Array
    clamp: int


Score: TypeAlias = Union[str, ScaledDot, Dot, General, Additive, Cosine]
Pattern: TypeAlias = Union[
    str,
    Full,
    Causal,
    Window,
    Dilated,
    Strided,
    Fixed,
    Random,
    Global,
    Prefix,
    Document,
    Predicted,
    Joined,
    Callable[[Any, Any, Any, Any], Any],
]
Encoding: TypeAlias = Union[
    str, NoPosition, Rotary, Polar, SingleAngle, Alibi, T5, Table, Shaw, TransformerXl
]
Position: TypeAlias = Union[Encoding, Sequence[Encoding], None]
