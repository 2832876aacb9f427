"""Stores a forecast in the user's cache until its run; a dry run writes nothing to OUT."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from .forecast import Forecast


def forecast_file(out: Path) -> Path:
    """The file in ``$XDG_CACHE_HOME/facefeed``, else ``~/.cache/facefeed``, that belongs to this OUT."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = hashlib.sha256(str(out).encode()).hexdigest()[:16]
    return Path(os.path.expanduser(cache)) / "facefeed" / "forecasts" / f"{name}.json"  # noqa: PTH111 (may be no home)


def save_forecast(forecast: Forecast, out: Path) -> None:
    """Saves a forecast; ignores errors, since the run only compares itself with it."""
    file = forecast_file(out)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(forecast.to_json(), indent=1), encoding="utf-8")


def load_forecast(out: Path) -> Forecast | None:
    """Loads the forecast of an earlier dry run; None where there is none that can be read."""
    try:
        return Forecast.from_json(json.loads(forecast_file(out).read_bytes()))
    except (KeyError, OSError, TypeError, ValueError):
        return None
