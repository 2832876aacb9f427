"""Training on what `facefeed.loaders` feeds: `from facefeed.train import StarvationMonitor`.

| module | what it holds |
|---|---|
| callbacks | `StarvationMonitor`: how long a Trainer's steps wait for data, said while it trains |
| waits | what it sees on one rank |

Importing this package is light: Lightning comes with the first name that needs it. README.md beside this file is the
guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callbacks import StarvationMonitor

_WHERE = {"StarvationMonitor": "callbacks"}

__all__ = ["StarvationMonitor"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
