"""Tokens a second of 1, 4 and 8 clients, against llama-server on the same weights.

    python bench/serving/rivals.py WHATWHERE RUN LLAMA_SERVER MODEL.gguf [--weights int8] [--rounds 5]

RUN and MODEL.gguf hold the same weights at the same precision: `whatwhere import MODEL.gguf --out RUN`, with `--weights int8`
for a Q8_0. Both servers run at once and are asked in turns, so that both meet the same load of the machine; prints the
median of the rounds of each, the ratio, and the time to the first token. Nothing else should run on the machine.
"""

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time

PROMPT = "The history of the city begins with a river, a bridge and a market. " * 4

parser = argparse.ArgumentParser()
parser.add_argument("whatwhere")
parser.add_argument("run")
parser.add_argument("llama_server")
parser.add_argument("gguf")
parser.add_argument("--weights", default="f32")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--threads", type=int, default=2, help="of llama-server")
arguments = parser.parse_args()


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def wait(port):
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"no server on port {port}")


def stream(port, number):
    """Tokens written, and seconds to the first."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {
        "model": "model",
        "prompt": f"{number}. {PROMPT}",
        "max_tokens": arguments.tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    begun = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    first, written = None, 0
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            written = event["usage"]["completion_tokens"]
        if first is None and event["choices"]:
            first = time.monotonic() - begun
    return written, first


def measure(port, clients, first):
    """Tokens a second of all clients together, and the median time to a first token."""
    found = []
    threads = [
        threading.Thread(target=lambda number=number: found.append(stream(port, first + number)))
        for number in range(clients)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    return sum(written for written, _ in found) / seconds, statistics.median(first for _, first in found)


ours, theirs = free_port(), free_port()
servers = [
    subprocess.Popen(
        [arguments.whatwhere, "serve", f"model={arguments.run}", "--port", str(ours), "--weights", arguments.weights]
    ),
    subprocess.Popen(
        [arguments.llama_server, "-m", arguments.gguf, "--port", str(theirs), "-np", "8", "-c", "8192"]
        + ["-t", str(arguments.threads), "--no-webui"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ),
]
try:
    wait(ours)
    wait(theirs)
    print(f"{'clients':>7}  {'ours':>8}  {'llama':>8}  {'ratio':>5}  first token, ours and llama")
    for clients in (1, 4, 8):
        rounds = []
        for number in range(arguments.rounds + 1):
            # Each round has prompts of its own, so that neither finds them in its memory; the first one warms up.
            first = 1000 * clients + 10 * number
            rounds.append((measure(ours, clients, first), measure(theirs, clients, first)))
        speeds = [[pair[who][0] for pair in rounds[1:]] for who in (0, 1)]
        waits = [[pair[who][1] for pair in rounds[1:]] for who in (0, 1)]
        fast = [statistics.median(speed) for speed in speeds]
        wait_for = [statistics.median(wait) for wait in waits]
        ratio = statistics.median(a / b for a, b in zip(*speeds))
        print(
            f"{clients:>7}  {fast[0]:>6.1f}/s  {fast[1]:>6.1f}/s  {ratio:>5.2f}  "
            f"{1e3 * wait_for[0]:.0f} ms, {1e3 * wait_for[1]:.0f} ms"
        )
finally:
    for server in servers:
        server.terminate()
        server.wait()
