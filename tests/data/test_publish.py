"""What happens to DIR when someone runs `facefeed sample DIR`, and what the command says."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from facefeed.data import portraits, recipe, render
from facefeed.data import sample as sample_module
from facefeed.data.cli import sample as sample_command
from facefeed.data.sample import PART_FOLDER, make_sample
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import RefusedError, StoppedError, UsageError


@pytest.fixture
def few_clips(monkeypatch: pytest.MonkeyPatch) -> list[recipe.Clip]:
    """Let the sample be three small videos, for what does not depend on how many there are."""
    clips = [clip for clip in recipe.draw_clips(0) if clip.shot.size == (320, 240)]
    monkeypatch.setattr(sample_module, "draw_clips", lambda seed, groups: clips)
    return clips


@pytest.mark.usefixtures("few_clips")
def test_an_untouched_sample_is_left_as_it_is(tmp_path: Path) -> None:
    first_report = make_sample(tmp_path / "set", seed=0)
    before = {path: path.stat().st_mtime_ns for path in first_report.path.rglob("*")}
    second_report = make_sample(first_report.path, seed=0)
    assert second_report.already_there
    assert (second_report.videos, second_report.size_bytes) == (first_report.videos, first_report.size_bytes)
    assert {path: path.stat().st_mtime_ns for path in first_report.path.rglob("*")} == before


@pytest.mark.usefixtures("few_clips")
def test_without_the_packages_of_the_portraits_the_command_names_the_extra_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portraits.importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["sample", str(tmp_path / "set")])
    assert result.exit_code == 2
    assert "pip install 'facefeed[sample]'" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_clips")
def test_another_seed_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    make_sample(tmp_path / "set", seed=0)
    with pytest.raises(RefusedError, match="seed 0, not 1"):
        make_sample(tmp_path / "set", seed=1)
    with pytest.raises(RefusedError, match="15 groups, not 20"):
        make_sample(tmp_path / "set", seed=0, groups=20)
    with pytest.raises(UsageError, match="groups=3: must be at least 15"):
        make_sample(tmp_path / "other", groups=3)


@pytest.mark.usefixtures("few_clips")
@pytest.mark.parametrize("harm", ["changed", "added", "missing"])
def test_a_changed_sample_is_refused_and_not_touched(tmp_path: Path, harm: str) -> None:
    make_sample(tmp_path / "set", seed=0)
    video = next((tmp_path / "set" / PART_FOLDER).glob("*.mp4"))
    if harm == "changed":
        video.write_bytes(video.read_bytes()[:-1] + b"x")
    elif harm == "added":
        (tmp_path / "set" / "mine.txt").write_text("mine")
    else:
        video.unlink()
    before = sorted((tmp_path / "set").rglob("*"))
    with pytest.raises(RefusedError, match="changed since"):
        make_sample(tmp_path / "set", seed=0)
    assert sorted((tmp_path / "set").rglob("*")) == before


def test_a_folder_with_other_files_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RefusedError, match="nothing was written") as caught:
        make_sample(tmp_path)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        make_sample(tmp_path / "file")


def test_a_damaged_receipt_is_refused_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "sample.json").write_text("[1, 2")
    with pytest.raises(RefusedError, match="other files"):
        make_sample(tmp_path)


@pytest.mark.usefixtures("few_clips")
def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert make_sample(tmp_path / "empty").videos == 3


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_clips: list[recipe.Clip], cause: BaseException
) -> None:
    def render_one_then_stop(clip: recipe.Clip, *rest: object) -> None:
        if clip is few_clips[1]:
            raise cause
        render.render_clip(clip, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(sample_module, "render_clip", render_one_then_stop)
    expected = KeyboardInterrupt if isinstance(cause, KeyboardInterrupt) else StoppedError
    with pytest.raises(expected):
        make_sample(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_made_and_what_to_run_next(tmp_path: Path, few_clips: list[recipe.Clip]) -> None:
    target = tmp_path / "my set"
    result = CliRunner().invoke(sample_command, [str(target), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["videos"], figures["real"], figures["fake"]) == (3, 1, 2)
    assert figures["path"] == str(target)
    assert figures["bytes"] > 0
    assert figures["seconds"] > 0
    assert "made 3 videos (1 real, 2 fake)" in result.stderr
    assert f"facefeed precompute '{target}' OUT" in result.stderr

    second_result = CliRunner().invoke(sample_command, [str(target)], catch_exceptions=False)
    assert second_result.exit_code == 0
    assert second_result.stdout == ""
    assert "already there" in second_result.stderr


def test_progress_counts_up_to_all_videos(tmp_path: Path, few_clips: list[recipe.Clip]) -> None:
    seen: list[tuple[int, int]] = []
    make_sample(tmp_path / "set", on_progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 3)
    assert seen[-1] == (3, 3)


def test_the_room_is_light_and_knows_no_other_room() -> None:
    code = """
import sys
import facefeed.data.cli
assert not {"cv2", "av", "numpy", "rich"} & sys.modules.keys(), "the command is heavy to import"
import facefeed.data.sample
foreign = {"torch", "dask", "pyarrow", "skimage", "matplotlib", "facefeed.loaders", "facefeed.train"}
assert not foreign & sys.modules.keys()
assert {name for name in sys.modules if name.startswith("facefeed.pipeline.")} == {"facefeed.pipeline.errors"}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
