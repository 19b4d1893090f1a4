"""A plain pre-norm GPT in torch, as a user would write it for speed: one product for q, k and v, SDPA, fused AdamW."""

import torch
import torch.nn.functional as F
from torch import nn

BASE = 10_000.0  # of rotary's frequencies


class GPT(nn.Module):
    """Called with tokens and targets, it returns the mean loss."""

    def __init__(self, settings, weights):
        super().__init__()
        attention = settings["attention"]
        width, vocabulary = settings["width"], settings["vocabulary"]
        rotary = attention["position"] == "rotary"
        self.embedding = nn.Embedding(vocabulary, width)
        self.embedding.weight = nn.Parameter(weights["embedding.weight"].clone())
        self.places = None if rotary else nn.Parameter(weights["decoder.position.0.Learned.table"].clone())
        self.blocks = nn.ModuleList(
            Block(width, attention["heads"], rotary, weights, f"decoder.blocks.{layer}.")
            for layer in range(settings["layers"])
        )
        self.norm = norm(width, weights, "decoder.norm.")

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if self.places is not None:
            x = x + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Block(nn.Module):
    def __init__(self, width, heads, rotary, weights, at):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.attention_norm = norm(width, weights, at + "attention_norm.")
        self.qkv = linear(weights, *(at + f"attention.{name}." for name in ("query", "key", "value")))
        self.output = linear(weights, at + "attention.output.")
        self.feed_forward_norm = norm(width, weights, at + "feed_forward_norm.")
        self.up = linear(weights, at + "feed_forward.up.")
        self.down = linear(weights, at + "feed_forward.down.")
        if rotary:
            half = width // heads // 2
            angles = torch.arange(8192)[:, None] * BASE ** (-torch.arange(half, dtype=torch.float64) / half)
            angles = torch.cat([angles, angles], -1)
            self.register_buffer("cos", angles.cos().float(), persistent=False)
            self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x):
        x = x + self.output(self.attend(self.qkv(self.attention_norm(x))))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))

    def attend(self, qkv):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv.chunk(3, -1))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    def turn(self, x):
        first, second = x.chunk(2, -1)
        length = x.shape[2]
        return x * self.cos[:length] + torch.cat([-second, first], -1) * self.sin[:length]


def norm(width, weights, at):
    norm = nn.LayerNorm(width, eps=1e-5)
    norm.weight = nn.Parameter(weights[at + "gain"].clone())
    norm.bias = nn.Parameter(weights[at + "bias"].clone())
    return norm


def linear(weights, *ats):
    """One projection of one or several of ours side by side; ours are [from, to], torch's [to, from]."""
    weight = torch.cat([weights[at + "weight"] for at in ats], 1).T.contiguous()
    made = nn.Linear(*reversed(weight.shape), device="meta")
    made.weight = nn.Parameter(weight)
    made.bias = nn.Parameter(torch.cat([weights[at + "bias"] for at in ats]))
    return made


def optimizer(gpt):
    """AdamW that decays the matrices of projections only."""
    matrices = {id(m.weight) for m in gpt.modules() if isinstance(m, nn.Linear)}
    decaying = [p for p in gpt.parameters() if id(p) in matrices]
    others = [p for p in gpt.parameters() if id(p) not in matrices]
    groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
