"""What a user notices of clips of images in the plan: settings, costs, and what has changed since the last run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from assets_clips import write_clip, write_image
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.content_hash import content_sha256, stat_signature
from facefeed.pipeline.planning.cost_model import Cost, CostModel
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit, group_units
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, Listing
from facefeed.pipeline.video import MediaReader, Sampling

DEFAULT = Sampling.default()


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """One clip of images, and one video that nobody opens."""
    write_clip(tmp_path / "src/real/clip", range(3))
    (tmp_path / "src/fake").mkdir()
    (tmp_path / "src/fake/a.mp4").write_bytes(b"x")
    return tmp_path / "src"


def prepared(
    src: Path, sampling: Sampling = DEFAULT, out: Path | None = None
) -> tuple[JobSpec, Listing, dict[str, Any]]:
    options = Options(sampling=sampling)
    return prepare_job(src, out or src.parent / "out", options=options, detector=FixedBoxDetector())


def config_of(src: Path, sampling: Sampling = DEFAULT) -> dict[str, Any]:
    config = prepared(src, sampling)[2]
    return {name: config[name] for name in ("sampling", "all_images", "fps_of_images") if name in config}


def test_settings_name_what_images_need_only_where_somebody_asked_for_it(src: Path) -> None:
    assert config_of(src) == {"sampling": {"every": 10}}
    assert config_of(src, Sampling(every=5)) == {"sampling": {"every": 5}}
    assert config_of(src, Sampling(every=10)) == {"sampling": {"every": 10}, "all_images": False}
    assert config_of(src, Sampling(frames=5, fps_of_images=25)) == {"sampling": {"frames": 5}, "fps_of_images": 25.0}


def test_a_source_without_clips_has_the_settings_that_it_always_had(src: Path) -> None:
    shutil.rmtree(src / "real")
    for sampling in (DEFAULT, Sampling(every=10), Sampling(every=10, all_images=True, fps_of_images=25)):
        assert config_of(src, sampling) == {"sampling": {"every": 10}}
    assert config_of(src, Sampling(fps=3)) == {"sampling": {"fps": 3.0}}
    assert prepared(src, Sampling(every=1, fps_of_images=25))[1].warnings == (
        "fps_of_images=25: no input is a folder of frames, so it changes nothing",
    )


def test_frames_per_second_of_images_without_a_rate_are_refused_with_what_to_do(src: Path) -> None:
    with pytest.raises(UsageError, match=r"fps=3: SRC has 1 clip of images, .* are unknown; .*--fps-of-images"):
        prepared(src, Sampling(fps=3))
    assert prepared(src, Sampling(fps=3, fps_of_images=25))[0].options.sampling.fps == 3


def test_segments_of_images_without_a_rate_are_refused_with_what_to_do(src: Path) -> None:
    (src / "t.csv").write_text('path,label,fake_segments\nreal/clip,fake,"[[0.5, 1.5]]"\nfake/a.mp4,real,\n')
    with pytest.raises(UsageError, match=r"real/clip: has fake_segments in seconds, .*--fps-of-images"):
        prepared(src / "t.csv", out=src.parent / "out")
    rated = prepared(src / "t.csv", Sampling(every=1, fps_of_images=1), src.parent / "out")[1].clips[0]
    assert [rated.label_at(seconds) for seconds in (0.0, 1.0, 2.0)] == [0, 1, 0]


def test_segments_of_a_single_image_are_refused_since_its_time_is_unknown(src: Path) -> None:
    write_image(src / "fake/v1_0030.png", 3)
    (src / "t.csv").write_text('path,label,fake_segments\nfake/v1_0030.png,fake,"[[1.2, 3.4]]"\nfake/a.mp4,real,\n')
    for sampling in (DEFAULT, Sampling(every=1, fps_of_images=25)):
        with pytest.raises(UsageError, match=r"v1_0030\.png: .* a single image, .* each image a label"):
            prepared(src / "t.csv", sampling, out=src.parent / "out")


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        (['clip,fake,"[[2, 3]]",', "a.mp4,real,,"], "clip: its first image has the number 50, .* frame: "),
        (["clip,fake,,a.mp4", "a.mp4,real,,"], "clip: "),
        (["a.mp4,fake,,clip", "clip,real,,"], "clip: "),
        (['clip,fake,"[[2, 3]]",', "later,fake,,a.mp4", "a.mp4,real,,"], r"later: .* 70, .* \(so .* 1 other clip\)"),
        (["clip,fake,,later", "later,real,,"], None),
        (["clip,fake,,b.mp4", "a.mp4,real,,"], None),
        ([f"clip,fake,,{300 * 'b'}.mp4", "a.mp4,real,,"], None),
        (['whole,fake,"[[2, 3]]",', "steps,fake,,a.mp4", "one,fake,,a.mp4", "a.mp4,real,,"], None),
    ],
    ids=["segments", "fake", "original", "several", "two clips", "no original", "no name of a file", "from the start"],
)
def test_a_clip_whose_first_frames_are_missing_is_named_where_its_times_matter(
    tmp_path: Path, rows: list[str], start: str | None
) -> None:
    numbers_of = {"clip": (50, 51, 53), "later": (70, 80, 90), "whole": (1, 2, 3), "steps": (10, 20, 30), "one": (1,)}
    for name, numbers in numbers_of.items():
        write_clip(tmp_path / "src" / name, numbers)
    (tmp_path / "src/a.mp4").write_bytes(b"x")
    (tmp_path / "src/t.csv").write_text("\n".join(["path,label,fake_segments,source", *rows]))
    _, listing, _ = prepared(tmp_path / "src/t.csv", Sampling(every=1, fps_of_images=25), tmp_path / "out")
    warnings = [text for text in listing.warnings if "its first image" in text]
    assert len(warnings) == (start is not None)
    assert all(re.match(str(start), text) for text in warnings)


def plan_of(listing: Listing, config: dict[str, Any]) -> PlanPart:
    return PlanPart(config=config, units=(Unit.make(listing.entries, "train", config_hash="c", salt="0"),))


def write_plan(out: Path, *parts: PlanPart) -> Path:
    (out / "plan").mkdir(parents=True)
    (out / "_tmp").mkdir()
    plan = Plan()
    for part in parts:
        plan.append(OutPaths(out), part)
    return out


def test_another_rate_of_images_on_the_same_out_is_refused(src: Path, tmp_path: Path) -> None:
    job, listing, config = prepared(src)
    out = write_plan(tmp_path / "planned", plan_of(listing, config))
    assert prepared(src, out=out)[0].config_hash == job.config_hash
    with pytest.raises(RefusedError, match=r"fps_of_images: not set there, 25.0 now"):
        prepared(src, Sampling(every=10, all_images=True, fps_of_images=25), out)
    with pytest.raises(RefusedError, match="all_images: not set there, False now"):
        prepared(src, Sampling(every=10), out)


def test_the_settings_of_an_out_with_clips_stay_its_settings_when_the_last_clip_is_gone(
    src: Path, tmp_path: Path
) -> None:
    at_rate = Sampling(every=10, fps_of_images=25)
    _, listing, config = prepared(src, at_rate)
    out = write_plan(tmp_path / "planned", plan_of(listing, config))
    shutil.rmtree(src / "real")
    assert prepared(src, at_rate, out)[2] == config


def test_folders_of_frames_may_join_an_out_of_videos(src: Path, tmp_path: Path) -> None:
    shutil.move(src / "real", tmp_path / "later")
    out = write_plan(tmp_path / "planned", plan_of(*prepared(src)[1:]))
    shutil.move(tmp_path / "later", src / "real")
    assert [entry.video_id for entry in prepared(src, out=out)[1].entries] == ["fake/a.mp4", "real/clip"]


@pytest.mark.parametrize(
    "sampling", [Sampling(every=10), Sampling(every=10, all_images=True, fps_of_images=25), Sampling(frames=2)]
)
def test_the_first_clips_of_an_out_of_videos_set_what_holds_for_all_of_its_clips(
    src: Path, tmp_path: Path, sampling: Sampling
) -> None:
    shutil.move(src / "real", tmp_path / "later")
    job, listing, config = prepared(src, sampling)
    videos = plan_of(listing, config)
    out = write_plan(tmp_path / "planned", videos)
    shutil.move(tmp_path / "later", src / "real")
    later, listing, full = prepared(src, sampling, out)
    assert later.config_hash == job.config_hash, "rows of its videos stay"
    assert later.options.sampling == sampling
    Plan([videos]).append(OutPaths(out), plan_of(listing, full))
    assert prepared(src, sampling, out)[2] == full
    for other in ({"fps_of_images": 30}, {"all_images": True, "fps_of_images": 24}):
        with pytest.raises(RefusedError, match=r"fps_of_images: .* there, .* now"):
            prepared(src, replace(sampling, **other), out)  # type: ignore[arg-type]
    shutil.rmtree(src / "real")
    assert prepared(src, sampling, out)[2] == full


def test_other_settings_of_videos_are_refused_also_when_the_first_clip_comes(src: Path, tmp_path: Path) -> None:
    shutil.move(src / "real", tmp_path / "later")
    out = write_plan(tmp_path / "planned", plan_of(*prepared(src)[1:]))
    shutil.move(tmp_path / "later", src / "real")
    with pytest.raises(RefusedError, match=r"settings \(sampling: \{'every': 10\} there, \{'every': 5\} now\)"):
        prepared(src, Sampling(every=5, fps_of_images=25), out)


def test_an_out_with_frames_on_their_own_goes_on_with_frames_on_their_own(src: Path, tmp_path: Path) -> None:
    _, listing, config = prepared(src)
    frames = [Entry(video_id=f"real/clip/frame_{number}.png") for number in range(3)]
    apart = Listing(layout="folder", root=listing.root, labels=listing.labels, entries=frames)
    out = write_plan(tmp_path / "planned", plan_of(apart, config))
    _, listing, again = prepared(src, Sampling(every=10), out)
    assert [entry.video_id for entry in listing.entries] == ["fake/a.mp4", *(entry.video_id for entry in frames)]
    assert (listing.clips, again) == ([], config)
    assert any("the frames of 1 folder stay that" in text for text in listing.warnings)


# --- ids and changes


def test_units_of_files_have_the_ids_that_they_had_before_there_were_clips() -> None:
    """Halves of a unit are found by their ids: other ones would redo it, and `verify` would report it."""
    entry = Entry(video_id="a.mp4", size_bytes=7, mtime_ns=9, label=1, related_identities=("ann",))
    fields = {
        "video_id": "a.mp4", "size_bytes": 7, "mtime_ns": 9, "label": 1, "split": None, "source_id": None,
        "footage": None, "identity": None, "kin": ["ann"], "dataset": None, "method": None, "compression": None,
        "problem": None, "detail": None,
    }  # fmt: skip
    content = json.dumps(["c", "0", "train", [fields]], sort_keys=True)
    assert (
        Unit.make([entry], "train", config_hash="c", salt="0").unit_id
        == hashlib.sha256(content.encode()).hexdigest()[:32]
    )


def test_a_plan_remembers_clips_and_their_new_times(src: Path, tmp_path: Path) -> None:
    _, listing, config = prepared(src)
    clip = listing.clips[0]
    times = PlanPart(
        config=config, units=(), mtime_updates={"real/clip": 5, "fake/a.mp4": 6}, digest_updates={"real/clip": "new"}
    )
    out = write_plan(tmp_path / "planned", plan_of(listing, config), times)
    planned = Plan.load(OutPaths(out)).planned_videos()
    after, _ = planned["real/clip"]
    assert (after.num_images, after.mtime_ns, after.images_digest) == (3, 5, "new")
    assert (planned["fake/a.mp4"][0].mtime_ns, planned["fake/a.mp4"][0].images_digest) == (6, None)
    assert clip.images_digest not in (None, "new")


def test_new_times_of_images_are_looked_into_and_all_else_is_a_change(src: Path) -> None:
    before = {entry.video_id: (entry, "train") for entry in prepared(src)[1].entries}
    image = src / "real/clip/frame_1.png"
    os.utime(image, ns=(0, 7))
    touched = find_changes(prepared(src)[1], before, lambda entries: {entry.video_id for entry in entries})
    assert ([entry.video_id for entry in touched.touched], touched.changed) == (["real/clip"], [])
    write_image(src / "real/clip/frame_9.png", 9)
    added = find_changes(prepared(src)[1], before, lambda entries: {entry.video_id for entry in entries})
    assert ([entry.video_id for entry in added.changed], added.touched, added.added) == (["real/clip"], [], [])
    shutil.rmtree(src / "real/clip")
    assert find_changes(prepared(src)[1], before).gone == ["real/clip"]


def test_the_hash_of_a_folder_is_of_the_names_and_bytes_of_its_images(tmp_path: Path) -> None:
    folder, copy = write_clip(tmp_path / "a"), write_clip(tmp_path / "b")
    (copy / "notes.txt").touch()
    sha256 = content_sha256(folder)
    assert sha256 == content_sha256(copy)
    assert content_sha256(folder, cancelled=lambda: True) is None
    (copy / "frame_1.png").rename(copy / "frame_99.png")
    assert content_sha256(copy) != sha256
    write_image(folder / "frame_1.png", 2)
    assert content_sha256(folder) != sha256
    (tmp_path / "empty").mkdir()
    assert (content_sha256(tmp_path / "empty"), stat_signature(tmp_path / "empty")) == (None, None)


def test_a_hash_does_not_reach_out_of_the_allowed_folders(tmp_path: Path) -> None:
    folder, outside = write_clip(tmp_path / "src/a", range(2)), write_clip(tmp_path / "outside", range(9))
    alone, before = content_sha256(folder), stat_signature(folder)
    (folder / "frame_7.png").symlink_to(outside / "frame_7.png")
    assert (content_sha256(folder), stat_signature(folder)) == (alone, before)
    assert content_sha256(folder, [outside]) != alone
    assert stat_signature(folder, [outside]) != before


def test_a_folder_that_changes_has_another_signature(tmp_path: Path) -> None:
    folder = write_clip(tmp_path)
    signatures = [stat_signature(folder)]
    (folder / "frame_1.png").rename(folder / "frame_99.png")
    signatures.append(stat_signature(folder))
    (folder / "frame_2.png").write_bytes(b"x")
    signatures.append(stat_signature(folder))
    assert None not in signatures
    assert len(set(signatures)) == 3


# --- costs


def cost_of(src: Path, sampling: Sampling) -> Cost:
    _, listing, _ = prepared(src)
    with MediaReader() as reader:
        return CostModel(listing.entries, src, sampling, reader)(listing.clips[0])


def test_a_clip_costs_by_the_images_that_are_taken(src: Path) -> None:
    few, all_images = cost_of(src, Sampling(frames=1)), cost_of(src, DEFAULT)
    assert (few.sampled_frames, all_images.sampled_frames, all_images.duration_seconds) == (1, 3, 0)
    assert few.seconds < all_images.seconds
    write_clip(src / "real/clip", range(3, 12))
    more = cost_of(src, DEFAULT)
    assert (more.sampled_frames, more.seconds > all_images.seconds) == (12, True)
    assert cost_of(src, Sampling(every=1, fps_of_images=24)).duration_seconds == 0.5


def test_long_clips_are_units_of_their_own_and_short_ones_share_one() -> None:
    entries = [
        Entry(video_id=f"c{number}", size_bytes=9, num_images=count) for number, count in enumerate((1, 1, 1, 900))
    ]
    model = CostModel([], Path(), DEFAULT, MediaReader())
    units = group_units(
        entries, {entry.video_id: "train" for entry in entries}, config_hash="c", salt="0",
        cost_seconds=lambda entry: model(entry).seconds,
    )  # fmt: skip
    assert [[entry.video_id for entry in unit.inputs] for unit in units] == [["c0", "c1", "c2"], ["c3"]]
