"""torch.autograd.gradcheck: gradients against differences of the outputs themselves, no definition in between."""

import pytest
import torch

import whatwhere.torch
from support import tensors

HEADS, LENGTH, DIM = 2, 5, 4
# Outputs are f32: over a step of 1e-2 their rounding is 1e-5, and the third derivative adds about as much again.
STEP, BOUND = 1e-2, 2e-3


def check(call, *learned):
    """The kernels know f32 only; gradcheck wants f64, so tensors are narrowed on the way in."""
    narrowed = lambda *wide: call(*[x.float() for x in wide]).double()
    wide = [x.detach().double().requires_grad_() for x in learned]
    assert torch.autograd.gradcheck(narrowed, wide, eps=STEP, atol=BOUND, rtol=BOUND)


LEARNED = {
    "additive": ((HEADS, DIM), lambda w: {"score": {"kind": "additive", "weight": w}}),
    "general": ((HEADS, DIM, DIM), lambda w: {"score": {"kind": "general", "weight": w}}),
    "slopes": ((HEADS,), lambda w: {"position": {"kind": "alibi", "slopes": w}}),
    "t5": ((HEADS, 8), lambda w: {"position": {"kind": "t5", "table": w}}),
    "table": ((HEADS, 4), lambda w: {"position": {"kind": "table", "table": w, "left": 3}}),
    # Inside the range, where δ is not clamped.
    "delta": ((HEADS, DIM), lambda w: {"position": {"kind": "polar", "delta": -3 + torch.tanh(w)}}),
    "shaw keys": ((HEADS, 5, DIM), lambda w: {"position": {"kind": "shaw", "keys": w}}),
    "shaw values": ((1, 5, DIM), lambda w: {"position": {"kind": "shaw", "values": w}}),
    "mask": ((1, HEADS, LENGTH, 1), lambda w: {"attn_mask": w.expand(1, HEADS, LENGTH, LENGTH) * torch.arange(5.0)}),
}


@pytest.mark.parametrize("name", LEARNED)
def test_learned_things_have_the_slope_of_the_output(name):
    shape, settings = LEARNED[name]
    q, k, v, w = tensors(1, *[(1, HEADS, LENGTH, DIM)] * 3, shape)
    check(lambda q, k, v, w: whatwhere.torch.attention(q, k, v, **settings(w)), q, k, v, w)


def test_transformer_xl_has_the_slope_of_the_output_in_all_its_parts():
    def call(q, k, v, projection, content, distance):
        words = {"kind": "transformer_xl", "projection": projection, "content": content, "distance": distance}
        return whatwhere.torch.attention(q, k, v, position=words)

    parts = tensors(2, (6, HEADS * DIM), (HEADS, DIM), (HEADS, DIM))
    check(call, *tensors(3, *[(1, HEADS, LENGTH, DIM)] * 3), *parts)


def test_dropout_has_the_slope_of_the_output():
    call = lambda q, k, v: whatwhere.torch.attention(q, k, v, dropout_p=0.4, seed=3, soft_cap=2.0)
    check(call, *tensors(4, *[(1, HEADS, LENGTH, DIM)] * 3))


def test_a_second_derivative_is_refused_and_not_cut_off():
    q = tensors(5, (1, 1, 4, 4))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(whatwhere.torch.attention(q, q, q).sum(), q, create_graph=True)
