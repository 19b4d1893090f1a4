"""From the words and tensors of a call to what the native half computes. NumPy and torch share it through a `ArrayBackend`."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import numpy as np

from . import _native
from .settings import Pattern, Position, Score


class ArrayBackend(Protocol):
    """What the two kinds of arrays do differently."""

    def is_array(self, value: Any) -> bool: ...
    def is_bool(self, array: Any) -> bool: ...
    def check(self, name: str, array: Any) -> None:
        """Refuses what the kernels cannot read."""

    def positions(self, first: int, count: int) -> Any:
        """Integers in a row."""

    def of(self, array: np.ndarray[Any, Any]) -> Any:
        """An array of the backend with these values."""

    def needs_gradient(self, array: Any) -> bool: ...


class Options(TypedDict, total=False):
    """Keywords of a call that are the same for both kinds of arrays, for the types of its overloads."""

    score: Score
    pattern: Pattern
    position: Position
    mixing: str | Mapping[str, Any]
    soft_cap: float | None
    dropout_p: float
    seed: int | None
    is_causal: bool | None
    scale: float | None
    enable_gqa: bool
    first_query: int
    first_key: int
    key_lengths: Iterable[int] | None
    documents: Iterable[Iterable[int]] | None


@dataclass
class Choices:
    """Every keyword of a call but those that say what is returned."""

    score: Score
    pattern: Pattern
    position: Position
    mixing: str | Mapping[str, Any]
    soft_cap: float | None
    attn_mask: Any
    dropout_p: float
    seed: int | None
    is_causal: bool | None
    scale: float | None
    enable_gqa: bool
    first_query: int
    first_key: int
    key_lengths: Iterable[int] | None
    documents: Iterable[Iterable[int]] | None


@dataclass
class Prepared:
    """A call that is ready but for the contiguity of its arrays."""

    native: _native.Call
    q: Any
    k: Any
    v: Any
    arrays: list[Any]
    mask: Any | None
    args: _native.CallArgs

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (*self.q.shape[:3], self.v.shape[3])

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.q.shape[:3])


def prepare(backend: ArrayBackend, query: Any, key: Any, value: Any, choices: Choices) -> Prepared:
    """Checks tensors and words, and takes the arrays out of the words."""
    for name, tensor in [("query", query), ("key", key), ("value", value)]:
        backend.check(name, tensor)
        if tensor.ndim != 4:
            raise ValueError(
                f"{name} has {tensor.ndim} sizes, expected 4: (batch, heads, length, dim)"
            )
    if query.shape[1] != key.shape[1] and not choices.enable_gqa:
        raise ValueError(
            f"query has {query.shape[1]} heads and key {key.shape[1]}: set enable_gqa=True to group them"
        )
    first_query = count("first_query", choices.first_query)
    first_key = count("first_key", choices.first_key)

    score = by_name("score", choices.score)
    if score.get("kind") == "general":
        query, score = through_weight(backend, query, score)
    if choices.scale is not None:
        score = with_scale(score, choices.scale)

    mask: Any = None
    pattern: dict[str, Any]
    if callable(choices.pattern):
        mask = seen(backend, choices.pattern, query, key, first_query, first_key)
        pattern = {"kind": "full"}
    else:
        pattern = by_name("pattern", choices.pattern)
    if choices.is_causal:
        pattern = {"kind": "and", "of": [{"kind": "causal"}, pattern]}
    elif choices.is_causal is False and pattern.get("kind") == "causal":
        raise ValueError(
            "is_causal=False with pattern='causal': leave is_causal out, or choose pattern='full'"
        )

    span = (first_query - first_key, query.shape[2], key.shape[2])
    position = [by_name("position", one) for one in as_list(choices.position)]
    position = [
        distances(backend, one, query, span) if one.get("kind") == "transformer_xl" else one
        for one in position
    ]

    arrays: list[Any] = []
    bias: int | None = None
    words = {
        "score": score,
        "soft_cap": choices.soft_cap,
        "pattern": pattern,
        "position": position,
        "mixing": by_name("mixing", choices.mixing),
    }
    words = {name: take_arrays(backend, name, word, arrays) for name, word in words.items()}
    if choices.attn_mask is not None:
        attn_mask = choices.attn_mask
        if backend.is_array(attn_mask) and backend.is_bool(attn_mask):
            attn_mask = four_sizes(attn_mask)
            mask = attn_mask if mask is None else mask & attn_mask
        else:
            backend.check("attn_mask", attn_mask)
            bias = len(arrays)
            arrays.append(four_sizes(attn_mask))

    args: _native.CallArgs = {
        "first_query": first_query,
        "first_key": first_key,
        "key_lengths": counts("key_lengths", choices.key_lengths),
        "documents": None
        if choices.documents is None
        else [counts("documents", starts) or [] for starts in choices.documents],
        "dropout": dropout(choices.dropout_p, choices.seed),
        "bias": bias,
        "bias_learned": bias is not None and backend.needs_gradient(arrays[bias]),
    }
    native = read(json.dumps(words, default=plain))
    return Prepared(native, query, key, value, arrays, mask, args)


# Settings are few and calls are many; a call also keeps its angles.
@functools.lru_cache(maxsize=256)
def read(text: str) -> _native.Call:
    return _native.Call(text)


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    raise ValueError(f"{value!r} is a {type(value).__name__}, expected a number, a word or an array")


def by_name(what: str, choice: Any) -> dict[str, Any]:
    """`"rotary"` as `{"kind": "rotary"}`, also inside."""
    if isinstance(choice, str):
        return {"kind": choice}
    if not isinstance(choice, Mapping):
        raise ValueError(f"{what} is a {type(choice).__name__}, expected a name or a dictionary")
    table = dict(choice)
    if "of" in table and what == "pattern":
        table["of"] = [by_name("pattern", part) for part in as_list(table["of"])]
    if isinstance(table.get("scaling"), str):
        table["scaling"] = {"kind": table["scaling"]}
    return table


def as_list(choices: Any) -> list[Any]:
    if choices is None:
        return []
    return list(choices) if isinstance(choices, (list, tuple)) else [choices]


def take_arrays(backend: ArrayBackend, name: str, value: Any, arrays: list[Any]) -> Any:
    """The same words with every array replaced by its index."""
    if backend.is_array(value):
        backend.check(name, value)
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, Mapping):
        return {
            field: take_arrays(backend, f"{name}.{field}", part, arrays) for field, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [take_arrays(backend, name, part, arrays) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} = {value}, expected a finite number")
    return value


def count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r}, expected a whole number") from None
    if not 0 <= number < 1 << 32:
        raise ValueError(f"{name} = {number} is outside the positions from 0 to 2³²")
    return number


def counts(name: str, values: Iterable[Any] | None) -> list[int] | None:
    return None if values is None else [count(name, value) for value in values]


def dropout(rate: float, seed: int | None) -> tuple[float, int] | None:
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout_p = {rate} is outside [0, 1)")
    if rate == 0.0:
        return None
    if seed is None:
        raise ValueError("dropout_p needs a seed, which selects the weights that are dropped")
    return float(rate), operator.index(seed) % (1 << 64)


def expect_keys(name: str, found: Mapping[str, Any], needed: Sequence[str], others: Sequence[str] = ()) -> None:
    for field in found:
        if field not in ("kind", *needed, *others):
            expected = ", ".join(f"`{word}`" for word in (*needed, *others))
            raise ValueError(f"unknown field `{field}`, expected one of {expected}")
    for field in needed:
        if field not in found:
            raise ValueError(f"{name} needs an array `{field}`")


def with_scale(score: Mapping[str, Any], scale: float) -> dict[str, Any]:
    if score.get("kind") == "additive":
        raise ValueError("scale with additive: its weight is its scale")
    if "scale" in score:
        raise ValueError(f"scale = {scale} and score.scale = {score['scale']}: give one of them")
    kind = "dot" if score.get("kind") == "scaled_dot" else score.get("kind")
    return {**score, "kind": kind, "scale": float(scale)}


def through_weight(backend: ArrayBackend, query: Any, score: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """General: a dot after one more product."""
    expect_keys("general", score, ["weight"])
    weight = score["weight"]
    backend.check("score.weight", weight)
    heads, dim = query.shape[1], query.shape[3]
    if tuple(weight.shape) != (heads, dim, dim):
        raise ValueError(
            f"score.weight has shape {list(weight.shape)}, expected [heads, head_dim, head_dim] = {[heads, dim, dim]}"
        )
    return query @ weight, {"kind": "scaled_dot"}


def seen(
    backend: ArrayBackend, function: Callable[..., Any], query: Any, key: Any, first_query: int, first_key: int
) -> Any:
    """Asks a function about all pairs at once, as FlexAttention's mask_mod: positions in, truth out."""
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    found = function(
        backend.positions(0, batch).reshape(-1, 1, 1, 1),
        backend.positions(0, heads).reshape(-1, 1, 1),
        backend.positions(first_query, queries).reshape(-1, 1),
        backend.positions(first_key, keys),
    )
    if not backend.is_array(found) or not backend.is_bool(found):
        raise ValueError("the pattern's function returned something else than an array of booleans")
    return four_sizes(found)


