"""What a user notices of videos that are fake in part: each frame has the label of its own time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_dataset import Clip, make_dataset
from assets_rows import stored_rows
from assets_video import numbered, write_video
from click.testing import CliRunner
from facefeed.loaders import FaceDataLoader, Pairs
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from facefeed.pipeline.inspect.figures.histograms import histograms
from facefeed.pipeline.inspect.statistics.columns import MANIPULATED
from facefeed.pipeline.inspect.statistics.groups import Statistics
from facefeed.pipeline.inspect.statistics.videos import VideoTable
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.precompute import FailureLimit, precompute
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.sources.metadata.segments import parse_segments
from facefeed.pipeline.video import MediaReader, Sampling

SEGMENTS = ((0.0, 0.08), (0.2, 0.28))


def make(out: Path, segments: tuple[tuple[float, float], ...], labels: tuple[str, ...] = ("real", "fake")) -> Path:
    """Makes a dataset of an original and a fake of ten frames each, 25 a second; the fake is fake in the segments."""
    entry_of = Clip.entry

    def with_segments(clip: Clip) -> Entry:
        entry = entry_of(clip)
        return replace(entry, fake_segments=segments, outside_label=0) if entry.label else entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clip, "entry", with_segments)
        make_dataset(out, (("train", (Clip("real/anna.mp4", 10), Clip("fake/anna-swap.mp4", 10))),), labels=labels)
    return out


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four frames of the fake are fake."""
    return make(tmp_path_factory.mktemp("segments") / "out", SEGMENTS)


def findings_of(out: Path) -> list[str]:
    result = CliRunner().invoke(main, ["inspect", str(out), "--page", str(out.parent / "page.html"), "--json"])
    return [finding["what"] for finding in json.loads(result.stdout.splitlines()[-1])["findings"]]


@pytest.mark.parametrize("labels", [("real", "fake"), ("original", "manipulated")])
def test_segments_after_the_end_of_their_video_are_a_finding_of_inspect(
    out: Path, tmp_path: Path, labels: tuple[str, ...]
) -> None:
    in_milliseconds = make(tmp_path / "out", ((200.0, 280.0),), labels)
    problem = "1 video that should be fake in part has no fake face: fake/anna-swap.mp4."
    assert problem in findings_of(in_milliseconds)
    assert not any("fake in part" in finding for finding in findings_of(out))


def test_real_moments_have_masks_of_nothing_though_their_encoder_changed_pixels(out: Path) -> None:
    stored = {row["face_id"]: row for row in stored_rows(out) if row["video_id"] == "fake/anna-swap.mp4"}
    assert any(row["mask"] is not None and row["label"] == 0 for row in stored.values())
    loader = FaceDataLoader(out, split="train", batch_size=4, fields=("image", "label", "mask", "face_id"))
    seen = 0
    for batch in loader:
        for face_id, label, mask in zip(batch["face_id"], batch["label"].tolist(), batch["mask"], strict=True):
            if face_id in stored:
                assert bool(mask.any()) == (label == 1)
                seen += 1
    assert seen == 10


def test_masks_are_unknown_where_no_class_is_called_real(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 2), Clip("fake/anna-swap.mp4", 2))
    make_dataset(tmp_path / "out", (("train", clips),), labels=("spoof", "live"))
    (batch,) = FaceDataLoader(tmp_path / "out", split="train", batch_size=4, fields=("image", "label", "mask"))
    unmasked = [label for label, mask in zip(batch["label"].tolist(), batch["mask"], strict=True) if mask.isnan().all()]
    assert unmasked == [0, 0]


def test_inspect_counts_a_video_that_is_fake_in_part_as_one(out: Path) -> None:
    total = Statistics.of(Index(out)).total
    assert (total.rows, total.videos, total.tracks) == (20, 2, 2)
    assert total.faces_a_video is not None
    assert (total.faces_a_video.known, total.faces_a_video.least, total.faces_a_video.most) == (2, 10, 10)


def test_real_moments_are_in_no_histogram_of_what_was_manipulated(out: Path) -> None:
    index = Index(out)
    plots = {plot.name: plot for plot in histograms(index, VideoTable.of(index))}
    assert [*plots[MANIPULATED.title].fractions] == ["fake"]


