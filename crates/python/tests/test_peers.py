"""Agreement with packages that others wrote: PoPE-pytorch and x-transformers."""

import math

import pytest
import torch
import torch.nn.functional as F

import whatwhere.torch
from support import close, tensors

pope = pytest.importorskip("PoPE_pytorch.pope", reason="PoPE-pytorch is not installed")
peer = pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is not installed")

HEADS, LENGTH, DIM = 4, 150, 16
# They form angles in f32: at position 150 those err by 1e-5.
OUT, GRADIENT = 1e-4, 5e-4


def compare(settings, theirs, *learned):
    q, k, v, d_out = tensors(1, *[(2, HEADS, LENGTH, DIM)] * 4)
    ours, theirs = whatwhere.torch.attention(q, k, v, position=settings), theirs(q, k, v)
    close(ours, theirs, OUT, "out")
    learns = [q, k, v, *learned]
    for i, (found, expected) in enumerate(
        zip(torch.autograd.grad(ours, learns, d_out), torch.autograd.grad(theirs, learns, d_out))
    ):
        close(found, expected, GRADIENT, f"gradient {i}")


def causal(q, k, v, bias=None):
    hidden = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
    mask = hidden if bias is None else bias + hidden
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=DIM**-0.5)


def test_polar_is_that_of_pope_pytorch():
    module = pope.PoPE(DIM, heads=HEADS)
    with torch.no_grad():
        # Also outside the range, where δ is clamped and has no gradient.
        module.bias.uniform_(-7.0, 0.5, generator=torch.Generator().manual_seed(2))

    def theirs(q, k, v):
        return causal(*pope.apply_pope_to_qk(module(LENGTH), q, k), v)

    compare({"kind": "polar", "delta": module.bias}, theirs, module.bias)


def test_polar_is_that_of_x_transformers():
    module = peer.PolarEmbedding(DIM, HEADS)
    with torch.no_grad():
        module.learned_bias.uniform_(-6.0, 0.0, generator=torch.Generator().manual_seed(3))

    def theirs(q, k, v):
        angles, bias = module(torch.arange(LENGTH))
        return causal(peer.apply_polar_pos_emb(q, angles), peer.apply_polar_pos_emb(k, angles + bias), v)

    compare({"kind": "polar", "delta": module.learned_bias.squeeze(1)}, theirs, module.learned_bias)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotary_is_that_of_x_transformers(share):
    module = peer.RotaryEmbedding(int(DIM * share))

    def theirs(q, k, v):
        angles, scale = module.forward_from_seq_len(LENGTH)
        return causal(peer.apply_rotary_pos_emb(q, angles, scale), peer.apply_rotary_pos_emb(k, angles, scale), v)

    compare({"kind": "rotary", "layout": "interleaved", "channels": share}, theirs)


def test_alibi_is_that_of_x_transformers():
    module = peer.AlibiPositionalBias(HEADS)
    compare("alibi", lambda q, k, v: causal(q, k, v, module(LENGTH, LENGTH)))


@pytest.mark.parametrize("is_causal", [True, False])
def test_t5_is_that_of_x_transformers(is_causal):
    module = peer.RelativePositionBias(scale=1.0, causal=is_causal, heads=HEADS)
    weight = module.relative_attention_bias.weight  # (buckets, heads)
    settings = {"kind": "t5", "table": weight.T, "bidirectional": not is_causal}
    compare(settings, lambda q, k, v: causal(q, k, v, module(LENGTH, LENGTH)), weight)
