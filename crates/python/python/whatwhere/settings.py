"""The choices of a call as types: what the dictionaries for `score`, `pattern` and `position` may hold.

Written from the schema of the layers' settings by `tests/written_types.py`; a test holds it against them.
The words, their meaning and their defaults are those of TOML. What TOML initialises is handed in here as an array
(`float32`; a tensor in `whatwhere.torch`, where it has a gradient). A choice without settings may be given by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Union

Array: TypeAlias = Any  # numpy.ndarray, or torch.Tensor in whatwhere.torch


class ScaledDot(TypedDict, total=False):
    """Scaled dot: `q·k / √head_dim`. Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. No parameters; the usual choice."""

    kind: Literal["scaled_dot"]


class Dot(TypedDict, total=False):
    """Dot: `scale · q·k`, Luong's dot score with scale 1. Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. No parameters; T5 uses it and scales its weights instead."""

    kind: Literal["dot"]
    # Factor on every score; default 1.
    scale: float


class General(TypedDict, total=False):
    """General: `qᵀ W k / √head_dim`, a learned bilinear form for each head. Luong et al. 2015, <https://arxiv.org/abs/1508.04025>, who do not divide: scores start with the spread of scaled dots, and W can learn any other. `heads · head_dim²` parameters; a dot after one more projection."""

    kind: Literal["general"]
    # [heads, head_dim, head_dim].
    weight: Array


class Additive(TypedDict, total=False):
    """Additive: `wᵀ tanh(q + k)`, with q and k the projected states. Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>. `width` parameters; costs a tanh per channel and pair."""

    kind: Literal["additive"]
    # [heads, head_dim].
    weight: Array


class Cosine(TypedDict, total=False):
    """Cosine: `scale · q·k / (|q| |k|)`, bounded by its scale. Graves et al. 2014, <https://arxiv.org/abs/1410.5401>. No parameters; scores cannot grow with the norms of q and k."""

    kind: Literal["cosine"]
    # Largest score; default 10.
    scale: float


class Full(TypedDict, total=False):
    """Full: every query sees every key. For encoders and cross-attention. Cost queries × keys."""

    kind: Literal["full"]


class Causal(TypedDict, total=False):
    """Causal: a query sees the keys up to its own position. For language models. Half the cost of full."""

    kind: Literal["causal"]
    # A query sees the keys up to so many positions after its own, before it if negative; default 0.
    offset: int


class Window(TypedDict, total=False):
    """Window: a query sees `left` keys before its position and `right` after it. Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>; Luong's local-m has left = right = 10 (`predicted` is his local-p). Cost length × window."""

    kind: Literal["window"]
    # Keys before the own position; default 128.
    left: int
    # Keys after it; default 0, which is causal.
    right: int


class Dilated(TypedDict, total=False):
    """Dilated: a window with gaps, positions `query ± step·m`. Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Reaches `step` times as far as a window of as many keys."""

    kind: Literal["dilated"]
    # Keys before the own position; default 64.
    left: int
    # Keys after it; default 0.
    right: int
    # Distance between them; default 2.
    step: int


class Strided(TypedDict, total=False):
    """Strided: the last `stride` keys and every `stride`-th before them, causal. Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For data with a period, such as images; O(length · √length) pairs."""

    kind: Literal["strided"]
    # Length of the window and of the step; default 128.
    stride: int


class Fixed(TypedDict, total=False):
    """Fixed: the own block of `stride` keys, and the last `summary` keys of every block before it, causal. Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For text; O(length · √length) pairs."""

    kind: Literal["fixed"]
    # Length of a block; default 128.
    stride: int
    # Keys of a block that later blocks see; default 8.
    summary: int


class Random(TypedDict, total=False):
    """Random: every block of queries sees `count` blocks of keys, drawn once from the seed. BigBird, Zaheer et al. 2020, <https://arxiv.org/abs/2007.14062>. Joined by `or` to a window and global positions."""

    kind: Literal["random"]
    # Positions in a block; default 64.
    block: int
    # Blocks drawn for each block of queries, or all if there are fewer; default 3.
    count: int
    # Positions the draws are made among, whatever the length of a call, so that decoding sees what training saw; default 4096. Positions beyond see nothing of it.
    length: int
    # Selects the draws; default 0.
    seed: int


class Global(TypedDict, total=False):
    """Global: the first `positions`, or those listed, and `tokens` of a kind see everything and are seen by all. Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Joined by `or` to a window; for a decoder, by `and` to `causal`."""

    kind: Literal["global"]
    # How many, or a list of the positions themselves; default 1, or none where there are `tokens`.
    positions: int | Sequence[int] | None
    # Tokens that are global wherever they stand, such as separators or ends of sentences, by their text or their id; default none.
    tokens: Sequence[int | str]


