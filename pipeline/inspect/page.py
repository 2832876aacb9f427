"""The page: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup
from rich import filesize

from ..console import plural
from ..dataset.schema import SPLITS
from ..errors import StoppedError, UsageError
from ..files import write_durably
from ..planning.failure_limit import Failure
from . import formatting
from .figures.histograms import CURVES, HEIGHT, WIDTH
from .findings import Finding
from .statistics.columns import MEASURES, Measure
from .statistics.groups import SMALL_PX, UNCHANGED_BELOW
from .statistics.quantiles import Spread
from .statistics.videos import telling
from .survey import Content

_UNKNOWN: Final = "\u2013"
MOST_FAILURES: Final = 20_000
"""Failures that a page names; the others are counted by their reason."""


def write_page(content: Content, page: Path) -> int:
    """Writes one HTML file that needs nothing else, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: _part(f"{name}.jinja")),
    )  # fmt: skip
    environment.filters.update(
        percent=formatting.percent, short=formatting.short, size=filesize.decimal, plural=plural, spread=_spread,
        number=_number, short_name=_short_name, points=_points,
    )  # fmt: skip
    census = content.census
    text = environment.get_template("page.html").render(
        content=content, account=content.account, manifest=content.account.manifest, census=census,
        sheets=content.sheets, headline=headline(content.findings), measures=MEASURES, settings=_settings(content),
        failures=_for_script(content.account.failures), most_failures=MOST_FAILURES,
        unnamed=content.account.failed - len(content.account.failures),
        texts=telling(census.groups), splits=SPLITS,
        classes_drawn=list(dict.fromkeys(curve.label for one in content.histograms for curve in one.curves)),
        small_px=SMALL_PX, unchanged_below=UNCHANGED_BELOW, most_curves=CURVES, hist_width=WIDTH, hist_height=HEIGHT,
        style=Markup(_part("page.css")), script=Markup(_part("page.js")),  # noqa: S704 (our own files)
    )  # fmt: skip
    return _write(text, page)


def headline(findings: Sequence[Finding]) -> str:
    """Whether the dataset is good, in one line."""
    errors = sum(one.level == "error" for one in findings)
    warnings = sum(one.level == "warning" for one in findings)
    if errors:
        return f"{plural(errors, 'error')} to fix before you train on it"
    return f"No errors; {plural(warnings, 'warning')}" if warnings else "No errors and no warnings"


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _write(text: str, page: Path) -> int:
    data, path = text.encode(), page.resolve()  # of a link, what it points to
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null, a pipe: not to be replaced
            path.write_bytes(data)
        else:
            write_durably(path, text, path.parent)
    except (OSError, StoppedError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--page {page}: cannot be written ({why}); name a file in a folder that is there") from error
    return len(data)


def _for_script(failures: Sequence[Failure]) -> Markup:
    """Failures as JSON that can stand in a script element, whatever names are in it."""
    reasons = list(dict.fromkeys(one.reason for one in failures))
    rows = [(one.video_id, reasons.index(one.reason), one.detail) for one in failures[:MOST_FAILURES]]
    text = json.dumps({"reasons": reasons, "rows": rows}, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 (nothing in it can end the element)


def _settings(content: Content) -> dict[str, str]:
    account, manifest = content.account, content.account.manifest
    inputs = manifest.inputs
    found = {
        "Inputs": f"{inputs['total']:,}: {inputs['ok']:,} ok, {inputs['partial']:,} partial, "
        f"{inputs['no_faces']:,} without faces, {account.failed:,} failed",
        "Units": f"{manifest.units:,}",
        "On disk": filesize.decimal(account.size_bytes),
    }
    return found | dict(_flat(manifest.config)) | {"Fingerprint": manifest.fingerprint}


def _flat(config: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in config.items():
        called = f"{above}{name}".replace("_", " ")
        if isinstance(value, dict):
            found += _flat(value, f"{called}: ")
        else:
            found.append((called, ", ".join(map(_plain, value)) if isinstance(value, list) else _plain(value)))
    return found


def _plain(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(measure: Measure, found: Spread | None) -> str:
    """The middle, and where nine of ten lie."""
    if found is None:
        return _UNKNOWN
    return f"{measure.told(found.median)} ({measure.told(found.p05)} to {measure.told(found.p95)})"


def _number(value: float) -> str:
    """A place in a drawing."""
    return f"{value:.1f}".removesuffix(".0")


def _points(points: Any) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _short_name(video_id: str) -> str:
    """The file's name, its middle left out where it is long."""
    name = video_id.rsplit("/", 1)[-1]
    return name if len(name) <= 20 else f"{name[:10]}\u2026{name[-9:]}"
