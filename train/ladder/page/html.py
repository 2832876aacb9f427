"""The page of a ladder: one HTML file that opens anywhere, without a network and without a script."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import jinja2

from ....pipeline.files import write_atomically
from .. import formatting
from ..report import Report
from .bars import figures


def write_page(report: Report, page: Path) -> int:
    """Writes one HTML file that needs nothing else, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
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
        not_run=[row for row in report.ladder.rows if row.reason], left_out=report.ladder.together.left_out,
        fastest=fastest, chosen=None if fastest is None else formatting.name_of(fastest),
        next_step=formatting.next_step(report.ladder, report.subject),
        facts=formatting.facts(report.subject, report.machine),
        setting=formatting.setting(report.steps, report.repeats, report.seconds, report.parameters),
    )  # fmt: skip
    return write_atomically(text, page, "--page")
