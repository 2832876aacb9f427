"""What a reader of a page notices of names and messages that somebody else wrote: text, which never becomes markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from assets_dataset import Clip, make_dataset
from assets_random import examples
from facefeed.pipeline.inspect.inspection import Inspection, inspect_dataset
from facefeed.pipeline.inspect.page import write_page as write_inspection
from facefeed.pipeline.page import html
from facefeed.pipeline.page.figures import Bar, bar_chart
from facefeed.pipeline.page.html import Section, Table
from facefeed.pipeline.planning.failure_limit import Failure
from hypothesis import example, given
from hypothesis import strategies as st

FRAGMENTS = (
    "<", ">", "&", '"', "'", "`", "=", "/", "\\", " ", "\n", "a", "</script>", "<script>", "<script", "<!--", "-->",
    "]]>",
    "<![CDATA[", "</style>", "</title>", "</textarea>", "<svg/onload=alert(1)>", '" onload="alert(1)', "' onload='x",
    "&#60;",
    "&lt;", "{{7*7}}", "{% raw %}", "{#", "${x}", "$$x$$", "\\u003c", "javascript:", "\u2028", "\0", "\x0c", "\x1b",
    "\ud800",
    "\udcff", "\ufeff", "\u202e", "é",
)  # fmt: skip
names = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)


class Structure(HTMLParser):
    """Tags in their order with the names of their attributes, and what is in scripts that are code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.code: list[str] = []
        self._is_code = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._is_code = tag == "style" or (tag == "script" and ("type", "application/json") not in attrs)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))
        self._is_code = False

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", ()))

    def handle_data(self, data: str) -> None:
        if self._is_code:
            self.code.append(data)


Found = tuple[list[tuple[str, tuple[str, ...]]], list[str]]


def structure(path: Path) -> Found:
    found = Structure(path.read_text(encoding="utf-8"))
    return found.tags, found.code


def write_sections(path: Path, name: str) -> Path:
    section = Section(
        key="one", title=name, read=name, legend={name: "#123456"}, facts={name: name}, notes=[name],
        table=Table((name, "b"), [(name, name), ("y", name)], chosen="y"),
        plots={name: bar_chart([Bar(name=name, value=1.0, text=name, note=name)], name)}, has_captions=True,
    )  # fmt: skip
    html.write_page(
        path,
        "sections.html.jinja",
        html.__package__,
        command=name,
        title=name,
        word=name,
        meaning=name,
        sections=[section],
    )
    return path


@pytest.fixture(scope="module")
def harmless(inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """Structures of both pages where all is called `word`."""
    path = tmp_path_factory.mktemp("harmless") / "page.html"
    return {
        "sections": structure(write_sections(path, "word")),
        "failures": structure(write_failures(inspection, path, "word")),
    }


@examples(16, in_test=6, same_fixtures=True)
@given(name=names)
@example(name="\udcff")  # of a folder whose name is not UTF-8
def test_a_name_changes_no_tag_no_attribute_and_no_code_of_a_page(
    harmless: dict[str, Found], tmp_path: Path, name: str
) -> None:
    assert structure(write_sections(tmp_path / "page.html", name)) == harmless["sections"]


@pytest.fixture(scope="module")
def inspection(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    out = tmp_path_factory.mktemp("page") / "out"
    make_dataset(out, (("train", (Clip("real/anna.mp4", 4), Clip("real/cut.mp4", 4, "truncated"))),))
    return inspect_dataset(out)


def write_failures(inspection: Inspection, path: Path, name: str) -> Path:
    """The page of an inspection whose failures, reasons and settings are called `name`."""
    outcomes = inspection.outcomes
    manifest = replace(outcomes.manifest, fingerprint=name, config={**outcomes.manifest.config, name: [name, {}]})
    assert outcomes.failures
    failures = [Failure(name, name, name) for _ in outcomes.failures]
    write_inspection(replace(inspection, outcomes=replace(outcomes, manifest=manifest, failures=failures)), path)
    return path


@examples(6, in_test=2, same_fixtures=True)
@given(name=names)
@example(name="</script><script>alert(1)</script>")
def test_the_name_of_a_failure_is_data_whatever_it_is(
    inspection: Inspection, harmless: dict[str, Found], tmp_path: Path, name: str
) -> None:
    assert structure(write_failures(inspection, tmp_path / "page.html", name)) == harmless["failures"]
