"""Trains with our attention in torch's DistributedDataParallel, over gloo, and holds two processes against one.

    python crates/python/examples/ddp.py
    torchrun --nproc-per-node=4 crates/python/examples/ddp.py

The first starts torchrun twice, with one process and with two, and compares the losses; the second is one run, as it
would be started on a machine of one's own. Between machines, the same on each of them:

    GLOO_SOCKET_IFNAME=eth0 torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=FIRST:29400 ddp.py

Every process computes with its share of the cores (OMP_NUM_THREADS for torch, RAYON_NUM_THREADS for the kernels).
"""

import argparse
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import whatwhere.torch

LENGTH, WINDOW, BUCKETS = 96, 24, 16
BATCH = 8  # rows of an update, shared out over the processes
TOLERANCE = 1e-5  # sums of gradients are rounded in another order


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.join, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.zeros(heads, BUCKETS))
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.join(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = whatwhere.torch.attention(
            q,
            k,
            v,
            pattern={"kind": "window", "left": WINDOW},
            position={"kind": "t5", "table": self.table, "max_distance": WINDOW},
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    def __init__(self, width=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.read = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.read(self.norm(x))


def train(steps):
    """One process of several; the losses of all of them together, and how far the bias tables have moved."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if BATCH % ranks:
        raise SystemExit(f"error: {BATCH} rows cannot be shared out evenly over {ranks} processes")
    torch.manual_seed(0)  # the same first weights and the same batches everywhere
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with open(__file__, "rb") as file:
        text = torch.tensor(list(file.read()))
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(text) - LENGTH, (BATCH,))
        rows = torch.stack([text[start : start + LENGTH + 1] for start in starts])[rank::ranks]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        losses.append(loss.item() / ranks)
    moved = max(block.table.abs().max().item() for block in model.module.blocks)
    if rank == 0:
        print(json.dumps({"processes": ranks, "losses": losses, "moved": moved}))
    dist.destroy_process_group()


def started(processes, steps):
    """What a run of so many processes prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    # Thread counts do not change the kernels' results; processes that fight for cores only take longer.
    threads = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, __file__, f"--steps={steps}"], env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"error: {processes} processes ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    if "RANK" in os.environ:  # torchrun started this one
        return train(asked.steps)
    one, two = started(1, asked.steps), started(2, asked.steps)
    for run in (one, two):
        first, last = run["losses"][0], run["losses"][-1]
        print(f"processes: {run['processes']}, loss {first:.6f} -> {last:.6f}, bias moved by {run['moved']:.4f}")
    worst = max(abs(a - b) for a, b in zip(one["losses"], two["losses"]))
    print(f"over {asked.steps} steps the losses differ by at most {worst:.1e}")
    if worst > TOLERANCE:
        raise SystemExit(f"error: one process and two differ by {worst:.1e}, expected at most {TOLERANCE:.0e}")
    if not one["losses"][-1] < one["losses"][0] or one["moved"] == 0.0:
        raise SystemExit("error: nothing was learned")


if __name__ == "__main__":
    main()
