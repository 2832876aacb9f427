"""What a user notices of `facefeed inspect` in the terminal: true numbers, plain words, and no surprises."""

from __future__ import annotations

import html
import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_columns import Returning
from assets_dataset import (
    HALVED,
    INPUTS,
    LABELS,
    NO_ROWS,
    ROWS,
    Clip,
    DenseStandIn,
    copy_dataset,
    finish_dataset,
    make_dataset,
    open_run_state,
)
from assets_docs import key_differences, keys
from click.testing import CliRunner, Result
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit.finalize import publish_manifest
from facefeed.pipeline.console import percent
from facefeed.pipeline.dataset.frame_numbers import VideoEnds
from facefeed.pipeline.dataset.index import Index, layout
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.inspect.cli import inspect
from facefeed.pipeline.inspect.figures.histograms import histograms
from facefeed.pipeline.inspect.figures.source_pairs import find_source_pairs, matching_source_row
from facefeed.pipeline.inspect.findings.collect import collect_findings
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.inspect.statistics.columns import measures_of
from facefeed.pipeline.inspect.statistics.groups import Statistics
from facefeed.pipeline.inspect.statistics.split_crossings import Crossing
from facefeed.pipeline.planning.content_hash import EqualInput, equal_inputs_json
from facefeed.pipeline.planning.failure_limit import Failure
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.verify import unfinished
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from numpy.typing import NDArray

SCREEN_COLUMNS, SCREEN_LINES = 80, 24


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inspect") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def build_dataset(folder: Path, *units: tuple[str, tuple[Clip, ...]], labels: tuple[str, ...] = LABELS) -> Path:
    make_dataset(folder / "made", units, labels=labels)
    return folder / "made"


def run(out: Path, *arguments: Any) -> Result:
    options = ["--page", out.parent / "inspect.html", *arguments]
    return CliRunner(env={"COLUMNS": str(SCREEN_COLUMNS)}).invoke(
        inspect, [str(argument) for argument in (out, *options)]
    )


