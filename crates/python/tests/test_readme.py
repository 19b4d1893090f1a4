"""The code in the README runs."""

import re
from pathlib import Path

import torch

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_every_python_block_of_the_readme_runs_in_order():
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 3
    blocks.pop()  # needs a trained model; test_models.py makes one
    scope = {"slopes": torch.nn.Parameter(torch.ones(8))}
    for block in blocks:
        exec(block, scope)
    assert scope["table"].grad is not None and scope["table"].abs().max() > 0
