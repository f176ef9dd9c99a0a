"""Arrays as frameworks hand them over, made plain floats or refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradprop import _checks
from gradprop.orbit import Array


def plain_array(name: str, value: Any) -> Array:
    """Make a stored array or tensor float32 or float64, exactly; what it must not be is named.

    float32 stays so until the cell is built, for its matrices are what a large file consists of.
    """
    if hasattr(value, "detach"):
        value = host_tensor(name, value)
    array = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    if array.dtype.hasobject:
        raise ValueError(
            f"`{name}` must be a plain array of numbers; got Python objects, which this package "
            "never unpickles. Re-save each array by itself: np.savez(path, name=array, ...)."
        )
    if array.dtype.kind in "iub" and array.dtype.itemsize < 8:
        raise TypeError(
            f"`{name}` must hold floats; got {array.dtype}: a quantised array. Store it "
            "dequantised, scale * (q - zero_point), as float32."
        )
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    return _checks.real_array(name, array, keep_float32=True)


def host_tensor(name: str, tensor: Any) -> Any:
    """A tensor in main memory, wide enough for NumPy to know its dtype."""
    if getattr(tensor, "is_quantized", False):
        raise TypeError(
            f"`{name}` must hold floats; got a quantised tensor: call .dequantize() on it first."
        )
    if getattr(tensor, "is_sparse", False):
        raise TypeError(f"`{name}` must be dense; got a sparse tensor: call .to_dense() on it.")
    tensor = tensor.detach().cpu()
    return (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()


def plain_setting(value: Any) -> Any:
    """A setting as Python value: files hold them as arrays of no or one axis."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