def test_frames_have_the_label_of_their_time_and_the_segments_of_their_video(out: Path) -> None:
    rows = stored_rows(out)
    fake = [row for row in rows if row["video_id"] == "fake/anna-swap.mp4"]
    assert [row["label"] for row in fake] == [1, 1, 0, 0, 0, 1, 1, 0, 0, 0]  # 25 frames a second
    assert all(row["fake_segments"] == [list(segment) for segment in SEGMENTS] for row in fake)
    real = [row for row in rows if row["video_id"] == "real/anna.mp4"]
    assert {row["label"] for row in real} == {0}
    assert all(row["fake_segments"] is None for row in real)
    planned = Plan.load(OutPaths(out)).parts[0].units[0].inputs
    assert {entry.fake_segments for entry in planned} == {None, SEGMENTS}  # as they were, so that a rerun changes none


@pytest.mark.parametrize("start_ms", [0, 80, 1400])
@pytest.mark.parametrize("sampling", [Sampling(every=1), Sampling(frames=3)], ids=["every", "frames"])
def test_segments_count_from_the_first_frame_also_where_its_time_is_not_zero(
    tmp_path: Path, start_ms: int, sampling: Sampling
) -> None:
    times_ms = [start_ms + 40 * number for number in range(10)]
    write_video(tmp_path / "a.mkv", map(numbered, range(10)), times=times_ms)
    entry = Entry(video_id="a.mkv", label=1, fake_segments=SEGMENTS, outside_label=0)
    options = Options(keep=FaceFilter(min_face_px=8))
    builder = RowBuilder(JobSpec(
        root=tmp_path, out=tmp_path, options=options, detector=FixedBoxDetector(), landmarker=TemplateLandmarker(),
        labels=("real", "fake"), config_hash="",
    ))  # fmt: skip
    with MediaReader() as reader:
        rows = pa.Table.from_batches(builder.batches(entry, "train", reader.frames(tmp_path / "a.mkv", sampling)))
        builder.close()
    label_of = dict(zip(rows["frame_index"].to_pylist(), rows["label"].to_pylist(), strict=True))
    assert label_of == {number: int(number in (0, 1, 5, 6)) for number in label_of}
    assert rows["fake_segments"].to_pylist() == [[list(segment) for segment in SEGMENTS]] * len(label_of)
    assert rows["pts_seconds"].to_pylist() == pytest.approx([times_ms[number] / 1000 for number in label_of])


def test_inspect_counts_each_moment_in_the_class_of_its_label(out: Path) -> None:
    statistics = Statistics.of(Index(out))
    assert {name: group.rows for name, group in statistics.classes.items()} == {"real": 16, "fake": 4}
    assert (statistics.total.videos, statistics.classes["real"].videos, statistics.classes["fake"].videos) == (2, 2, 1)
    assert statistics.total.unchanged == 0  # frames that are real differ from nothing, and count for nothing


def test_pairs_are_of_a_real_face_and_a_fake_one_also_where_a_video_is_fake_in_part(out: Path) -> None:
    loader = FaceDataLoader(
        out, 2, balance=Pairs(), fields=("image", "label", "frame_index", "video_id"), image_size=16, num_workers=0
    )
    batches = list(loader)
    assert all(batch["label"].tolist() == [0, 1] for batch in batches)
    assert sorted(batch["frame_index"][1].item() for batch in batches) == [0, 1, 5, 6]
    assert all(batch["frame_index"][0] == batch["frame_index"][1] for batch in batches)


def test_pairs_whose_originals_a_filter_leaves_out_are_refused_with_that_reason(out: Path) -> None:
    with pytest.raises(UsageError, match="filters= select the sources too"):
        FaceDataLoader(out, 2, balance=Pairs(), filters=[("label", "==", 1)], num_workers=0)


@pytest.mark.parametrize(
    ("segments", "time", "label"),
    [(None, 5.0, 1), ((), 5.0, 0), (((1.0, 2.0),), 1.0, 1), (((1.0, 2.0),), 2.0, 0), (((1.0, 2.0),), 0.999, 0)],
)
def test_a_segment_ends_before_its_end(
    segments: tuple[tuple[float, float], ...] | None, time: float, label: int
) -> None:
    assert Entry(video_id="a.mp4", label=1, fake_segments=segments, outside_label=0).label_at(time) == label


