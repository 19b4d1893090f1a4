"""The torch side of bench/attention: answers one JSON line on stdout for each JSON line on stdin.

    {"do": "hello", "threads": 2}                      -> {"torch": …, "python": …}
    {"do": "prepare", "kind": …, "folder": …,
     "tensors": [{"name", "shape", "learned"}, …]}     -> {"ways": [names]}
    {"do": "check", "way": …, "backward": true}        -> {"results": [names]}
    {"do": "time", "way": …, "backward": …, "calls": n} -> {"ms": the fastest of n calls}
    {"do": "memory", "way": …, "backward": …}          -> {"mib": peak above what was in use before}

Tensors come as raw f32 in `folder/NAME.f32` and results go back the same way.
What went wrong is answered as {"error": text}; only the end of stdin ends the worker.
"""

import ctypes
import gc
import json
import os
import platform
import signal
import sys
import time

# Answers have stdout for themselves; whatever else torch or a compiler prints joins stderr.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


class Worker:
    """What is prepared: the tensors of one problem and the ways to compute it."""

    def hello(self, threads):
        import numpy
        import torch

        torch.set_num_threads(threads)
        # Weights of far keys are denormal under ALiBi; flushing them makes torch up to three times faster.
        # Threads inherit the setting from the one that starts them, so it comes before any work.
        torch.set_flush_denormal(True)
        self.torch, self.numpy = torch, numpy
        return {"torch": torch.__version__.split("+")[0], "python": platform.python_version()}

    def prepare(self, kind, folder, tensors):
        from ways import ways

        self.folder, self.ways, self.tensors = folder, {}, {}
        for tensor in tensors:
            values = self.numpy.fromfile(self.path(tensor["name"]), dtype=self.numpy.float32)
            os.remove(self.path(tensor["name"]))
            values = self.torch.from_numpy(values).reshape(tensor["shape"])
            self.tensors[tensor["name"]] = values.requires_grad_(tensor["learned"])
        self.learned = [tensor["name"] for tensor in tensors if tensor["learned"]]
        self.ways = ways(kind, self.tensors)
        return {"ways": list(self.ways)}

    def check(self, way, backward):
        results = dict(zip(["out"] + ["d_" + name for name in self.learned], self.call(way, backward)))
        for name, result in results.items():
            result.detach().float().contiguous().numpy().tofile(self.path(name))
        return {"results": list(results)}

    def time(self, way, backward, calls):
        best = float("inf")
        for _ in range(calls):
            start = time.perf_counter()
            results = self.call(way, backward)
            best = min(best, time.perf_counter() - start)
            del results
        return {"ms": best * 1e3}

    def memory(self, way, backward):
        # The first call loads code, starts threads and compiles; what it leaves behind is not counted.
        self.call(way, backward)
        gc.collect()
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        before = status_kib("VmRSS")
        self.call(way, backward)
        return {"mib": (status_kib("VmHWM") - before) / 1024}

    def call(self, way, backward):
        """The output, followed by the gradients of everything learned."""
        way = self.ways[way]
        if not backward:
            with self.torch.no_grad():
                return (way(self.tensors),)
        out = way(self.tensors)
        learned = [self.tensors[name] for name in self.learned]
        return (out, *self.torch.autograd.grad(out, learned, self.tensors["d_out"]))

    def path(self, name):
        return os.path.join(self.folder, name + ".f32")


def status_kib(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def end_with_parent():
    """Linux kills the worker when the driver dies, even in the middle of a long call."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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
