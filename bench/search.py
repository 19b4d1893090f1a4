"""Does the search find what a Bayesian one would? Successive halving, as `compare --search` does it, beside Optuna's TPE.

A small decoder on tiny Shakespeare by characters, whose learning rate and weight decay are searched over three decades
each. TPE (a tree-structured Parzen estimator, Bergstra et al. 2011) and plain random search get as many updates as halving
took: for whole runs, and TPE once more for runs of a third, of which it has three times as many. Each search has a seed of its own; what it finds is trained again with three
seeds that no search saw, and the mean of those held-out losses counts. Differences are paired, with 95 % intervals.
Needs optuna (`pip install optuna==5.0.0`). Finished searches are kept in --out and not made again.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess

SETTINGS = """seed = {seed}
[data]
tokenizer = "characters"
[model]
width = 64
layers = 2
attention = {{ heads = 2, position = "rotary" }}
[training]
steps = {updates}
batch = 8
length = 64
evaluate_every = {updates}
evaluate_batches = 0
"""
UPDATES, SAMPLES = 243, 27
# Key, low and high, evenly in the logarithm.
RANGES = [("training.lr", 1e-4, 1e-1), ("training.optimizer.weight_decay", 1e-3, 1.0)]
CHECKS = [1001, 1002, 1003]
# Two-sided 95 % points of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def run(command, *words):
    """What a command prints."""
    return subprocess.run([command, *map(str, words)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def settings(folder, seed, updates=UPDATES):
    """A file of settings, which is made with its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "settings.toml"
    path.write_text(SETTINGS.format(seed=seed, updates=updates))
    return path


def loss(command, folder, seed, values, updates=UPDATES):
    """The held-out loss of one setting after training; infinite where it diverges."""
    trained = folder / "run"
    changes = [word for (key, *_), value in zip(RANGES, values) for word in ("--set", f"{key}={value!r}")]
    if (trained / "config.toml").exists():
        begin = ["--resume"]
    else:
        begin = [settings(folder, seed, updates), *changes]
    try:
        run(command, "train", *begin, "--out", trained)
    except subprocess.CalledProcessError:
        return math.inf
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    return [record["valid"]["loss"] for record in records if "valid" in record][-1]


def halving(command, folder, seed):
    """What `compare --search` finds, and the updates its search took."""
    ranges = [word for key, low, high in RANGES for word in ("--range", f"{key}={low}..{high}")]
    run(command, "compare", settings(folder, seed), "--search", SAMPLES, *ranges, "--lengths", 0,
        "--out", folder / "comparison")
    import tomllib

    def configs(below):
        return [tomllib.loads(path.read_text()) for path in sorted((folder / "comparison" / below).rglob("config.toml"))]

    (found,) = configs("runs")
    values = [found["training"]["lr"], found["training"]["optimizer"]["weight_decay"]]
    return values, sum(config["training"]["steps"] for config in configs("search"))


def best_of(command, folder, seed, trials, updates, ask):
    """The best of the settings that `ask` proposes, which is told what became of each after so many updates."""
    best = None
    for trial in range(trials):
        values, tell = ask()
        found = loss(command, folder / f"trial-{trial}", seed, values, updates)
        tell(found)
        if best is None or found < best[0]:
            best = found, values
    return best[1]


def parzen(command, folder, seed, budget, updates=UPDATES):
    """What Optuna's TPE finds, of which the first third is drawn by chance."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = math.ceil(budget / updates)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(2, trials // 3)))

    def ask():
        trial = study.ask()
        values = [trial.suggest_float(key, low, high, log=True) for key, low, high in RANGES]
        # A run that diverged is worse than any guess at the uniform distribution over 65 characters.
        return values, lambda found: study.tell(trial, min(found, 100.0))

    return best_of(command, folder, seed, trials, updates, ask)


def chance(command, folder, seed, budget):
    """What random search finds."""
    draw = random.Random(seed)

    def ask():
        return [math.exp(draw.uniform(math.log(low), math.log(high))) for _, low, high in RANGES], lambda found: None

    return best_of(command, folder, seed, math.ceil(budget / UPDATES), UPDATES, ask)


def said(values):
    """Mean and half of its 95 % interval."""
    margin = STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):+.4f} ± {margin:.4f} nats"


def main():
    """Searches and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="target/release/whatwhere", help="our command")
    parser.add_argument("--searches", type=int, default=5, help="2 to 10, default 5")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/search"))
    options = parser.parse_args()
    if not 2 <= options.searches <= 10:
        parser.error(f"--searches {options.searches}: expected 2 to 10")
    ways = {"halving": None, "TPE": parzen, "random": chance,
            "TPE, thirds": lambda *words: parzen(*words, updates=UPDATES // 3)}
    losses = {way: [] for way in ways}
    print("| search | updates | " + " | ".join(ways) + " |\n|" + "---|" * (2 + len(ways)))
    for seed in range(1, options.searches + 1):
        updates = None
        for way, search in ways.items():
            folder = options.out / f"{way}-{seed}".replace(", ", "-")
            kept = folder / "found.json"
            if not kept.exists():
                if search:
                    values = search(options.command, folder, seed, updates)
                else:
                    values, updates = halving(options.command, folder, seed)
                checks = [loss(options.command, folder / f"check-{check}", check, values) for check in CHECKS]
                kept.write_text(json.dumps({"values": values, "updates": updates, "loss": statistics.mean(checks)}))
            found = json.loads(kept.read_text())
            updates = found["updates"]
            losses[way].append(found["loss"])
        print(f"| {seed} | {updates} | " + " | ".join(f"{losses[way][-1]:.4f}" for way in ways) + " |", flush=True)
    for way in list(ways)[1:]:
        print(f"halving − {way}: " + said([a - b for a, b in zip(losses["halving"], losses[way])]))


if __name__ == "__main__":
    main()
