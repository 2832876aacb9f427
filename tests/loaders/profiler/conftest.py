"""Fixtures of the tests of the profiler: time that passes by hand."""

from __future__ import annotations

import pytest
from assets_clock import Clock
from facefeed.loaders.profiler.measure import batch_timing, instrument, measured_loop, step_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    manual_clock = Clock()
    for module in (measured_loop, batch_timing, instrument, step_clock):
        monkeypatch.setattr(module, "clock", manual_clock)
    monkeypatch.setattr(measured_loop, "raw_clock", manual_clock)
    return manual_clock
