"""Settings of the whole process that hold during a fit, and no longer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback


class ProcessSetting(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Changes a setting before weights are moved and loaders made; the process gets it back when the fit ends."""

    _undo: Callable[[], None] | None = None

    @abstractmethod
    def change(self) -> Callable[[], None]:
        """Changes it and returns what changes it back."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Changes it."""
        self._undo = self.change()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Changes it back: after an error Lightning does not call `teardown`."""
        self._change_back()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Changes it back."""
        self._change_back()

    def _change_back(self) -> None:
        if self._undo is not None:
            self._undo()
        self._undo = None