def four_sizes(array: Any) -> Any:
    """Missing sizes in front are 1, as in broadcasting."""
    if array.ndim > 4:
        raise ValueError(f"attn_mask has {array.ndim} sizes, expected at most 4")
    return array.reshape((1,) * (4 - array.ndim) + tuple(array.shape))


def distances(
    backend: ArrayBackend, position: Mapping[str, Any], query: Any, span: tuple[int, int, int]
) -> dict[str, Any]:
    """Transformer-XL: the projected sinusoids of every distance of the call, which kernels know as a table."""
    expect_keys("transformer_xl", position, ["projection", "content", "distance"], ["clamp"])
    projection = position["projection"]
    backend.check("position.projection", projection)
    heads, dim = query.shape[1], query.shape[3]
    if projection.ndim != 2 or projection.shape[1] != heads * dim or projection.shape[0] % 2:
        raise ValueError(
            f"position.projection has shape {list(projection.shape)}, "
            f"expected [width, heads · head_dim] = [width, {heads * dim}] with an even width"
        )
    offset, queries, keys = span
    limit = count("position.clamp", position.get("clamp", 0)) or max(queries + keys + abs(offset), 1)
    left = min(max(offset + queries - 1, 0), limit)
    right = min(max(keys - 1 - offset, 0), limit)
    width = projection.shape[0]
    back = np.arange(left, -right - 1, -1, dtype=np.float64)  # query − key, as R is indexed
    waves = back[:, None] * 10_000.0 ** (-2.0 * np.arange(width // 2) / width)
    waves = np.concatenate([np.sin(waves), np.cos(waves)], axis=1).astype(np.float32)
    table = (backend.of(waves) @ projection).reshape(len(back), heads, dim).swapaxes(0, 1)
    return {
        "kind": "transformer_xl",
        "clamp": position.get("clamp", 0),
        "table": table,  # (heads, left + 1 + right, head_dim)
        "content": position["content"],
        "distance": position["distance"],
    }


def chosen_rows(rows: bool | Sequence[int], queries: int) -> list[int]:
    if rows is True:
        return list(range(queries))
    return [count("return_weights", row) for row in rows or ()]
