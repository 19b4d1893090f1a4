"""Agreement with torch's own scaled_dot_product_attention, output and gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import whatwhere.torch
from support import close, tensors

# Both sides compute in f32, in another order.
OUT, GRADIENT = 1e-5, 5e-5


def compare(q, k, v, out=OUT, gradient=GRADIENT, **arguments):
    ours = whatwhere.torch.scaled_dot_product_attention(q, k, v, **arguments)
    theirs = F.scaled_dot_product_attention(q, k, v, **arguments)
    close(ours, theirs, out, "out")
    d_out = tensors(0, ours.shape).detach()
    mask = arguments.get("attn_mask")
    learns = [q, k, v] + ([mask] if mask is not None and mask.requires_grad else [])
    for i, (found, expected) in enumerate(
        zip(torch.autograd.grad(ours, learns, d_out), torch.autograd.grad(theirs, learns, d_out))
    ):
        close(found, expected, gradient, f"gradient {i}")


GRID = list(itertools.product([1, 3], [1, 4], [(1, 1), (1, 77), (64, 64), (95, 97), (130, 200), (257, 31)], [8, 33]))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("batch, heads, lengths, dim", GRID)
def test_agrees_over_shapes(batch, heads, lengths, dim, is_causal):
    queries, keys = lengths
    q, k, v = tensors(1, (batch, heads, queries, dim), (batch, heads, keys, dim), (batch, heads, keys, dim))
    compare(q, k, v, is_causal=is_causal)


def test_values_may_have_another_width():
    compare(*tensors(2, (2, 3, 50, 16), (2, 3, 60, 16), (2, 3, 60, 24)))


def test_scale_is_used_instead_of_the_root():
    compare(*tensors(3, *[(2, 3, 40, 16)] * 3), scale=0.7)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_grouped_heads_repeat_as_in_torch(kv_heads):
    q, k, v = tensors(4, (2, 6, 50, 8), (2, kv_heads, 70, 8), (2, kv_heads, 70, 8))
    compare(q, k, v, enable_gqa=True)


@pytest.mark.parametrize("shape", [(100, 120), (3, 100, 120), (2, 1, 100, 120), (2, 3, 100, 120), (1, 1, 1, 120)])
def test_masks_hide_and_add_as_in_torch(shape):
    q, k, v = tensors(5, (2, 3, 100, 16), (2, 3, 120, 16), (2, 3, 120, 16))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    compare(q, k, v, attn_mask=values > -0.5)
    compare(q, k, v, attn_mask=values)
    compare(q, k, v, attn_mask=values.masked_fill(values < -0.5, -torch.inf))
    compare(q, k, v, attn_mask=values.clone().requires_grad_())


def test_a_row_without_keys_gives_zeros_and_no_gradient():
    q, k, v = tensors(6, *[(1, 2, 20, 8)] * 3)
    mask = torch.ones(20, 20, dtype=torch.bool).tril(-1)
    compare(q, k, v, attn_mask=mask)
    out = whatwhere.torch.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert (out[:, :, 0] == 0).all()
    assert (torch.autograd.grad(out.sum(), q)[0][:, :, 0] == 0).all()


def test_non_contiguous_inputs_are_read_in_their_order():
    x = tensors(7, (2, 50, 3 * 4 * 16))
    q, k, v = x.view(2, 50, 3, 4, 16).permute(2, 0, 3, 1, 4)
    ours = whatwhere.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(ours, theirs, OUT)
    d_out = tensors(8, (2, 50, 4, 16)).detach().transpose(1, 2)
    close(*(torch.autograd.grad(out, x, d_out)[0] for out in (ours, theirs)), GRADIENT)
    expanded = tensors(9, (1, 4, 50, 16)).expand(2, 4, 50, 16)
    compare(expanded, *tensors(10, *[(2, 4, 50, 16)] * 2))
    mask = (torch.randn(50, 50) > 0).T
    compare(*tensors(11, *[(2, 4, 50, 16)] * 3), attn_mask=mask)


@pytest.mark.parametrize("sizes", [(), (3,)])
def test_fewer_sizes_are_one_head(sizes):
    q, k, v = tensors(12, (*sizes, 20, 8), (*sizes, 30, 8), (*sizes, 30, 8))
    compare(q, k, v)
    compare(q, k, v, attn_mask=torch.randn(*sizes, 20, 30))


def test_dropout_keeps_the_mean_and_follows_the_seed():
    q, k, v = tensors(13, (1, 2, 64, 8), (1, 2, 64, 8), (1, 2, 64, 8))
    whole = whatwhere.torch.scaled_dot_product_attention(q, k, v)
    torch.manual_seed(5)
    draws = [whatwhere.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.3) for _ in range(400)]
    torch.manual_seed(5)
    again = whatwhere.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    assert torch.equal(draws[0], again)
    assert not torch.equal(draws[0], draws[1])
    # A weight's variance is at most its square times 0.3/0.7, so 400 draws err by a few hundredths.
    close(torch.stack(draws).mean(0), whole, 0.08)


def test_dropout_has_the_gradient_of_the_mask_it_drew():
    """The output is linear in v, so its gradient is known from the weights that were kept."""
    q, k, v = tensors(14, *[(1, 2, 40, 40)] * 3)
    eye = torch.eye(40).expand(1, 2, 40, 40)
    kept = whatwhere.torch.attention(q, k, eye, pattern="full", dropout_p=0.4, seed=9)
    out = whatwhere.torch.attention(q, k, v, pattern="full", dropout_p=0.4, seed=9)
    close(out, kept @ v, OUT)
    weights = (q @ k.transpose(-1, -2) * 40**-0.5).softmax(-1)
    theirs = (weights * (kept.detach() > 0) / 0.6) @ v
    d_out = tensors(15, out.shape).detach()
    for found, expected in zip(torch.autograd.grad(out, [q, k, v], d_out), torch.autograd.grad(theirs, [q, k, v], d_out)):
        close(found, expected, GRADIENT)
