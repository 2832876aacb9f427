"""Fixtures of the tests of training: pictures that runs draw, in the tests that look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

_OF_MANY_RUNS = {"test_cli", "test_evaluate", "test_resume", "test_runner", "test_warm_start"}


@pytest.fixture(scope="module", autouse=True)
def draw(request: pytest.FixtureRequest) -> Iterator[Callable[..., None] | None]:
    """Modules of many runs draw no pictures, which take half of the time of a run of a few steps.

    What draws them, for a run whose pictures a test looks at; None elsewhere.
    """
    if request.path.stem not in _OF_MANY_RUNS:
        yield None
        return
    from facefeed.train.metrics import plots  # noqa: PLC0415 (Lightning, only where it is needed)

    log_plots: Callable[..., Any] = plots.log_plots
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "log_plots", lambda *_: None)
        yield log_plots
