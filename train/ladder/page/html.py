"""The page of a ladder: a self-contained HTML file without scripts."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import jinja2

from ....pipeline.files import write_atomically
from .. import formatting
from ..report import Report
from .bars import figures


def write_page(report: Report, page: Path) -> int:
    """Writes the self-contained HTML file atomically; returns its size in bytes.

    Raises `UsageError` if it cannot be written.
    """
    source = files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    fastest = report.ladder.fastest
    text = environment.from_string(source).render(
        report=report, ladder=report.ladder, headline=formatting.headline(report.ladder),
        figures=figures(report.ladder),
        rows=formatting.table(report.ladder),
        not_run=[row for row in report.ladder.rows if row.reason], left_out=report.ladder.combination.left_out,
        fastest=fastest, chosen=None if fastest is None else formatting.rung_label(fastest),
        next_step=formatting.next_step(report.ladder, report.subject),
        context_rows=formatting.context_rows(report.subject, report.machine),
        measurement_text=formatting.measurement_text(report.steps, report.repeats, report.seconds, report.parameters),
    )  # fmt: skip
    return write_atomically(text, page, "--page")
