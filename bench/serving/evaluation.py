"""Does lm-evaluation-harness measure what the weights say?

    python bench/serving/evaluation.py WHATWHERE RUN

Serves the run, lets lm-eval (`local-completions`, the server's own tokenizer, no torch) ask tasks of a few lines of all three
kinds, and holds every answer against `whatwhere logits` and `whatwhere generate` on the same run to 1e-4. The run's tokenizer
must name a token that ends a text.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import lm_eval
import requests
from lm_eval.tasks import TaskManager

CLOSE = 1e-4
CONTEXT = 512

program, run = sys.argv[1], Path(sys.argv[2])

CHOICES = [
    ("Which is it: to be", [" or not to be", " and not", "?"], 0),
    ("The quality of mercy is", [" not", " strained, or so they say who never saw it"], 1),
    ("O", [" Romeo", ", she", "!!"], 2),
    ("First Citizen:\nBefore we proceed any further,", [" hear me speak.", "z"], 0),
] * 3
TEXTS = ["All the world is a stage.", "And all the men and women merely players, " * 5, "x"]
PROMPTS = ["ROMEO:", "My lord, ", "What"]

TASKS = {
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "writing": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "x",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": 30, "do_sample": False, "temperature": 0.0},
        "metric_list": [{"metric": "exact_match"}],
    },
}
DATA = {
    "choice": [{"context": text, "choices": choices, "gold": gold} for text, choices, gold in CHOICES],
    "rolling": [{"text": text} for text in TEXTS],
    "writing": [{"text": text} for text in PROMPTS],
}


all_texts = {text + choice for text, choices, _ in CHOICES for choice in ["", *choices]} | set(TEXTS)


def expect(right, what):
    if not right:
        sys.exit(f"wrong: {what}")


def ask(*arguments, text=""):
    return subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=True).stdout


def log_probabilities(tokens):
    """Of every token after the first, and whether it is the likeliest."""
    logits = json.loads(ask("logits", str(run), "--json", text=" ".join(map(str, tokens))))["logits"]
    found = []
    for row, token in zip(logits, tokens[1:]):
        peak = max(row)
        total = peak + math.log(sum(math.exp(value - peak) for value in row))
        found.append((row[token] - total, row[token] == peak))
    return found


folder = Path(tempfile.mkdtemp())
for name, task in TASKS.items():
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in DATA[name]))
    task = task | {"task": name, "dataset_path": "json", "test_split": "test"}
    task |= {"dataset_kwargs": {"data_files": {"test": str(data)}}}
    # JSON is YAML.
    (folder / f"{name}.yaml").write_text(json.dumps(task))

server = subprocess.Popen(
    [program, "serve", f"model={run}", "--port", "0", "--context", str(CONTEXT)],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
)
try:
    url = server.stdout.readline().strip()
    def encode(text):
        body = {"prompt": text, "add_special_tokens": False}
        return requests.post(f"{url}/tokenize", json=body, timeout=30).json()["tokens"]

    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": "model",
            "base_url": f"{url}/v1/completions",
            "tokenizer_backend": "remote",
            "max_length": CONTEXT,
            "num_concurrent": 4,
        },
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )["samples"]
    tokens = {text: encode(text) for text in all_texts}
    end = encode(requests.get(f"{url}/tokenizer_info", timeout=30).json()["eos_token"])
finally:
    server.terminate()
    server.wait()

far, count = 0.0, 0


def compare(found, expected, what):
    global far, count
    far, count = max(far, abs(found - expected)), count + 1
    expect(abs(found - expected) < CLOSE, f"{what}: {found}, expected {expected}")


for sample in found["choice"]:
    text, choices, _ = CHOICES[sample["doc_id"]]
    for choice, answers in zip(choices, sample["resps"]):
        log, is_greedy = answers[0]
        ids = tokens[text], tokens[text + choice]
        told = log_probabilities(ids[1])[len(ids[0]) - 1 :]
        compare(log, sum(log for log, _ in told), f"{text!r}, {choice!r}")
        expect(is_greedy == all(best for _, best in told), f"{text!r}, {choice!r}: greedy = {is_greedy}")
for sample in found["rolling"]:
    text = TEXTS[sample["doc_id"]]
    answer = sample["resps"][0][0]
    log = answer[0] if isinstance(answer, (list, tuple)) else answer
    compare(log, sum(log for log, _ in log_probabilities(end + tokens[text])), repr(text))
for sample in found["writing"]:
    text = PROMPTS[sample["doc_id"]]
    expected = ask("generate", str(run), text, "--temperature", "0", "--tokens", "30", "--stop", "e", "--json")
    answer = sample["resps"][0][0]
    expect(answer == json.loads(expected)["text"], f"{text!r}: {answer!r}, expected {expected}")
    count += 1
print(f"lm-eval {lm_eval.__version__}: {count} answers as the weights say, within {far:.1e}")
