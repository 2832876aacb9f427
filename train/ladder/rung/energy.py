"""`EnergyMeter`: the energy that a CUDA device takes, in joules, from NVIDIA's management library (NVML)."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

_SAMPLE_SECONDS = 0.05
_LIBRARY = "nvidia-ml-py"


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of devices in a window. joules: None where it is not known, with the `reason`."""

    joules: float | None = None
    reason: str | None = None


class EnergyMeter:
    """Energy of the board of one CUDA device, memory and fans included, from `start` to `stop`.

    Reads the counter of the driver; where the device has none (before Volta), integrates its power, sampled 20 times a
    second. uuid: of the device as CUDA has it, without a prefix, so that `CUDA_VISIBLE_DEVICES` holds here too; None
    where there is no CUDA device. Never raises: what cannot be measured is an `Energy` with the reason.
    """

    def __init__(self, uuid: str | None) -> None:
        self._source: _Source | None = None
        self._reason: str | None = None
        try:
            self._source = _open(uuid)
        except _UnknownError as error:
            self._reason = str(error)

    def start(self) -> None:
        """Begins the window."""
        if self._source is not None:
            self._guard(self._source.start)

    def stop(self) -> Energy:
        """Ends the window and returns its energy."""
        joules = None if self._source is None else self._guard(self._source.stop)
        return Energy(joules=joules, reason=self._reason)

    def _guard(self, call: Callable[[], float | None]) -> float | None:
        import pynvml  # noqa: PLC0415 (optional; there, since a source is)

        try:
            return call()
        except _UnknownError as error:
            self._reason = str(error)
        except pynvml.NVMLError as error:
            self._reason = f"NVML: {error}"
        self._source = None
        return None


class _UnknownError(Exception):
    """Why energy cannot be measured."""


class _Source(Protocol):
    def start(self) -> None: ...

    def stop(self) -> float:
        """Returns the joules since `start`."""
        ...


class Counter:
    """Energy by a counter. read: its millijoules."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read, self._before = read, 0

    def start(self) -> None:
        """Reads the counter."""
        self._before = self._read()

    def stop(self) -> float:
        """Returns the joules since `start`.

        Raises where the counter began anew, as a reset device's does, and where it has not been updated since: a board
        always takes energy.
        """
        millijoules = self._read() - self._before
        if millijoules < 0:
            raise _UnknownError("the counter began anew while it was measured")
        if millijoules == 0:
            raise _UnknownError("the steps were over before the driver updated the counter; take more --steps")
        return millijoules / 1000


class PowerIntegral:
    """Energy by the trapezoid rule over samples of power, which a thread takes. read: power in milliwatts."""

    def __init__(self, read: Callable[[], int], clock: Callable[[], float] = time.perf_counter) -> None:
        self._read, self._clock = read, clock
        self._joules, self._last = 0.0, (0.0, 0.0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample_repeatedly, name="power samples", daemon=True)
        self._error: Exception | None = None

    def start(self) -> None:
        """Takes the first sample, and starts the thread."""
        self._last = self._clock(), self._read() / 1000
        self._thread.start()

    def stop(self) -> float:
        """Ends the thread, takes the last sample and returns the joules. Raises what a sample has raised."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        self.sample()
        return self._joules

    def sample(self) -> None:
        """Takes a sample."""
        seconds, watts = self._clock(), self._read() / 1000
        self._joules += (seconds - self._last[0]) * (watts + self._last[1]) / 2
        self._last = seconds, watts

    def _sample_repeatedly(self) -> None:
        while not self._stopped.wait(_SAMPLE_SECONDS):
            try:
                self.sample()
            except Exception as error:  # raised by stop
                self._error = error
                return


def _open(uuid: str | None) -> _Source:
    """Returns the best source that the device has; raises `_UnknownError` if there is none."""
    if uuid is None:
        raise _UnknownError("trained on no NVIDIA GPU")
    try:
        import pynvml  # noqa: PLC0415 (optional)
    except ImportError:
        raise _UnknownError(f"{_LIBRARY} is not installed; run `pip install {_LIBRARY}`") from None
    try:
        pynvml.nvmlInit()
        device = _device(pynvml, uuid)
        for call, source in (
            (pynvml.nvmlDeviceGetTotalEnergyConsumption, Counter), (pynvml.nvmlDeviceGetPowerUsage, PowerIntegral)
        ):  # fmt: skip
            if _is_supported(pynvml, call, device):
                return source(lambda call=call: call(device))  # type: ignore[misc]
    except pynvml.NVMLError as error:
        raise _UnknownError(f"NVML: {error}") from None
    except (AttributeError, ctypes.ArgumentError) as error:  # of an older library that is imported by the same name
        raise _UnknownError(f"pynvml lacks what is needed ({error}); run `pip install {_LIBRARY}`") from None
    raise _UnknownError("the GPU reports neither energy nor power")


def _device(pynvml: Any, uuid: str) -> Any:
    """Returns NVML's handle of a whole GPU."""
    is_part = False
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        is_part = pynvml.nvmlDeviceGetMigMode(device)[0] == 1
    except pynvml.NVMLError_NotSupported:
        pass  # no MIG here
    except pynvml.NVMLError_NotFound:
        pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        is_part = True
    if is_part:
        raise _UnknownError("trained on a part of a GPU (MIG), and only the energy of all its parts is counted")
    return device


def _is_supported(pynvml: Any, call: Callable[[Any], int], device: Any) -> bool:
    try:
        call(device)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return True
