"""What every page has in common: it is whole in itself, shows names as they are, and its figures hold what they say."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

import pytest
from bokeh.models import HBar, Span, Whisker
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.page import figures, html
from facefeed.pipeline.page.figures import Bar, bar_chart
from facefeed.pipeline.page.html import Section, Table

NASTY = "</script><b>\"'&{{7*7}}"


def written(path: Path, *sections: Section, has_figures: bool = True) -> str:
    size_bytes = html.write_page(
        path, "sections.html.jinja", html.__package__, command="test", title=NASTY, has_figures=has_figures,
        word="WORD", meaning="", sections=sections,
    )  # fmt: skip
    assert size_bytes == path.stat().st_size
    return path.read_text(encoding="utf-8")


def test_a_section_shows_its_table_facts_and_notes_as_they_are(tmp_path: Path) -> None:
    section = Section(
        key="one", title=NASTY, read=NASTY, legend={NASTY: "#123456"}, facts={NASTY: NASTY}, notes=[NASTY],
        table=Table((NASTY, "b"), [("x", NASTY), ("y", "2")], chosen="y"),
    )  # fmt: skip
    text = written(tmp_path / "page.html", section, has_figures=False)
    assert NASTY not in text
    assert text.count(escape(NASTY).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")) == 10
    assert text.count('class="chosen"') == 1
    assert "<script" not in text


def test_text_in_a_figure_cannot_leave_its_script_element(tmp_path: Path) -> None:
    chart = bar_chart([Bar(name=NASTY, value=1.0, text=NASTY, note=NASTY)], "ms")
    text = written(tmp_path / "page.html", Section(key="one", title="", read="", plots={"label": chart}))
    [figure_json] = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert NASTY in json.dumps(json.loads(figure_json), ensure_ascii=False).replace('\\"', '"')


def test_a_bar_chart_has_every_bar_its_whisker_and_the_reference_within_its_axis() -> None:
    bars = [Bar(name="a", value=2.0, lower=1.0, upper=9.0, text="two"), Bar(name="b", value=3.0)]
    fig = bar_chart(bars, "GB", reference=12.0)
    [drawn] = [renderer for renderer in fig.renderers if isinstance(renderer.glyph, HBar)]
    assert list(drawn.data_source.data["value"]) == [2.0, 3.0]
    [whisker] = [annotation for annotation in fig.center if isinstance(annotation, Whisker)]
    assert list(whisker.source.data["upper"]) == [9.0]
    assert [annotation.location for annotation in fig.center if isinstance(annotation, Span)] == [12.0]
    assert fig.x_range.end > 12.0
    assert bar_chart(bars[1:], "GB", least_end=50.0).x_range.end > 50.0


@pytest.mark.parametrize(("low", "high", "ticks"), [(0.2, 30.0, [0.2, 0.5, 1, 2, 5, 10, 20]), (3.0, 8.0, [3, 4, 5, 7])])
def test_logarithmic_axes_have_round_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert figures.round_ticks(low, high) == pytest.approx(ticks)


def test_a_page_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--page"):
        written(tmp_path / "no folder" / "page.html")
