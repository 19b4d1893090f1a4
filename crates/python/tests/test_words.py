"""The words are those of TOML: names, fields and defaults of `crates/attention`, read from its source."""

import re
from pathlib import Path

import numpy as np
import pytest

import whatwhere
from whatwhere import _native

ATTENTION = Path(__file__).parents[2] / "attention" / "src"
OURS = (Path(__file__).parents[1] / "src" / "settings.rs").read_text()
# What a layer initialises is handed in here; what is handed in learns if its tensor does.
INITIALISED = {"alibi": {"learned"}}


def declared(axis):
    """The choices of an axis: name in settings, name of the struct."""
    source = (ATTENTION / axis / "mod.rs").read_text()
    return dict((name, struct) for struct, name in re.findall(r'^\s+(\w+)(?:, \w+)? => "(\w+)"[,;]', source, re.M))


def fields(struct, axis):
    for path in (ATTENTION / axis).glob("*.rs"):
        found = re.search(rf"pub struct {struct} \{{(.*?)\}}", path.read_text(), re.S)
        if found:
            return set(re.findall(r"pub (\w+):", found[1])), path.read_text()
    raise AssertionError(f"{struct} is not declared in {axis}")


@pytest.mark.parametrize("axis", ["score", "pattern", "position"])
def test_names_are_those_of_toml(axis):
    assert set(declared(axis)) == set(_native.names()[axis]) - {"table"}


CHOICES = [(axis, name, struct) for axis in ("score", "pattern", "position") for name, struct in declared(axis).items()]


@pytest.mark.parametrize("axis, name, struct", CHOICES, ids=[name for _, name, _ in CHOICES])
def test_fields_and_defaults_are_those_of_toml(axis, name, struct):
    if name in ("sinusoidal", "learned"):
        pytest.skip("acts on embeddings and is refused here")
    theirs, source = fields(struct, axis)
    q = np.zeros((1, 2, 4, 4), np.float32)
    with pytest.raises(ValueError) as refusal:
        whatwhere.attention(q, q, q, **{axis: {"kind": name, "?": 1}})
    ours = set(re.findall(r"`(\w+)`", str(refusal.value).split(", ", 1)[1]))
    assert theirs - INITIALISED.get(name, set()) <= ours

    literal = r"(\w+): (-?[\d_.]+|true|false)[,\s}]"
    default = re.search(rf"impl Default for {struct} \{{.*?Self \{{(.*?)\}}", source, re.S)
    mine = re.search(rf"choice! ?\{{\s*{struct} ?\{{(.*?)\}}\s*\}}", OURS, re.S)
    assert mine, f"{struct} has no settings here"
    mine = dict(re.findall(r"(\w+): [\w<>]+ = (?:\w+::\w+\()?(-?[\d_.]+|true|false)", mine[1]))
    for field, value in re.findall(literal, default[1] + " " if default else ""):
        # Left out, these follow from the array that is handed in.
        if field in mine:
            assert mine[field] == value, f"{name}.{field}"
        else:
            assert (name, field) in DERIVED, f"{name}.{field} = {value} has no default here"


DERIVED = {("t5", "buckets"), ("shaw", "reach"), ("shaw", "keys"), ("shaw", "values"), ("shaw", "per_head"), ("alibi", "learned")}
