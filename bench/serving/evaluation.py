"""Does lm-evaluation-harness measure what the weights say?

    python bench/serving/evaluation.py WHATWHERE RUN [--huggingface]

Serves the run, lets lm-eval (`local-completions`, the server's own tokenizer, no torch) ask tasks of a few lines of all three
kinds, and holds every answer against `whatwhere logits` and `whatwhere generate` on the same run to 1e-4. The run's tokenizer
must name a token that ends a text.
With `--huggingface` the run is exported, too, and lm-eval asks transformers (`--model hf`) the same; torch is needed then.
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
asks_transformers = "--huggingface" in sys.argv[3:]

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


def evaluate(kind, **model_args):
    """What the model answers, by task."""
    return lm_eval.simple_evaluate(
        model=kind,
        model_args=model_args,
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )["samples"]


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

    found = evaluate(
        "local-completions",
        model="model",
        base_url=f"{url}/v1/completions",
        tokenizer_backend="remote",
        max_length=CONTEXT,
        num_concurrent=4,
    )
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


def rolling(sample):
    answer = sample["resps"][0][0]
    return answer[0] if isinstance(answer, (list, tuple)) else answer


for sample in found["rolling"]:
    text = TEXTS[sample["doc_id"]]
    compare(rolling(sample), sum(log for log, _ in log_probabilities(end + tokens[text])), repr(text))
for sample in found["writing"]:
    text = PROMPTS[sample["doc_id"]]
    expected = ask("generate", str(run), text, "--temperature", "0", "--tokens", "30", "--stop", "e", "--json")
    answer = sample["resps"][0][0]
    expect(answer == json.loads(expected)["text"], f"{text!r}: {answer!r}, expected {expected}")
    count += 1
print(f"lm-eval {lm_eval.__version__}: {count} answers as the weights say, within {far:.1e}")

if asks_transformers:
    exported = folder / "exported"
    ask("export", str(run), "--to", "huggingface", "--out", str(exported))
    far, count = 0.0, 0
    theirs = evaluate("hf", pretrained=str(exported), device="cpu", dtype="float32", max_length=CONTEXT)
    for task in TASKS:
        # In the order of the lines, in which neither has to answer.
        ours, other = ({sample["doc_id"]: sample for sample in samples[task]} for samples in (found, theirs))
        for line, sample in ours.items():
            what = f"{task} {line}, transformers"
            if task == "choice":
                for (log, greedy), (their_log, their_greedy) in zip(
                    (answers[0] for answers in sample["resps"]), (answers[0] for answers in other[line]["resps"])
                ):
                    compare(log, their_log, what)
                    expect(greedy == their_greedy, f"{what}: greedy = {greedy}")
            elif task == "rolling":
                compare(rolling(sample), rolling(other[line]), what)
            else:
                answer, their_answer = sample["resps"][0][0], other[line]["resps"][0][0]
                expect(answer == their_answer, f"{what}: {answer!r}, expected {their_answer!r}")
                count += 1
    print(f"lm-eval {lm_eval.__version__}: {count} answers as transformers' (--model hf), within {far:.1e}")
