"""What a user notices of `--dry-run`: what was found, how long and how large it will be, and that nothing is made."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from assets_faults import POISON_SIZE, FaultyDetector
from assets_video import numbered, write_video
from click.testing import CliRunner
from facefeed.pipeline import report
from facefeed.pipeline.cli import main
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dryrun.forecast import Forecast, Range, forecast, forecast_file
from facefeed.pipeline.dryrun.machine_load import BackgroundLoad
from facefeed.pipeline.dryrun.probe import Probe, first_frame_seconds, probe_family
from facefeed.pipeline.dryrun.report import dry_run_json, print_dry_run
from facefeed.pipeline.dryrun.run import DryRunResult, dry_run
from facefeed.pipeline.dryrun.trials import Trials
from facefeed.pipeline.dryrun.verdict import exit_code
from facefeed.pipeline.errors import InputError, StoppedError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.cost_model import Cost
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import FailureLimit, precompute
from facefeed.pipeline.rows.input_pipeline import InputPipeline
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import DecodeSummary, Frame
from rich.console import Console

MakeSource = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


# --- the arithmetic


def promised(entry: Entry) -> Cost:
    """A header that is right up to one factor: a second for each 1000 bytes."""
    return Cost(seconds=entry.size_bytes / 1000, sampled_frames=entry.size_bytes / 100, duration_seconds=1.0)


def units_of(*sizes: int, a_unit: int = 1) -> list[Unit]:
    entries = [Entry(video_id=f"v{number}", size_bytes=size) for number, size in enumerate(sizes)]
    groups = [entries[start : start + a_unit] for start in range(0, len(entries), a_unit)]
    return [Unit.make(group, "train", config_hash="c", salt="0") for group in groups]


def tried(
    unit: Unit, *, pace: float, faces_a_frame: float = 1.0, share: float = 1.0, paired: bool = False
) -> list[Probe]:
    """All inputs of a unit, as they would come out on a machine that takes `pace` times what headers promise."""
    return [
        Probe(
            video_id=entry.video_id, paired=paired, frames=round(promised(entry).sampled_frames * share),
            wanted_frames=round(promised(entry).sampled_frames), seconds=pace * promised(entry).seconds,
            faces=faces_a_frame * promised(entry).sampled_frames, size_bytes=5000 * promised(entry).sampled_frames,
        )
        for entry in unit.inputs
    ]  # fmt: skip


def guess(
    units: list[Unit],
    probed: list[list[Probe]],
    *,
    fixed_seconds: float = 0.0,
    workers: int = 1,
    is_paired: Callable[[Entry], bool] = lambda _: False,
) -> Forecast:
    return forecast(
        units, promised, probed, copied=(), is_paired=is_paired, workers=workers, fixed_seconds=fixed_seconds,
        background=BackgroundLoad(), config="c",
    )  # fmt: skip


def test_what_was_measured_on_a_few_is_scaled_to_all() -> None:
    units = units_of(*[1000] * 100)
    estimate = guess(units, [tried(unit, pace=3.0, faces_a_frame=0.5) for unit in units[:10]])
    assert estimate.seconds.likely == pytest.approx(300)
    assert estimate.faces.likely == pytest.approx(500)
    assert estimate.size_bytes.likely == pytest.approx(5_000_000 + 100 * 9_000)  # each unit's file has a footer
    assert (estimate.inputs, estimate.probed) == (100, 10)


def test_start_and_end_come_once_and_slots_share_the_rest() -> None:
    units = units_of(*[1000] * 8)
    probed = [tried(unit, pace=1.0) for unit in units]
    assert guess(units, probed, workers=4, fixed_seconds=7.0).seconds.likely == pytest.approx(2 + 7)


def test_the_last_unit_keeps_one_worker_busy_while_the_others_wait() -> None:
    units = units_of(1000, 1000, 1000, 9000)
    assert guess(units, [tried(unit, pace=1.0) for unit in units], workers=2).seconds.likely == pytest.approx(10)


def test_the_range_is_as_wide_as_inputs_differ() -> None:
    units = units_of(*[1000] * 1000)
    alike = guess(units, [tried(unit, pace=2.0) for unit in units[:20]])
    unlike = guess(units, [tried(unit, pace=1.0 + 2.0 * (number % 2)) for number, unit in enumerate(units[:20])])
    assert alike.seconds.low < alike.seconds.likely < alike.seconds.high
    assert unlike.seconds.likely == pytest.approx(alike.seconds.likely)
    assert unlike.seconds.low < alike.seconds.low
    assert unlike.seconds.high > alike.seconds.high


def test_two_inputs_out_of_a_thousand_say_little() -> None:
    units = units_of(*[1000] * 1000)
    few = guess(units, [tried(unit, pace=2.0) for unit in units[:2]])
    assert few.seconds.high > 1.5 * few.seconds.likely


def test_what_was_tried_whole_is_known_but_for_the_machine_s_pace() -> None:
    units = units_of(*range(100, 1100, 100))
    estimate = guess(units, [tried(unit, pace=1.0 + number) for number, unit in enumerate(units)])
    assert estimate.seconds.likely == pytest.approx(
        sum(size * (1 + number) for number, size in enumerate(range(100, 1100, 100))) / 1000
    )
    assert estimate.seconds.high == pytest.approx(1.2 * estimate.seconds.likely, rel=0.05)
    assert estimate.seconds.low == pytest.approx(estimate.seconds.likely / 1.2, rel=0.05)
    assert estimate.faces.low == pytest.approx(0.95 * estimate.faces.likely)


def test_fakes_that_are_compared_are_scaled_by_their_own_kind() -> None:
    units = units_of(*[1000] * 10)
    paired = {"v5", "v6", "v7", "v8", "v9"}
    probed = [tried(units[0], pace=10.0), tried(units[5], pace=1.0, paired=True)]
    estimate = guess(units, probed, is_paired=lambda entry: entry.video_id in paired)
    assert estimate.seconds.likely == pytest.approx(5 * 10 + 5 * 1)


def test_a_kind_that_was_not_tried_goes_at_the_pace_of_the_other() -> None:
    units = units_of(*[1000] * 10)
    estimate = guess(units, [tried(units[0], pace=4.0)], is_paired=lambda _: True)
    assert estimate.seconds.likely == pytest.approx(40)


def test_a_damaged_video_that_was_tried_to_its_end_is_known_whole() -> None:
    class Scratched:
        def batches(
            self, _: Entry, __: str, ___: Any, limited: Callable[[Any], Any], summary: DecodeSummary
        ) -> Iterator[Any]:
            summary.frames_wanted, summary.damage = 5, "damaged or missing are 1 of 5 wanted frames"
            assert (
                len(list(limited(iter([Frame(number, 0.0, np.zeros((2, 2, 3), np.uint8)) for number in range(4)]))))
                == 4
            )
            return iter(())

        def path_of(self, _: str) -> None: ...

        def warm_up(self, _: str) -> None: ...

        def is_compared(self, _: Entry) -> bool:
            return False

        def release(self) -> None: ...

    [probe] = probe_family(cast("InputPipeline", Scratched()), [Entry(video_id="a.mp4")], 60.0)
    assert (probe.is_partial, probe.reason, probe.frames, probe.wanted_frames) == (True, None, 4, 4)


def test_what_a_worker_does_once_is_measured_apart_from_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("facefeed.pipeline.dryrun.probe.time", SimpleNamespace(monotonic=lambda: now))

    class Cold:
        first = 7.0  # seconds that the first frame takes more

        def batches(
            self, entry: Entry, _: str, __: Any, limited: Callable[[Any], Any], summary: DecodeSummary
        ) -> Iterator[Any]:
            nonlocal now
            now += 1.0
            summary.frames_wanted = 5
            if entry.video_id == "broken.mp4":
                raise InputError("not_video")
            frames = list(limited(iter([Frame(number, 0.0, np.zeros((2, 2, 3), np.uint8)) for number in range(5)])))
            now += len(frames) + self.first
            self.first = 0.0
            return iter(())

        def path_of(self, _: str) -> None: ...

        def warm_up(self, _: str) -> None: ...

        def is_compared(self, _: Entry) -> bool:
            return False

        def release(self) -> None: ...

    inputs = cast("InputPipeline", Cold())
    broken, sound = [Entry(video_id="broken.mp4")], [Entry(video_id="a.mp4")]
    assert first_frame_seconds(inputs, [broken]) == 0
    assert first_frame_seconds(inputs, [broken, sound]) == pytest.approx(7.0)
    assert first_frame_seconds(inputs, [sound]) == pytest.approx(0.0)


def test_fetching_a_video_from_a_store_counts_once_and_its_frames_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("facefeed.pipeline.dryrun.probe.time", SimpleNamespace(monotonic=lambda: now))

    class Stored:
        def batches(
            self, _: Entry, __: str, ___: Any, limited: Callable[[Any], Any], summary: DecodeSummary
        ) -> Iterator[Any]:
            nonlocal now
            summary.frames_wanted = 10
            frames = iter([Frame(number, 0.0, np.zeros((2, 2, 3), np.uint8)) for number in range(10)])
            for _frame in limited(frames):
                now += 1.0
            return iter(())

        def path_of(self, _: str) -> None:
            nonlocal now
            now += 50.0

        def warm_up(self, _: str) -> None:
            nonlocal now
            now += 3.0

        def is_compared(self, _: Entry) -> bool:
            return False

        def release(self) -> None: ...

    [probe] = probe_family(cast("InputPipeline", Stored()), [Entry(video_id="a.mp4")], 3.5)
    assert probe.frames == 4
    assert probe.seconds == pytest.approx(50.0 + 10.0)


def test_a_forecast_comes_back_from_its_file() -> None:
    units = units_of(1000, 2000)
    estimate = guess(units, [tried(unit, pace=2.0) for unit in units])
    assert Forecast.from_json(json.loads(json.dumps(estimate.to_json()))) == estimate


# --- the whole of it


def run_dry(src: Path, out: Path, options: Options, address: str, **more: Any) -> DryRunResult:
    return dry_run(src, out, options=options, detector=FixedBoxDetector(), scheduler=address, **more)


def test_the_seconds_of_a_dry_run_are_those_that_one_waits_listing_included(
    tmp_path: Path, make_source: MakeSource, small_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, out, now = make_source("real/a.mp4"), tmp_path / "out", 0.0

    def list_slowly(*arguments: Any, **settings: Any) -> Any:
        nonlocal now
        now += 100.0
        return prepare_job(*arguments, **settings)

    monkeypatch.setattr("facefeed.pipeline.dryrun.run.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("facefeed.pipeline.dryrun.run.prepare_job", list_slowly)
    monkeypatch.setattr("facefeed.pipeline.dryrun.run.try_families", lambda *_: Trials())
    assert dry_run(src, out, options=small_options, detector=FixedBoxDetector()).seconds == 100.0


def test_nothing_is_made_and_the_word_is_good(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src, out = make_source("real/a.mp4", "real/b.mp4", "fake/c.mp4"), tmp_path / "out"
    (src / "notes.txt").write_text("x")
    dry_result = run_dry(src, out, small_options, cluster_address)
    assert [path.name for path in tmp_path.iterdir()] == ["src"], "neither OUT nor anything beside it"
    survey = dry_result.survey
    assert (survey.inputs, survey.new, survey.leak, survey.missing) == (3, 3, None, 0)
    assert survey.ignored == {".txt": 1}
    assert sum(counts["real"] for counts in survey.by_split.values()) == 2
    assert survey.hours == pytest.approx(3 * 1.0 / 3600, rel=0.1)
    assert (survey.groups, survey.largest_group) == (3, 1)

    summary = precompute(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert dry_result.forecast is not None
    assert summary.forecast == dry_result.forecast
    assert dry_result.forecast.faces.likely == pytest.approx(summary.manifest.rows)
    assert dry_result.forecast.faces.low <= summary.manifest.rows <= dry_result.forecast.faces.high
    report.print_summary(summary, src, out)
    messages = capsys.readouterr().err
    assert re.search(
        r"the dry run, with 2 workers, predicted .* and .* of faces; it took .* \([+-]\d+ %\) and made .* \(.*\)",
        messages,
    ), messages

    second_run = run_dry(src, out, small_options, cluster_address)
    assert (second_run.forecast, second_run.survey.new, exit_code(second_run, 0)) == (None, 0, 0)
    print_dry_run(second_run, src, 0)
    assert "nothing to do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scheduler", "is_writable", "used"), [(None, False, "tmp"), ("tcp://1.2.3.4:5", True, "volumes"),
                                           ("tcp://1.2.3.4:5", False, "volumes/out")],
)  # fmt: skip
def test_an_out_that_alone_may_be_written_to_is_enough_and_trials_leave_nothing(
    scheduler: str | None, is_writable: bool, used: str,
    tmp_path: Path, make_source: MakeSource, small_options: Options, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    src, out, access = make_source("real/a.mp4"), tmp_path / "volumes/out", os.access
    for folder in (out, tmp_path / "tmp"):
        folder.mkdir(parents=True)
    folders: list[Path] = []

    def no_workers(job: JobSpec, *_: Any) -> Any:
        folders.append(job.out.parent)
        raise StoppedError("no workers")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(os, "access", lambda path, mode: (path != out.parent or is_writable) and access(path, mode))
    monkeypatch.setattr("facefeed.pipeline.dryrun.trials.start_unit_workers", no_workers)
    with pytest.raises(StoppedError, match="no workers"):
        dry_run(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=scheduler)
    assert folders == [tmp_path / used]
    assert not list(folders[0].glob(".*")), "removed"


def test_a_drawn_split_without_fakes_is_named_before_anything_is_done_by_the_dry_run_and_by_the_run(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("real/a.mp4", "real/b.mp4", "fake/c.mp4"), tmp_path / "out"
    survey = run_dry(src, out, small_options, cluster_address).survey
    without_fakes = sorted(split for split, counts in survey.by_split.items() if not counts["fake"])
    assert without_fakes
    for warnings in (survey.caveats, warnings_of_a_run(src, out, small_options, cluster_address)):
        assert sorted(text.split()[0] for text in warnings if "has no input that is fake: " in text) == without_fakes


def warnings_of_a_run(src: Path, out: Path, options: Options, scheduler: str) -> list[str]:
    output = io.StringIO()
    precompute(
        src, out, options=options, detector=FixedBoxDetector(), scheduler=scheduler,
        progress=Progress(Console(file=output, soft_wrap=True)),
    )  # fmt: skip
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    return [event["text"] for event in events if event["event"] == "warning"]


def test_a_person_of_two_spellings_in_two_splits_is_named_by_the_dry_run_and_by_the_run(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    table, out = make_source("a.mp4", "b.mp4") / "videos.csv", tmp_path / "out"
    table.write_text("path,label,split,identity\na.mp4,real,train,Ben\nb.mp4,real,test,ben\n")
    caveats = run_dry(table, out, small_options, cluster_address).survey.caveats
    for warnings in (caveats, warnings_of_a_run(table, out, small_options, cluster_address)):
        assert any("'Ben' (train) and 'ben' (test)" in text for text in warnings)


def test_a_label_that_may_be_misspelt_is_named_once_and_no_split_lacks_it(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    table, out = make_source("a.mp4", "b.mp4", "c.mp4", "d.mp4") / "videos.csv", tmp_path / "out"
    table.write_text("path,label,split\na.mp4,real,train\nb.mp4,fake,train\nc.mp4,rael,train\nd.mp4,real,test\n")
    caveats = run_dry(table, out, small_options, cluster_address).survey.caveats
    for warnings in (caveats, warnings_of_a_run(table, out, small_options, cluster_address)):
        assert [text.partition(": ")[0] for text in warnings if "has no input that is" in text] == [
            "test has no input that is fake"
        ]
        assert sum("rael" in text for text in warnings) == 1


def test_a_leak_is_reported_and_does_not_stop_the_forecast(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src = make_source("a.mp4", "b.mp4")
    table = src / "videos.csv"
    table.write_text("path,label,split,identity\na.mp4,real,train,anna\nb.mp4,real,test,anna\n")
    dry_result = run_dry(table, tmp_path / "out", small_options, cluster_address)
    assert dry_result.survey.leak is not None
    assert "a leak" in dry_result.survey.leak
    assert exit_code(dry_result, 0) == 1
    assert dry_result.forecast is not None, "the forecast is reported all the same"
    print_dry_run(dry_result, src, 0)
    assert "would be refused" in capsys.readouterr().err
    assert json.loads(json.dumps(dry_run_json(dry_result, 0)))["exit"] == 1


def test_broken_inputs_are_no_obstacle(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src = make_source("real/a.mp4")
    (src / "real" / "broken.mp4").write_bytes(b"not a video" * 100)
    (src / "real" / "empty.mp4").write_bytes(b"")
    dry_result = run_dry(src, tmp_path / "out", small_options, cluster_address)
    assert dry_result.forecast is not None
    assert dry_result.forecast.faces.likely == pytest.approx(5)


def test_a_forecast_of_other_inputs_is_not_held_against_the_run(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("real/a.mp4"), tmp_path / "out"
    run_dry(src, out, small_options, cluster_address)
    make_source("real/later.mp4")
    summary = precompute(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert summary.forecast is None


def test_a_damaged_forecast_stands_in_nobody_s_way(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("real/a.mp4"), tmp_path / "out"
    forecast_file(str(out)).parent.mkdir(parents=True)
    forecast_file(str(out)).write_text("{}")
    summary = precompute(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert (summary.manifest.rows, summary.forecast) == (5, None)


def test_of_a_run_that_adds_to_a_dataset_only_what_it_added_is_compared(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src, out = make_source(*(f"real/{number}.mp4" for number in range(9))), tmp_path / "out"
    precompute(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    make_source("real/later.mp4")
    dry_result = run_dry(src, out, small_options, cluster_address)
    assert (dry_result.pending, dry_result.survey.inputs, dry_result.survey.new) == (1, 10, 1)
    summary = precompute(src, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert dry_result.forecast is not None
    assert summary.totals.size_bytes < summary.manifest.bytes / 4
    report.print_summary(summary, src, out)
    off = re.search(r"made [\d.]+ kB \(([+-]\d+) %\)", capsys.readouterr().err)
    assert off is not None
    assert abs(int(off[1])) < 200, "a file's own overhead is most of so little"
    (src / "real/later.mp4").unlink()
    dry_result = run_dry(src, out, small_options, cluster_address)
    assert (dry_result.survey.inputs, dry_result.inputs_in_out) == (9, 10), "rows of what is gone stay and count"


def test_rows_that_the_run_copies_beside_what_it_decodes_are_in_the_forecast(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("a.mp4", "b.mp4", "c.mp4"), tmp_path / "out"
    table = src / "videos.csv"
    table.write_text("path,label,source\na.mp4,real,\nb.mp4,fake,a.mp4\nc.mp4,fake,a.mp4\n")
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(table, out, **settings)
    write_video(src / "c.mp4", [numbered(number) for number in range(6)])
    dry_result = run_dry(table, out, small_options, cluster_address)
    assert (dry_result.pending, dry_result.copied) == (1, 2)
    summary = precompute(table, out, **settings)
    assert summary.forecast == dry_result.forecast is not None
    assert dry_result.forecast.faces.likely == pytest.approx(summary.manifest.rows)
    assert dry_result.forecast.size_bytes.likely == pytest.approx(summary.totals.size_bytes, rel=0.1)


def test_what_failed_while_it_was_tried_is_reported(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src = make_source("real/a.mp4")
    (src / "real" / "broken.mp4").write_bytes(b"not a video" * 100)
    dry_result = run_dry(src, tmp_path / "out", small_options, cluster_address)
    assert [(failure.video_id, failure.reason) for failure in dry_result.failures] == [("real/broken.mp4", "not_video")]
    print_dry_run(dry_result, src, 1)
    messages = capsys.readouterr().err
    assert "failed 1 of the 2 that were tried: 1 not_video" in messages
    assert "real/broken.mp4: not_video: " in messages
    assert "next: the same command without --dry-run" in messages


def test_where_nothing_can_be_tried_there_is_no_forecast_and_no_trace_of_one(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src, out = make_source("real/a.mp4"), tmp_path / "out"
    poison = write_video(src / "real" / "a.mp4", [numbered(number, *POISON_SIZE[::-1]) for number in range(6)])
    assert poison.exists()
    dry_result = dry_run(src, out, options=small_options, detector=FaultyDetector("raise"), scheduler=cluster_address)
    assert (dry_result.forecast, dry_result.pending) == (None, 1)
    assert not out.exists()
    print_dry_run(dry_result, src, 0)
    messages = capsys.readouterr().err
    assert "none of the inputs could be tried" in messages
    assert "failed 1 of the 1 that were tried: 1 crashed" in messages
    assert "would end with exit 3" in messages
    assert exit_code(dry_result, 0) == 3


def test_what_would_be_retried_is_in_the_forecast(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    (src / "real" / "b.mp4").write_bytes(b"not a video" * 100)
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(src, out, max_failed=FailureLimit(count=1), **settings)
    assert run_dry(src, out, small_options, cluster_address).pending == 0
    assert run_dry(src, out, small_options, cluster_address, retry_failed="not_video").pending == 1


def test_an_input_that_failed_and_is_gone_is_counted_neither_by_the_dry_run_nor_by_the_run(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("real/a.mp4", "fake/b.mp4", "real/c.mp4"), tmp_path / "out"
    (src / "real" / "c.mp4").write_bytes(b"not a video" * 100)
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(src, out, max_failed=FailureLimit(count=1), **settings)
    (src / "real" / "c.mp4").unlink()
    survey = run_dry(src, out, small_options, cluster_address).survey
    assert (sum(sum(counts.values()) for counts in survey.by_split.values()), survey.groups) == (2, 2)
    assert precompute(src, out, **settings).manifest.inputs["total"] == 2


def test_where_all_that_is_new_fails_rows_that_stay_make_a_dataset(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("a.mp4", "b.mp4"), tmp_path / "out"
    table = src / "videos.csv"
    table.write_text("path,label,source\na.mp4,real,\nb.mp4,fake,a.mp4\n")
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(table, out, **settings)
    (src / "b.mp4").write_bytes(b"not a video" * 100)
    dry_result = run_dry(table, out, small_options, cluster_address)
    assert (dry_result.pending, dry_result.tried, len(dry_result.failures)) == (1, 1, 1)
    assert exit_code(dry_result, 1) == 0
    assert precompute(table, out, max_failed=FailureLimit(count=1), **settings).manifest.rows == 5


def test_a_fake_that_is_gone_while_its_original_changed_is_not_tried_and_its_rows_are_copied(
    tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str
) -> None:
    src, out = make_source("a.mp4", "b.mp4", "c.mp4"), tmp_path / "out"
    table = src / "videos.csv"
    lines = ["path,label,source\n", "a.mp4,real,\n", "b.mp4,fake,a.mp4\n", "c.mp4,fake,a.mp4\n"]
    table.write_text("".join(lines))
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(table, out, **settings)
    write_video(src / "a.mp4", [numbered(number) for number in range(6)])
    table.write_text("".join(lines[:3]))
    (src / "c.mp4").unlink()
    dry_result = run_dry(table, out, small_options, cluster_address)
    assert (dry_result.pending, dry_result.survey.new, dry_result.copied) == (2, 2, 1)
    assert (dry_result.tried, dry_result.failures, exit_code(dry_result, 0)) == (2, [], 0)
    summary = precompute(table, out, **settings)
    assert (summary.totals.inputs, summary.manifest.inputs["ok"]) == (2, 3)


@pytest.mark.parametrize("cause", ["metadata", "compaction"])
def test_a_run_that_only_copies_rows_is_reported_as_one_without_anything_to_decode(
    cause: str, tmp_path: Path, make_source: MakeSource, small_options: Options, cluster_address: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    src, out = make_source("a.mp4", "b.mp4", "c.mp4"), tmp_path / "out"
    table, lines = src / "videos.csv", ["path,label,identity,footage\n", *(f"{name}.mp4,real,ann,\n" for name in "abc")]
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    for count in (2, 4):  # two files, of one split
        table.write_text("".join(lines[:count]))
        rows = precompute(table, out, **settings).manifest.rows
    if cause == "metadata":
        table.write_text("".join(lines).replace("ann,", "ann,hall"))
    else:
        monkeypatch.setattr("facefeed.pipeline.compaction.run.merge_units", in_vain)
        with pytest.raises(StoppedError):
            compact(out, workers=1)
    dry_result = run_dry(table, out, small_options, cluster_address)
    assert (dry_result.pending, dry_result.copied, dry_result.forecast) == (0, 3, None)
    assert exit_code(dry_result, 0) == 0
    capsys.readouterr()
    print_dry_run(dry_result, table, 0)
    messages = capsys.readouterr().err
    assert "nothing to decode: the run copies the rows of 3 inputs" in messages
    assert "next: the same command without --dry-run" in messages
    summary = precompute(table, out, **settings)
    assert (summary.totals.inputs, summary.manifest.rows) == (0, rows)


def in_vain(*_: Any) -> Any:
    raise StoppedError("the disk failed")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["real/a.mp4"], "not in SRC, or not readable there: 1 of the 2 inputs in OUT (real/b.mp4)"),
        (
            ["real/x.mp4"],
            "none of the 2 inputs in OUT is in SRC, or readable there: their rows stay, and what SRC has (1 input)",
        ),
    ],
)
def test_inputs_of_out_that_this_source_lacks_are_named_before_anything_is_added_to_them(
    names: list[str],
    said: str,
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, warnings = tmp_path / "out", list[str]()
    monkeypatch.setattr(Progress, "warn", lambda _, text: warnings.append(text))
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(make_source("real/a.mp4", "real/b.mp4"), out, **settings)
    assert not [text for text in warnings if "in OUT" in text]
    other = make_source(*names, root=tmp_path / "other")
    caveats = run_dry(other, out, small_options, cluster_address).survey.caveats
    precompute(other, out, **settings)
    assert [said in text for text in caveats].count(True) == [said in text for text in warnings].count(True) == 1
    renamed = [text for text in warnings if "twice, with rows of the same content" in text]
    assert len(renamed) == (names == ["real/x.mp4"])


def test_pairs_and_missing_inputs_are_reported(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src = make_source("a.mp4", "b.mp4", "c.mp4")
    table = src / "videos.csv"
    table.write_text("path,label,source\na.mp4,real,\nb.mp4,fake,a.mp4\nc.mp4,fake,gone.mp4\nlost.mp4,real,\n")
    dry_result = run_dry(table, tmp_path / "out", small_options, cluster_address)
    assert (dry_result.survey.fakes, dry_result.survey.without_original) == (2, 1)
    print_dry_run(dry_result, table, 0)
    messages = capsys.readouterr().err
    assert "1 of 2 inputs that name an original have it here" in messages
    assert "lost.mp4" in messages


def test_an_original_that_is_there_but_no_input_counts_as_there_for_what_is_reported_and_for_the_pace(
    tmp_path: Path, make_source: MakeSource, small_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = make_source("a.mp4", "b.mp4", "c.mp4")
    table = src / "videos.csv"
    table.write_text("path,label,source\nb.mp4,fake,a.mp4\nc.mp4,fake,gone.mp4\n")
    paired: dict[str, bool] = {}

    def note_pairs(units: Sequence[Unit], *_: Any, is_paired: Callable[[Entry], bool], **__: Any) -> Forecast:
        paired.update((entry.video_id, is_paired(entry)) for unit in units for entry in unit.inputs)
        return guess(units_of(1000), [tried(units_of(1000)[0], pace=1.0)])

    monkeypatch.setattr("facefeed.pipeline.dryrun.run.try_families", lambda *_: Trials(families=[[]]))
    monkeypatch.setattr("facefeed.pipeline.dryrun.run.forecast", note_pairs)
    survey = dry_run(table, tmp_path / "out", options=small_options, detector=FixedBoxDetector()).survey
    assert (survey.fakes, survey.without_original) == (2, 1)
    assert paired == {"b.mp4": True, "c.mp4": False}, "as the run compares them"


def test_the_command_says_it_in_tables_and_in_json(
    tmp_path: Path, make_source: MakeSource, cluster_address: str
) -> None:
    src = make_source("real/a.mp4", "fake/b.mp4")
    arguments = ["precompute", str(src), str(tmp_path / "out"), "--dry-run", "--json", "--scheduler", cluster_address]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3, result.stderr  # frames that show their numbers have no face
    figures = json.loads(result.stdout.splitlines()[-1])
    assert figures["survey"]["inputs"] == 2
    assert set(figures["forecast"]["seconds"]) == set(Range.__slots__)
    assert "forecast for" in result.stderr
    assert re.search(r"^  time +\d", result.stderr, re.MULTILINE)
    assert re.search(r"^  files of faces +\d", result.stderr, re.MULTILINE), "the index is not in this figure"
