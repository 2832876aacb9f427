"""What a user sees of a ladder: a table of 80 columns, all metrics as JSON, and a page that opens anywhere."""

from __future__ import annotations

import io
import json
import math
import shutil
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from assets_browser import LAPTOP, PHONE, PROGRAMS, Seen, render_pages
from assets_docs import key_differences, keys
from assets_ladder import NO_ENERGY, FakeRungRunner, measured, rungs
from assets_paths import needs_program
from bokeh.models import HBar
from facefeed.pipeline.errors import UsageError
from facefeed.train.ladder import formatting
from facefeed.train.ladder.messages import Subject
from facefeed.train.ladder.page.html import write_page
from facefeed.train.ladder.page.sections import sections
from facefeed.train.ladder.report import Report, as_plain_values, show
from facefeed.train.ladder.results import RungResult
from facefeed.train.ladder.rungs import BEST, NAIVE, PRECOMPUTED, Rung
from facefeed.train.ladder.scheduler import Ladder, run_ladder
from facefeed.train.levers.registry import LADDER_TEXTS
from facefeed.train.machine import Machine
from rich.console import Console

NASTY = "<script>alert(1)</script>"
ESCAPE = "\x1b[2J"
SUBJECT = Subject(out="out", videos="videos", module=None, recipe="quick", changes=("data.batch_size=16",))


def report_of(ladder: Ladder, subject: Subject = SUBJECT, **overrides: object) -> Report:
    values = {
        "steps": 20,
        "repeats": 3,
        "seconds": 812.0,
        "machine": {"gpus": (), "cores": 2},
        "parameters": 11_000_000,
    }
    return Report(ladder=ladder, subject=subject, **{**values, **overrides})  # type: ignore[arg-type]


def whole() -> Report:
    """All of LEVERS, of which some are refused, one fails, and two make the best set."""
    apart = frozenset({frozenset(("bf16", "channels_last"))})
    return report_of(run_ladder(rungs(), FakeRungRunner(broken={"checkpointing": 1}, apart=apart), repeats=3))


def nasty() -> Report:
    """Everything called what nobody should call it."""
    failed = RungResult(Rung(name=f"freeze:{NASTY}", data="own", levers=f"freeze:{NASTY}"), outcome="failed")
    failed.reason = f"ValueError: {NASTY}{ESCAPE}"
    base = RungResult(Rung(name=PRECOMPUTED, data="precomputed"), {0: measured(5.0)})
    subject = Subject(out=f"out/{NASTY}", videos=NASTY, module=f"{NASTY}.py:Net", changes=(NASTY,))
    return report_of(Ladder([base, failed]), subject, complete=False)


def on_a_gpu() -> Report:
    rows = []
    for name, levers, speed, size in (("as it is", "", 10.0, 9_000_000_000), ("fp16", "fp16", 21.0, 5_000_000_000)):
        measurement = measured(speed, gpu_bytes=size)
        rows.append(RungResult(Rung(name=name, data="own", levers=levers), {0: measurement, 1: measurement}))
    return report_of(Ladder(rows), replace(SUBJECT, out=None, module="nets.py:UNet"), machine={"gpus": ("H200",)})


def broken() -> Report:
    """A lever that is fast and learns nothing."""
    base, lever = measured(10.0, loss=0.5), measured(30.0, loss=math.nan)
    rows = [
        RungResult(Rung(name="as it is", data="own"), {0: base, 1: base}),
        RungResult(Rung(name="fp16", data="own", levers="fp16"), {0: lever, 1: lever}),
    ]
    return report_of(Ladder(rows))


def nothing() -> Report:
    """The base failed in the first round."""
    row = RungResult(
        Rung(name=PRECOMPUTED, data="precomputed"), outcome="failed", reason="its process ended with code 1"
    )
    return report_of(Ladder([row]))


def measured_once() -> Report:
    return report_of(run_ladder(rungs(), FakeRungRunner(), repeats=1), repeats=1)