def figures(out: Path) -> dict[str, Any]:
    """What the command gives out as JSON; it draws no page, which takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.pipeline.inspect.page.write_page", lambda *_: 0)
        result = run(out, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout.splitlines()[-1]))


def findings_by_level(out: Path) -> dict[str, str]:
    """The findings on a dataset as text, by level."""
    lines_by_level = defaultdict(list)
    for finding in inspect_dataset(out).findings:
        lines_by_level[finding.level].append(f"{finding.what} {finding.remedy}".strip())
    return {level: "\n".join(lines) for level, lines in lines_by_level.items()}


def rows_of(out: Path) -> list[dict[str, Any]]:
    files = sorted((out / "faces").rglob("*.parquet"))
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


# ---- the numbers


def test_groups_count_what_the_files_hold(dataset: Path) -> None:
    by_kind = defaultdict(list)
    for row in rows_of(dataset):
        kind = (row["split"], LABELS[row["label"]], row["dataset"], row["method"], row["compression"])
        by_kind[kind].append(row)
    groups = Statistics.of(Index(dataset)).groups
    assert {tuple(kind) for kind in groups} == set(by_kind)
    for kind, group in groups.items():
        rows = by_kind[tuple(kind)]
        videos = {row["video_id"] for row in rows}
        a_video = [sum(row["video_id"] == video for row in rows) for video in videos]
        assert group.faces_a_video is not None
        assert (group.rows, group.videos) == (len(rows), len(videos))
        assert group.tracks == len({(row["video_id"], row["track_id"]) for row in rows})
        assert group.frames == len({(row["video_id"], row["frame_index"]) for row in rows})
        assert (group.faces_a_video.least, group.faces_a_video.most) == (min(a_video), max(a_video))
        assert group.faces_a_video.median == np.median(a_video)


def test_measures_are_those_of_the_rows(dataset: Path) -> None:
    of_row = {
        "face_px": lambda row: min(row["box_xyxy"][2] - row["box_xyxy"][0], row["box_xyxy"][3] - row["box_xyxy"][1]),
        "crop_px": lambda row: row["width"],
        "score": lambda row: row["score"],
        "sharpness": lambda row: row["sharpness"],
        "manipulated": lambda row: row["manipulated"],
    }
    statistics = Statistics.of(Index(dataset))
    for label, group in statistics.classes.items():
        rows = [row for row in rows_of(dataset) if LABELS[row["label"]] == label]
        for key, value in of_row.items():
            spread = group.measures[key]
            known = [measured for row in rows if (measured := value(row)) is not None]
            if not known:
                assert spread is None
                continue
            assert spread is not None
            assert spread.known == len(known)
            expected = np.quantile(known, (0, 0.05, 0.5, 0.95, 1))
            measured = (spread.least, spread.p05, spread.median, spread.p95, spread.most)
            assert measured == pytest.approx(expected, rel=1e-5)


def test_an_added_column_with_the_name_of_a_measure_does_not_replace_it(copy: Path) -> None:
    (before, *_) = Statistics.of(Index(copy)).classes.values()
    schema = pa.schema([("crop_px", pa.float32())])
    add_columns(copy, Returning(lambda faces: {"crop_px": np.full(len(faces), 777.0)}, schema), workers=1)
    (after, *_) = Statistics.of(Index(copy)).classes.values()
    assert after.measures["crop_px"] == before.measures["crop_px"]
    added = after.measures["added:crop_px"]
    assert added is not None
    assert added.median == 777.0


def test_small_values_are_not_stated_as_0(copy: Path) -> None:
    """As of likelihoods, or of a distance between embeddings."""
    add_columns(copy, Returning(lambda faces: {"value": np.linspace(2e-7, 4e-7, len(faces))}), workers=1)
    index = Index(copy)
    measure = next(measure for measure in measures_of(index) if measure.key == "value")
    tiny = figures(copy)["whole"]["measures"]["value"]
    assert (tiny["least"], tiny["most"]) == (2e-7, 4e-7)
    assert [measure.format_value(tiny[name]) for name in ("least", "most")] == ["2e-07", "4e-07"]
    (plot,) = (plot for plot in histograms(index, Statistics.of(index).videos) if plot.name == "value")
    assert plot.bin_ranges[0].startswith("2e-07 to 2")


def test_statistics_of_added_columns_have_their_precision_and_range(copy: Path) -> None:
    """As of times since 1970, which 32 bits round to two minutes, and of numbers that these cannot hold."""

    def compute(faces: Any) -> dict[str, Any]:
        numbers = np.arange(len(faces))
        return {"time": 1_700_000_001 + numbers % 3, "value": np.where(numbers % 2, 1e300, -1e300)}

    add_columns(copy, Returning(compute, pa.schema([("time", pa.int64()), ("value", pa.float64())])), workers=1)
    shown = figures(copy)
    time, value = (shown["whole"]["measures"][name] for name in ("time", "value"))
    assert (time["least"], time["most"]) == (1_700_000_001, 1_700_000_003)
    assert (value["known"], value["least"], value["most"]) == (shown["whole"]["rows"], -1e300, 1e300)


def test_the_size_on_disk_includes_added_columns(copy: Path) -> None:
    add_columns(copy, Returning(lambda faces: {"value": np.zeros(len(faces))}), workers=1)
    parquet = [*(copy / "faces").rglob("*.parquet"), *(copy / "columns").rglob("*.parquet")]
    assert figures(copy)["bytes"] == sum(path.stat().st_size for path in (*parquet, copy / "index.arrow"))


def test_a_bar_of_a_histogram_that_begins_at_0_says_so(copy: Path) -> None:
    """Edges are computed, and 32 bits are not exact: those of -1 to 0.8 include 7e-9."""
    add_columns(copy, Returning(lambda faces: {"value": np.linspace(-1, 0.8, len(faces))}), workers=1)
    index = Index(copy)
    (plot,) = (plot for plot in histograms(index, Statistics.of(index).videos) if plot.name == "value")
    assert {"-0.05 to 0", "0 to .05"} <= set(plot.bin_ranges)


def test_an_infinite_value_is_left_out_of_a_histogram(copy: Path) -> None:
    def compute(faces: Any) -> dict[str, Any]:
        return {"value": np.where(np.arange(len(faces)) == 0, -np.inf, np.arange(len(faces)))}

    add_columns(copy, Returning(compute), workers=1)
    index = Index(copy)
    (plot,) = (plot for plot in histograms(index, Statistics.of(index).videos) if plot.name == "value")
    assert np.isfinite(plot.edges).all()


def test_statistics_do_not_depend_on_the_batch_size_of_the_index(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = figures(copy)
    monkeypatch.setattr(layout, "BATCH_ROWS", 7)
    assert rebuild_index_file(copy)
    after = figures(copy)
    for changing in ("bytes", "page_bytes"):
        before.pop(changing)
        after.pop(changing)
    assert after == before


def test_headings_are_not_truncated_where_methods_and_grades_vary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Clip.entry

    def graded(clip: Clip) -> Entry:
        entry = listed(clip)
        grade = "c23" if "anna" in clip.name else "c40"
        return replace(entry, method="DeepFakeDetection" if entry.label else None, compression=grade)

    monkeypatch.setattr(Clip, "entry", graded)
    result = run(build_dataset(tmp_path, ("train", (ANNA, SWAP, BERT))))
    heading = next(line for line in result.stderr.splitlines() if line.startswith("split"))
    assert heading.split() == ["split", "class", "method", "compression", "faces", "videos", "faces", "a", "video"]


def test_programs_read_one_object(dataset: Path) -> None:
    result = run(dataset, "--json")
    [line] = result.stdout.splitlines()
    summary = json.loads(line)
    assert summary["exit"] == 0
    assert summary["fingerprint"] == Manifest.read(dataset).fingerprint
    assert summary["inputs"] == INPUTS
    assert summary["whole"]["rows"] == sum(ROWS.values())
    assert {group["split"] for group in summary["groups"]} == set(ROWS)
    assert [failure["reason"] for failure in summary["failures"]] == ["outside_root", "truncated"]
    assert summary["crossing"] == {"count": 0, "first": []}
    page = Path(summary["page"])
    assert page.stat().st_size == summary["page_bytes"]


def test_every_key_for_programs_is_documented(dataset: Path, copy: Path, tmp_path: Path) -> None:
    finished = figures(dataset)
    (copy / "manifest.json").unlink()
    of_unfinished = json.loads(run(copy, "--json").stdout)
    damaged = figures(build_dataset(tmp_path, *WHOLE, ("train", (Clip("real/scratched.mp4", 6, "partial"),))))
    equal = equal_inputs_json([[EqualInput("real/a.mp4", "real", "train")]], 1)  # none of these has any
    crossing = Crossing("person", "anna", ("train", "test"))._asdict()
    found = {"crossing": {"first": [crossing]}, "equal_content": {"first": equal}, "repeated_content": {"first": equal}}
    present = {key for value in (finished, of_unfinished, damaged, found) for key in keys(value)}
    assert key_differences(present, "An inspection") == (set(), set())


def test_a_small_dataset_fits_on_one_screen(dataset: Path) -> None:
    lines = run(dataset).stderr.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines[1:-1])) <= SCREEN_COLUMNS
    text = "\n".join(lines)
    for words in ("391 faces of 9 videos", "train", "swap", "talk", "truncated", "real/cut.mp4", "inspect.html"):
        assert words in text


def test_ten_thousand_failures_are_counted_and_the_first_named(copy: Path) -> None:
    with_failures(copy, 10_000)
    result = run(copy, "--json")
    lines = result.stderr.splitlines()
    assert len(lines) <= SCREEN_LINES
    [line] = [line for line in lines if "broken/00000" in line]
    assert line.split()[:4] == ["failed:", "not_video", "10,000", "broken/00000-of-a-very-long-name.mp4,"]
    assert max(map(len, lines[1:-1])) <= SCREEN_COLUMNS  # the others name paths
    summary = json.loads(result.stdout)
    assert summary["inputs"]["failed"]["not_video"] == 10_000
    assert len(summary["failures"]) == 100


def with_failures(out: Path, count: int) -> None:
    """As if that many inputs had been refused."""
    manifest = Manifest.read(out)
    refused = [
        {"video_id": f"broken/{number:05}-of-a-very-long-name.mp4", "reason": "not_video", "detail": "no media"}
        for number in range(count)
    ]
    inputs = {**manifest.inputs, "failed": {**manifest.inputs["failed"], "not_video": count}}
    inputs["total"] += count
    publish_manifest(open_run_state(out).paths, replace(manifest, refused=manifest.refused + refused, inputs=inputs))


# ---- the words

ANNA, SWAP, BERT = Clip("real/anna.mp4", 6), Clip("fake/anna-swap.mp4", 6), Clip("real/bert.mp4", 6)
BERT_SWAP = Clip("fake/bert-swap.mp4", 6)
SIXTY = Clip("60.mp4", 2)
WHOLE = tuple(
    (split, (Clip(f"real/{split}.mp4", 6), Clip(f"fake/{split}-swap.mp4", 6))) for split in ("train", "val", "test")
)


def test_a_sound_dataset_has_only_ok_findings(tmp_path: Path) -> None:
    findings = findings_by_level(build_dataset(tmp_path, *WHOLE))
    assert "No original and no known person is in more than one split." in findings["ok"]
    assert "Every split has faces of every class." in findings["ok"]
    assert "cannot be checked" not in findings["warning"]


def nothing_named(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """As a plain folder is listed: labels, and at most what `more` says."""
    entry = Clip.entry
    monkeypatch.setattr(
        Clip, "entry", lambda clip: replace(entry(clip), **{"source_id": None, "identity": None, **more})
    )


def test_where_no_original_and_no_person_is_named_nothing_is_reported_as_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_named(monkeypatch)
    findings = findings_by_level(
        build_dataset(tmp_path, ("train", (ANNA, BERT)), ("val", (SWAP,)), ("test", (BERT_SWAP,)))
    )
    assert "is in more than one split" not in findings.get("ok", "")
    assert "Originals are known for 0 of the 2 videos not labelled real: " in findings["warning"]
    assert "People are known for 0 of 4 videos: " in findings["warning"]
    assert findings["warning"].count("cannot be checked") == 2


def test_what_is_known_of_clips_alone_is_not_reported_of_originals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_named(monkeypatch, footage="clip07")
    findings = findings_by_level(build_dataset(tmp_path, ("train", (ANNA, SWAP))))
    assert "No recording is in more than one split." in findings["ok"]
    assert findings["warning"].count("cannot be checked") == 2
    swap = Entry(video_id="", label=1, source_id="x", footage="y", related_identities=("z",))
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(swap, video_id=clip.name))
    findings = findings_by_level(build_dataset(tmp_path / "all", ("train", (ANNA,))))
    assert "No original, no recording and no known person is in more than one split." in findings["ok"]


def test_a_fake_without_an_original_among_others_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clip.entry
    monkeypatch.setattr(
        Clip, "entry", lambda clip: replace(entry(clip), source_id=None) if clip == BERT_SWAP else entry(clip)
    )
    findings = findings_by_level(build_dataset(tmp_path, ("train", (ANNA, SWAP, BERT_SWAP))))
    assert "No known person is in more than one split." in findings["ok"]
    assert "Originals are known for 1 of the 2 videos not labelled real: " in findings["warning"]


def test_of_people_who_are_known_for_few_inputs_nothing_is_reported_as_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Clip.entry
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), identity="anna" if clip == ANNA else None))
    findings = findings_by_level(build_dataset(tmp_path, ("train", (ANNA, SWAP, BERT, BERT_SWAP))))
    assert "person" not in findings["ok"]
    assert "No original is in more than one split." in findings["ok"]
    known = "People are known for 1 of 4 videos: whether a person is in more than one split cannot be checked for"
    assert known in findings["warning"]


@pytest.mark.parametrize(
    ("footage", "level", "words"),
    [
        ("real/clip07", "warning", "Recordings are known for 0 of 3 videos and guessed from file names for 3: "),
        ("interview 7", "ok", "No recording is in more than one split."),
    ],
)
def test_recordings_that_are_guessed_from_file_names_are_not_reported_as_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, footage: str, level: str, words: str
) -> None:
    nothing_named(monkeypatch, footage=footage)
    out = build_dataset(tmp_path, ("train", tuple(Clip(f"real/clip07/{number:04}.png", 1) for number in range(3))))
    findings = findings_by_level(out)
    assert words in findings[level]
    assert ("recording" in findings.get("ok", "")) == (level == "ok")


def test_recordings_that_are_known_for_few_inputs_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clip.entry
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), footage="f" if clip == ANNA else None))
    findings = findings_by_level(build_dataset(tmp_path, ("train", (ANNA, SWAP, BERT))))
    assert "recording" not in findings["ok"]
    assert "Recordings are known for 1 of 3 videos: " in findings["warning"]


def test_where_no_row_names_its_recording_none_is_reported_as_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Clip.entry
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), footage=clip.name))  # as a table's empty cell
    findings = findings_by_level(build_dataset(tmp_path, ("train", (ANNA, SWAP, BERT))))
    assert "recording" not in findings["ok"]
    assert "Recordings are known for 0 of 3 videos: " in findings["warning"]


def test_an_original_in_two_splits_is_an_error(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", (ANNA, BERT)), ("test", (SWAP,)))
    assert "1 original is in more than one split: real/anna.mp4 in train and test." in findings_by_level(out)["error"]
    assert "1 person is in more than one split: person of anna in train and test." in findings_by_level(out)["error"]
    assert figures(out)["crossing"]["first"] == [
        {"kind": "person", "name": "person of anna", "splits": ["train", "test"]},
        {"kind": "video", "name": "real/anna.mp4", "splits": ["train", "test"]},
    ]


def test_two_fakes_of_an_original_that_is_not_there_must_not_be_in_two_splits(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", (SWAP,)), ("val", (Clip("fake/anna-talk.mp4", 6),)))
    assert "real/anna.mp4 in train and val" in findings_by_level(out)["error"]


def test_a_person_whose_face_was_used_for_a_fake_must_not_be_in_another_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Clip.entry
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), related_identities=("the donor",)))
    out = build_dataset(tmp_path, ("train", (ANNA,)), ("test", (BERT,)))
    assert "1 person is in more than one split: the donor in train and test." in findings_by_level(out)["error"]


def test_a_split_without_one_class_is_an_error(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", (ANNA, SWAP)), ("val", (BERT,)))
    assert "val has no fake faces." in findings_by_level(out)["error"]
    assert "There is no test split." in findings_by_level(out)["warning"]


def test_a_class_that_may_be_misspelt_is_named_with_what_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, cleo = Clip.entry, Clip("fake/cleo-swap.mp4", 6)
    monkeypatch.setattr(Clip, "entry", lambda clip: replace(entry(clip), label=2) if clip == cleo else entry(clip))
    units = ("train", (ANNA, SWAP, cleo)), ("test", (BERT, BERT_SWAP))
    findings = findings_by_level(build_dataset(tmp_path, *units, labels=("real", "fake", "fkae")))
    assert (
        "The class 'fkae' (1 video) may be 'fake' misspelt: it is a class of its own. If so, fix the labels, and use a "
        "new OUT." in findings["error"]
    )
    assert "test has no" not in findings["error"]
    assert "faces of every class" not in findings.get("ok", "")


def test_that_no_class_is_known_to_be_real_is_a_finding_in_terminal_json_and_page(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", (ANNA, SWAP)), labels=("live", "spoof"))
    what = "No class is known to be real (of the labels, 'live' is 0, 'spoof' is 1): masks, pairs"
    result = run(out, "--json")
    assert what in " ".join(result.stderr.split())
    [finding] = [finding for finding in json.loads(result.stdout)["findings"] if finding["what"].startswith(what)]
    assert (finding["level"], "'real: NAME'" in finding["remedy"]) == ("warning", True)
    assert what in html.unescape((tmp_path / "inspect.html").read_text(encoding="utf-8"))


def test_a_class_without_faces_and_one_that_outweighs_the_others_are_named(tmp_path: Path) -> None:
    split_up = ("train", (ANNA,)), ("val", (BERT,)), ("test", (Clip("real/cleo.mp4", 5),))
    findings = findings_by_level(build_dataset(tmp_path, *split_up))
    assert "No split has fake faces." in findings["error"]
    assert "Every split has faces of every class." not in findings["ok"]
    out = build_dataset(tmp_path / "other", ("train", (Clip("real/anna.mp4", 45), Clip("fake/anna-swap.mp4", 5))))
    assert "real has 9 times as many faces as fake." in findings_by_level(out)["warning"]


def test_small_faces_failures_and_missing_videos_are_reported(dataset: Path) -> None:
    findings = findings_by_level(dataset)
    assert "100 % of the faces are smaller than 60 px." in findings["warning"]
    assert "2 videos listed in metadata are absent on disk." in findings["warning"]
    assert "2 of 13 inputs failed: 1 outside_root, 1 truncated." in findings["error"]


def test_partial_videos_are_named_with_what_they_lack(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, *WHOLE, ("train", (Clip("real/scratched.mp4", 6, "partial"),)))
    assert "1 of 8 inputs lack 1 damaged frame: real/scratched.mp4." in findings_by_level(out)["warning"]
    summary = figures(out)
    assert (summary["inputs"]["ok"], summary["inputs"]["partial"]) == (6, 1)
    assert [(video["video_id"], video["frames_wanted"], video["frames_decoded"]) for video in summary["partial"]] == [
        ("real/scratched.mp4", 7, 6)
    ]
    assert Manifest.read(out).splits["train"]["videos"] == 3
    assert verify(out).findings == []


def test_faces_that_the_dense_landmarks_do_not_fit_are_counted_and_shown(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", landmarker=DenseStandIn(misses=4))
    inspection = inspect_dataset(tmp_path / "out")
    scores = np.array(Index(tmp_path / "out").column("landmark_score"))
    unfitted = float((scores < 0.5).mean())
    assert 0.15 < unfitted < 0.35
    (finding,) = [finding for finding in inspection.findings if "dense landmarks" in finding.what]
    assert finding.level == "warning"
    assert f"do not fit {percent(unfitted)} of the faces" in finding.what
    assert "--min-landmark-score 0.5" in finding.remedy
    (sheet,) = [sheet for sheet in inspection.sheets.lowest if sheet.key == "landmark_score"]
    assert {picture.measure_texts["landmark_score"] for picture in sheet.pictures} == {"0.12"}
    yaw = inspection.statistics.total.measures["yaw"]
    assert yaw is not None
    assert (yaw.least, yaw.most) == (5, 5)


def test_dense_landmarks_that_fit_all_faces_are_reported_as_ok(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", landmarker=DenseStandIn(misses=10**9))
    (finding,) = [each for each in inspect_dataset(tmp_path / "out").findings if "dense landmarks" in each.what]
    assert (finding.level, finding.what) == ("ok", "The dense landmarks fit all faces.")


def test_one_video_that_outweighs_the_others_is_named(tmp_path: Path) -> None:
    clips = (Clip("real/long.mp4", 30), *(Clip(f"real/short{number}.mp4", 2) for number in range(10)))
    assert (
        "One video gives 60 % of all faces: real/long.mp4."
        in findings_by_level(build_dataset(tmp_path, ("train", clips)))["warning"]
    )


def test_people_who_were_left_out_of_the_draw_may_be_in_every_split(tmp_path: Path) -> None:
    inspection = inspect_dataset(build_dataset(tmp_path, ("train", (ANNA,)), ("test", (Clip("real/anna.mkv", 6),))))
    dropped = replace(inspection.outcomes, dropped_identities=frozenset({"person of anna"}))
    reported = {
        finding.level: finding.what
        for finding in collect_findings(inspection.statistics, dropped, pictures_read=1, pictures_unreadable=0)
        if "person" in finding.what
    }
    assert reported == {"warning": "1 person who links over 30 % of all videos may be in every split: person of anna."}


def test_measures_that_separate_classes_without_their_content_are_named(tmp_path: Path) -> None:
    inspection = inspect_dataset(build_dataset(tmp_path, *WHOLE))
    blurred = replace(inspection.statistics.classes["real"].measures["sharpness"], median=20.0)  # type: ignore[type-var]
    classes = dict(inspection.statistics.classes)
    classes["real"] = replace(classes["real"], measures={**classes["real"].measures, "sharpness": blurred})
    reported = [
        finding.what
        for finding in collect_findings(
            replace(inspection.statistics, classes=classes), inspection.outcomes, pictures_read=1, pictures_unreadable=0
        )
    ]
    assert any(
        line.startswith("fake faces are ") and line.endswith("times sharper than real ones (medians).")
        for line in reported
    )
    assert not any("larger" in line for line in reported)


@pytest.mark.parametrize(
    ("box_xyxy", "scale", "same"),
    [
        ((52, 12, 92, 52), 1, 2),  # the second person, whatever number its track has
        ((14, 10, 54, 50), 1, 1),
        ((104, 24, 184, 104), 2, 2),  # the same place in a picture twice as large
        ((100, 60, 120, 80), 1, None),  # somebody whom the source does not show
    ],
)
@pytest.mark.parametrize(
    "frames",
    [
        {"frame_index": np.array([7, 7, 7, 8]), "frame_number": np.array([-1, -1, -1, -1])},
        {"frame_index": np.array([0, 5, 5, 0]), "frame_number": np.array([30, 30, 30, 31])},
        {"frame_index": np.array([7, 7, 7, 8]), "frame_number": np.array([31, -1, -1, -1])},
    ],
    ids=["videos", "folders of frames", "a folder and a video"],
)
def test_a_fake_s_face_is_paired_by_its_place_in_the_same_frame(
    box_xyxy: tuple[int, ...], scale: int, same: int | None, frames: dict[str, NDArray[np.int64]]
) -> None:
    boxes = {0: box_xyxy, 1: (10, 10, 50, 50), 2: (50, 10, 90, 50), 3: (52, 12, 92, 52)}
    assert row_of_the_source({**frames, "pts_seconds": 0.04 * frames["frame_index"]}, boxes, scale) == same


def row_of_the_source(
    columns: dict[str, NDArray[Any]], boxes: dict[int, tuple[int, ...]], scale: int = 1
) -> int | None:
    """Which of all rows but the first is the face of that one, whose pictures are `scale` times as large."""
    scales = np.array([scale, *[1] * (len(boxes) - 1)])
    columns = {**columns, "frame_width": 200 * scales, "frame_height": 100 * scales}

    class _Rows:
        schema = pa.schema([("frame_index", pa.int32()), ("frame_number", pa.int64())])

        def boxes(self, _column: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            return np.array([boxes[row] for row in np.asarray(rows).tolist()], np.float32)

        def numbers(self, column: str, rows: NDArray[np.int64]) -> NDArray[Any]:
            return columns[column][rows]

        def codes(self, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.minimum(rows, 1)

        def categories(self, column: str) -> list[str]:
            return ["fake", "source"]

    index, rows = cast("Index", _Rows()), np.arange(len(boxes))
    return matching_source_row(index, VideoEnds.of_rows(index, rows), rows[1:], 0)


@pytest.mark.parametrize("start", [0.0, 1.5], ids="starts at {} s".format)
@pytest.mark.parametrize(("fake_frame", "same"), [(5, 2), (9, 3), (7, None)])
def test_a_fake_at_another_frame_rate_is_shown_beside_the_frame_of_its_time(
    fake_frame: int, same: int | None, start: float
) -> None:
    frame_index = np.array([fake_frame, 5, 10, 18, 20])
    seconds = np.append(fake_frame / 12.5, start + frame_index[1:] / 25)
    columns = {"frame_index": frame_index, "frame_number": np.full(5, -1), "pts_seconds": seconds}
    assert row_of_the_source(columns, dict.fromkeys(range(5), (10, 10, 50, 50))) == same


def test_a_fake_is_shown_beside_any_moment_of_a_source_that_is_fake_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Clip.entry

    def partly_fake(clip: Clip) -> Entry:  # but for its last frame, it is real
        listed = entry(clip)
        return replace(listed, label=1, outside_label=0, fake_segments=((0.19, 9.0),)) if clip == ANNA else listed

    monkeypatch.setattr(Clip, "entry", partly_fake)
    _, index = open_dataset(build_dataset(tmp_path, ("train", (ANNA, SWAP))))
    for seed in range(4):
        [pair] = [pair for pairs in find_source_pairs(index, np.random.default_rng(seed), 9)[:2] for pair in pairs]
        assert pair.source is not None
        assert index.value("frame_index", pair.source) == index.value("frame_index", pair.fake)


def test_fakes_that_could_not_be_compared_with_their_original_are_named(tmp_path: Path) -> None:
    inspection = inspect_dataset(build_dataset(tmp_path, *WHOLE))
    assert not any("no mask" in finding.what for finding in inspection.findings)
    lacking = replace(inspection.outcomes, manifest=replace(inspection.outcomes.manifest, faces_without_mask=74))
    reported = [
        (finding.level, finding.what)
        for finding in collect_findings(inspection.statistics, lacking, pictures_read=1, pictures_unreadable=0)
        if "no mask" in finding.what
    ]
    assert reported == [("warning", "74 faces of fakes have no mask, although there is an original or an own mask.")]


@pytest.mark.parametrize(
    ("reasons", "remedy"),
    [
        ({"empty": 1}, "Fix them and run precompute with --retry-failed."),
        ({"outside_root": 1}, "outside_root: --allow-root FOLDER."),
        (
            {"bridges_splits": 1, "empty": 1},
            "Fix them: --retry-failed; bridges_splits: a new OUT.",
        ),
    ],
)
def test_of_inputs_that_failed_what_helps_is_said_by_their_reasons(
    tmp_path: Path, reasons: dict[str, int], remedy: str
) -> None:
    inspection = inspect_dataset(build_dataset(tmp_path, *WHOLE))
    manifest = inspection.outcomes.manifest
    outcomes = replace(inspection.outcomes, manifest=replace(manifest, inputs={**manifest.inputs, "failed": reasons}))
    reported = collect_findings(inspection.statistics, outcomes, pictures_read=1, pictures_unreadable=0)
    assert [finding.remedy for finding in reported if " failed: " in finding.what] == [remedy]


# ---- whatever a dataset is like


def test_a_class_may_be_anything_and_a_label_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moods = ("calm", "angry", "sad [red]")
    monkeypatch.setattr(Clip, "entry", lambda clip: Entry(video_id=clip.name, label=clip.frames - 3))
    clips = tuple(Clip(f"{frames}.mp4", frames) for frames in (2, 3, 4))
    out = build_dataset(tmp_path, ("train", clips), labels=moods)
    summary = figures(out)
    assert {label: group["rows"] for label, group in summary["classes"].items()} == {
        "calm": 3, "angry": 4, "sad [red]": 0, "unknown": 2,
    }  # fmt: skip
    assert "2 faces (22 %) have no known label." in findings_by_level(out)["warning"]
    assert "No split has sad [red] faces." in findings_by_level(out)["error"]
    assert {label: len(pictures) for label, pictures in inspect_dataset(out).sheets.random.items()} == {
        "calm": 3, "angry": 4, "unknown": 2,
    }  # fmt: skip
    assert "sad [red]" in run(out).stderr


def test_a_class_called_unknown_is_distinguished_from_faces_without_a_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clip, "entry", lambda clip: Entry(video_id=clip.name, label=clip.frames - 3))
    clips = tuple(Clip(f"{frames}.mp4", frames) for frames in (2, 3, 4))
    out = build_dataset(tmp_path, ("train", clips), labels=("calm", "unknown"))
    rows = {label: group["rows"] for label, group in figures(out)["classes"].items()}
    assert rows == {"calm": 3, "unknown": 4, "no label": 2}
    assert {kind.label: group.rows for kind, group in inspect_dataset(out).statistics.groups.items()} == rows
    assert "2 faces (22 %) have no known label." in findings_by_level(out)["warning"]
    assert {label: len(pictures) for label, pictures in inspect_dataset(out).sheets.random.items()} == rows
    assert "no label" in run(out).stderr
    page = (tmp_path / "inspect.html").read_text()
    assert page.count("<h3>unknown <small>4 of 4") == page.count("<h3>no label <small>2 of 2") == 1


def test_very_many_classes_still_make_one_page_and_a_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Clip, "entry", lambda clip: Entry(video_id=clip.name, label=int(clip.name.removesuffix(".mp4")))
    )
    out = build_dataset(
        tmp_path, ("train", tuple(Clip(f"{number}.mp4", 2 + number % 3) for number in range(60))), ("val", (SIXTY,)),
        labels=tuple(f"mood {number}" for number in range(100)),
    )  # fmt: skip
    inspection = inspect_dataset(out)
    assert sum(map(len, inspection.sheets.random.values())) <= 192
    assert len(inspection.sheets.random) == 61
    assert {len(histogram.fractions) for histogram in inspection.histograms} == {8}
    assert len(run(out).stderr.splitlines()) < 3 * SCREEN_LINES
    assert "val has no faces of 60 classes: mood 0, mood 1, mood 2 and 57 more." in findings_by_level(out)["error"]
    assert "No split has faces of 39 classes: mood 61" in findings_by_level(out)["error"]


def test_a_dataset_without_rows_is_shown_as_that(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", NO_ROWS))
    result = run(out, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["whole"]["rows"], summary["groups"]) == (0, [])
    assert "The dataset holds no faces." in result.stderr
    assert "The dataset holds no faces." in (tmp_path / "inspect.html").read_text(encoding="utf-8")


def test_an_unfinished_dataset_says_how_to_finish_it(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    result = run(copy)
    assert result.exit_code == 0
    assert f"facefeed precompute SRC {copy}" in result.stderr
    assert "--retry-failed does the failed inputs again, --max-failed 1 or more accepts them" in result.stderr
    assert not (copy.parent / "inspect.html").exists()


def test_of_an_unfinished_dataset_all_failures_are_counted_and_the_first_named(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "manifest.json").unlink()
    many = [Failure(f"real/{number:04}.mp4", "empty" if number % 3 else "truncated", "cut") for number in range(3000)]
    monkeypatch.setattr(unfinished, "failures_in_source", lambda *_: (many, 3000))
    result = run(copy, "--json")
    assert "3,000 inputs failed: 2,000 empty, 1,000 truncated" in result.stderr
    assert "real/0019.mp4: empty: cut" in result.stderr
    assert "and 2,980 more" in result.stderr
    assert len(result.stderr.splitlines()) < 40
    assert len(json.loads(result.stdout)["failures"]) == 3000


def test_an_index_of_another_state_is_refused(copy: Path) -> None:
    manifest = Manifest.read(copy)
    publish_manifest(open_run_state(copy).paths, replace(manifest, fingerprint="0" * 64))
    result = run(copy)
    assert isinstance(result.exception, CorruptDataError)
    assert "--rebuild-index" in str(result.exception)


def test_damaged_images_are_counted_and_break_nothing(copy: Path) -> None:
    index = Index(copy)
    for row in range(len(index)):
        with (copy / index.value("file", row)).open("r+b") as file:
            file.seek(index.value("image_offset", row) + 20)
            file.write(b"\0damaged\0")
    result = run(copy, "--json")
    assert result.exit_code == 0, result.output
    pictures = json.loads(result.stdout)["pictures"]
    assert pictures["unreadable"] == pictures["shown"] > 20
    assert "are damaged" in result.stderr


def test_a_file_that_is_gone_breaks_nothing(copy: Path) -> None:
    next((copy / "faces" / "test").iterdir()).unlink()
    result = run(copy, "--json")
    assert result.exit_code == 0, result.output
    assert 0 < json.loads(result.stdout)["pictures"]["unreadable"] < json.loads(result.stdout)["pictures"]["shown"]
    (finding,) = [entry for entry in json.loads(result.stdout)["findings"] if "pictures" in entry["what"]]
    assert "gone" in finding["what"]
    assert "damaged" not in result.stderr
    assert "delete" not in result.stderr, "there is nothing to delete"


def test_a_unit_that_was_split_counts_once(tmp_path: Path) -> None:
    out = build_dataset(tmp_path, ("train", HALVED))
    assert figures(out)["whole"]["rows"] == 21
    assert finish_dataset(out).rows == 21


def test_names_that_a_terminal_would_act_on_are_shown_as_they_are(tmp_path: Path) -> None:
    nasty = "\x1b[2J[red]:boom:"
    out = build_dataset(tmp_path, ("train", (Clip(f"real/{nasty}.mp4", 3), Clip(f"real/{nasty}2.mp4", 3, "truncated"))))
    text = run(out).stderr
    assert "\x1b" not in text
    assert r"\x1b[2J[red]:boom:2.mp4" in text


def test_a_page_that_cannot_be_written_is_reported_in_one_line(dataset: Path, tmp_path: Path) -> None:
    for page in (tmp_path / "no folder" / "a.html", tmp_path):
        result = run(dataset, "--page", page)
        assert isinstance(result.exception, UsageError)
        assert str(result.exception).startswith(f"--page {page}: cannot be written (")
    assert list(tmp_path.iterdir()) == []


def test_a_page_replaces_the_previous_one_atomically(dataset: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("before")
    with page.open() as before:
        assert run(dataset, "--page", page).exit_code == 0
        assert before.read() == "before"  # it was replaced, not written over
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_for_a_device_or_through_a_link_replaces_neither(dataset: Path, tmp_path: Path) -> None:
    assert run(dataset, "--page", os.devnull).exit_code == 0
    assert Path(os.devnull).is_char_device()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a.html")
    assert run(dataset, "--page", link).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_is_one_of_facefeeds_and_says_its_options() -> None:
    output = CliRunner().invoke(main, ["inspect", "--help"]).output
    assert "--page" in output
    assert "--json" in output
