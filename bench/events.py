"""What TensorBoard's own readers find in a folder of events: every tag with its steps and values.

pip install tensorboard==2.21.0
cargo run --release -p whatwhere-training --example events -- FOLDER
python bench/events.py FOLDER           # the reader that plugins in Python use
python bench/events.py FOLDER --served  # what the browser gets, from the data server that TensorBoard starts by default

Not called tensorboard.py: Python looks for modules beside the script first, and would import the script itself.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PORT = 6123


def accumulated(folder):
    reader = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    for tag in reader.Tags()["scalars"]:
        yield tag, [(event.step, event.value) for event in reader.Scalars(tag)]
    for tag in reader.Tags()["tensors"]:
        texts = [(event.step, event.tensor_proto.string_val[0].decode()) for event in reader.Tensors(tag)]
        yield f"{tag} ({reader.SummaryMetadata(tag).plugin_data.plugin_name})", texts


def served(folder):
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", str(PORT), "--load_fast", "true"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        tags = {}
        for _ in range(60):
            time.sleep(0.5)
            try:
                tags = get("scalars/tags", {})
            except OSError:
                continue
            if tags:
                break
        for run, names in tags.items():
            for tag in names:
                points = get("scalars/scalars", {"run": run, "tag": tag})
                yield tag, [(step, value) for _, step, value in points]
        for run, names in get("text/tags", {}).items():
            for tag in names:
                texts = get("text/text", {"run": run, "tag": tag})
                yield f"{tag} (text)", [(text["step"], text["text"]) for text in texts]
    finally:
        server.terminate()
        server.wait()


def get(path, query):
    address = f"http://localhost:{PORT}/data/plugin/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="tags and values of event files")
    arguments.add_argument("folder")
    arguments.add_argument("--served", action="store_true", help="ask a TensorBoard instead of reading the files")
    options = arguments.parse_args()
    print("\n".join(sorted(os.listdir(options.folder))))
    for tag, points in (served if options.served else accumulated)(options.folder):
        print(tag, *(f"{step}:{value}" for step, value in points))
