"""Videos that are renamed, moved or copied: what the splits and the reports say of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import pyarrow.dataset as pads
import pytest
from assets_in_process import in_process, new_folder
from assets_video import numbered, write_video
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import RefusedError, StoppedError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.report import print_summary, summary_json
from facefeed.pipeline.splits.assignment import SplitRatio
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=2), keep=FaceFilter(min_face_px=16), size_px=32)


def run(source: Path, out: Path, *, allow_leaks: bool = False, options: Options = OPTIONS) -> Summary:
    with in_process():
        return precompute(source, out, options=options, detector=FixedBoxDetector(), allow_leaks=allow_leaks)


def split_of(out: Path) -> dict[str, str]:
    rows = pads.dataset(out / "faces", partitioning=None).to_table(columns=["video_id", "split"]).to_pylist()
    return {row["video_id"]: row["split"] for row in rows}


def test_a_renamed_video_is_in_the_split_that_it_was_in(capsys: pytest.CaptureFixture[str]) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    for number in range(8):
        path = source / ("real", "fake")[number % 2] / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, [numbered(3 * number + frame, 64, 48) for frame in range(2)])
    run(source, out)
    before = split_of(out)
    assert {*before.values()} == {"train", "val", "test"}
    for path in [*source.rglob("*.mp4")]:
        path.rename(path.with_name(f"new-{path.name}"))
    write_video(source / "real/other.mp4", [numbered(99, 64, 48)] * 2)
    summary = run(source, out)
    assert summary.changes.renamed == {name.replace("/", "/new-"): name for name in before}
    after = split_of(out)
    assert {name: after[name.replace("/", "/new-")] for name in before} == before
    assert summary_json(summary)["changes"]["renamed"] == 8
    print_summary(summary, source, out)
    printed = " ".join(capsys.readouterr().err.split())
    assert "renamed or moved, with rows under both names: 8 inputs (fake/1.mp4 is now fake/new-1.mp4" in printed
    later = run(source, out)
    assert not later.changes.renamed
    assert len(later.equal_content.repeated) == 8


def test_a_video_renamed_after_a_run_that_was_stopped_is_in_the_split_that_it_was_in() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    videos = [source / "real" / f"{number}.mp4" for number in range(24)]
    for number, path in enumerate(videos):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, [numbered(3 * number + frame, 64, 48) for frame in range(2)])
    run(source, out)
    before = split_of(out)
    changed, *others = [path for path in videos if before[f"real/{path.name}"] == "test"]
    write_video(changed, [numbered(200 + frame, 64, 48) for frame in range(3)])

    def stop(*_: object) -> None:
        raise StoppedError("killed")

    with pytest.raises(StoppedError), in_process(stop):
        precompute(source, out, options=OPTIONS, detector=FixedBoxDetector())
    for path in others:
        path.rename(path.with_name(f"new-{path.name}"))
    assert len(run(source, out).changes.renamed) == len(others)
    after = split_of(out)
    assert {after[f"real/new-{path.name}"] for path in others} == {"test"}


@pytest.mark.parametrize("video", ["{}.mp4", "{}/talk.mp4"])
def test_a_video_is_in_the_split_of_its_frames_that_were_there_before(video: str) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    clips = [source / ("real", "fake")[number % 2] / f"clip{number}" for number in range(8)]
    for number, clip in enumerate(clips):
        clip.mkdir(parents=True)
        for frame in range(2):
            cv2.imwrite(str(clip / f"{frame:03d}.png"), numbered(3 * number + frame, 64, 48))
    run(source, out)
    before = split_of(out)
    assert len(before) == len(clips)
    assert {*before.values()} == {"train", "val", "test"}
    for number, clip in enumerate(clips):
        write_video(Path(video.format(clip)), [numbered(3 * number + frame, 64, 48) for frame in range(2)])
    run(source, out)
    after = split_of(out)
    assert {name: after[video.format(name)] for name in before} == before


@pytest.mark.parametrize("later", ["videos", "frames"])
def test_rows_of_a_table_that_turn_from_frames_to_their_video_or_back_stay_in_the_split_of_the_clip(later: str) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    rows: dict[str, list[str]] = {"videos": [], "frames": []}
    for number in range(8):
        label, images = ("real", "fake")[number % 2], [numbered(3 * number + frame, 64, 48) for frame in range(2)]
        clip = source / f"clip{number}"
        clip.mkdir(parents=True)
        write_video(clip.with_suffix(".mp4"), images)
        rows["videos"].append(f"{clip.name}.mp4,{label}")
        for frame, image in enumerate(images):
            cv2.imwrite(str(clip / f"{frame}.png"), image)
            rows["frames"].append(f"{clip.name}/{frame}.png,{label}")
    for kind in sorted(rows, key=lambda kind: kind == later):
        (source / "table.csv").write_text("\n".join(["path,label", *rows[kind]]))
        run(source / "table.csv", out)
    splits = split_of(out)
    assert len(splits) == 3 * 8
    assert {*splits.values()} == {"train", "val", "test"}
    clips = [{splits[f"clip{number}{end}"] for end in (".mp4", "/0.png", "/1.png")} for number in range(8)]
    assert [len(split) for split in clips] == [1] * 8


def test_an_image_of_a_clip_that_comes_where_another_one_is_gone_is_none_that_was_renamed() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    clip = source / "clip"
    clip.mkdir(parents=True)
    table = source / "table.csv"
    for frame, label in enumerate(("real", "fake")):
        cv2.imwrite(str(clip / f"{frame}.png"), numbered(frame, 64, 48))
        table.write_text(f"path,label\nclip/{frame}.png,{label}\n")
        summary = run(table, out)
    assert summary.changes.renamed == {}
    assert len(split_of(out)) == 2
    assert len({*split_of(out).values()}) == 1


def move(source: Path, old: str, new: str) -> None:
    (source / new).parent.mkdir(parents=True, exist_ok=True)
    (source / old).rename(source / new)


def write_videos(source: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        write_video(source / name, [numbered(3 * number + frame, 64, 48) for frame in range(2)])


def test_a_video_moved_to_another_split_is_not_kept_in_both() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "train/real/a.mp4", "train/fake/b.mp4", "test/real/c.mp4")
    run(source, out)
    move(source, "train/real/a.mp4", "test/real/a.mp4")
    message = r"^test/real/a\.mp4: is train/real/a\.mp4, .* into train, the source now says test.*--allow-leaks$"
    with pytest.raises(RefusedError, match=message):
        run(source, out)
    assert "test/real/a.mp4" not in split_of(out)
    run(source, out, allow_leaks=True)
    assert split_of(out)["test/real/a.mp4"] == "test"


def test_frames_of_a_video_that_come_into_another_split_are_refused() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "a.mp4", "b.mp4", "c.mp4")
    (source / "t.csv").write_text("path,label,split\na.mp4,real,train\nb.mp4,fake,train\nc.mp4,real,test\n")
    run(source / "t.csv", out)
    (source / "a").mkdir()
    cv2.imwrite(str(source / "a/000.png"), numbered(0, 64, 48))
    (source / "t.csv").write_text("path,label,split\na,real,test\nb.mp4,fake,train\nc.mp4,real,test\n")
    with pytest.raises(RefusedError, match=r"^a: is a\.mp4, renamed or moved, .* it would be in both"):
        run(source / "t.csv", out)


def test_a_video_moved_to_the_other_class_is_not_kept_as_both() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "real/a.mp4", "real/b.mp4", "fake/c.mp4")
    run(source, out)
    move(source, "real/a.mp4", "fake/a.mp4")
    for allow_leaks in (False, True):
        with pytest.raises(RefusedError, match=r"^fake/a\.mp4: is real/a\.mp4, .* it was real and is fake now"):
            run(source, out, allow_leaks=allow_leaks)


def test_a_video_without_a_label_may_be_moved_into_a_class() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "real/a.mp4", "fake/b.mp4", "new/c.mp4")
    run(source, out)
    move(source, "new/c.mp4", "real/c.mp4")
    assert run(source, out).changes.renamed == {"real/c.mp4": "new/c.mp4"}


def test_a_renamed_video_beside_an_accepted_leak_is_in_the_split_that_it_was_in_and_so_are_its_fakes() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    people = range(6)  # each is in train and in test
    write_videos(source, *(f"{kind}{person}.mp4" for kind in "abv" for person in people))
    rows = ["path,label,split,identity,source"]
    rows += [
        f"{kind}{person}.mp4,real,{split},{person},"
        for kind, split in (("a", "train"), ("b", "test"))
        for person in people
    ]
    (source / "t.csv").write_text("\n".join([*rows, *(f"v{person}.mp4,real,,{person}," for person in people)]))
    options = replace(OPTIONS, split_ratio=SplitRatio(train=50, val=0, test=50))
    run(source / "t.csv", out, allow_leaks=True, options=options)
    before = split_of(out)
    for person in people:
        move(source, f"v{person}.mp4", f"w{person}.mp4")
        write_video(source / f"f{person}.mp4", [numbered(90 + 3 * person + frame, 64, 48) for frame in range(2)])
        rows += [f"w{person}.mp4,real,,{person},", f"f{person}.mp4,fake,,{person},w{person}.mp4"]
    (source / "t.csv").write_text("\n".join(rows))
    assert len(run(source / "t.csv", out, allow_leaks=True, options=options).changes.renamed) == len(people)
    after, expected = split_of(out), [before[f"v{person}.mp4"] for person in people]
    assert {*expected} == {"train", "test"}
    assert [after[f"w{person}.mp4"] for person in people] == expected
    assert [after[f"f{person}.mp4"] for person in people] == expected


@pytest.mark.parametrize("content", [b"", b"<html>404</html>"], ids=["empty", "error page"])
@pytest.mark.parametrize("name", ["fake/other.mp4", "real/other.mp4"])
def test_a_broken_file_is_not_one_that_was_taken_away_and_broken_alike(content: bytes, name: str) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "real/a.mp4", "fake/b.mp4")
    (source / "real/broken.mp4").write_bytes(content)
    run(source, out)
    (source / "real/broken.mp4").unlink()
    (source / name).write_bytes(content)
    summary = run(source, out)
    assert summary.changes.renamed == {}
    assert [failure.video_id for failure in summary.failures] == [name]


def test_a_video_that_comes_where_broken_frames_were_may_have_another_class() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "a.mp4", "b.mp4")
    (source / "k").mkdir()
    (source / "k/0.png").write_bytes(b"no image")
    (source / "t.csv").write_text("path,label\na.mp4,real\nb.mp4,fake\nk,real\n")
    run(source / "t.csv", out)
    assert "k" not in split_of(out)
    shutil.rmtree(source / "k")
    write_videos(source, "k.mp4")
    (source / "t.csv").write_text("path,label\na.mp4,real\nb.mp4,fake\nk.mp4,fake\n")
    run(source / "t.csv", out)
    assert "k.mp4" in split_of(out)


def test_photos_that_come_where_one_is_gone_are_drawn_each_by_itself() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    (source / "real").mkdir(parents=True)
    for number in range(4):
        cv2.imwrite(str(source / f"real/{number}.jpg"), numbered(number, 64, 48))
    run(source, out)
    (source / "real/0.jpg").unlink()
    for number in range(4, 20):
        cv2.imwrite(str(source / f"real/{number}.jpg"), numbered(number, 64, 48))
    run(source, out)
    assert {split_of(out)[f"real/{number}.jpg"] for number in range(4, 20)} == {"train", "val", "test"}


def test_a_photo_that_was_saved_anew_with_a_name_in_other_case_is_in_the_split_that_it_was_in() -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    (source / "real").mkdir(parents=True)
    for number in range(12):
        cv2.imwrite(str(source / f"real/{chr(65 + number)}.PNG"), numbered(number, 64, 48))
    run(source, out)
    before = split_of(out)
    assert {*before.values()} == {"train", "val", "test"}
    for number in range(12):
        (source / f"real/{chr(65 + number)}.PNG").unlink()
        cv2.imwrite(str(source / f"real/{chr(97 + number)}.png"), numbered(50 + number, 64, 48))
    run(source, out)
    after = split_of(out)
    assert {name: after[name.lower()] for name in before} == before


def test_copies_of_a_video_under_two_labels_or_in_two_splits_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    source.mkdir()
    contents = {"label": ("a.mp4", "b.mp4"), "split": ("c.mp4", "d.mp4"), "none": ("e.mp4", "f.mp4")}
    for number, names in enumerate(contents.values()):
        for name in names:
            write_video(source / name, [numbered(9 * number + frame, 64, 48) for frame in range(2)])
    rows = ("a.mp4,real,train", "b.mp4,fake,train", "c.mp4,real,val", "d.mp4,real,test", "e.mp4,fake,test")
    table = source / "table.csv"
    table.write_text("\n".join(["path,label,split", *rows, "f.mp4,fake,test"]))
    summary = run(table, out)
    named = "a.mp4 (real, train) = b.mp4 (fake, train), c.mp4 (real, val) = d.mp4 (real, test)"
    assert summary_json(summary)["equal_content"][1]["inputs"] == [
        {"video_id": "c.mp4", "label": "real", "split": "val"},
        {"video_id": "d.mp4", "label": "real", "split": "test"},
    ]
    print_summary(summary, table, out)
    assert f"2 contents under several labels or in several splits, in files of equal bytes: {named};" in " ".join(
        capsys.readouterr().err.split()
    )
    assert [
        text
        for text in dry_run(table, out, options=OPTIONS, detector=FixedBoxDetector()).survey.caveats
        if named in text
    ]
    [finding] = [finding for finding in inspect_dataset(out).findings if named in finding.what]
    assert finding.level == "error"


def test_equal_files_of_one_label_and_split_are_reported_by_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    folder = new_folder()
    source, out = folder / "source", folder / "out"
    write_videos(source, "train/real/a.mp4", "train/fake/b.mp4", "test/real/c.mp4", "test/fake/e.mp4")
    shutil.copy(source / "train/real/a.mp4", source / "train/real/copy.mp4")
    copies = "train/real/a.mp4 (real, train) = train/real/copy.mp4 (real, train)"
    named = f"1 content in OUT more than once under one label and in one split, in 2 files of equal bytes: {copies};"
    for number in range(3):  # the first run, one that adds a video, and one that adds nothing
        if number == 1:
            write_video(source / "test/fake/d.mp4", [numbered(90 + frame, 64, 48) for frame in range(2)])
        summary = run(source, out)
        print_summary(summary, source, out)
        assert named in " ".join(capsys.readouterr().err.split())
        assert [each["video_id"] for each in summary_json(summary)["repeated_content"][0]["inputs"]] == [
            "train/real/a.mp4", "train/real/copy.mp4",
        ]  # fmt: skip
    survey = dry_run(source, out, options=OPTIONS, detector=FixedBoxDetector()).survey
    assert [text for text in survey.caveats if copies in text]
    [finding] = [finding for finding in inspect_dataset(out).findings if copies in finding.what]
    assert finding.level == "warning"
