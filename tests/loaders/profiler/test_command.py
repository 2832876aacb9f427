"""What a user of `facefeed profile` gets, with real workers: figures, a report, an exit code; nothing about speed."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import albumentations as A  # noqa: N812 (as everyone calls it)
import pytest
from assets_loaders import slowly
from assets_profiles import starved
from assets_rows import damage, make_small, shown
from click.testing import CliRunner
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.profiler import cli
from facefeed.loaders.profiler.cli import _progress_display
from facefeed.loaders.profiler.cli import profile as command
from facefeed.loaders.profiler.estimate.bounds import MAX_CONFIDENCE
from facefeed.loaders.profiler.measure import page_cache
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.steps import SleepingStep
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.request import ProfileRequest
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.loader_verdict import DEFAULT_STEPS
from facefeed.loaders.profiler.verdict.result import CurvePoint
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import UsageError
from torch.utils.data import ConcatDataset, DataLoader, Subset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("profiler") / "out")


def test_a_profile_changes_no_batch_and_knows_when_each_was_made(dataset: Path) -> None:
    options = {"image_size": 16, "num_workers": 2, "dtype": "uint8"}
    plain = shown(FaceDataLoader(dataset, 10, **options))
    batches: list[object] = []
    loader = FaceDataLoader(dataset, 10, **options)
    loop = MeasuredLoop(loader)
    recording = loop.record(11, lambda _: None, batches_out=batches)
    assert shown(batches) == plain
    timed_dataset = loop._loader.dataset.dataset
    assert (
        timed_dataset.pool is loop._loader._batch_dataset.pool is not None
    )  # made as the loader does, in its own kind of memory
    assert (loader._epoch_sampler.epoch, loader._batch_dataset.pool) == (0, None)  # and the loader itself is as it was
    assert recording.num_images.sum() == 107
    assert (recording.load_start_at < recording.load_end_at).all()
    assert (recording.load_end_at <= recording.received_at).all()
    pids = {timing.pid for timing in recording.batch_timings[1:]}  # the first may be made by this process
    assert len(pids) == 2
    assert all(timing.cpu_seconds > 0 for timing in recording.batch_timings)


def test_a_batch_size_that_cannot_hold_the_balance_is_refused_with_the_options_to_give(dataset: Path) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), "--balance", "classes", "--batch-size", "7"])
    assert result.exit_code == 2
    assert "--batch-size 7: cannot hold" in result.output
    assert "a multiple of 2; take --batch-size 6 or --balance none" in result.output


def test_what_a_batch_costs_is_broken_down(dataset: Path) -> None:
    transform = A.Compose([A.GaussianBlur(p=1.0)])
    loader = FaceDataLoader(dataset, 5, image_size=16, num_workers=0, transform=transform)
    loader_profile = profile(loader, SleepingStep(0.0005), steps=60)
    assert list(loader_profile.live.stage_seconds) == ["read", "decode", "resize", "augment", "collate", "other"]
    assert min(loader_profile.live.stage_seconds.values()) > 0
    trials = {trial.name: trial.recording.stage_seconds for trial in loader_profile.trials}
    assert "augment" not in trials["evaluation transform"]
    assert set(trials) == {"evaluation transform", "without decoding"}
    assert len(loader_profile.curve) == 5
    assert all(point.step_seconds > 0 <= point.predicted_wait_share <= 1 for point in loader_profile.curve)
    assert len(shown(loader)) == 107  # the loader is as it was


def test_a_quick_profile_is_the_verdict_alone(dataset: Path) -> None:
    loader_profile = profile(
        FaceDataLoader(dataset, 5, image_size=16, num_workers=0), SleepingStep(0.0005), steps=60, quick=True
    )
    assert (loader_profile.trials, loader_profile.curve, loader_profile.advice, loader_profile.cold_cache) == (
        (),
        (),
        (),
        None,
    )


@pytest.mark.processes
def test_advice_that_is_a_setting_is_tried_on_request(dataset: Path) -> None:
    transform = A.Compose([A.Lambda(image=slowly)])
    loader = FaceDataLoader(dataset, 5, image_size=16, num_workers=0, transform=transform)
    loader_profile = profile(loader, SleepingStep(0.008, 0.0), steps=60, verify=True)
    tried = [item for item in loader_profile.advice if item.measured_wait_share is not None]
    assert tried, (str(loader_profile.verdict), loader_profile.advice, loader_profile.verify_notes)
    assert all(item.settings for item in tried)
    assert loader.num_workers == 0


def test_the_command_writes_its_report_and_ends_with_one_json_object(dataset: Path, tmp_path: Path) -> None:
    arguments = ["profile", str(dataset), "--batch-size", "5", "--image-size", "16", "--workers", "0", "--steps", "60",
                 "--step-ms", "1", "--report", str(tmp_path / "profile.json"), "--page", str(tmp_path / "profile.html"),
                 "--trace", str(tmp_path / "trace.json"), "--max-wait", "1%", "--json"]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    figures = json.loads(result.stdout)
    assert result.exit_code == figures["exit"] in (1, 4)  # without workers every step waits for its batch
    assert figures == json.loads((tmp_path / "profile.json").read_text())
    assert figures["gate"] == {"max_wait_share": 0.01, "min_headroom": None, "failures": figures["gate"]["failures"]}
    assert figures["verdict"]["emulated"]
    assert figures["schema"] == 4
    lines = result.stderr.splitlines()
    (verdict,) = (number for number, line in enumerate(lines) if line.startswith("EMULATED"))
    assert verdict >= len(lines) - 6  # where people look first, also on a small terminal
    assert max(map(len, lines[:-1])) <= 80  # the last line names the page
    assert result.stderr.startswith("profiling the loader\n")  # a line for whatever is begun, where it cannot move
    assert sum(figures["seconds_per_step"].values()) > 0.001
    assert (tmp_path / "profile.html").stat().st_size > 100_000
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_damaged_data_end_a_profile_and_no_report_is_written(dataset: Path, tmp_path: Path) -> None:
    """Others in their place would be profiled as if all were well, and a gate would pass."""
    out, report = tmp_path / "out", tmp_path / "found.json"
    shutil.copytree(dataset, out)
    damage(out, *range(20))
    options = ["--image-size", "16", "--steps", "50", "--batch-size", "10", "--quick", "--workers", "0"]
    files = ["--report", str(report), "--page", str(tmp_path / "page.html")]
    result = CliRunner().invoke(main, ["profile", str(out), *options, *files, "--max-wait", "99%"])
    assert result.exit_code == 1, result.output
    assert f"run `facefeed verify {out}`" in result.output
    assert list(tmp_path.iterdir()) == [out]


def test_what_was_not_measured_is_null_in_the_report_and_never_nan() -> None:
    """A trial that ended before its queue was filled has no steady state."""
    profile_without = replace(starved(), first_batch_seconds=math.nan, curve=(
        CurvePoint(step_seconds=0.01, predicted_wait_share=0.1, measured_wait_share=math.nan,
                   measured_wait_share_lower=0.0, load_ratio=math.inf),
    ))  # fmt: skip
    values = report_values(profile_without, Gate())
    assert json.loads(json.dumps(values, allow_nan=False))["first_batch_seconds"] is None
    assert values["curve"][0] == {"step": 0.01, "predicted": 0.1, "measured": None, "measured_lower": 0.0, "pace": None}


def test_a_dataset_in_a_store_is_profiled_like_a_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments = ["--batch-size", "5", "--image-size", "16", "--workers", "0", "--steps", "60", "--step-ms", "1",
                 "--page", str(tmp_path / "profile.html"), "--quick", "--json"]  # fmt: skip
    result = CliRunner().invoke(main, ["profile", f"file://{dataset}", *arguments])
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit"] in (0, 1, 4), result.output
    assert " · from a store · " in report["verdict"]["text"]  # its cache may be warm, or everything come from afar
    assert "cache warm" not in (tmp_path / "profile.html").read_text()
    stored, local = FaceDataset(f"file://{dataset}"), FaceDataset(dataset)
    for parts, are_stored in ((Subset(stored, [0]), True), (ConcatDataset([local, stored]), True), (local, False)):
        assert page_cache.reads_store(DataLoader(parts)) is are_stored
    folder = CliRunner().invoke(main, ["profile", str(dataset), *arguments])
    assert "from a store" not in json.loads(folder.stdout)["verdict"]["text"]
    missing = CliRunner().invoke(main, ["profile", "file:///nowhere", *arguments])
    assert missing.exit_code == 2
    assert "file:///nowhere: no manifest.json, so no finished dataset" in missing.stderr


def test_a_split_without_faces_is_refused_by_name(dataset: Path) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), "--split", "test"])
    assert result.exit_code == 2
    assert f"--split test: split test of {dataset} has no faces; name another one" in result.stderr


def test_more_ranks_than_images_are_refused_by_their_own_name(dataset: Path) -> None:
    request = ProfileRequest(
        out=dataset, step_ms=1.0, host_share=0.2, steps=60, confidence=0.95, split="val", batch_size=1, image_size=16,
        workers=0, prefetch=None, shuffle="full", balance="none", transform=None, ranks=16,
    )  # fmt: skip
    with pytest.raises(UsageError, match="--ranks 16: an epoch has 15 images; take 15 or less"):
        request.run(lambda *_: None)


def test_progress_counts_what_an_activity_counts_and_not_steps(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = list[str]()
    monkeypatch.setattr(cli, "_progress_display", lambda: nullcontext(lambda *texts: shown.append("".join(texts))))
    arguments = ["--batch-size", "5", "--image-size", "16", "--workers", "0", "--steps", "60", "--step-ms", "1",
                 "--page", str(tmp_path / "profile.html"), "--quick"]  # fmt: skip
    CliRunner().invoke(main, ["profile", str(dataset), *arguments])
    starts = [text for text in shown if text.startswith("profiling the starts of epochs: 0 of ")]
    assert len(starts) == 1
    assert int(starts[0].rpartition(" ")[2]) > 1  # steps, of which each start takes several
    assert not [text for text in shown if "steps" in text]


@pytest.mark.parametrize(
    "words", ["1 if it waits or that cannot be ruled out", "FED needs over 3,000", "time.process_time()"]
)
def test_the_help_says_what_a_user_has_to_know_first(words: str) -> None:
    assert words in " ".join(CliRunner().invoke(main, ["profile", "--help"]).output.split())


def test_progress_that_nobody_reads_ends_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as closed_pipe:  # as `2>&1 | head` leaves it
        monkeypatch.setattr(sys, "stderr", closed_pipe)
        with _progress_display() as show:
            show("profiling the loader", ": 1 of 2 steps")
            show("profiling the starts of epochs", "")


def test_a_log_shows_every_30_s_how_far_a_profile_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(cli, "time", SimpleNamespace(monotonic=lambda: now))
    with _progress_display() as show:
        for now in range(0, 100, 10):
            show("profiling the loader", f": {now} of 100 steps")
    assert capsys.readouterr().err.splitlines() == [
        "profiling the loader", "profiling the loader: 30 of 100 steps", "profiling the loader: 60 of 100 steps",
        "profiling the loader: 90 of 100 steps",
    ]  # fmt: skip


def test_the_command_takes_as_many_steps_as_a_profile_does_from_python() -> None:
    assert {option.name: option.default for option in command.params}["steps"] == DEFAULT_STEPS


@pytest.mark.parametrize(
    "options", [["OUT"], ["--report", "x.json"], ["--ranks", "2"], ["--max-wait", "1%"], ["--quick"]]
)
def test_an_option_that_the_self_test_would_ignore_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["profile", "--self-test", *options])
    assert result.exit_code == 2
    assert f"{options[0]}: the self-test has loaders and steps of its own; leave it out" in result.stderr


@pytest.mark.parametrize(("option", "value"), [("--max-wait", "2"), ("--max-wait", "x"), ("--confidence", "95")])
def test_a_share_that_is_none_is_refused_with_one_that_may_be_meant(dataset: Path, option: str, value: str) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), option, value])
    assert result.exit_code == 2
    assert f"must be a share such as {'95% or 0.95' if option == '--confidence' else '1% or 0.01'}" in result.stderr


def test_the_highest_confidence_can_be_given_in_percent() -> None:
    assert [option.type.convert("99.9%", None, None) for option in command.params if option.name == "confidence"] == [
        MAX_CONFIDENCE
    ]


def test_a_step_that_takes_no_time_is_refused() -> None:
    for wrong in ((0.0, 0.2), (0.01, 1.5)):
        with pytest.raises(UsageError, match="needs more than 0 seconds and a host_share from 0 to 1"):
            SleepingStep(*wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--page", "nowhere/x.html"], "--page nowhere/x.html: cannot be written: the folder does not exist"),
        (["--page", "x.html", "--report", "x.html"], "--report x.html: is named twice"),
        (["--workers", "0", "--prefetch", "2"], "there is nobody to work ahead"),
        (["--confidence", "99.95%"], "--confidence 0.9995: must be at most 0.999, the highest"),
        (["--against", "naive"], "belong together"),
        (["--verify", "--quick"], "--verify follows advice, which --quick does not give"),
        (["--min-headroom", "inf"], "'inf': must be a number above 0, such as 1.3"),
        (["--min-headroom", "nan"], "'nan': must be a number above 0, such as 1.3"),
        (
            ["--page", "/proc/x.html"],
            "--page /proc/x.html: cannot be written: the folder does not exist, or is read-only",
        ),
        (["--step-ms", "inf"], "'inf': must be a number above 0, such as 20"),
        (["--step-ms", "0"], "'0': must be a number above 0, such as 20"),
    ],
)
def test_what_cannot_work_is_reported_before_anything_is_measured(
    dataset: Path, arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
