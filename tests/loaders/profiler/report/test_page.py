"""What a user sees on the page of a profile: in a browser without a network, whatever was measured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_browser import LAPTOP, PHONE, PROGRAMS, Seen, render_pages
from assets_paths import needs_program
from assets_profiles import (
    STEP,
    beside_naive,
    fed,
    profile_of,
    recording_of,
    starved,
    trial_of,
    uneven,
    unseen,
)
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.report.console import console_report
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.report.no_advice import no_advice_reason
from facefeed.loaders.profiler.report.page.cost import binding
from facefeed.loaders.profiler.report.page.html import write_page
from facefeed.loaders.profiler.report.page.sentences import banner, sustained, transport_note
from facefeed.loaders.profiler.report.page.step import curve
from facefeed.loaders.profiler.verdict.epoch_starts import EpochStarts
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.result import Profile
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.pipeline.errors import UsageError

NASTY = "</script><b>x</b> \"'&"
STRICT = Gate(max_wait_share=0.01, min_headroom=1.5)


def nasty() -> Profile:
    """Starved, its trials called what nobody should call them, advice tried of which some did not help."""
    profile = starved()
    trials = (*profile.trials, trial_of(NASTY, recording_of(uneven(200, 0.02))), trial_of("$$x$$", profile.live))
    first, *others = profile.advice
    tried = (
        replace(first, measured_wait_share=first.current_wait_share),
        *(replace(item, measured_wait_share=item.predicted_wait_share) for item in others),
    )
    return replace(profile, trials=trials, advice=tried, step_name=NASTY)


def as_five_stretches() -> Profile:
    """As a profile of real time has it, and without workers."""
    parts = [recording_of(uneven(100, 0.004, seed=seed), workers=0, began=10.0 * seed) for seed in range(5)]
    return profile_of(Recording.concatenate(parts))


PROFILES = {
    "starved": nasty,
    "fed": fed,
    "inconclusive": lambda: profile_of(recording_of(np.full(60, STEP))),
    "not of torch": lambda: profile_of(unseen(recording_of(uneven(1000, 0.028))), emulated=False),
    "no workers": as_five_stretches,
    "naive": beside_naive,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for name, make in PROFILES.items():
        paths[name] = folder / f"{name}.html"
        size_bytes = write_page(make(), STRICT if name in {"starved", "fed"} else Gate(), paths[name])
        assert size_bytes == paths[name].stat().st_size < 4e6
    return paths


@pytest.fixture(scope="module")
def rendered(pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    program = needs_program(next((name for name in PROGRAMS if shutil.which(name)), PROGRAMS[0]))
    hover = {pages["starved"]: "images a second of each loader"}
    views = render_pages(program, list(pages.values()), tmp_path_factory.mktemp("browser"), hover=hover)
    return {name: views[path] for name, path in pages.items()}


class Page(HTMLParser):
    """The words of a page, each part's by the class of its section, and its tags."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {"": ""}
        self._inside, self._script = "", False
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    @property
    def text(self) -> str:
        return " ".join(self.sections.values())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._script = tag in {"script", "style"}
        if tag == "section":
            self._inside = str(attributes["class"]).split()[-1]
            self.sections[self._inside] = ""

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.sections[self._inside] += " ".join([data.replace("\u00a0", " ")])


def page_text(pages: dict[str, Path], name: str, section: str | None = None) -> str:
    page = Page(pages[name])
    return " ".join((page.text if section is None else page.sections[section]).split())


# ---- in a browser


@pytest.mark.processes
@pytest.mark.parametrize("name", PROFILES)
def test_every_figure_is_drawn_and_nothing_is_asked_of_a_network(name: str, rendered: dict[str, Seen]) -> None:
    view = rendered[name]
    assert len(view.drawn) >= 2
    assert min(view.drawn.values()) > 20, view.drawn
    assert view.complaints == []
    assert [url for url in view.requests if not url.startswith("data:")] == []


@pytest.mark.processes
@pytest.mark.parametrize("name", PROFILES)
def test_no_page_is_wider_than_a_laptop_or_a_phone(name: str, rendered: dict[str, Seen]) -> None:
    for width in (LAPTOP, PHONE):
        assert rendered[name].widths[width] <= width


@pytest.mark.processes
@pytest.mark.parametrize("name", PROFILES)
def test_code_stays_in_a_line_and_paragraphs_off_the_cards(name: str, rendered: dict[str, Seen]) -> None:
    assert rendered[name].split == set()
    assert rendered[name].crowded == set()


@pytest.mark.processes
def test_a_tooltip_says_what_a_bar_is(rendered: dict[str, Seen]) -> None:
    tooltips = " ".join(rendered["starved"].tooltips)
    for name in ("this loader", "evaluation transform", NASTY):
        assert name in tooltips
    assert "images/s" in tooltips


