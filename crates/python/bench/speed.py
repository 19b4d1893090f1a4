"""How long a forward and backward pass takes in torch and in whatwhere, on the same tensors in turns; prints a table.

    python crates/python/bench/speed.py             all cases, some minutes
    python crates/python/bench/speed.py --quick     short lengths, to see that it works
    python crates/python/bench/speed.py --compiled  the rivals under torch.compile too, which needs a C++ compiler

The rivals are those of `bench/attention`. A case's rival is the fastest of its ways, and both must agree before they
are timed.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

HEADS, DIM, WINDOW = 8, 64, 256
# The largest difference allowed, relative to the largest value: sums of thousands of f32 terms in another order.
AGREE = 1e-3
# Both sides rest and then run once untimed, so that no thread of the other spins beside them and their own are awake.
REST = 0.2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short lengths and few rounds")
    parser.add_argument("--compiled", action="store_true", help="also the rivals under torch.compile")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of both sides")
    parser.add_argument("--rounds", type=int, default=7, help="the fastest of this many counts")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    return parser.parse_args()


asked = arguments()
# Read when the first call starts the threads.
os.environ["RAYON_NUM_THREADS"] = str(asked.threads)

import torch  # noqa: E402

import whatwhere  # noqa: E402
import whatwhere.torch  # noqa: E402
from ways import ways  # noqa: E402


def causal(t):
    return {}


def window(t):
    return {"pattern": {"kind": "window", "left": WINDOW - 1}}


def t5(t):
    return {"position": {"kind": "t5", "table": t["table"]}}


def alibi(t):
    return {"position": {"kind": "alibi", "slopes": t["slopes"]}}


def shaw(t):
    return {"position": {"kind": "shaw", "keys": t["keys"][None], "values": t["values"][None]}}


def polar(t):
    return {"position": {"kind": "polar", "delta": t["delta"]}}


def linear(t):
    return {"mixing": "linear"}


# Name, kind among the rivals, what learns besides q, k and v, length, and our words.
CASES = [
    ("causal", "causal", {}, 512, causal),
    ("causal", "causal", {}, 2048, causal),
    (f"window {WINDOW}, as a mask", "window", {}, 4096, window),
    (f"window {WINDOW}, in blocks by hand", "window in blocks", {}, 4096, window),
    ("T5 bias, learned", "t5", {"table": (HEADS, 32)}, 2048, t5),
    ("ALiBi, learned slopes", "alibi", {"slopes": (HEADS,)}, 2048, alibi),
    ("Shaw, keys and values", "shaw", {"keys": (33, DIM), "values": (33, DIM)}, 2048, shaw),
    ("rotary", "rotary", {}, 2048, lambda t: {"position": "rotary"}),
    ("PoPE, learned delta", "polar", {"delta": (HEADS, DIM)}, 2048, polar),
    ("linear mixing", "linear", {}, 4096, linear),
]


def problem(kind, learned, length):
    generator = torch.Generator().manual_seed(0)
    shapes = {name: (1, HEADS, length, DIM) for name in "qkv"} | learned
    tensors = {name: torch.randn(shape, generator=generator).requires_grad_() for name, shape in shapes.items()}
    if "slopes" in tensors:
        tensors["slopes"] = torch.from_numpy(whatwhere.alibi_slopes(HEADS)).requires_grad_()
    d_out = torch.randn((1, HEADS, length, DIM), generator=generator)
    names = list(tensors)
    return tensors, names, d_out, ways(kind, tensors)


def step(call, tensors, names, d_out):
    out = call(tensors)
    return (out, *torch.autograd.grad(out, [tensors[name] for name in names], d_out))


def seconds(call, *problem):
    time.sleep(REST)
    step(call, *problem)
    start = time.perf_counter()
    step(call, *problem)
    return time.perf_counter() - start


@torch.no_grad()
def disagreement(ours, theirs):
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(ours, theirs))


def measure(kind, learned, length, words):
    tensors, names, d_out, rivals = problem(kind, learned, length)
    rivals = {name: way for name, way in rivals.items() if asked.compiled or "compiled" not in name}

    def ours(t):
        return whatwhere.torch.attention(t["q"], t["k"], t["v"], **words(t))

    expected = step(ours, tensors, names, d_out)
    best = {"": float("inf")} | dict.fromkeys(rivals, float("inf"))
    for name, way in rivals.items():
        error = disagreement(expected, step(way, tensors, names, d_out))
        if error > AGREE:
            raise SystemExit(f"error: {kind}, {name}: differs by {error:.1e}, allowed {AGREE:.0e}")
    for _ in range(2 if asked.quick else asked.rounds):
        for name, way in {"": ours, **rivals}.items():
            best[name] = min(best[name], seconds(way, tensors, names, d_out))
    mine = best.pop("")
    rival = min(best, key=best.get)
    return mine, rival, best[rival]


def main():
    torch.set_num_threads(asked.threads)
    torch.set_flush_denormal(True)
    print(
        f"torch {torch.__version__.split('+')[0]}, Python {platform.python_version()}, "
        f"{whatwhere.instruction_set()}, {asked.threads} threads; "
        f"batch 1, {HEADS} heads of {DIM}, float32, forward+backward, fastest of {2 if asked.quick else asked.rounds}\n"
    )
    print("| case | length | whatwhere ms | torch ms | fastest way in torch | torch / whatwhere |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    for name, kind, learned, length, words in CASES:
        if asked.case not in name:
            continue
        length = min(length, 512) if asked.quick else length
        mine, rival, theirs = measure(kind, learned, length, words)
        print(f"| {name} | {length} | {mine * 1e3:.1f} | {theirs * 1e3:.1f} | {rival} | {theirs / mine:.1f} |", flush=True)


if __name__ == "__main__":
    main()
