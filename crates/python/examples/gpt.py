"""Replaces attention in a small PyTorch GPT and shows the step time before and after.

    python crates/python/examples/gpt.py [--length 1024] [--steps 5] [--text FILE]

Three models of the same size learn the same bytes: torch's causal SDPA with learned positions; torch with a window and a
learned T5 bias, which SDPA computes with all scores stored; and the same window and bias by whatwhere. The last two
start from the same weights and must have the same losses.
"""

import argparse
import copy
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import whatwhere.torch

WINDOW, BUCKETS, MAX_DISTANCE = 128, 32, 128


def sdpa(layer, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sdpa_window_t5(layer, q, k, v):
    """Bias and window as torch can have them: a tensor of all pairs, made in every layer of every step."""
    positions = torch.arange(q.shape[2])
    back = positions[:, None] - positions
    exact = BUCKETS // 2
    far = torch.log(back.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact) * (BUCKETS - exact)
    bucket = torch.where(back < exact, back.clamp(min=0), (exact + far.clamp(min=0).long()).clamp(max=BUCKETS - 1))
    hidden = (back < 0) | (back > WINDOW)
    bias = layer.table[:, bucket].masked_fill(hidden, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])


def whatwhere_window_t5(layer, q, k, v):
    """The one call that replaces it."""
    return whatwhere.torch.attention(
        q,
        k,
        v,
        pattern={"kind": "window", "left": WINDOW},
        position={"kind": "t5", "table": layer.table, "max_distance": MAX_DISTANCE},
    )


class Block(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.join, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.zeros(heads, BUCKETS)) if attend is not sdpa else None
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.join(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(self, q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class GPT(nn.Module):
    def __init__(self, length, attend, width=256, heads=4, layers=4):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.positions = nn.Embedding(length, width) if attend is sdpa else None
        self.blocks = nn.ModuleList(Block(width, heads, attend) for _ in range(layers))
        self.norm, self.read = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.read(self.norm(x))


def train(model, batches):
    """Losses, and the fastest step in seconds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, best = [], math.inf
    for tokens in batches:
        start = time.perf_counter()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
        losses.append(loss.item())
    return losses, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024, help="bytes of context")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--text", type=Path, default=Path(__file__), help="what to learn; this file unless given")
    asked = parser.parse_args()
    text = torch.tensor(list(asked.text.read_bytes()))
    text = text.repeat(2 + asked.length // len(text))
    torch.manual_seed(0)
    starts = torch.randint(len(text) - asked.length, (asked.steps, asked.batch))
    batches = [torch.stack([text[s : s + asked.length + 1] for s in row]) for row in starts]

    plain = GPT(asked.length, sdpa)
    before = GPT(asked.length, sdpa_window_t5)
    after = copy.deepcopy(before)
    for block in after.blocks:
        block.attend = whatwhere_window_t5
    print(f"length {asked.length}, batch {asked.batch}, window {WINDOW}, fastest of {asked.steps} steps")
    results = {}
    for name, model in [
        ("torch, causal, learned positions", plain),
        ("torch, window and T5 bias", before),
        ("whatwhere, window and T5 bias", after),
    ]:
        losses, best = results[name] = train(model, batches)
        print(f"{name:32} {best * 1e3:8.0f} ms/step   loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    (expected, slow), (found, fast) = list(results.values())[1:]
    print(f"the same model steps {slow / fast:.1f} times as fast")
    # Rounding grows from step to step as weights do.
    worst = max(abs(a - b) for a, b in zip(expected, found))
    if worst > 1e-2:
        raise SystemExit(f"error: the losses of the same model differ by {worst:.1e}")


if __name__ == "__main__":
    main()