MADE = {"once": measured_once, "whole": whole, "nasty": nasty, "gpu": on_a_gpu, "broken": broken, "nothing": nothing}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name} <script>.html" for name in MADE}
    for name, make in MADE.items():
        assert write_page(make(), paths[name]) == paths[name].stat().st_size < 4e6
    return paths


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words, self._style = "", False
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._style = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        self.words += "" if self._style else f"{' '.join(data.split())} "


# ---- the page


@pytest.mark.processes
def test_the_page_opens_in_a_browser_without_complaint_and_asks_no_network(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    program = needs_program(next((name for name in PROGRAMS if shutil.which(name)), PROGRAMS[0]))
    seen: dict[Path, Seen] = render_pages(program, list(pages.values()), tmp_path, hover={})
    for path, view in seen.items():
        assert (view.complaints, view.requests) == ([], []), path
        assert all(content <= window for window, content in view.widths.items()), path  # nothing sticks out
        assert view.widths.keys() == {LAPTOP, PHONE}
    assert len(seen[pages["whole"]].drawn) == 3
    assert min(seen[pages["whole"]].drawn.values()) > 20


def test_names_are_shown_and_never_run(pages: dict[str, Path]) -> None:
    page = Page(pages["nasty"])
    data_only = {"type": "application/json"}
    scripts = [attrs for tag, attrs in page.tags if tag == "script" and attrs != data_only]
    assert scripts == [{}, {}] or not scripts  # Bokeh, and what starts it
    assert page.words.count(NASTY) >= 4
    assert "INTERRUPTED" in page.words


def test_nothing_on_a_page_comes_from_elsewhere(pages: dict[str, Path]) -> None:
    for path in pages.values():
        links = [value for _, attrs in Page(path).tags for name, value in attrs.items() if name in ("src", "href")]
        assert links == ["data:,"]
        style = path.read_text().partition("</style>")[0]
        assert "url(" not in style


def test_one_repeat_of_each_rung_is_called_that_and_has_no_spread(pages: dict[str, Path]) -> None:
    terminal = Console(file=io.StringIO(), width=80)
    show(measured_once(), terminal)
    for words in (" ".join(terminal.file.getvalue().split()), Page(pages["once"]).words):  # type: ignore[attr-defined]
        assert not [word for word in ("spread", "two repeats", "whisker", "Medians") if word in words]
        assert "a gain cannot be told from noise by one repeat; give --repeats 3." in words
    assert "spread" not in json.dumps(as_plain_values(measured_once()))


def test_the_page_tells_what_came_of_it_and_of_every_rung(pages: dict[str, Path]) -> None:
    words = Page(pages["whole"]).words
    assert "Precomputed trains 200 times as fast as on the fly." in words
    assert "With bf16,compile training is 1.90 times as fast as without levers" in words
    assert "facefeed train out --recipe quick --set data.batch_size=16 --set levers=bf16,compile" in words
    assert "20 steps after a warm-up, 3 times, in turn" in words
    for name in (NAIVE, PRECOMPUTED, *LADDER_TEXTS, BEST):
        assert name in words
    for reason in ("checkpointing broke", "fsdp: there is no GPU", "not beside", "changes what is learned"):
        assert reason in words


def naive_and_accumulating() -> Report:
    """A ladder whose steps are raised to 32 by accumulate:32, and whose naive rung has measured 4."""
    rows = [
        RungResult(Rung(name=NAIVE, data="naive"), {0: measured(1, steps=4, loss=0.71)}),
        RungResult(Rung(name=PRECOMPUTED, data="precomputed"), {0: measured(80, steps=32)}),
        RungResult(
            Rung(name="accumulate:32", data="precomputed", levers="accumulate:32"),
            {0: measured(90, steps=32, accumulated=32, loss=0.72)},
        ),
    ]
    return report_of(Ladder(rows))


def test_the_page_tells_of_how_many_samples_and_updates_a_rung_is(tmp_path: Path) -> None:
    write_page(naive_and_accumulating(), tmp_path / "page.html")
    words = Page(tmp_path / "page.html").words
    assert "20 steps at least, and 320 samples in every rung, after a warm-up" in words
    assert "naive on the fly: trained on 60 samples, not on 480 as without levers" in words
    table = {row["rung"]: row for row in formatting.table(naive_and_accumulating().ladder)}
    columns = ("samples", "updates", "loss", "AUC")
    assert [table["accumulate:32"][column] for column in columns] == ["480", "1", "0.720", "0.61"]
    assert [table[NAIVE][column] for column in columns] == ["60", "6", "-", "-"]


def test_what_does_not_compare_is_said_on_the_terminal_and_to_programs() -> None:
    report = naive_and_accumulating()
    assert (
        "naive on the fly: trained on 60 samples, not on 480 as without levers, so its loss and metrics do"
        in " ".join(console_text(report).split())
    )
    rungs = as_plain_values(report)["rungs"]
    assert [rung["equal_samples"] for rung in rungs] == [False, True, True]
    assert [(rung["trained_samples"], rung["updates"]) for rung in rungs] == [(60, 6), (480, 48), (480, 1)]


def test_the_energy_of_a_rung_is_that_of_1000_samples_or_the_page_says_why_it_is_not_known(tmp_path: Path) -> None:
    known, unknown = (
        report_of(Ladder([RungResult(Rung(name="as it is", data="own"), {0: measured(9.0, energy_joules=joules)})]))
        for joules in (70.0, None)
    )
    assert formatting.table(known.ladder)[0]["energy of 1,000 samples"] == "350 J"
    assert "energy of 1,000 samples" not in formatting.table(unknown.ladder)[0]
    write_page(unknown, tmp_path / "page.html")
    assert f"Energy is not known: {NO_ENERGY}." in Page(tmp_path / "page.html").words
    (of_known,), (of_unknown,) = (as_plain_values(report)["rungs"] for report in (known, unknown))
    assert of_known["energy_joules"]["median"] == 70.0
    assert of_known["energy_joules_per_1000_samples"]["median"] == pytest.approx(350.0)
    assert (of_known["energy_reason"], of_unknown["energy_reason"]) == (None, NO_ENERGY)
    assert of_unknown["energy_joules"] is of_unknown["measured"][0]["energy_joules"] is None


def test_the_loss_of_the_validation_is_a_column_of_the_page() -> None:
    measurement = measured(9.0, metrics={"val/loss": 0.6931, "val/auc": 0.5})
    row = RungResult(Rung(name="as it is", data="own"), {0: measurement})
    assert formatting.table(Ladder([row]))[0]["validation loss"] == "0.693"


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    sections_by_key = {section.key: section for section in sections(on_a_gpu().ladder)}
    values = {}
    for key in ("epochs", "levers", "memory"):
        [fig] = sections_by_key[key].plots.values()
        [bars] = [renderer for renderer in fig.renderers if isinstance(renderer.glyph, HBar)]
        values[key] = list(bars.data_source.data["value"])
    assert values["epochs"][1] / values["epochs"][0] == pytest.approx(10 / 21, rel=1e-3)
    assert values["levers"] == [pytest.approx(2.1, rel=1e-3)]
    assert values["memory"] == [pytest.approx(9.0), pytest.approx(5.0)]


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--page"):
        write_page(nothing(), tmp_path / "no folder" / "page.html")


# ---- the terminal, and programs


def console_text(report: Report) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False, soft_wrap=True, emoji=False)
    show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    lines = console_text(whole()).split("\n")
    table = lines[: next(number for number, line in enumerate(lines) if not line.strip())]
    assert max(map(len, table[:-2])) <= 80
    bf16 = next(line for line in table if line.startswith("bf16"))
    assert bf16.split() == [
        "bf16",
        "~26.7",
        "s",
        "150",
        "1.50x",
        "1.47-1.53",
        "300x",
        "3.0",
        "GB",
        "0.58",
        "0.61",
        "2%",
    ]


