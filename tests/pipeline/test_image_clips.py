"""The main job on folders of extracted frames: accounts, resuming, frames that come later, and the dry run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from assets_clips import truncate, write_clip, write_image
from assets_video import numbered, write_video
from click.testing import CliRunner
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dryrun.report import dry_run_json, print_dry_run
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning import validation
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import FailureLimit, Summary, precompute
from facefeed.pipeline.sources import Listing
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

Run = Callable[..., Summary]
CLIPS = ("real/a", "real/b", "fake/c")


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """Three clips of 12 images."""
    for name in CLIPS:
        write_clip(tmp_path / "src" / name, range(12))
    return tmp_path / "src"


@pytest.fixture
def job(cluster_address: str, small_options: Options) -> dict[str, Any]:
    options = replace(small_options, sampling=Sampling.default())
    return {"options": options, "detector": FixedBoxDetector(), "scheduler": cluster_address}


@pytest.fixture
def run(job: dict[str, Any], src: Path, tmp_path: Path) -> Run:
    def call(**given: Any) -> Summary:
        return precompute(given.pop("src", src), tmp_path / "out", **{**job, **given})

    return call


def table(out: Path) -> pa.Table:
    return pads.dataset(out / "faces").to_table().sort_by([("video_id", "ascending"), ("frame_index", "ascending")])


def frames(out: Path) -> dict[str, list[int]]:
    rows = table(out).to_pylist()
    return {name: [row["frame_index"] for row in rows if row["video_id"] == name] for name in CLIPS}


def inputs_of_receipts(out: Path) -> list[dict[str, Any]]:
    receipts = [json.loads(path.read_bytes()) for path in (out / "receipts").iterdir()]
    return sorted((one for receipt in receipts for one in receipt["inputs"]), key=lambda one: str(one["video_id"]))


def test_the_same_command_goes_on_when_the_first_folders_of_frames_come(
    run: Run, job: dict[str, Any], src: Path
) -> None:
    out = src.parent / "out"
    shutil.move(src, src.parent / "later")
    (src / "real").mkdir(parents=True)
    (src / "fake").mkdir()
    write_video(src / "real/v.mp4", [numbered(number, 160, 120) for number in range(12)])
    options = replace(job["options"], sampling=Sampling(every=5, fps_of_images=25))
    run(options=options)
    assert table(out)["frame_index"].to_pylist() == [0, 5, 10]
    for name in CLIPS:
        shutil.move(src.parent / "later" / name, src / name)
    assert run(options=options).totals.inputs == len(CLIPS)
    assert frames(out) == {name: [0, 5, 10] for name in CLIPS}
    assert table(out).num_rows == 12
    assert verify(out).findings == []
    assert Manifest.read(out).knows_times_of_clips
    assert run(options=options).totals.inputs == 0
    with pytest.raises(RefusedError, match=r"fps_of_images: 25.0 there, 30.0 now"):
        run(options=replace(options, sampling=Sampling(every=5, fps_of_images=30)))


def test_clips_that_come_while_another_run_begins_with_videos_alone_wait_for_the_next_run(
    run: Run, job: dict[str, Any], src: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(job["options"], sampling=Sampling(every=5, fps_of_images=25))
    videos = src.parent / "videos"
    for name in ("real", "fake"):
        (videos / name).mkdir(parents=True)
    write_video(videos / "real/v.mp4", [numbered(number, 160, 120) for number in range(12)])

    def prepare_and_begin(*arguments: Any, **settings: Any) -> Any:
        prepared = validation.prepare_job(*arguments, **settings)
        with monkeypatch.context() as patched:
            patched.setattr(precompute_module, "prepare_job", validation.prepare_job)
            run(src=videos, options=options)
        return prepared

    with monkeypatch.context() as patched:
        patched.setattr(precompute_module, "prepare_job", prepare_and_begin)
        with pytest.raises(RefusedError, match="another run has begun it meanwhile; run the same command again"):
            run(options=options)
    run(options=options)
    assert table(src.parent / "out").num_rows == 12
    assert verify(src.parent / "out").findings == []


def test_each_clip_is_one_input_with_all_of_its_images(run: Run, tmp_path: Path) -> None:
    summary = run()
    assert summary.manifest.inputs == {"total": 3, "ok": 3, "partial": 0, "no_faces": 0, "failed": {}, "missing": 0}
    assert frames(tmp_path / "out") == {name: list(range(12)) for name in CLIPS}
    assert [(one["video_id"], one["frames_wanted"]) for one in inputs_of_receipts(tmp_path / "out")] == [
        ("fake/c", 12), ("real/a", 12), ("real/b", 12),
    ]  # fmt: skip
    assert verify(tmp_path / "out").findings == []


def test_a_second_run_redoes_nothing_and_nor_does_one_on_a_copy(run: Run, src: Path, tmp_path: Path) -> None:
    first = run()
    assert run().totals.inputs == 0
    shutil.copytree(src, tmp_path / "copy", copy_function=shutil.copyfile)  # new times, the same bytes
    second = run(src=tmp_path / "copy")
    assert (second.totals.inputs, len(second.changes.touched), second.changes.changed) == (0, 3, [])
    assert second.manifest.fingerprint == first.manifest.fingerprint
    assert run(src=tmp_path / "copy").changes.touched == [], "the new times are known now"


def test_a_frame_that_comes_later_has_its_clip_redone_and_no_other(run: Run, src: Path, tmp_path: Path) -> None:
    run()
    write_image(src / "real/a/frame_99.png", 99)
    (src / "fake/c/frame_3.png").unlink()
    summary = run()
    assert sorted(entry.video_id for entry in summary.changes.changed) == ["fake/c", "real/a"]
    assert summary.totals.inputs == 2
    assert frames(tmp_path / "out") == {
        "real/a": list(range(13)), "real/b": list(range(12)), "fake/c": list(range(11)),
    }  # fmt: skip
    assert summary.manifest.inputs["total"] == 3
    assert verify(tmp_path / "out").findings == []


def test_a_clip_that_was_removed_keeps_its_rows(run: Run, src: Path, tmp_path: Path) -> None:
    run()
    shutil.rmtree(src / "real/a")
    assert run().changes.gone == ["real/a"]
    assert len(frames(tmp_path / "out")["real/a"]) == 12


def test_damage_is_counted_by_clip(run: Run, src: Path) -> None:
    truncate(src / "real/a/frame_5.png")
    for number in range(3):
        truncate(src / f"real/b/frame_{number}.png")
    summary = run(max_failed=FailureLimit(count=1))
    assert summary.partial == ["real/a"]
    assert [(failure.video_id, failure.reason) for failure in summary.failures] == [("real/b", "decode_error")]


def test_a_table_may_name_folders(run: Run, src: Path, tmp_path: Path) -> None:
    (src / "t.csv").write_text("path,label,source\nreal/a,real,\nfake/c,fake,real/a\n")
    summary = run(src=src / "t.csv")
    assert summary.manifest.inputs["ok"] == 2
    assert {row["manipulated"] for row in table(tmp_path / "out").to_pylist() if row["video_id"] == "fake/c"} == {0.0}


def test_an_out_from_before_there_were_clips_goes_on_with_frames_as_inputs(
    run: Run, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def apart(listing: Listing, planned: object, roots: Sequence[Path]) -> Listing:
        return listing

    with monkeypatch.context() as before:
        before.setattr(validation, "with_clips", apart)
        assert run().manifest.inputs["total"] == 36
    write_clip(src / "real/new", range(2))
    summary = run(progress=Progress.on_stderr())
    assert (summary.totals.inputs, summary.manifest.inputs["total"], summary.changes.gone) == (2, 38, [])
    assert set(table(tmp_path / "out")["frame_index"].to_pylist()) == {0}
    assert "the frames of 4 folders stay that" in capsys.readouterr().err


def test_a_dry_run_counts_clips_and_images(
    job: dict[str, Any], src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = dry_run(src, tmp_path / "out", **job)
    assert (result.survey.inputs, result.survey.clips, result.survey.images, result.pending) == (3, 3, 36, 3)
    assert result.survey.hours == 0, "nobody knows how long they are"
    assert result.forecast is not None
    assert result.forecast.faces.likely == pytest.approx(36)
    print_dry_run(result, src, 0)
    assert "of these, 3 clips of 36 images" in capsys.readouterr().err
    assert dry_run_json(result, 0)["survey"]["images"] == 36


def test_the_command_takes_the_rate_of_images(src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []

    def plan(*_: object, **given: Any) -> None:
        chosen.append(given["options"].sampling)
        raise SystemExit(0)

    monkeypatch.setattr("facefeed.pipeline.precompute.precompute", plan)
    for flags in ([], ["--every", "10"], ["--fps-of-images", "25"], ["--frames", "3", "--fps-of-images", "25"]):
        CliRunner().invoke(main, ["precompute", str(src), str(tmp_path / "out"), *flags])
    assert chosen == [
        Sampling.default(), Sampling(every=10), replace(Sampling.default(), fps_of_images=25),
        Sampling(frames=3, fps_of_images=25),
    ]  # fmt: skip


def test_the_command_refuses_frames_per_second_of_images_without_a_rate(src: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["precompute", str(src), str(tmp_path / "out"), "--fps", "5"])
    assert result.exit_code == 2
    assert "fps=5: SRC has 3 clips of images, whose times are unknown" in result.stderr
    assert not (tmp_path / "out").exists()
