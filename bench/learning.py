"""Does it learn as well as a peer? Trains our command and x-transformers on one text by one recipe and prints a table.

The recipe: bytes, the last tenth held out, a decoder of 4 layers with heads of 32 channels, 256 tokens, batches of 16,
AdamW (0.9, 0.99) with decay 0.01, a peak rate of 0.001 after 100 updates of warm-up, cosine to a tenth, clipped at 1,
800 updates. Both read the held-out tenth in windows of 256. Figures are nats per byte; a difference below zero is ours.
Needs torch and x-transformers (`pip install torch x-transformers==2.31`).
Finished figures are kept in --out and not trained again, so a stopped table goes on with the same command.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

HEAD_DIM = 32
LAYERS, LENGTH, BATCH, WARMUP = 4, 256, 16, 100
PEAK, FLOOR, DECAY, BETAS, CLIP = 1e-3, 0.1, 0.01, (0.9, 0.99), 1.0
# What x-transformers calls an encoding: options of the stack, options of the wrapper around it.
PEER = {
    "rotary": ({"rotary_pos_emb": True, "rotary_emb_dim": HEAD_DIM}, {"use_abs_pos_emb": False}),
    "polar": ({"polar_pos_emb": True}, {"use_abs_pos_emb": False}),
    "alibi": ({"alibi_pos_bias": True}, {"use_abs_pos_emb": False}),
    "t5": ({"rel_pos_bias": True}, {"use_abs_pos_emb": False}),
    "sinusoidal": ({}, {"scaled_sinu_pos_emb": True}),
    "learned": ({}, {}),
}


def rate(update, updates):
    """The learning rate of an update, counted from 1, as the command has it."""
    if update <= WARMUP:
        return PEAK * update / WARMUP
    progress = (update - WARMUP) / max(1, updates - WARMUP)
    return PEAK * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress)))


def peer(text, position, width, seed, updates):
    """The held-out loss of x-transformers after training."""
    import torch
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(seed)
    stack, wrapper = PEER[position]
    if position == "alibi":
        stack = {**stack, "alibi_num_heads": width // HEAD_DIM}
    model = TransformerWrapper(
        num_tokens=256,
        max_seq_len=LENGTH,
        attn_layers=Decoder(dim=width, depth=LAYERS, heads=width // HEAD_DIM, attn_dim_head=HEAD_DIM, **stack),
        **wrapper,
    )
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    cut = len(data) - len(data) // 10
    train, valid = data[:cut], data[cut:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=BETAS, weight_decay=DECAY)
    draw = torch.Generator().manual_seed(seed)
    for update in range(1, updates + 1):
        starts = torch.randint(len(train) - LENGTH, (BATCH,), generator=draw).tolist()
        rows = torch.stack([train[start : start + LENGTH + 1] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate(update, updates)
        optimizer.step()
        if update % 100 == 0:
            print(f"peer {position} {width} seed {seed}: {update}/{updates} loss {loss.item():.3f}", file=sys.stderr)
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(valid) - 1, LENGTH):
            row = valid[start : start + LENGTH + 1]
            logits = model(row[None, :-1])[0]
            total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
            count += len(row) - 1
    return total / count


def ours(command, path, position, width, seed, updates, folder, changes):
    """The held-out loss of the command after training, from its run folder."""
    settings = folder / "settings.toml"
    folder.mkdir(parents=True, exist_ok=True)
    learned = f'{{ kind = "learned", length = {LENGTH} }}'
    settings.write_text(
        f"""seed = {seed}
[data]
tokenizer = "bytes"
source = {{ kind = "text", path = "{path.resolve()}" }}
valid_share = 0.1
[model]
width = {width}
layers = {LAYERS}
[model.attention]
heads = {width // HEAD_DIM}
position = {learned if position == "learned" else f'"{position}"'}
[training]
steps = {updates}
batch = {BATCH}
length = {LENGTH}
lr = {PEAK}
schedule = {{ kind = "cosine", warmup = {WARMUP}, floor = {FLOOR} }}
optimizer = {{ kind = "adamw", beta1 = {BETAS[0]}, beta2 = {BETAS[1]}, weight_decay = {DECAY} }}
clip = {CLIP}
evaluate_every = {updates}
evaluate_batches = 0
"""
    )
    run = folder / "run"
    resume = ["--resume"] if (run / "config.toml").exists() else [str(settings)]
    sets = [] if resume == ["--resume"] else [word for change in changes for word in ("--set", change)]
    subprocess.run([command, "train", *resume, "--out", str(run), *sets], check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["valid"]["loss"] for record in records if "valid" in record][-1]


def interval(ours_, peers):
    """Half the width of a 95 % interval of the difference of means (Welch), or nothing for one seed."""
    if min(len(ours_), len(peers)) < 2:
        return None
    a, b = statistics.variance(ours_) / len(ours_), statistics.variance(peers) / len(peers)
    freedom = (a + b) ** 2 / (a**2 / (len(ours_) - 1) + b**2 / (len(peers) - 1)) if a + b else 1.0
    quantiles = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23}
    t = quantiles[max(n for n in quantiles if n <= max(1.0, freedom))]
    return t * math.sqrt(a + b)


def main():
    """Trains what is asked for and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="a text file, for example tiny Shakespeare's input.txt")
    parser.add_argument("--positions", default="rotary", help=f"some of {','.join(PEER)}; default rotary")
    parser.add_argument("--widths", default="128", help="default 128")
    parser.add_argument("--seeds", type=int, default=3, help="default 3")
    parser.add_argument("--updates", type=int, default=800, help="default 800")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/learning"))
    parser.add_argument("--command", default="target/release/whatwhere", help="our command")
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a setting of ours, key=value")
    parser.add_argument("--only", choices=["ours", "peer"], help="train one side only")
    options = parser.parse_args()
    positions = options.positions.split(",")
    if unknown := [position for position in positions if position not in PEER]:
        parser.error(f"--positions: {', '.join(unknown)} is none of {', '.join(PEER)}")
    text = options.text.read_bytes()

    def kept(side, name, make):
        folder = options.out / side / name
        figure = folder / "loss.json"
        if not figure.exists():
            value = make(folder)
            folder.mkdir(parents=True, exist_ok=True)
            figure.write_text(json.dumps(value))
        return json.loads(figure.read_text())

    suffix = "".join(f",{change}" for change in options.changes).replace("/", "_")
    print("| position | width | ours | peer | difference | 95 % |\n|---|---|---|---|---|---|")
    for width in map(int, options.widths.split(",")):
        for position in positions:
            sides = {"ours": [], "peer": []}
            for seed in range(1, options.seeds + 1):
                name = f"{position}-{width}-{options.updates}-{seed}"
                if options.only != "peer":
                    sides["ours"].append(kept("ours", name + suffix, lambda folder: ours(
                        options.command, options.text, position, width, seed, options.updates, folder, options.changes)))
                if options.only != "ours":
                    sides["peer"].append(kept("peer", name, lambda folder: peer(
                        text, position, width, seed, options.updates)))
            means = {side: statistics.mean(values) if values else None for side, values in sides.items()}
            both = None not in means.values()
            spread = interval(sides["ours"], sides["peer"]) if both else None
            cells = [position, width, *(f"{mean:.3f}" if mean is not None else "–" for mean in means.values()),
                     f"{means['ours'] - means['peer']:+.3f}" if both else "–", f"±{spread:.3f}" if spread is not None else "–"]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
