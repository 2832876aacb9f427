"""Settings that are measured one after the other: which come first, and how numbers are given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_profiles import STEP, profile_of, recording_of, uneven
from assets_rows import make_small
from click.testing import CliRunner
from facefeed.loaders.profiler.estimate.bounds import BoundedEstimate
from facefeed.loaders.profiler.rank_processes import RankDiedError
from facefeed.loaders.profiler.report.console import console_report
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.report.page.html import write_page
from facefeed.loaders.profiler.request import ProfileRequest
from facefeed.loaders.profiler.trials.sweep import Settings, run_sweep, settings_grid
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.result import Profile
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("sweep") / "out")


def measured(settings: Settings) -> Profile:
    """Each worker takes 28 ms for a batch, so that three are enough for a step of 10 ms."""
    workers, prefetch = settings
    return profile_of(recording_of(uneven(4000, 2.8 * STEP, spread=0.1), workers=workers, prefetch=prefetch or 0))


@pytest.fixture(scope="module")
def best_profile() -> Profile:
    """Of the best settings, with all that were tried."""
    return run_sweep(settings_grid({"workers": [0, 2, 3], "prefetch": [2, 4]}, 1, None), measured)


def test_all_settings_on_the_axes_are_tried_once_the_cheapest_first() -> None:
    assert settings_grid({"workers": [2, 0, 1], "prefetch": [4, 1]}, 7, None) == [
        (0, None), (1, 1), (1, 4), (2, 1), (2, 4),
    ]  # fmt: skip
    assert settings_grid({"prefetch": [1, 2]}, 3, None) == [(3, 1), (3, 2)]
    assert settings_grid({"workers": [1, 2]}, 3, 5) == [(1, 5), (2, 5)]


def test_the_cheapest_that_feeds_the_device_comes_first_and_then_who_waits_least(best_profile: Profile) -> None:
    fed, others = best_profile.sweep[:2], best_profile.sweep[2:]
    assert [result.verdict.kind for result in best_profile.sweep] == [VerdictKind.FED] * 2 + [VerdictKind.STARVED] * 3
    assert [result.loader_arguments for result in fed] == [
        "num_workers=3, prefetch_factor=2",
        "num_workers=3, prefetch_factor=4",
    ]
    waits = [result.verdict.wait_share.value for result in others]
    assert waits == sorted(waits)
    assert others[-1].loader_arguments == "num_workers=0"


def test_what_could_not_be_concluded_comes_last() -> None:
    doubtful = profile_of(recording_of(np.concatenate([np.full(3000, STEP), np.full(1000, 3 * STEP)])))
    tried = run_sweep([(2, 2), (1, 2)], lambda settings: doubtful if settings[0] == 2 else measured(settings)).sweep
    assert [result.verdict.kind for result in tried] == [VerdictKind.STARVED, VerdictKind.INCONCLUSIVE]


def test_settings_are_ranked_by_their_waiting_also_where_it_has_no_upper_bound() -> None:
    """Four workers wait in so long runs that nobody knows by how much at most; none wait far longer."""
    in_runs = profile_of(recording_of(np.tile(np.repeat([STEP, 2.3 * STEP], 500), 4)))
    assert not in_runs.verdict.wait_share.has_upper
    tried = run_sweep(
        [(0, None), (1, 2), (4, 2)], lambda settings: in_runs if settings[0] == 4 else measured(settings)
    ).sweep
    assert [result.verdict.kind for result in tried] == [VerdictKind.STARVED] * 3
    assert [result.num_workers for result in tried] == [4, 1, 0]


def test_a_setting_that_fails_is_counted_with_its_reason_and_the_others_are_measured(tmp_path: Path) -> None:
    def fails_with_four(settings: Settings) -> Profile:
        if settings[0] == 4:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error.\nout of shared memory")
        return measured(settings)

    profile = run_sweep([(2, 2), (4, 2), (3, 2)], fails_with_four)
    tried, failures = profile.sweep, profile.sweep_failures
    assert [result.num_workers for result in tried] == [3, 2]
    assert [failure.loader_arguments for failure in failures] == ["num_workers=4, prefetch_factor=2"]
    assert failures[0].reason.startswith("RuntimeError: DataLoader worker (pid 7) is killed")
    lines = console_report(profile, Gate()).splitlines()
    assert any(line.split()[:3] == ["4", "2", "failed:"] for line in lines)
    assert max(map(len, lines)) <= 80
    (row,) = report_values(profile, Gate())["sweep_failures"]
    assert (row["num_workers"], row["prefetch_factor"], row["reason"]) == (4, 2, failures[0].reason)
    write_page(profile, Gate(), tmp_path / "page.html")
    assert "is killed by signal: Bus error" in (tmp_path / "page.html").read_text()


def test_a_sweep_of_which_every_setting_fails_raises_the_first_error() -> None:
    def refused(settings: Settings) -> Profile:
        raise UsageError(f"workers {settings[0]}")

    with pytest.raises(UsageError, match="workers 1"):
        run_sweep([(1, 2), (2, 2)], refused)
    with pytest.raises(KeyboardInterrupt):
        run_sweep([(1, 2)], interrupted)


def interrupted(_settings: Settings) -> Profile:
    raise KeyboardInterrupt


def request(out: Path, **overrides: Any) -> ProfileRequest:
    defaults = {
        "out": out, "step_ms": 1.0, "host_share": 0.2, "steps": 60, "confidence": 0.95, "split": "train",
        "batch_size": 5, "image_size": 16, "workers": None, "prefetch": None, "shuffle": "full", "balance": "none",
        "transform": None, "ranks": 2, "sweep": {"workers": [0, 1, 2]},
    }  # fmt: skip
    return ProfileRequest(**{**defaults, **overrides})


def ignored(_what: str, _done: int, _wanted: int) -> None:
    """Progress that nobody looks at."""


def test_a_setting_in_which_a_rank_dies_is_listed_and_the_others_are_measured(dataset: Path) -> None:
    def run(of: ProfileRequest, _progress: object) -> Profile:
        if of.workers == 1:
            raise RankDiedError("rank 1 was killed by signal 7")
        return measured((of.workers or 0, of.prefetch))

    profile = request(dataset).run_sweep(ignored, run)
    assert sorted(result.num_workers for result in profile.sweep) == [0, 2]
    assert [(failure.num_workers, failure.reason) for failure in profile.sweep_failures] == [
        (1, "rank 1 was killed by signal 7")
    ]


def test_after_a_sweep_no_change_is_predicted_to_take_away_waits_that_the_model_does_not_explain(dataset: Path) -> None:
    def run(of: ProfileRequest, _progress: object) -> Profile:
        if not of.quick:
            raise RankDiedError("rank 1 was killed by signal 7")
        profile = measured((of.workers or 0, of.prefetch))
        waits = BoundedEstimate(value=0.3, lower=0.25, upper=0.35, confidence=0.95)
        return replace(profile, verdict=replace(profile.verdict, wait_share=waits, model_wait_share=0.0))

    profile = request(dataset).run_sweep(ignored, run)
    assert all(advice.predicted_wait_share >= 0.3 for advice in profile.advice)


def test_a_sweep_whose_best_setting_fails_when_it_is_measured_again_is_reported_as_it_was_measured(
    dataset: Path, tmp_path: Path
) -> None:
    def run(of: ProfileRequest, _progress: object) -> Profile:
        if not of.quick:
            raise RankDiedError("rank 1 was killed by signal 7")
        return replace(measured((of.workers or 0, of.prefetch)), advice=(), is_explained=False)

    profile = request(dataset).run_sweep(ignored, run)
    assert profile.sweep[0].num_workers == profile.live.num_workers == 2
    assert profile.verdict == profile.sweep[0].verdict
    assert profile.advice
    assert profile.is_explained
    assert report_values(profile, Gate())["sweep_note"] == "rank 1 was killed by signal 7"
    text = " ".join(console_report(profile, Gate()).split())
    assert "as above: it failed when measured again (rank 1 was killed by signal 7):" in text
    write_page(profile, Gate(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "num_workers=2, prefetch_factor=2 could not be measured once more: rank 1 was killed by signal 7" in page
    assert "about the first, measured once more" not in page


def test_what_is_wrong_with_every_setting_is_refused_before_the_first_is_tried(dataset: Path) -> None:
    tried = list[ProfileRequest]()

    def run(of: ProfileRequest, _progress: object) -> Profile:
        tried.append(of)
        return measured((0, None))

    with pytest.raises(UsageError, match="has no whole step of 2 x 5000"):
        request(dataset, batch_size=5000).run_sweep(ignored, run)
    assert not tried


def test_terminal_report_and_page_have_every_setting(best_profile: Profile, tmp_path: Path) -> None:
    lines = console_report(best_profile, Gate()).splitlines()
    assert [line.split()[:2] for line in lines[2:7]] == [["3", "2"], ["3", "4"], ["2", "4"], ["2", "2"], ["0", "-"]]
    assert lines[7] == "  of num_workers=3, prefetch_factor=2, measured again:"
    assert lines[2].split()[-1] == "FED"
    assert max(map(len, lines)) <= 80
    rows = report_values(best_profile, Gate())["sweep"]
    assert (rows[0]["num_workers"], rows[0]["prefetch_factor"], rows[0]["word"]) == (3, 2, "FED")
    write_page(best_profile, Gate(), tmp_path / "page.html")
    assert "Settings that were measured" in (tmp_path / "page.html").read_text()


def test_the_command_measures_each_setting_and_the_best_again(dataset: Path, tmp_path: Path) -> None:
    arguments = ["profile", str(dataset), "--batch-size", "5", "--image-size", "16", "--sweep", "workers=0..1",
                 "--steps", "60", "--step-ms", "1", "--quick", "--json",
                 "--page", str(tmp_path / "profile.html")]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit"]
    assert {row["num_workers"] for row in report["sweep"]} == {0, 1}
    assert report["workers"] == report["sweep"][0]["num_workers"]
    lines = result.stderr.splitlines()
    assert lines[:2] == ["profiling setting 1 of 2, no workers", "profiling setting 2 of 2, 1 worker x 2 ahead"]


@pytest.mark.processes
def test_a_sweep_on_ranks_measures_each_setting_on_all_of_them(dataset: Path, tmp_path: Path) -> None:
    arguments = ["profile", str(dataset), "--ranks", "2", "--batch-size", "4", "--image-size", "16", "--quick",
                 "--sweep", "workers=0..1", "--steps", "60", "--step-ms", "1", "--json",
                 "--page", str(tmp_path / "profile.html")]  # fmt: skip
    report = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert {row["num_workers"] for row in report["sweep"]} == {0, 1}
    assert report["sweep_failures"] == []
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]


@pytest.mark.parametrize(
    "numbers",
    [
        "workers",
        "workers=",
        "workers=4..1",
        "workers=-1",
        "threads=1..2",
        "prefetch=0",
        "workers=0,2,x4",
        "workers=0,2,",
        "workers=8,4..1",
    ],
)
def test_numbers_that_are_none_are_refused(dataset: Path, numbers: str) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), "--sweep", numbers])
    assert result.exit_code == 2
    assert "must be such as workers=0..16" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "workers=1,2", "--workers", "1"], "give one of them"),
        (["--sweep", "prefetch=1,2", "--sweep", "prefetch=4"], "given twice"),
        (["--sweep", "workers=1,2", "--verify"], "both try other settings"),
        (["--sweep", "prefetch=1,2", "--workers", "0"], "there is nobody to work ahead"),
        (["--sweep", "prefetch=1,2", "--sweep", "workers=0"], "there is nobody to work ahead"),
        (["--sweep", "workers=0..0", "--prefetch", "4"], "--prefetch: there is nobody to work ahead with 0 workers"),
    ],
)
def test_a_sweep_of_what_is_fixed_is_refused(dataset: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