class Prefix(TypedDict, total=False):
    """Prefix: the first `length` positions are seen by all, the rest is causal. Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For prefix language models."""

    kind: Literal["prefix"]
    # Length of the prefix, or a list with that of each sequence; default 64.
    length: int | Sequence[int]


class Document(TypedDict, total=False):
    """Document: a query sees the keys of its own document. Krell et al. 2021, <https://arxiv.org/abs/2107.02027>. For texts packed into one sequence; the call says where they start."""

    kind: Literal["document"]


class Predicted(TypedDict, total=False):
    """Predicted: each query of each head predicts the position `p = keys · σ(vᵀ tanh(W x))` and sees `radius` keys to either side, its weights times `exp(−(key − p)² / 2σ²)` with σ = radius / 2, not renormalised. Local-p of Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `width² + width · heads` parameters, one v for each head (the paper has one head); for a memory that is read in an order of its own, not for causal layers."""

    kind: Literal["predicted"]
    # Keys to either side of the predicted position, the paper's D; default 10.
    radius: int
    # [batch, heads, queries].
    centers: Array


class And(TypedDict, total=False):
    """And: what every part shows. `and` of causal and another pattern makes it causal."""

    kind: Literal["and"]
    # The parts, names or tables, at least one; default `causal` and `prefix`.
    of: Pattern | Sequence[Pattern]


class Or(TypedDict, total=False):
    """Or: what any part shows. Longformer is `or` of window and global, BigBird of window, random and global."""

    kind: Literal["or"]
    # The parts, names or tables, at least one; default `window` and `global`.
    of: Pattern | Sequence[Pattern]


class NoPosition(TypedDict, total=False):
    """No position: a causal pattern alone still tells order, since every position sees another number of keys (NoPE). Kazemnejad et al. 2023, <https://arxiv.org/abs/2305.19466>. No parameters; a bidirectional layer is then blind to order."""

    kind: Literal["none"]


class Shaw(TypedDict, total=False):
    """Shaw: learned vectors by clipped distance join keys and values, `q·(k + a_K)` and `Σ w (v + a_V)`. Shaw et al. 2018, <https://arxiv.org/abs/1803.02155>. `(2k + 1) · head_dim` parameters per table; far distances look alike."""

    kind: Literal["shaw"]
    # Distances told apart on each side, the paper's k; default 16.
    reach: int
    # Whether every head has its own tables; default true.
    per_head: bool
    # [heads or 1, 2·reach + 1, head_dim].
    keys: Array
    # [heads or 1, 2·reach + 1, value_dim].
    values: Array


class TransformerXl(TypedDict, total=False):
    """Transformer-XL: `(q + u)·k + (q + v)·(W R_distance)`, content and distance each with a global bias. Dai et al. 2019, <https://arxiv.org/abs/1901.02860>. `width²+ 2·width` parameters; made for segments with a memory."""

    kind: Literal["transformer_xl"]
    # Distances beyond this many look alike; 0, the default, tells all apart.
    clamp: int
    # [width, heads · head_dim].
    projection: Array
    # [heads, head_dim].
    content: Array
    # [heads, head_dim].
    distance: Array


class Rotary(TypedDict, total=False):
    """Rotary: rotate pairs of channels of q and k by `position · θ_i`, so that their product depends on the distance. Su et al. 2021, <https://arxiv.org/abs/2104.09864>. No parameters; beyond the trained length it needs a `scaling`."""

    kind: Literal["rotary"]
    # θ_i = base^(−2i/width); default 10000.
    base: float
    # Which channels form a pair; default `half_split`.
    layout: Literal["interleaved", "half_split"]
    # Share of a head's channels that rotate: the first ones, or `[from, to]`; default 1.
    channels: float | Sequence[float]
    # Share of the heads that rotate: the first ones, or `[from, to]`; default 1.
    heads: float | Sequence[float]
    # How to reach further than trained; default none.
    scaling: str | Scaling
    # Positions in a row, for sequences read off a grid row by row, such as pixels: half of the pairs then rotate by the row, half by the column (axial, Heo et al. 2024, <https://arxiv.org/abs/2403.13298>); default none.
    grid: int | None