def test_a_video_whose_segments_end_long_after_it_fails_with_that_reason_in_the_run_and_its_dry_run(
    tmp_path: Path, small_options: Options, cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    src, out = tmp_path / "src", tmp_path / "out"
    src.mkdir()
    cells = {"real": "", "seconds": "[[0.4, 0.8]]", "overshooting": "[[0.4, 1.5]]", "milliseconds": "[[400, 800]]"}
    for name in cells:
        write_video(src / f"{name}.mp4", map(numbered, range(25)))
    rows = [f'{name}.mp4,{"fake" if cell else "real"},"{cell}"' for name, cell in cells.items()]
    (src / "t.csv").write_text("\n".join(["path,label,fake_segments", *rows]))
    given: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    tried = dry_run(src / "t.csv", out, **given).failures
    failures = precompute(src / "t.csv", out, **given, max_failed=FailureLimit(count=1)).failures
    for failed in (tried, failures):
        ((video_id, reason, detail),) = failed
        assert (video_id, reason) == ("milliseconds.mp4", "wrong_segments")
        assert "end at 800 s, but it is 1.0 s long" in detail


@pytest.mark.parametrize(
    "value",
    [7, "soon", [1, 2], [[1]], [[2, 1]], [[1, 1]], [[0, 1e400]], [[0, 10**400]], [[-1, 2]], [[0, float("nan")]],
     [[0, "1"]], [[True, 2]], [[0, 1e7]], None],
)  # fmt: skip
def test_segments_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"table: fake segments .*: must be a list of \[start, end\]"):
        parse_segments(value, "table")


def test_a_table_gives_segments_as_json(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        (tmp_path / name).write_bytes(b"x")
    cell = '"' + json.dumps([[2, 3.5], [0, 1]]) + '"'
    (tmp_path / "list.csv").write_text(f"path,label,fake_segments\na.mp4,real,\nb.mp4,fake,{cell}\nc.mp4,fake,\n")
    by_name = {entry.video_id: entry for entry in list_source(tmp_path / "list.csv").entries}
    assert by_name["b.mp4"].fake_segments == ((0.0, 1.0), (2.0, 3.5))
    assert (by_name["b.mp4"].label, by_name["b.mp4"].outside_label) == (1, 0)
    assert by_name["a.mp4"].fake_segments is by_name["c.mp4"].fake_segments is None
    (tmp_path / "list.csv").write_text("path,label,fake_segments\na.mp4,real,[]\nb.mp4,fake,[]\n")
    assert [entry.label for entry in list_source(tmp_path / "list.csv").entries] == [0, -1]  # nothing says when


@pytest.mark.parametrize(("fake", "real"), [("Deepfake", "original"), ("manipulated", "Pristine"), ("FAKE", "REAL")])
def test_between_segments_a_video_has_the_class_of_real_whatever_the_table_calls_it(
    tmp_path: Path, fake: str, real: str
) -> None:
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "list.csv").write_text(f'path,label,fake_segments\na.mp4,{real},\nb.mp4,{fake},"[[1, 2]]"\n')
    listing = list_source(tmp_path / "list.csv")
    entry = listing.entries[1]
    assert [listing.labels[entry.label_at(time)].lower() for time in (0.5, 1.5)] == [real.lower(), fake.lower()]


@pytest.mark.parametrize(
    ("labels", "cell", "message"),
    [
        ("real fake", '"[[1,"', "fake segments '\\[\\[1,': must be"),
        ("sad glad", '"[[1, 2]]"', "no class is called real"),
        ("fake real", '"[[1, 2]]"', "b.mp4: has fake segments, and the label 'real'"),
        ("real unknown", '"[[1, 2]]"', "b.mp4: has fake segments, and the label 'unknown'"),
    ],
)
def test_segments_of_a_table_that_say_nothing_are_refused(tmp_path: Path, labels: str, cell: str, message: str) -> None:
    first, second = labels.split()
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "list.csv").write_text(f"path,label,fake_segments\na.mp4,{first},\nb.mp4,{second},{cell}\n")
    with pytest.raises(UsageError, match=message):
        list_source(tmp_path / "list.csv")
