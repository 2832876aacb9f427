"""Renders the page of a profile: one HTML file with figures that needs no network."""

from __future__ import annotations

from pathlib import Path

from .....pipeline.page import html
from .....pipeline.page.formats import percent
from ...verdict.gate import Gate
from ...verdict.result import Profile
from ...verdict.verdict import VerdictKind
from ..headline import followed
from ..no_advice import beside_advice, no_advice_reason
from . import sentences
from .cost import stages, trials
from .ranks_and_sweep import ranks, sweep
from .step import curve, distributions, waterfall
from .timeline import depth, timeline, without_precomputing

_SECTIONS = (sweep, ranks, waterfall, curve, distributions, timeline, depth, stages, trials, without_precomputing)
_TONES = {VerdictKind.FED: "good", VerdictKind.STARVED: "bad", VerdictKind.MARGINAL: "fair"}


def write_page(profile: Profile, gate: Gate, page: Path) -> int:
    """Writes one self-contained HTML file, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
    """
    banner = sentences.banner(profile)
    return html.write_page(
        page, "page.html.jinja", __package__, command="profile", title=banner.word, filters={"percent": percent},
        profile=profile,
        verdict=profile.verdict,
        tone=_TONES.get(profile.verdict.kind, ""),
        gate_is_given=gate != Gate(),
        is_judged=profile.verdict.kind is not VerdictKind.INCONCLUSIVE,
        failures=gate.failures(profile.verdict),
        banner=banner,
        advice=sorted(profile.advice, key=lambda advice: advice.failed),
        no_advice_reason=no_advice_reason(profile, gate),
        beside_advice=beside_advice(profile),
        followed=followed(profile),
        verify_notes=profile.verify_notes,
        sustained=sentences.sustained(profile),
        transport_note=sentences.transport_note(profile),
        estimators=sentences.estimators(profile),
        facts=sentences.facts(profile),
        surroundings=sentences.surroundings(profile),
        sections=[section for make in _SECTIONS if (section := make(profile)) is not None],
    )  # fmt: skip
