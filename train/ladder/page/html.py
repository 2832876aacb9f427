"""The page of a ladder: a self-contained HTML file."""

from __future__ import annotations

from pathlib import Path

from ....pipeline.page import html
from .. import formatting
from ..report import Report
from .sections import sections


def write_page(report: Report, page: Path) -> int:
    """Writes the self-contained HTML file atomically; returns its size in bytes.

    Raises `UsageError` if it cannot be written.
    """
    shown = list(sections(report.ladder))
    return html.write_page(
        page, "page.html.jinja", __package__, command="ladder", title=formatting.headline(report.ladder),
        has_figures=any(section.plots for section in shown), sections=shown, complete=report.complete,
        not_run=[row for row in report.ladder.rows if row.reason],
        next_step=None if report.ladder.fastest is None else formatting.next_step(report.ladder, report.subject),
        context_rows=formatting.context_rows(report.subject, report.machine),
        measurement_text=formatting.measurement_text(
            report.steps, report.repeats, report.seconds, report.parameters, report.ladder.base
        ),
    )  # fmt: skip
