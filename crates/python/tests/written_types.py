"""Writes `whatwhere/settings.py`, the choices as types, from the schema of the layers' settings.

`WHATWHERE_WRITE=1 pytest tests/test_types.py` replaces the file; without it the test holds the file against the schema.
"""

import json

HEAD = '''"""The choices of a call as types: what the dictionaries for `score`, `pattern` and `position` may hold.

Written from the schema of the layers' settings by `tests/written_types.py`; a test holds it against them.
The words, their meaning and their defaults are those of TOML. What TOML initialises is handed in here as an array
(`float32`; a tensor in `whatwhere.torch`, where it has a gradient). A choice without settings may be given by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Union

Array: TypeAlias = Any  # numpy.ndarray, or torch.Tensor in whatwhere.torch
'''

# What Python multiplies out before a call, and what a pattern predicts: names and shapes. The rest comes from the settings.
ARRAYS = {
    "general": [("weight", "[heads, head_dim, head_dim]")],
    "predicted": [("centers", "[batch, heads, queries]")],
    "transformer_xl": [
        ("projection", "[width, heads · head_dim]"),
        ("content", "[heads, head_dim]"),
        ("distance", "[heads, head_dim]"),
    ],
}
AXES = ["Score", "Pattern", "Position"]

TABLE = '''class Table(TypedDict, total=False):
    """A bias by head and distance: `table[head, clamp(distance, −left, right) + left]`."""

    kind: Literal["table"]
    # [heads, left + 1 + right].
    table: Array
    # Distances to the left that are told apart; default 0.
    left: int
'''

TAIL = '''Score: TypeAlias = Union[str, {Score}]
Pattern: TypeAlias = Union[
    str, {Pattern}, Callable[[Any, Any, Any, Any], Any]
]
Encoding: TypeAlias = Union[str, {Position}, Table]
Position: TypeAlias = Union[Encoding, Sequence[Encoding], None]
'''


def class_name(kind):
    return {"none": "NoPosition"}.get(kind, "".join(part.capitalize() for part in kind.split("_")))


class Types:
    def __init__(self, schema, arrays, only_of_layers):
        self.arrays = {**arrays, **ARRAYS}
        self.only_of_layers = only_of_layers
        self.definitions = schema["definitions"]
        self.text = [HEAD]

    def resolve(self, schema):
        for way in (schema, *schema.get("allOf", [])):
            if "$ref" in way:
                return way["$ref"].rsplit("/", 1)[1], self.definitions[way["$ref"].rsplit("/", 1)[1]]
        return None, schema

    def type(self, schema):
        name, found = self.resolve(schema)
        if name in AXES:
            return name
        ways = found.get("anyOf") or found.get("oneOf") or []
        if ways and all("const" in way or "enum" in way for way in ways):
            words = [word for way in ways for word in way.get("enum", [way.get("const")])]
            return "Literal[" + ", ".join(f'"{word}"' for word in words) + "]"
        if ways and all("kind" in way.get("properties", {}) for way in ways):
            return f"str | {name}"
        if ways:
            return " | ".join(dict.fromkeys(self.type(way) for way in ways))
        if isinstance(found["type"], list):
            return " | ".join(self.type({**found, "type": one}) for one in found["type"])
        if found["type"] == "array":
            return f"Sequence[{self.type(found['items'])}]"
        return {"null": "None", "integer": "int", "number": "float", "boolean": "bool", "string": "str"}[found["type"]]

    def write_class(self, name, kinds, doc, fields):
        lines = [f"class {name}(TypedDict, total=False):", f'    """{doc}"""', ""]
        lines.append(f"    kind: Literal[{', '.join(json.dumps(kind) for kind in kinds)}]")
        for field, (kind, about) in fields.items():
            lines += [f"    # {about}", f"    {field}: {kind}"]
        self.text.append("\n".join(lines) + "\n")

    def fields(self, kind, way):
        arrays = dict(self.arrays.get(kind, []))
        order = way.get("x-order") or sorted(way["properties"])
        found = {}
        for field in order:
            schema = way["properties"][field]
            if field == "kind" or f"{kind}.{field}" in self.only_of_layers or field in arrays:
                continue
            found[field] = (self.type(schema), plain(schema.get("description", "")))
        found.update({field: ("Array", f"{about}.") for field, about in arrays.items()})
        return found

    def write(self):
        names = {}
        for axis in AXES:
            ways = [way for way in self.definitions[axis]["anyOf"] if "properties" in way]
            ways = [way for way in ways if way["title"] not in self.only_of_layers]
            names[axis] = ", ".join(class_name(way["title"]) for way in ways)
            for way in ways:
                kind = way["title"]
                self.write_class(class_name(kind), [kind], plain(way["description"]), self.fields(kind, way))
        ways = self.definitions["Scaling"]["oneOf"]
        fields = {}
        for way in ways:
            fields.update(self.fields("scaling", way))
        kinds = [way["properties"]["kind"]["const"] for way in ways]
        self.write_class("Scaling", kinds, plain(self.definitions["Scaling"]["description"]), fields)
        self.text += [TABLE, TAIL.format(**names)]
        return "\n\n".join(self.text)


def plain(doc):
    return " ".join(doc.replace("[`", "`").replace("`]", "`").split())


def written(schema, arrays, only_of_layers):
    return Types(json.loads(schema), arrays, only_of_layers).write()
