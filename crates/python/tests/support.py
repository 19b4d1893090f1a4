"""What the tests share."""

import torch


def close(found, expected, bound, what=""):
    """The greatest difference, measured against the greatest value expected, is within the bound."""
    assert found.shape == expected.shape, f"{what}: {tuple(found.shape)}, expected {tuple(expected.shape)}"
    if found.numel() == 0:
        return
    found, expected = found.detach().double(), expected.detach().double()
    error = (found - expected).abs().max() / expected.abs().max().clamp(min=1.0)
    assert error <= bound, f"{what}: differs by {error:.1e}, allowed {bound:.1e}"


def tensors(seed, *shapes):
    """Normal values that require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    return made[0] if len(made) == 1 else made
