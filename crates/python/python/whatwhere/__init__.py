"""Fused attention on the CPU for any score, pattern and position: NumPy here, PyTorch with gradients in
`whatwhere.torch`.

>>> import numpy as np, whatwhere
>>> q = np.ones((1, 2, 8, 4), dtype=np.float32)
>>> whatwhere.attention(q, q, q, position=["rotary", "alibi"]).shape
(1, 2, 8, 4)
"""

from . import settings
from ._models import Model, load
from ._native import alibi_slopes, instruction_set, version
from ._numpy import attention

__all__ = ["Model", "alibi_slopes", "attention", "instruction_set", "load", "settings"]
__version__ = version()
