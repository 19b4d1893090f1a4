"""Does the server bear many clients, and clients that are killed?

    python bench/serving/load.py URL PID [--requests 10000] [--seconds 90]

8 clients × 200 requests without an error, the 95th percentile of the time between tokens alone and among 8, memory of the
process PID over short requests (10 000, or as many as fit into so many seconds) whose prompts begin alike and not, so that
what is kept of earlier prompts is taken, replaced and dropped, and clients killed by -9 in mid-stream.
The percentiles are printed and not judged: on a busy machine they say how busy it is.
Needs Linux's /proc, and nothing but Python.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlparse

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("pid", type=int)
parser.add_argument("--model", default="words")
parser.add_argument("--requests", type=int, default=10_000)
parser.add_argument("--seconds", type=float, default=90)
parser.add_argument("--kill-me", action="store_true", help="only stream, until somebody kills this process")
arguments = parser.parse_args()
place = urlparse(arguments.url)


def post(connection, request):
    body = {"model": arguments.model} | request
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def connect():
    return http.client.HTTPConnection(place.hostname, place.port, timeout=120)


def memory():
    """MiB that the server holds."""
    with open(f"/proc/{arguments.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def busy():
    connection = connect()
    connection.request("GET", "/slots")
    return sum(slot["is_processing"] for slot in json.load(connection.getresponse()))


def gaps(tokens):
    """Seconds between the tokens of one stream."""
    response = post(connect(), {"prompt": "To be", "max_tokens": tokens, "stream": True, "ignore_eos": True})
    times = [time.monotonic() for line in response if line.startswith(b"data: {")]
    return [after - before for before, after in zip(times, times[1:])]


def among(count, work):
    """What several threads return for their numbers, the same as one list."""
    found, failed = [], []

    def run(number):
        try:
            found.extend(work(number))
        except Exception as error:  # noqa: BLE001: told below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"wrong: {len(failed)} clients failed, the first with {failed[0]!r}")
    return found


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


if arguments.kill_me:
    # Reads half a line, and is killed.
    answer = post(connect(), {"prompt": "To be", "max_tokens": 4000, "stream": True, "ignore_eos": True})
    answer.read(200)
    print("reading", flush=True)
    time.sleep(600)

alone = percentile(gaps(300), 0.95)
# Processes, because threads of Python wait for each other longer than a small model takes.
with multiprocessing.get_context("fork").Pool(8) as clients:
    together = percentile(sum(clients.map(gaps, 8 * [300], chunksize=1), []), 0.95)
print(f"p95 between tokens: {1e3 * alone:.2f} ms alone, {1e3 * together:.2f} ms among 8")


def requests(number):
    connection = connect()
    for i in range(200):
        stream = i % 4 == 0
        prompt = "What light through yonder window breaks? "[: 1 + (7 * number + i) % 40]
        response = post(connection, {"prompt": prompt, "max_tokens": 1 + i % 16, "stream": stream})
        body = response.read()
        if response.status != 200 or (stream and not body.endswith(b"data: [DONE]\n\n")):
            raise ValueError(f"{response.status}: {body[:200]!r}")
    return [200]


begun = time.monotonic()
print(f"8 clients: {sum(among(8, requests))} requests without an error in {time.monotonic() - begun:.1f} s")

for _ in range(5):
    clients = [
        subprocess.Popen([sys.executable, *sys.argv, "--kill-me"], stdout=subprocess.PIPE) for _ in range(4)
    ]
    for client in clients:
        client.stdout.readline()
    for client in clients:
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    end = time.monotonic() + 10
    while busy():
        if time.monotonic() > end:
            sys.exit("wrong: texts of killed clients are still being written after 10 s")
        time.sleep(0.01)
print("20 clients killed in mid-stream: all slots free again")

END = time.monotonic() + arguments.seconds
# Beyond the first two places up to which a prompt is kept (64 and 128 tokens of a character each).
TEXT = "But soft, what light through yonder window breaks? It is the east and Juliet is the sun. " * 3


def prompt(number):
    """Every third begins like one before it up to some place, every third is new, and every third is short."""
    # In letters, because a model of this text has hardly a digit.
    own = "".join("abcdefghij"[int(digit)] for digit in f"{number:08d}")
    if number % 3 == 0:
        return TEXT[: 70 + number % 60] + own
    return own + TEXT[: 60 + number % 70] if number % 3 == 1 else "a"


def count(name):
    """A counter of the model."""
    connection = connect()
    connection.request("GET", "/metrics")
    label = f'{name}{{model="{arguments.model}"}} '
    lines = connection.getresponse().read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(label)).removeprefix(label))


def short(share, first):
    def work(number):
        connection, done = connect(), 0
        while done < share and time.monotonic() < END:
            text = prompt(first + number * share + done)
            response = post(connection, {"prompt": text, "max_tokens": 1})
            response.read()
            if response.status != 200:
                raise ValueError(response.status)
            done += 1
        return [done]

    return work


known = count("whatwhere_cached_tokens_total")
first = sum(among(4, short(arguments.requests // 40, 0)))
before = memory()
done = first + sum(among(4, short((arguments.requests - first) // 4, arguments.requests)))
after = memory()
known = count("whatwhere_cached_tokens_total") - known
print(f"memory: {before:.1f} MiB after {first} short requests, {after:.1f} MiB after {done}")
# A third of the prompts begin like an earlier one; what is kept may have been dropped between them.
print(f"{known:.0f} tokens of their prompts were known from earlier ones")
if known < done:
    sys.exit("wrong: hardly anything was known from earlier prompts")
if after > 1.1 * before + 8:
    sys.exit("wrong: memory grows")
if done < arguments.requests - 4:
    print(f"SKIPPED: {arguments.requests - done} of {arguments.requests} short requests: no time left")
