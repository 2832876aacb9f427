"""Renders an inspection as one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from rich import filesize

from ..console import plural
from ..dataset.schema import SPLITS
from ..page import html
from ..page.formats import percent
from ..planning.failure_limit import Failure
from . import formatting
from .figures.histogram_plot import class_colours, histogram_plot
from .figures.histograms import MAX_CURVES
from .findings.finding import Finding
from .inspection import Inspection
from .statistics.columns import LANDMARK_SCORE, YAW, Measure
from .statistics.groups import MANIPULATED_THRESHOLD, SMALL_FACE_PX
from .statistics.quantiles import Quantiles
from .statistics.videos import varying_columns

_UNKNOWN: Final = "\u2013"
_TONES: Final = {"error": "bad", "warning": "fair", "ok": "good"}
MAX_FAILURES: Final = 20_000
"""The number of failures that a page lists; the others are counted by their reason."""


def write_page(inspection: Inspection, page: Path) -> int:
    """Writes one self-contained HTML file atomically; returns its size in bytes.

    Raises `UsageError` where it cannot be written.
    """
    outcomes, statistics = inspection.outcomes, inspection.statistics
    colours = class_colours(inspection.histograms)
    return html.write_page(
        page, "page.html.jinja", __package__, command="inspect", title=outcomes.name,
        has_figures=bool(inspection.histograms),
        filters={
            "percent": percent, "compact_number": formatting.compact_number, "size": filesize.decimal,
            "plural": plural, "quantiles": _quantiles_text, "short_name": _short_name,
        },
        inspection=inspection, outcomes=outcomes, manifest=outcomes.manifest, statistics=statistics,
        sheets=inspection.sheets, headline=headline(inspection.findings), measures=_known_measures(inspection),
        tones=_TONES, settings=_settings(inspection), failures=_failures_as_script_json(outcomes.failures),
        max_failures=MAX_FAILURES, num_unnamed_failures=outcomes.num_failed - len(outcomes.failures),
        name_columns=varying_columns(statistics.groups), splits=SPLITS, class_colours=colours,
        small_face_px=SMALL_FACE_PX, manipulated_threshold=MANIPULATED_THRESHOLD, max_curves=MAX_CURVES,
        histogram_plot=lambda histogram: histogram_plot(histogram, colours),
    )  # fmt: skip


def headline(findings: Sequence[Finding]) -> str:
    """The number of errors and warnings in one line."""
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if errors:
        return f"{plural(errors, 'error')} to fix before you train on it"
    return f"No errors; {plural(warnings, 'warning')}" if warnings else "No errors and no warnings"


def _failures_as_script_json(failures: Sequence[Failure]) -> Markup:
    """Failures as JSON that is safe inside a script element, whatever names it contains."""
    reasons = list(dict.fromkeys(failure.reason for failure in failures))
    rows = [(failure.video_id, reasons.index(failure.reason), failure.detail) for failure in failures[:MAX_FAILURES]]
    text = json.dumps({"reasons": reasons, "rows": rows}, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (no character in it can end the element)


def _settings(inspection: Inspection) -> dict[str, str]:
    outcomes = inspection.outcomes
    manifest, inputs = outcomes.manifest, outcomes.input_counts
    settings = {
        "Inputs": f"{inputs['total']:,}: {inputs['ok']:,} ok, {inputs['partial']:,} partial, "
        f"{inputs['no_faces']:,} without faces, {outcomes.num_failed:,} failed",
        "Units": f"{manifest.units:,}",
        "On disk": filesize.decimal(outcomes.size_bytes),
    }
    if inspection.whole_frames:
        faces = plural(inspection.whole_frames, "face")
        settings["Cropped already"] = f"{faces}, each a whole frame, without detector and margin"
    config = dict(_flatten({**manifest.config, "faces": manifest.config.get("faces") or "all"}))
    return settings | config | {"Fingerprint": manifest.fingerprint}


def _flatten(config: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings of a nested config as pairs of name and text."""
    settings = []
    for name, value in config.items():
        path = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, dict):
            settings += _flatten(value, f"{path}: ")
        else:
            text = ", ".join(map(_setting_text, value)) if isinstance(value, list) else _setting_text(value)
            settings.append((path, text))
    return settings


def _setting_text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _quantiles_text(measure: Measure, quantiles: Quantiles | None) -> str:
    """The median, and the 5th and 95th percentile in brackets."""
    if quantiles is None:
        return _UNKNOWN
    low, median, high = map(measure.format_value, (quantiles.p05, quantiles.median, quantiles.p95))
    return f"{median} ({low} to {high})"


def _short_name(video_id: str) -> str:
    """The file's name, with the middle elided where it is long."""
    name = video_id.rsplit("/", 1)[-1]
    return name if len(name) <= 20 else f"{name[:10]}\u2026{name[-9:]}"


def _known_measures(inspection: Inspection) -> list[Measure]:
    """The measures with values; those of masks also without, since nobody is to look for them in vain."""
    known = inspection.statistics.total.measures
    return [measure for measure in inspection.measures if known[measure.key] or measure not in (LANDMARK_SCORE, YAW)]
