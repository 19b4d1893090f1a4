"""The native half; `whatwhere.attention` and `whatwhere.torch` are the interface."""

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

class Moment(TypedDict):
    first_query: int
    first_key: int
    key_lengths: list[int] | None
    documents: list[list[int]] | None
    dropout: tuple[float, int] | None
    bias: int | None
    bias_learned: bool

class Call:
    """Settings that have been read. `inputs` are q, k, v, the arrays, the mask or None, and the moment."""

    def __new__(cls, text: str) -> Call: ...
    def forward(self, *inputs_out_rows: Any) -> None: ...
    def backward(self, *inputs_out_rows_d_out: Any) -> tuple[list[Floats], list[Floats | None]]: ...
    def weights(self, *inputs_rows_chosen: Any) -> Floats: ...

def names() -> dict[str, list[str]]: ...
def alibi_slopes(heads: int) -> Floats: ...
def instruction_set() -> str: ...
