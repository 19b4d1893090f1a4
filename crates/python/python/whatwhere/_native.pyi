"""The native half; `whatwhere.attention` and `whatwhere.torch` are the interface."""

from collections.abc import Sequence
from typing import TypedDict

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
    def __new__(cls, text: str) -> Call: ...
    def forward(
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        arrays: Sequence[Floats],
        mask: NDArray[np.bool_] | None,
        moment: Moment,
        out: Floats,
        rows: Floats,
    ) -> None: ...
    def backward(
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        arrays: Sequence[Floats],
        mask: NDArray[np.bool_] | None,
        moment: Moment,
        out: Floats,
        rows: Floats,
        d_out: Floats,
    ) -> tuple[list[Floats], list[Floats | None]]: ...
    def weights(
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        arrays: Sequence[Floats],
        mask: NDArray[np.bool_] | None,
        moment: Moment,
        log_sum: Floats,
        chosen: Sequence[int],
    ) -> Floats: ...

def names() -> dict[str, list[str]]: ...
def alibi_slopes(heads: int) -> Floats: ...
def instruction_set() -> str: ...
