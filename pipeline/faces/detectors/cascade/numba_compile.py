"""`numba_compile`: Numba's decorator with the options of every function that is compiled here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

Function = Callable[..., Any]


def numba_compile(*signature: str) -> Callable[[Function], Function]:
    """Compile a function to run without the GIL, and divisions by zero as NumPy does; it is kept on disk."""

    def compile_(function: Function) -> Function:
        options = {"nogil": True, "error_model": "numpy"}
        try:
            return njit(*signature, cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # no writable cache folder: compiled in every process, which takes a second
            return njit(*signature, **options)(function)  # type: ignore[no-any-return]

    return compile_
