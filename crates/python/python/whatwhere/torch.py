"""Attention on PyTorch's CPU tensors, with gradients for query, key, value and everything learned that is handed in.

Tensors are read and written where they are; only those that are not contiguous are copied first.

>>> import torch, whatwhere.torch
>>> q = torch.randn(1, 4, 64, 32, requires_grad=True)
>>> table = torch.zeros(4, 32, requires_grad=True)
>>> out = whatwhere.torch.attention(q, q, q, position={"kind": "t5", "table": table})
>>> out.sum().backward()
>>> table.grad.shape
torch.Size([4, 32])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from ._call import Choices, Options, Prepared, chosen_rows, prepare
from .settings import Pattern, Position, Score

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["attention", "scaled_dot_product_attention"]


class _Tensors:
    def is_array(self, value: Any) -> bool:
        return isinstance(value, (Tensor, np.ndarray))

    def is_bool(self, array: Any) -> bool:
        return isinstance(array, Tensor) and array.dtype == torch.bool

    def check(self, name: str, array: Any) -> None:
        if not isinstance(array, Tensor):
            raise ValueError(f"{name} is a {type(array).__name__}, expected a torch.Tensor")
        if array.device.type != "cpu":
            raise ValueError(f"{name} is on {array.device}, expected cpu, on which the kernels run")
        if array.dtype != torch.float32:
            raise ValueError(f"{name} is {array.dtype}, expected torch.float32, in which the kernels compute")
        if array.layout != torch.strided:
            raise ValueError(f"{name} is {array.layout}, expected torch.strided")

    def positions(self, first: int, count: int) -> Any:
        return torch.arange(first, first + count)

    def of(self, array: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(array)

    def needs_gradient(self, array: Any) -> bool:
        return bool(torch.is_grad_enabled() and array.requires_grad)


BACKEND = _Tensors()


def _view(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().numpy()


class _Attend(torch.autograd.Function):
    """One node in the graph: the kernels' forward and their own backward."""

    @staticmethod
    def forward(ctx: Any, call: Prepared, mask: Tensor | None, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        tensors = tuple(tensor.contiguous() for tensor in tensors)
        mask = None if mask is None else mask.contiguous()
        out = torch.empty(call.out_shape, dtype=torch.float32)
        rows = torch.empty(call.row_shape, dtype=torch.float32)
        call.native.forward(*_native_inputs(call, mask, tensors), _view(out), _view(rows))
        ctx.native, ctx.args = call.native, call.args
        ctx.save_for_backward(mask, out, rows, *tensors)
        ctx.mark_non_differentiable(rows)
        ctx.set_materialize_grads(False)
        return out, rows

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # torch's own once_differentiable lets some of them through without a gradient.
            raise RuntimeError("attention has no second derivative: compute gradients without create_graph")
        if d_out is None:
            return (None,) * len(ctx.needs_input_grad)
        mask, out, rows, *tensors = ctx.saved_tensors
        inputs = _native_inputs(ctx, mask, tensors)
        main, learned = ctx.native.backward(*inputs, _view(out), _view(rows), _view(d_out.contiguous()))
        gradients = [None, None, *main, *learned]
        return tuple(
            torch.from_numpy(gradient) if needed and gradient is not None else None
            for gradient, needed in zip(gradients, ctx.needs_input_grad)
        )


def _native_inputs(call: Any, mask: Tensor | None, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    q, k, v, *arrays = (_view(tensor) for tensor in tensors)
    return q, k, v, arrays, None if mask is None else _view(mask), call.args


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = ...,
    return_lse: Literal[False] = ...,
    return_weights: Literal[False] = ...,
    **options: Unpack[Options],
) -> Tensor: ...


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = ...,
    return_lse: bool = ...,
    return_weights: bool | Sequence[int] = ...,
    **options: Unpack[Options],
) -> tuple[Tensor, ...]: ...


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score = "scaled_dot",
    pattern: Pattern = "causal",
    position: Position = None,
    mixing: str | Mapping[str, Any] = "softmax",
    soft_cap: float | None = None,
    attn_mask: Tensor | None = None,
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
) -> Tensor | tuple[Tensor, ...]:
    """`whatwhere.attention` on float32 CPU tensors, differentiable.

    Arguments and shapes are those of `whatwhere.attention`; arrays in the settings are tensors here. Gradients reach
    query, key, value, a float `attn_mask` and every tensor in the settings (bias tables, slopes, δ, Shaw's tables,
    additive and general weights, Transformer-XL's projection and biases, predicted centers) that requires one. The
    log-sum and the weights that can be returned have no gradient. Without a `seed`, dropout draws one from torch's
    generator, so that `torch.manual_seed` repeats it. Under `torch.compile` the call is a break in the graph.

    >>> q = torch.randn(2, 8, 256, 64, requires_grad=True)
    >>> delta = torch.nn.Parameter(torch.zeros(8, 64))
    >>> out = attention(q, q, q, pattern="causal", position={"kind": "polar", "delta": delta})
    >>> out.mean().backward()
    >>> delta.grad.shape
    torch.Size([8, 64])
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
    found: Tensor | tuple[Tensor, ...] = _attend(query, key, value, choices, return_lse, return_weights)
    return found


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choices: Choices,
    return_lse: bool,
    return_weights: bool | Sequence[int],
) -> Tensor | tuple[Tensor, ...]:
    if choices.dropout_p > 0.0 and choices.seed is None:
        choices.seed = int(torch.randint(1 << 62, ()))
    call = prepare(BACKEND, query, key, value, choices)
    tensors = (call.q, call.k, call.v, *call.arrays)
    out, rows = _Attend.apply(call, call.mask, *tensors)
    results = [out]
    if return_lse:
        results.append(rows)
    if return_weights is not False:
        chosen = chosen_rows(return_weights, query.shape[2])
        tensors = tuple(tensor.contiguous() for tensor in tensors)
        mask = None if call.mask is None else call.mask.contiguous()
        weights = call.native.weights(*_native_inputs(call, mask, tensors), _view(rows), chosen)
        results.append(torch.from_numpy(weights))
    return results[0] if len(results) == 1 else tuple(results)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` by the kernels: same arguments, same meaning.

    Shapes are (batch, heads, length, dim), (batch, length, dim) or (length, dim). Differences: only float32 on the CPU,
    `attn_mask` and `is_causal` may be given together, and a row that sees nothing gives zeros whatever the mask's type.

    >>> q = torch.randn(2, 4, 16, 8)
    >>> ours = scaled_dot_product_attention(q, q, q, is_causal=True)
    >>> torch.allclose(ours, torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), atol=1e-5)
    True
    """
    sizes = query.ndim
    if sizes not in (2, 3, 4):
        raise ValueError(f"query has {sizes} sizes, expected (batch, heads, length, dim) or fewer")
    for name, tensor in [("key", key), ("value", value)]:
        if tensor.ndim != sizes:
            raise ValueError(f"{name} has {tensor.ndim} sizes, query has {sizes}")
    if sizes < 4:
        # Heads of 1 stand before the length, and a batch of 1 before those.
        query, key, value = (
            tensor.unsqueeze(-3).reshape(-1, 1, *tensor.shape[-2:]) for tensor in (query, key, value)
        )
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.unsqueeze(1)
    out: Tensor = attention(
        query,
        key,
        value,
        pattern="causal" if is_causal else "full",
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    return out if sizes == 4 else out.reshape(*((out.shape[0],) * (sizes == 3)), *out.shape[2:])
