"""Base class of callbacks that change a setting of the process during a fit, and restore it afterwards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback


class ProcessSetting(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Changes a setting before weights are moved and loaders created, and restores it when the fit ends."""

    _restore_setting: Callable[[], None] | None = None

    @abstractmethod
    def change(self) -> Callable[[], None]:
        """Changes the setting and returns a function that restores it."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Changes the setting."""
        self._restore_setting = self.change()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Restores the setting: after an error Lightning does not call `teardown`."""
        self._restore()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Restores the setting."""
        self._restore()

    def _restore(self) -> None:
        if self._restore_setting is not None:
            self._restore_setting()
        self._restore_setting = None