class Polar(TypedDict, total=False):
    """Polar (PoPE): content is a magnitude, position a phase: `Σ_c μ(q_c) μ(k_c) cos(distance·θ_c + δ_c)`. Gopalakrishnan et al. 2025, <https://arxiv.org/abs/2509.10534>. One δ per head and channel; holds far beyond the trained length."""

    kind: Literal["polar"]
    # θ_c = base^(−c/width), one for each channel; default 10000.
    base: float
    # From a channel's value to its magnitude; default `softplus`. Under linear mixing the feature map makes magnitudes.
    magnitude: Literal["softplus", "relu", "identity"]
    # Share of a head's channels that are polar: the first ones, or `[from, to]`; default 1.
    channels: float | Sequence[float]
    # Share of the heads that are polar: the first ones, or `[from, to]`; default 1.
    heads: float | Sequence[float]
    # Positions in a row, for sequences read off a grid row by row, such as pixels: half of the channels then turn by the row, half by the column; default none.
    grid: int | None
    # [heads, channels], kept between −2π and 0; none if left out.
    delta: Array


class SingleAngle(TypedDict, total=False):
    """Single angle: polar coordinates with one angle for all channels, `θ = 2π·position / period`, and |x| softened as in polar. The simplified form of PoPE found in blog reviews. It differs from the paper (`polar`): there every channel has its own frequency, there is no period, and keys learn a phase. Here positions one period apart look the same. For comparison only."""

    kind: Literal["single_angle"]
    # Positions in a full turn, the reviews' maximum length P; default 1024.
    period: int


class Alibi(TypedDict, total=False):
    """ALiBi: subtract a per-head multiple of the distance, `score −= slope(head) · |distance|`. Press et al. 2022, <https://arxiv.org/abs/2108.12409>. No parameters unless slopes learn; made for longer inputs than trained on."""

    kind: Literal["alibi"]
    # Share of the heads that have a slope: the first ones, or `[from, to]`; default 1.
    heads: float | Sequence[float]
    # [heads that have one], the paper's if left out.
    slopes: Array


class T5(TypedDict, total=False):
    """T5: a learned scalar per head and bucket of distances, exact near, logarithmic far, `score += table[head, bucket]`. Raffel et al. 2020, <https://arxiv.org/abs/1910.10683>. `heads · buckets` parameters; distances beyond the last bucket look alike."""

    kind: Literal["t5"]
    # Buckets per head; default 32.
    buckets: int
    # Distances from here on share the last bucket; default 128.
    max_distance: int
    # Whether keys after the query have buckets of their own; default false, for causal layers.
    bidirectional: bool
    # [heads, buckets].
    table: Array


class Scaling(TypedDict, total=False):
    """How the frequencies of rotary are scaled."""

    kind: Literal["none", "linear", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3"]
    # Target length over trained length, 8 in Llama 3.1; no default.
    factor: float
    # Trained length L, 8192 in Llama 3.1; no default.
    length: int
    # Factor on cosine and sine; default √(1 + ln(factor) / ln(L)).
    attention_factor: float | None
    # Turns above which a pair stays unchanged, transformers' `beta_fast`; default 32.
    fast: float
    # With `mscale_all_dim`, cosine and sine are multiplied by the quotient of 0.1 · mscale · ln(factor) + 1 and the same of `mscale_all_dim`, as in DeepSeek; default none.
    mscale: float | None
    # See `mscale`; default none.
    mscale_all_dim: float | None
    # Turns below which a pair is divided by the factor, `beta_slow`; default 1.
    slow: float
    # Whether the ramp begins and ends at whole pairs; default true.
    truncate: bool
    # The same beyond L; no default.
    long_factor: Sequence[float]
    # A divisor for each pair, up to L; no default.
    short_factor: Sequence[float]
    # Waves shorter than L/high stay unchanged; default 4.
    high: float
    # Waves longer than L/low are divided by the factor; default 1.
    low: float


class Table(TypedDict, total=False):
    """A bias by head and distance: `table[head, clamp(distance, −left, right) + left]`."""

    kind: Literal["table"]
    # [heads, left + 1 + right].
    table: Array
    # Distances to the left that are told apart; default 0.
    left: int


Score: TypeAlias = Union[str, ScaledDot, Dot, General, Additive, Cosine]
Pattern: TypeAlias = Union[
    str, Full, Causal, Window, Dilated, Strided, Fixed, Random, Global, Prefix, Document, Predicted, And, Or, Callable[[Any, Any, Any, Any], Any]
]
Encoding: TypeAlias = Union[str, NoPosition, Shaw, TransformerXl, Rotary, Polar, SingleAngle, Alibi, T5, Table]
Position: TypeAlias = Union[Encoding, Sequence[Encoding], None]