def test_what_was_not_measured_has_no_figure(pages: dict[str, Path]) -> None:
    parts = {name: set(Page(path).sections) - {"", "advice"} for name, path in pages.items()}
    all_have = {"estimators", "waterfall", "curve", "timeline", "environment"}
    assert parts["starved"] == all_have | {"distributions", "depth", "stages", "trials"}
    assert parts["fed"] == all_have | {"distributions", "depth", "stages"}
    assert parts["not of torch"] == all_have
    assert parts["no workers"] == all_have | {"distributions", "stages"}
    assert parts["naive"] == all_have | {"distributions", "depth", "stages", "trials", "naive"}


def test_a_profile_that_became_steady_only_after_a_pause_has_its_page(tmp_path: Path) -> None:
    """As of fewer steps than the queue holds: the run goes on after a pause, in which the queue is no longer filled."""
    live = recording_of(np.full(100, 0.5), workers=16, prefetch=4)
    paused = replace(live, segment_step=np.append(np.arange(50), np.arange(51, 101)))
    write_page(profile_of(paused), Gate(), tmp_path / "page.html")
    assert "37 typical steps" in Page(tmp_path / "page.html").sections["timeline"]


# ---- what it says


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("starved", ["STARVED EMULATED", "A step of 10 ms waits for data 32 % of the time", "No GPU took part",
                     "one core of the host was busy 20 % of the time", "Gate not met: waiting <="]),
        ("fed", ["FED Your step never waited for data", "0 of 3,996 steps waited longer than 1.2 ms", "Gate met",
                 "Nothing needs to change", "This loader sustains steps of 2.9 ms or more",
                 "times as fast as it is before it waits more"]),
        ("inconclusive", ["No verdict: the measurement is not good enough", "too few steps: 56, needs 80",
                          "Measure again while nothing else runs on the machine, at least 3,600 steps"]),
        ("not of torch", ["Your step waits for data 32 % of the time", "nothing can be advised"]),
        ("naive", ["A step of 10 ms never waited for data", "What keeps it from FED: up to 3 % of the time may be",
                   "once more steps show it surely"]),
    ],
)  # fmt: skip
def test_the_head_says_what_is_wrong_and_what_to_do(name: str, sentences: list[str], pages: dict[str, Path]) -> None:
    text = page_text(pages, name)
    for sentence in sentences:
        assert sentence in text
    assert str(PROFILES[name]().verdict).split("  ")[0] in text  # the exact line as well


def test_epochs_that_begin_slowly_are_named_as_what_is_wrong() -> None:
    profile = fed()
    verdict = judge(
        profile.live, emulated=True, num_cores=4, epoch=EpochStarts(num_batches=100, start_wait_seconds=(0.3,))
    )
    head = banner(replace(profile, verdict=verdict, advice=()))
    assert (head.word, head.headline) == ("STARVED", "An epoch of 100 batches waits for data 23\u00a0% of its time")
    assert head.meaning.replace("\u00a0", " ").startswith(
        "0 of 3,996 steps waited longer than 1.2 ms once the queue was filled. With its beginning, an epoch waits at "
        "least 23 % of its time"
    )
    assert no_advice_reason(replace(profile, verdict=verdict)).startswith(
        "The loader keeps up once its queue is filled"
    )


def test_advice_on_the_steady_state_names_epochs_that_begin_with_an_empty_queue(tmp_path: Path) -> None:
    profile = starved()
    verdict = judge(
        profile.live, emulated=True, num_cores=4, epoch=EpochStarts(num_batches=9, start_wait_seconds=(0.5, 0.6))
    )
    short = replace(profile, verdict=verdict)
    assert profile.advice
    note = "But an epoch of 9 batches waits"
    write_page(short, Gate(), tmp_path / "page.html")
    assert note in source_text(tmp_path / "page.html")
    assert note in " ".join(console_report(short, Gate()).split())
    long = replace(profile, verdict=replace(verdict, epoch_wait_share=verdict.wait_share))
    assert note not in " ".join(console_report(long, Gate()).split())


def rarely_late() -> Profile:
    """Batches in time, but for one in 1,000, which takes 16 steps; nothing is advised."""
    load = np.full(4000, STEP)
    load[::1000] = 16 * STEP
    return replace(profile_of(recording_of(load)), advice=())


