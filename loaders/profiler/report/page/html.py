"""Renders the page of a profile: one HTML file with figures that needs no network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import jinja2
from bokeh.plotting import figure
from markupsafe import Markup

from .....pipeline.files import write_atomically
from ...verdict.gate import Gate
from ...verdict.no_advice import no_advice_reason
from ...verdict.result import Profile
from . import plots, sentences
from .cost import stages, trials
from .ranks_and_sweep import ranks, sweep
from .step import curve, distributions, waterfall
from .timeline import depth, timeline, without_precomputing

_SECTIONS = (sweep, ranks, waterfall, curve, distributions, timeline, depth, stages, trials, without_precomputing)


def write_page(profile: Profile, gate: Gate, page: Path) -> int:
    """Writes one self-contained HTML file, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
    """
    source = files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    sections = [section for make in _SECTIONS if (section := make(profile)) is not None]
    text = environment.from_string(source).render(
        profile=profile,
        verdict=profile.verdict,
        gate=gate,
        failures=gate.failures(profile.verdict),
        banner=sentences.banner(profile),
        changes=sentences.changes(profile),
        no_advice_reason=no_advice_reason(profile),
        sustained=sentences.sustained(profile),
        handing=sentences.handing(profile),
        estimators=sentences.estimators(profile),
        facts=sentences.facts(profile),
        surroundings=sentences.surroundings(profile),
        sections=sections,
        item=_item,
        script=Markup(plots.script()),  # noqa: S704 (Bokeh's own)
    )
    return write_atomically(text, page, "--page")


def _item(fig: figure) -> Markup:
    """A figure as JSON for a script element, which `in_html` has escaped."""
    return Markup(plots.in_html(fig))  # noqa: S704
