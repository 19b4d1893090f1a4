"""The torch side of bench/training: answers one JSON line on stdout for each JSON line on stdin.

    {"do": "hello"}                                        -> {"versions": text}
    {"do": "build", "model": settings, "weights": file,
     "parameters": [{"name", "shape"}, …]}                 -> {}
    {"do": "train", "rows", "length", "precision": "f32",
     "way": "torch eager"}                               -> {}
    {"do": "write", "prompt", "tokens", "way": …}          -> {}
    {"do": "steps", "count": n}                            -> {"ms", "results", "fresh_pages", "peak_mib"}

The file holds the values of all parameters one after the other, raw f32.
What went wrong is answered as {"error": text}; only the end of stdin ends the worker.
"""

import json
import os
import platform
import resource
import signal
import sys
import time

# First, because it keeps stdout for the answers: whatever else torch or a compiler prints joins stderr.
from worker import answers, end_with_parent, status_kib

import numpy
import torch


class Worker:
    """The model, and what one step of it is."""

    def hello(self):
        import transformers

        torch_version = torch.__version__.split("+")[0]
        python = platform.python_version()
        return {"versions": f"torch {torch_version}, transformers {transformers.__version__}, Python {python}"}

    def build(self, model, weights, parameters):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.set_flush_denormal(True)
        values = torch.from_numpy(numpy.fromfile(weights, dtype=numpy.float32))
        sizes = [int(numpy.prod(parameter["shape"])) for parameter in parameters]
        parts = values.split(sizes)
        self.weights = {p["name"]: part.view(p["shape"]) for p, part in zip(parameters, parts)}
        self.settings = model
        return {}

    def train(self, rows, length, precision, way):
        from gpt import GPT, optimizer

        gpt = GPT(self.settings, self.weights)
        del self.weights
        optimizer = optimizer(gpt)
        loss_of = torch.compile(gpt) if way == "torch compiled" else gpt
        self.number = 0

        def step():
            tokens = numbers(self.number, rows * length + 1, self.settings["vocabulary"])
            self.number += 1
            tokens, targets = tokens[:-1].view(rows, length), tokens[1:].view(rows, length)
            # Weights, moments and what autocast keeps in f32 stay so; gradients are f32.
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.item()

        self.step = step
        return {}

    def write(self, prompt, tokens, way):
        from llama import llama

        model = llama(self.settings, self.weights)
        ids = numbers(0, prompt, self.settings["vocabulary"])[None]

        def step():
            with torch.no_grad():
                written = model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, use_cache=True
                )
            return written[0, prompt:].tolist()

        self.step = step
        return {}

    def steps(self, count):
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        best, fresh, results = float("inf"), 0, []
        for _ in range(count):
            pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            start = time.perf_counter()
            results.append(self.step())
            best = min(best, time.perf_counter() - start)
            fresh = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages
        peak = status_kib("VmHWM") / 1024
        return {"ms": best * 1e3, "results": results, "fresh_pages": fresh, "peak_mib": peak}


def numbers(step, count, vocabulary):
    """Tokens that look random, the same in both languages."""
    numbers = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(7919 * step)) * numpy.uint64(2654435761)
    numbers = numbers % numpy.uint64(2**32) // numpy.uint64(256) % numpy.uint64(vocabulary)
    return torch.from_numpy(numbers.astype(numpy.int64))


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            answer = {"error": text}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
