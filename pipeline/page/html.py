"""Renders a page over the base page: one HTML file with its styles, pictures and figures inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from ..files import write_atomically

if TYPE_CHECKING:
    from bokeh.plotting import figure


@dataclass(frozen=True)
class Table:
    """Cells as text; the first cell of each row is its header. chosen: the header of the highlighted row, or None."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    chosen: str | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a page: title, reading instruction, figures, table, facts, notes.

    plots: by their text alternatives, which are shown above them if `has_captions`. legend: colours by name.
    """

    key: str
    title: str
    read: str
    plots: Mapping[str, figure] = field(default_factory=dict)
    has_captions: bool = False
    legend: Mapping[str, str] = field(default_factory=dict)
    table: Table | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def write_page(
    page: Path,
    template: str,
    package: str,
    *,
    command: str,
    title: str,
    has_figures: bool = True,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **content: Any,
) -> int:
    """Renders a template that extends `base.html.jinja`, and writes one self-contained HTML file atomically.

    Args:
        page: the file.
        template: its name within `package`; it can use the macros of `macros.html.jinja`.
        package: whose folder holds the template and what it includes.
        command: what made the page, behind its title and as its generator.
        title: the page's.
        has_figures: whether Bokeh's script is embedded, which draws the figures.
        filters: functions that the template uses as filters, by name.
        content: the template's variables; text is escaped.

    Returns:
        The file's size in bytes.

    Raises:
        UsageError: The file cannot be written.

    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name, "") for name in (package, __package__)]),
    )  # fmt: skip
    environment.filters |= {"coordinate": _coordinate, "svg_points": _svg_points, **(filters or {})}
    if has_figures:
        from . import figures  # noqa: PLC0415 (Bokeh's import takes a while)

        environment.globals |= {"figure_json": figures.as_json, "figure_script": figures.script}
    text = environment.get_template(template).render(command=command, title=title, has_figures=has_figures, **content)
    return write_atomically(text, page, "--page")


def _coordinate(value: float) -> str:
    """An SVG coordinate with at most one decimal.

    >>> _coordinate(2.0), _coordinate(2.345)
    ('2', '2.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def _svg_points(points: Iterable[tuple[float, float]]) -> str:
    """Points (n, 2) as the points of an SVG polygon.

    >>> _svg_points([(0.0, 1.5), (2.0, 3.25)])
    '0,1.5 2,3.2'
    """
    return " ".join(f"{_coordinate(x)},{_coordinate(y)}" for x, y in points)
