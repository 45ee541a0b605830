"""How the loops that run a slot at a time are compiled."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with numba: cached on disk, without the GIL, no thread pool (safe in forked and spawned workers).

    Division by zero gives inf instead of raising, which is what lets the compiler vectorise loops that divide.
    `unwrap` reaches past the shape checks that the test run puts around every function.
    """
    return njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(inspect.unwrap(function))