@pytest.mark.parametrize(
    ("make_profile", "word", "message"),
    [
        (rarely_late, VerdictKind.MARGINAL, "counts as fed once more steps show it surely"),
        (lambda: replace(starved(), advice=()), VerdictKind.STARVED, "No single change"),
        (
            lambda: replace(starved(), advice=(), is_explained=False),
            VerdictKind.STARVED,
            "for advice leave out `--quick`",
        ),
        (PROFILES["not of torch"], VerdictKind.STARVED, "nothing can be advised"),
        (PROFILES["inconclusive"], VerdictKind.INCONCLUSIVE, "Measure again"),
        (PROFILES["naive"], VerdictKind.MARGINAL, "at least 3,600 steps (`--steps 3600`, or `steps=3600`: about 36 s)"),
    ],
)
def test_whoever_is_not_fed_is_advised_or_given_the_reason(
    make_profile: Callable[[], Profile], word: VerdictKind, message: str, tmp_path: Path
) -> None:
    profile = make_profile()
    assert profile.verdict.kind is word
    output = " ".join(console_report(profile, Gate()).split())
    assert f"what would help {no_advice_reason(profile)}" in output
    assert message in no_advice_reason(profile) == report_values(profile, Gate())["instead"]
    write_page(profile, Gate(), tmp_path / "page.html")
    assert no_advice_reason(profile) in source_text(tmp_path / "page.html")


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def source_text(page: Path) -> str:
    """The source of a page, with its code in backticks, as texts have it."""
    return unescape(page.read_text().replace("<code>", "`").replace("</code>", "`"))


def doubtful(**changed: Any) -> Profile:
    """Two workers that need 60 ms for a batch of a step of 10 ms, and then 40 ms: no steady state, and no verdict."""
    loads = np.concatenate([uneven(500, 0.06), uneven(500, 0.04)])
    return replace(profile_of(recording_of(loads)), **changed)


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({}, "workers 2 -> "),
        (
            {"advice": ()},
            "the waits, which are mostly for batches that are still being made ('not ready'): try more workers while",
        ),
        ({"advice": (), "is_explained": False}, "for advice leave out `--quick` (in Python, `quick=True`)"),
    ],
    ids=["advice", "none", "quick"],
)
def test_a_device_that_plainly_waits_is_advised_without_a_verdict_too(
    changed: dict[str, Any], first: str, tmp_path: Path
) -> None:
    profile = doubtful(**changed)
    assert profile.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "no steady state" in str(profile.verdict)
    write_page(profile, Gate(), tmp_path / "page.html")
    reports = console_report(profile, Gate()), source_text(tmp_path / "page.html")
    for report in (" ".join(text.replace("\u2192", "->").split()) for text in reports):
        assert first in report.replace("Workers 2", "workers 2")
        assert "By the clock the device waits 61 % of the time. Measure again while nothing else runs on the" in report
        assert (
            "more steps (`--steps 500`, or `steps=500`, of which up to 4 times as many are run: about 52 s)" in report
        )


def test_the_steps_that_too_few_lack_are_stated_as_the_number_to_measure() -> None:
    profile = doubtful(advice=())
    steady = replace(profile, verdict=replace(profile.verdict, reasons=("too few steps: 996, needs 10080",)))
    assert "at least 10,100 steps (`--steps 10100`, or `steps=10100`: about 4 min)" in no_advice_reason(steady)


def test_more_steps_are_not_advised_where_they_decide_nothing() -> None:
    profile = doubtful(advice=())
    live = replace(profile.live, step_begin_raw_at=1.05 * profile.live.step_begin_raw_at)
    not_accounted_for = replace(profile, live=live, verdict=judge(live, emulated=True, num_cores=4))
    assert "More steps alone would not decide it" in no_advice_reason(not_accounted_for)
    assert "--steps" not in no_advice_reason(not_accounted_for)


def test_epochs_that_are_too_short_to_be_surely_fed_are_named_and_not_the_number_of_steps() -> None:
    profile = fed()
    verdict = judge(
        profile.live,
        emulated=False,
        num_cores=4,
        epoch=EpochStarts(num_batches=1000, start_wait_seconds=(0.2, 0.3, 0.6)),
    )
    assert verdict.kind is VerdictKind.MARGINAL
    assert no_advice_reason(replace(profile, verdict=verdict)).startswith(
        "The loader keeps up once its queue is filled"
    )


def test_of_one_slow_epoch_beginning_among_quick_ones_it_is_not_said_that_epochs_are_too_short() -> None:
    profile = fed()
    verdict = judge(
        profile.live, emulated=False, num_cores=4,
        epoch=EpochStarts(num_batches=1000, start_wait_seconds=(0.0, 0.01, 0.01, 0.01, 0.2)),
    )  # fmt: skip
    profile = replace(profile, verdict=verdict)
    assert verdict.kind is VerdictKind.MARGINAL
    reason = no_advice_reason(profile)
    assert "an epoch of 1,000 batches waits 0.5 % of its time, but up to 2.8 % is possible. Measure again" in reason
    assert "too short" not in reason
    assert "with it 0.5 % of an epoch of 1,000 batches, at most 2.8 %." in plain(banner(profile).meaning)


