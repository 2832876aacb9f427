"""The timeline of a slot as one page that opens anywhere, for `bench_slot.py`; it looks as a profile's page does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bokeh.models import ColumnDataSource, PanTool, WheelZoomTool
from bokeh.plotting import figure
from facefeed.pipeline.page import figures, html
from facefeed.pipeline.page.formats import percent
from facefeed.pipeline.page.html import Section, Table
from slot_spans import DOWNSTREAM, STAGES, UPSTREAM, WORK, Span

_EMPTY, _FULL = "#f0b8b3", "#dfe1e6"
COLOURS = {
    "decode": "#e69f00", "read": "#56b4e9", "detect": "#1f5fa8", "follow": "#8fb3d9", "crop and hull": "#009e73",
    "encode": "#cc79a7", "rows": "#f0e442", "file": "#8d929b",
    **{what: _EMPTY for what in (*UPSTREAM.values(), "waits for its turn") if what is not None},
    **{what: _FULL for what in DOWNSTREAM.values() if what is not None},
}  # fmt: skip
LEGEND = {
    **{what: COLOURS[what] for stage in STAGES for what in WORK[stage]},
    "waits for what comes, or its turn": _EMPTY, "waits for whoever takes it": _FULL,
}  # fmt: skip
_MEANINGS = {
    "decode": "the decoder's child: how much of a core it computes", "read": "frames from the child's pipe",
    "find": "faces, whose they are, and the original's same frame", "cut": "crop, hull, JPEG, rows, file",
}  # fmt: skip
_SHOWN_SECONDS, _KEPT_SECONDS, _LEAST_SECONDS = 2.0, 20.0, 2e-4


@dataclass(frozen=True, kw_only=True)
class Run:
    """One unit that was made. began, ended: on the clock of the spans, in seconds."""

    began: float
    ended: float
    frames: int
    faces: int
    decoders: int
    spans: list[Span]
    figures: dict[str, Any]


def write_page(path: Path, runs: dict[str, Run], about: dict[str, Any]) -> None:
    """Writes the first run's figures and the timelines of all."""
    name, run = next(iter(runs.items()))
    stages = run.figures["stages"]
    others = [
        f"{other} {other_run.figures['frames_per_second']:,.1f}" for other, other_run in runs.items() if other != name
    ]
    headline = f"{run.figures['frames_per_second']:,.1f} frames a second; the detector is at work " \
               f"{percent(run.figures['detector_share'])} of the time"  # fmt: skip
    waits = ("waits for what comes", "waits for whoever takes it")
    sections = [
        Section(
            key="stages", title="What each stage is at",
            read="Shares of the whole run. The stage that is nearly always at work sets the pace; the others wait for "
                 "it.",
            table=Table(("stage", "at work", "idle", *waits, "of which", "what it is"),
                        [_row(stage, stages[stage]) for stage in STAGES]),
        ),
        Section(
            key="timeline", title="Two seconds of it", legend=LEGEND, has_captions=True,
            read="A row for each stage, time from left to right; the wheel zooms, dragging moves. The decoder's row is "
                 "as strong as its child computes.",
            plots={f"timeline, {other}": _timeline(other_run) for other, other_run in runs.items()},
        ),
        Section(
            key="facts", title="What was measured", read="",
            facts={"frames": f"{run.frames:,}", "faces": f"{run.faces:,}", "seconds": f"{run.ended - run.began:,.2f}",
                   "the slot computed": f"{run.figures['slot_cpu_seconds']:,.2f} s",
                   "its decoders computed": f"{run.figures['children_cpu_seconds']:,.2f} s",
                   **{key.replace("_", " "): str(value) for key, value in about.items()}},
        ),
    ]  # fmt: skip
    meaning = f"Stages {name}. Beside it, {', '.join(others)}." if others else f"Stages {name}."
    html.write_page(path, "sections.html.jinja", html.__package__, command="precompute", title=headline,
                    word="ONE SLOT", meaning=meaning, sections=sections)  # fmt: skip


def _row(stage: str, of: dict[str, Any]) -> tuple[str, ...]:
    waits = ("cannot be seen" if stage == "decode" and share is None else "-" if share is None else percent(share)
             for share in (of["waits_upstream_share"], of["waits_downstream_share"]))  # fmt: skip
    parts = f"waits for its turn {percent(of['waits_turn_share'])}, " if "waits_turn_share" in of else ""
    parts += ", ".join(f"{what} {seconds:,.2f} s" for what, seconds in of["seconds_of"].items())
    return stage, percent(of["share"]), percent(max(of["idle_share"], 0.0)), *waits, parts, _MEANINGS[stage]


def _timeline(run: Run) -> figure:
    """A row for each stage of each lane; two seconds of the middle are in view, more a turn of the wheel away."""
    middle = (run.began + run.ended) / 2
    start = max(run.began, middle - _KEPT_SECONDS / 2)
    end = min(run.ended, start + _KEPT_SECONDS)
    spans = [
        span for span in run.spans if span.end > start and span.start < end and span.end - span.start > _LEAST_SECONDS
    ]
    spans.sort(key=lambda span: (span.start, -span.end))  # what lies within another is drawn over it
    several = run.decoders > 1
    names = [f"{stage} {lane + 1}" if several else stage for lane in range(run.decoders) for stage in STAGES]
    plot = figures.rows_plot(names, "seconds", _view(start, end, middle, run.began))
    place = {stage: number for number, stage in enumerate(STAGES)}
    rows = [span.lane * len(STAGES) + place[span.stage] for span in spans]
    source = ColumnDataSource({
        "left": [span.start - run.began for span in spans], "right": [span.end - run.began for span in spans],
        "top": [row - 0.38 for row in rows], "bottom": [row + 0.38 for row in rows],
        "color": [COLOURS[span.what] for span in spans], "what": [span.what for span in spans],
        "alpha": [min(span.share, 1.0) for span in spans], "takes": [(span.end - span.start) * 1e3 for span in spans],
    })  # fmt: skip
    drawn = plot.quad(left="left", right="right", top="top", bottom="bottom", color="color", alpha="alpha",
                      line_color=None, source=source)  # fmt: skip
    figures.hover(plot, [drawn], ("", "@what"), ("took", "@takes{0,0.0} ms"))
    wheel = WheelZoomTool(dimensions="width")
    plot.add_tools(wheel, PanTool(dimensions="width"))
    plot.toolbar.active_scroll = wheel
    return plot


def _view(start: float, end: float, middle: float, began: float) -> tuple[float, float]:
    first = max(start, min(middle - _SHOWN_SECONDS / 2, end - _SHOWN_SECONDS))
    return first - began, min(first + _SHOWN_SECONDS, end) - began
