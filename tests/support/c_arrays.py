"""Arrays for C code."""

import ctypes
from collections.abc import Sequence

import numpy as np


def pointers(arrays: Sequence[np.ndarray]) -> "ctypes.Array[ctypes.c_void_p]":
    """Return a C array of pointers to the arrays' data, in order."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