def test_nothing_would_help_whoever_is_fed() -> None:
    assert "what would help" not in console_report(fed(), Gate())


def test_advice_that_was_tried_and_did_not_help_comes_last_and_says_so(pages: dict[str, Path]) -> None:
    advice = page_text(pages, "starved", "advice")
    assert advice.index("15 % predicted, tried: 15 %") < advice.index("it did not help here")
    assert "in the loader: num_workers=4, prefetch_factor=2" in advice
    assert "`" not in advice


def test_names_are_shown_as_they_are_and_not_acted_on(pages: dict[str, Path]) -> None:
    page = Page(pages["starved"])
    assert NASTY in page.sections["trials"]
    assert NASTY in page.sections["environment"]
    bold = [number for number, (tag, _) in enumerate(page.tags) if tag == "b"]
    assert len(bold) == 2 * len(starved().advice)  # now and predicted; none of a name
    assert NASTY not in pages["starved"].read_text(encoding="utf-8")


def test_the_page_needs_nothing_else(pages: dict[str, Path]) -> None:
    for path in pages.values():
        page = Page(path)
        links = [attributes[name] for _, attributes in page.tags for name in ("src", "href") if name in attributes]
        assert links == ["data:,"]
        [policy] = [
            attributes["content"]
            for _, attributes in page.tags
            if attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert str(policy).startswith("default-src 'none'")


def test_how_much_faster_than_the_loader_a_step_is_is_named() -> None:
    assert sustained(starved()).endswith("this step is 1.6 times as fast as that.")


def test_dots_that_lie_far_off_the_line_are_named_as_the_ones_to_rely_on() -> None:
    profile = starved()
    assert curve(profile).notes[-1] == "The dots lie 1.0 points off the line on average, 1.0 at most."
    first, *others = profile.curve
    far_off = replace(profile, curve=(replace(first, measured_wait_share=first.predicted_wait_share - 0.3), *others))
    assert "by 30: " in curve(far_off).notes[-1]
    assert curve(far_off).notes[-1].endswith("rely on the dots.")
    slower = replace(
        profile, curve=(replace(first, measured_wait_share=first.predicted_wait_share - 0.3, load_ratio=1.5), *others)
    )
    assert "Batches took 1.5 times as long to make there" in curve(slower).notes[-1]


def test_handing_over_is_worth_a_word_where_it_takes_much_of_the_time() -> None:
    assert transport_note(fed()) == ""
    short = profile_of(recording_of(np.full(4000, 0.001), 0.003), emulated=False)
    assert short.verdict.kind is VerdictKind.FED
    assert plain(transport_note(short)).startswith("The host takes 13 % of the time to pass on batches")


@pytest.mark.parametrize(
    ("cpu", "queued", "bytes_read", "limit"),
    [
        (0.9, 0.02, 0, "computing"), (0.5, 0.4, 0, "the cores"), (0.2, 0.0, 5_000_000, "storage"),
        (0.2, 0.0, 0, "waiting"), (0.0, 0.0, 0, "is not known"),
    ],
)  # fmt: skip
def test_what_limits_the_makers_is_stated_in_words(cpu: float, queued: float, bytes_read: int, limit: str) -> None:
    live = recording_of(np.full(200, 0.028))
    for timing in live.batch_timings:
        timing.cpu_seconds, timing.core_wait_seconds, timing.storage_bytes = cpu * 0.028, queued * 0.028, bytes_read
    assert f"What limits it: {limit}" in binding(live).replace("it is", "it: is")
    assert "What limits it" not in binding(replace(live, requested_at=live.received_at))  # where it never waits


def test_the_naive_loader_stands_below_on_the_same_scale(pages: dict[str, Path]) -> None:
    text = page_text(pages, "naive", "naive")
    assert "Precomputed, training gets 47.3 times as many images a second: 6,400 instead of 135" in text
    assert text.index("precomputed") < text.index("made from the videos in every step")


# ---- writing it


def test_a_page_that_cannot_be_written_is_reported_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    for page in (tmp_path / "no folder" / "a.html", tmp_path):
        with pytest.raises(UsageError, match=r"^--page .*: cannot be written \(.*\); name a file in a folder") as error:
            write_page(fed(100), Gate(), page)
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_page_for_a_device_or_through_a_link_replaces_neither(tmp_path: Path) -> None:
    write_page(fed(100), Gate(), Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    link, page = tmp_path / "link", tmp_path / "a.html"
    link.symlink_to(page)
    assert write_page(fed(100), Gate(), link) == page.stat().st_size
    assert link.is_symlink()


def test_a_page_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("before")
    write_page(fed(100), Gate(), page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [page]
