"""The conformance kit, as the command writes it, computed by the package: outputs and gradients of every choice."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import whatwhere

ROOT = Path(__file__).parents[3]
COMMAND = ROOT / "target" / "release" / "whatwhere"
sys.path.insert(0, str(ROOT / "crates" / "python" / "examples"))


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    if not COMMAND.is_file():
        pytest.skip("no target/release/whatwhere; cargo build --release makes it")
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("kit")
    subprocess.run([COMMAND, "doctor", "--write-kit", folder], check=True, capture_output=True)
    from kit import cases

    return list(cases(folder))


def test_outputs(kit):
    assert len(kit) > 40
    for name, settings, at in kit:
        out = whatwhere.attention(at["q"], at["k"], at["v"], enable_gqa=True, **settings)
        assert np.abs(out - at["out"]).max() < 1e-5, name


def test_gradients(kit):
    torch = pytest.importorskip("torch")

    from whatwhere.torch import attention

    for name, settings, at in kit:
        # The same arrays as tensors that learn, wherever the settings have them.
        learn = {}

        def tensor(array, name=None):
            one = torch.from_numpy(array.copy()).requires_grad_()
            learn[name] = one
            return one

        words = {id(array): key for key, array in at.items()}

        def turned(word):
            if isinstance(word, dict):
                return {key: turned(value) for key, value in word.items()}
            if isinstance(word, list):
                return [turned(value) for value in word]
            return tensor(word, words[id(word)]) if isinstance(word, np.ndarray) else word

        q, k, v = (tensor(at[part], part) for part in "qkv")
        out = attention(q, k, v, enable_gqa=True, **turned(settings))
        out.backward(torch.from_numpy(at["d_out"]))
        for part, one in learn.items():
            want = at[f"d_{part}"]
            off = np.abs(one.grad.numpy() - want).max()
            assert off < 1e-4 * max(1.0, np.abs(want).max()), (name, part, off)
