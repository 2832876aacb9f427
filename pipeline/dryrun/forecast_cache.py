"""Where a forecast stays until the run it is of: in the user's cache, since a dry run writes nothing of its own."""

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


def keep_forecast(guess: Forecast, out: Path) -> None:
    """Writes it where that can be done; without it the run says nothing of the forecast."""
    file = forecast_file(out)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(guess.to_json(), indent=1), encoding="utf-8")


def read_forecast(out: Path) -> Forecast | None:
    """What an earlier dry run has left; None where it left nothing, or nothing that can be read: no run needs it."""
    try:
        return Forecast.from_json(json.loads(forecast_file(out).read_bytes()))
    except (KeyError, OSError, TypeError, ValueError):
        return None