def test_the_terminal_says_what_did_not_run_and_what_to_do_next() -> None:
    text = " ".join(console_text(whole()).split())
    assert "fsdp refused: fsdp: there is no GPU" in text
    assert "checkpointing failed: checkpointing broke" in text
    assert "next: facefeed train out --recipe quick" in text
    assert "training without levers did not run" in console_text(nothing())


def test_the_next_command_sets_nothing_twice() -> None:
    subject = replace(SUBJECT, changes=("levers=clip:1", "epochs=3"))
    text = console_text(replace(whole(), subject=subject))
    assert "next: facefeed train out --recipe quick --set epochs=3 --set levers=bf16,compile\n" in text


def test_for_a_module_of_ones_own_the_line_to_use_is_shown() -> None:
    text = console_text(on_a_gpu())
    assert "next: module, trainer = levers.trainer(module, levers.parse('fp16'))" in text
    assert "9.0 GB" in text  # of the GPU, not of the host


def test_a_terminal_is_not_acted_on() -> None:
    text = console_text(nasty())
    assert ESCAPE not in text
    assert r"\x1b[2J" in text


def test_every_value_for_programs_is_documented() -> None:
    machine = {**asdict(Machine()), "packages": ["timm"]}
    report = json.loads(json.dumps(as_plain_values(replace(whole(), machine=machine)), allow_nan=False))
    assert key_differences({*keys(report)}, "A ladder") == (set(), set())


