"""Attention on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ._call import Choices, Options, chosen_rows, prepare
from .settings import Pattern, Position, Score

if TYPE_CHECKING:
    from typing_extensions import Unpack

Floats = NDArray[np.float32]


class _Arrays:
    def is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def is_bool(self, array: Any) -> bool:
        return bool(array.dtype == np.bool_)

    def check(self, name: str, array: Any) -> None:
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is a {type(array).__name__}, expected a numpy.ndarray")
        if array.dtype != np.float32:
            raise ValueError(f"{name} is {array.dtype}, expected float32, in which the kernels compute")

    def positions(self, first: int, count: int) -> Any:
        return np.arange(first, first + count)

    def of(self, array: np.ndarray[Any, Any]) -> Any:
        return array

    def needs_gradient(self, array: Any) -> bool:
        return False


BACKEND = _Arrays()


@overload
def attention(
    query: Floats,
    key: Floats,
    value: Floats,
    *,
    attn_mask: NDArray[Any] | None = ...,
    return_lse: Literal[False] = ...,
    return_weights: Literal[False] = ...,
    **options: Unpack[Options],
) -> Floats: ...


@overload
def attention(
    query: Floats,
    key: Floats,
    value: Floats,
    *,
    attn_mask: NDArray[Any] | None = ...,
    return_lse: bool = ...,
    return_weights: bool | Sequence[int] = ...,
    **options: Unpack[Options],
) -> tuple[Floats, ...]: ...


def attention(
    query: Floats,
    key: Floats,
    value: Floats,
    *,
    score: Score = "scaled_dot",
    pattern: Pattern = "causal",
    position: Position = None,
    mixing: str | Mapping[str, Any] = "softmax",
    soft_cap: float | None = None,
    attn_mask: NDArray[Any] | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    is_causal: bool | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    first_query: int = 0,
    first_key: int = 0,
    key_lengths: Iterable[int] | None = None,
    documents: Iterable[Iterable[int]] | None = None,
    return_lse: bool = False,
    return_weights: bool | Sequence[int] = False,
) -> Floats | tuple[Floats, ...]:
    """Fused attention on float32 arrays, in memory that grows with the length, not with its square.

    Shapes:
        query   (batch, heads, queries, head_dim)
        key     (batch, kv_heads, keys, head_dim)
        value   (batch, kv_heads, keys, value_dim)
        returns (batch, heads, queries, value_dim)

    Args:
        score: how alike a query and a key are: "scaled_dot", "dot", "general", "additive", "cosine".
        pattern: which keys a query may see: "full", "causal", "window", "dilated", "strided", "fixed", "random",
            "global", "prefix", "document", "predicted", "and", "or"; or a function of (batch, head, query, key), which
            gets arrays of positions and returns booleans. Cost follows the pattern.
        position: one encoding or a list: "rotary", "polar", "single_angle", "alibi", "t5", "table", "shaw",
            "transformer_xl", "none". Learned arrays are handed in: {"kind": "t5", "table": table}.
        mixing: "softmax", or "linear" with the patterns "full" and "causal" and encodings that rotate; other feature maps than
            elu + 1, or a scale in place of the denominator: {"kind": "linear", "feature_map": "relu", "scale": 0.5}.
        soft_cap: bounds the compared score, `cap · tanh(score / cap)`.
        attn_mask: bool, true = may attend; or float32, added to the scores. Broadcast to
            (batch, heads, queries, keys). Joins the pattern.
        dropout_p, seed: share of the weights that are dropped, and which.
        is_causal: joins the causal pattern to another one; upper-left, as in torch.
        scale: factor on the scores instead of 1/√head_dim.
        enable_gqa: allows fewer key heads: query head h reads key head h // (heads // kv_heads).
        first_query, first_key: positions of the first query and key; in decoding, the number of tokens before.
        key_lengths: keys of each sequence that are not padding.
        documents: where documents start, one list for all sequences or one for each; for pattern "document".
        return_lse: also return each row's log Σ exp(score), (batch, heads, queries).
        return_weights: also return the weights of these queries (True: of all), (batch, heads, chosen, keys).

    A query that sees nothing gets zeros. What each dictionary may hold is in `whatwhere.settings`.
    What makes no sense raises ValueError. The interpreter's lock is released while the kernels run.

    >>> import numpy as np, whatwhere
    >>> q = np.random.default_rng(0).standard_normal((1, 4, 128, 32), dtype=np.float32)
    >>> whatwhere.attention(q, q, q, pattern={"kind": "window", "left": 16}, position="rotary").shape
    (1, 4, 128, 32)
    """
    choices = Choices(
        score=score,
        pattern=pattern,
        position=position,
        mixing=mixing,
        soft_cap=soft_cap,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        seed=seed,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
        first_query=first_query,
        first_key=first_key,
        key_lengths=key_lengths,
        documents=documents,
    )
    call = prepare(BACKEND, query, key, value, choices)
    inputs = (
        *(np.ascontiguousarray(tensor) for tensor in (call.q, call.k, call.v)),
        [np.ascontiguousarray(array) for array in call.arrays],
        None if call.mask is None else np.ascontiguousarray(call.mask),
        call.args,
    )
    out = np.empty(call.out_shape, dtype=np.float32)
    rows = np.empty(call.row_shape, dtype=np.float32)
    call.native.forward(*inputs, out, rows)
    results = [out]
    if return_lse:
        results.append(rows)
    if return_weights is not False:
        chosen = chosen_rows(return_weights, query.shape[2])
        results.append(call.native.weights(*inputs, rows, chosen))
    return results[0] if len(results) == 1 else tuple(results)
