"""The types of the package are those of the layers' settings."""

import json
import os
from pathlib import Path

import written_types
from whatwhere import _native

SETTINGS = Path(__file__).parents[1] / "python" / "whatwhere" / "settings.py"


def test_the_types_are_written_from_the_schema():
    made = written_types.written(_native.schema(), _native.arrays(), _native.only_of_layers())
    if "WHATWHERE_WRITE" in os.environ:
        SETTINGS.write_text(made)
    assert SETTINGS.read_text() == made, "write it again: WHATWHERE_WRITE=1 pytest tests/test_types.py"


def test_names_are_those_of_toml():
    definitions = json.loads(_native.schema())["definitions"]
    for axis, names in _native.names().items():
        words = definitions[axis.capitalize()]["anyOf"][0]["enum"]
        assert names == words + (["table"] if axis == "position" else [])