def test_all_values_are_there_for_programs() -> None:
    report = json.loads(json.dumps(as_plain_values(whole()), allow_nan=False))
    rungs_by_name = {rung["name"]: rung for rung in report["rungs"]}
    assert rungs_by_name["bf16"]["speed_up"]["median"] == pytest.approx(1.5)
    assert rungs_by_name["bf16"]["speed_up_over_naive"]["median"] == pytest.approx(300)
    assert rungs_by_name["bf16"]["pays"]
    assert not rungs_by_name["clip:1"]["pays"]
    assert len(rungs_by_name["bf16"]["measured"]) == 3
    assert rungs_by_name["bf16"]["auc"]["median"] == pytest.approx(0.61)
    assert rungs_by_name["fsdp"]["outcome"] == "refused"
    assert report["best_set"]["levers"] == ["bf16", "compile"]
    assert report["fastest"]["levers"] == "bf16,compile"
    assert (report["schema"], report["exit"]) == (1, 1)  # since one failed


def test_a_loss_that_is_not_finite_is_seen_and_pays_nothing(pages: dict[str, Path]) -> None:
    words = Page(pages["broken"]).words
    assert "not finite" in words
    assert "No lever is faster here than none" in words
    report = json.loads(json.dumps(as_plain_values(broken()), allow_nan=False))
    assert not report["rungs"][1]["pays"]
    assert [rung["loss"] for rung in report["rungs"]] == [{"least": 0.5, "median": 0.5, "most": 0.5}, None]
    assert report["rungs"][1]["measured"][0]["loss"] is None
    assert report["exit"] == 0


def test_a_ladder_on_several_devices_says_how_many_each_rung_had() -> None:
    rows = [
        RungResult(Rung(name=name, data="own", levers=levers), {0: measured(10.0 * devices, devices=devices)})
        for name, levers, devices in (("as it is", "", 1), ("ddp", "ddp", 4), ("zero:2", "zero:2", 4))
    ]
    report = report_of(Ladder(rows))
    assert [rung["devices"] for rung in as_plain_values(report)["rungs"]] == [1, 4, 4]
    output = io.StringIO()
    show(report, Console(file=output, width=80))
    assert {"rung", "dev"} <= set(output.getvalue().splitlines()[0].split())
    single_output = io.StringIO()
    show(report_of(Ladder(rows[:1])), Console(file=single_output, width=80))
    assert "dev" not in single_output.getvalue().splitlines()[0].split()
