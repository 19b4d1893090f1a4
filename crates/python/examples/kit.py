"""Runs the conformance kit: `whatwhere doctor --write-kit kit`, then `python kit.py kit`. Ten lines read it in any framework."""

import json
import sys

from safetensors.numpy import load_file

import whatwhere


def fill(words, at):
    """The words with `"@name"` replaced by the tensor of that name."""
    if isinstance(words, dict):
        return {key: fill(word, at) for key, word in words.items()}
    if isinstance(words, list):
        return [fill(word, at) for word in words]
    return at(words[1:]) if isinstance(words, str) and words.startswith("@") else words


def cases(folder):
    """Name, settings and tensors of every case of attention."""
    kit, tensors = json.load(open(f"{folder}/kit.json")), load_file(f"{folder}/kit.safetensors")
    for case in kit["cases"]:
        if case["kind"] == "attention":
            at = {key.split("/", 1)[1]: value for key, value in tensors.items() if key.startswith(case["name"] + "/")}
            yield case["name"], fill(case["settings"], at.__getitem__), at


if __name__ == "__main__":
    for name, settings, at in cases(sys.argv[1]):
        out = whatwhere.attention(at["q"], at["k"], at["v"], enable_gqa=True, **settings)
        off = abs(out - at["out"]).max()
        print(f"{name:<36} {off:.1e}")
        assert off < 1e-5, name
