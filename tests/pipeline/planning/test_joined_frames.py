"""A folder of extracted frames is one input: which folders are, what it is called, and what OUT has planned already."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import pyarrow.dataset as pads
import pytest
from assets_in_process import in_process, new_folder
from assets_video import numbered, write_video
from facefeed.pipeline.dryrun import run as dry_run_module
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.dryrun.trials import Trials
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning import image_clips
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio
from facefeed.pipeline.video import Sampling
from rich.console import Console


def lay(root: Path, names: Iterable[str]) -> Path:
    """Files that are listed and never opened; each has a size of its own."""
    for number, name in enumerate(names, 1):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * number)
    return root


def frames(folder: str, count: int = 3) -> list[str]:
    return [f"{folder}/{number:04}.png" for number in range(count)]


def clips(src: Path, planned: Sequence[Entry] = (), allowed: Sequence[Path] = ()) -> Listing:
    listing = list_source(src, allowed=allowed)
    return with_clips(listing, planned, (listing.root.resolve(), *allowed))


def ids(listing: Listing) -> list[str]:
    return [entry.video_id for entry in listing.entries]


def test_images_that_are_now_beside_a_single_video_are_no_change_of_what_is_planned(tmp_path: Path) -> None:
    """They may be in another split than it, which is fixed: else every run would be refused from then on."""
    src = lay(tmp_path, ["real/anna/1.png", "real/anna/talk.mp4", "real/anna/talk2.mp4"])
    splits = dict(
        zip(["real/anna", "real/anna/talk.mp4", "real/anna/talk2.mp4"], ["train", "val", "train"], strict=True)
    )
    planned = {entry.video_id: (entry, splits[entry.video_id]) for entry in clips(src).entries}
    (src / "real/anna/talk2.mp4").unlink()
    changes = find_changes(clips(src, [entry for entry, _ in planned.values()]), planned)
    assert ([entry.video_id for entry in changes.relinked], changes.changed) == (["real/anna/talk.mp4"], [])
    assert changes.gone == ["real/anna/talk2.mp4"]


def test_a_video_and_its_frames_that_are_in_two_splits_before_that_is_known_are_named_in_a_warning() -> None:
    folder = new_folder()
    src, out = folder / "source", folder / "out"
    ratio = SplitRatio(train=50, val=0, test=50)
    options = Options(sampling=Sampling(every=2), keep=FaceFilter(min_face_px=16), size_px=32, split_ratio=ratio)
    settings: dict[str, Any] = {"options": options, "detector": FixedBoxDetector()}
    people = [src / f"real/person{number}" for number in range(6)]
    for number, person in enumerate(people):
        person.mkdir(parents=True)
        for start, name in enumerate(("talk", "other")):
            write_video(person / f"{name}.mp4", [numbered(20 * number + 3 * start + frame, 64, 48) for frame in (0, 1)])
        cv2.imwrite(str(person / "1.png"), numbered(200 + number, 64, 48))
    write_video(src / "fake.mp4", [numbered(240, 64, 48)] * 2)
    with in_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dry_run_module, "_try_and_forecast", lambda *_, **__: (Trials(), None))
        precompute(src, out, **settings)
        rows = pads.dataset(out / "faces", partitioning=None).to_table(columns=["video_id", "split"]).to_pylist()
        split = {row["video_id"]: row["split"] for row in rows}
        for person in people:  # now the frames may be of the one video that is left
            (person / "other.mp4").unlink()
        names = [(f"real/{person.name}", f"real/{person.name}/talk.mp4") for person in people]
        apart = [f"{a} ({split[a]}) = {b} ({split[b]})" for a, b in names if split[a] != split[b]]
        caveats = dry_run(src, out, **settings).survey.caveats
        stream = io.StringIO()
        progress = Progress(Console(file=stream, width=10_000, highlight=False))
        precompute(src, out, progress=progress, **settings)
    assert 1 < len(apart) < len(people)
    text = f"{len(apart)} recordings in several splits: {', '.join(apart[:3])}"
    assert [caveat for caveat in caveats if caveat.startswith(text)]
    assert text in stream.getvalue()


class PathsAlone:
    """A layout of one's own that says nothing of recordings."""

    name = "own"
    needs = "a folder"

    def fits(self, src: Path) -> bool:
        return True

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        files = sorted(path for path in src.rglob("*") if path.is_file())
        entries = [Entry(video_id=path.relative_to(src).as_posix(), size_bytes=1, label=0) for path in files]
        return Listing(layout=self.name, root=src, labels=("real", "fake"), entries=entries)


@pytest.mark.parametrize(
    ("layout", "names", "comes"),
    [
        ("folder", ["real/p/talk.mp4"], "real/p/1.png"),
        ("uadfv", ["real/0000.mp4", "fake/0000_fake.mp4", "real/0001/talk.mp4"], "real/0001/1.png"),
        (
            "fakeavceleb",
            ["RealVideo-RealAudio/African/men/id1/1.mp4", "FakeVideo-RealAudio/African/men/id1/1_x.mp4"],
            "RealVideo-RealAudio/African/men/id1/thumb.png",
        ),
        (PathsAlone(), ["real/p/talk.mp4"], "real/p/1.png"),
        (PathsAlone(), ["real/frames/p/1.png"], "real/faces/p/1.png"),
    ],
    ids=["folder", "uadfv", "fakeavceleb", "own", "own frames"],
)
def test_an_image_that_comes_beside_a_video_or_goes_is_no_change_of_other_inputs(
    tmp_path: Path, layout: Any, names: list[str], comes: str
) -> None:
    def listed() -> Listing:
        return with_clips(list_source(tmp_path, layout), (), (tmp_path,))

    lay(tmp_path, names)
    before = listed()
    (tmp_path / comes).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / comes).touch()
    after = listed()
    assert len(after.entries) == len(before.entries) + 1
    for old, new in ((before, after), (after, before)):
        assert find_changes(new, {entry.video_id: (entry, "train") for entry in old.entries}).changed == []


@pytest.mark.parametrize("row", ["p,real,,", "p/1.png,real,,alpha"])
def test_a_row_that_joins_recordings_of_a_column_is_no_change_of_the_others(tmp_path: Path, row: str) -> None:
    lay(tmp_path, ["f1.mp4", "b1.mp4", "b2.mp4", "p/1.png"])
    rows = "path,label,source,footage\nf1.mp4,fake,p.mp4,sess\nb1.mp4,real,,sess\nb2.mp4,real,,sess\n"
    table = tmp_path / "t.csv"
    table.write_text(rows)
    planned = {entry.video_id: (entry, "train") for entry in list_source(table).entries}
    table.write_text(rows + row)
    changes = find_changes(list_source(table), planned)
    assert {entry.video_id for entry in changes.changed} <= {"f1.mp4"}, "whose original is there now"


def test_the_frames_of_a_folder_are_one_entry(tmp_path: Path) -> None:
    lay(tmp_path, frames("real/clip"))
    for number, name in enumerate(("0000.png", "0001.png", "0002.png")):
        os.utime(tmp_path / "real/clip" / name, ns=(0, 100 - number))
    (entry,) = clips(tmp_path).entries
    assert (entry.video_id, entry.size_bytes, entry.mtime_ns, entry.num_images) == ("real/clip", 1 + 2 + 3, 100, 3)
    assert (entry.label, entry.footage) == (0, "real/clip")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([*frames("real/a"), *frames("fake/b")], ["fake/b", "real/a"]),
        (["talk/1.jpg"], ["talk"]),  # so that a second one changes the clip, and makes no other input
        (["talk/frames/1.jpg", "talk/faces/1.jpg"], ["talk/faces", "talk/frames"]),
        (["talk/a.png", "talk/b.png", "talk/c.mp4", "talk/d.mp4"], ["talk", "talk/c.mp4", "talk/d.mp4"]),
        (["real/clip_0001.png", "real/clip_0002.png"], ["real/clip_0001.png", "real/clip_0002.png"]),
        (["real/photos/1.jpg", "train/2.jpg", "3.jpg"], ["3.jpg", "real/photos/1.jpg", "train/2.jpg"]),
    ],
)
def test_which_folders_are_clips(tmp_path: Path, names: list[str], expected: list[str]) -> None:
    assert sorted(ids(clips(lay(tmp_path, names)))) == expected


def test_faces_and_frames_of_one_clip_stay_together_though_they_are_two_inputs(tmp_path: Path) -> None:
    listing = clips(lay(tmp_path, ["talk/frames/1.jpg", "talk/faces/1.jpg"]))
    assert {entry.footage for entry in listing.entries} == {"talk"}


FFPP = [
    *frames("original_sequences/youtube/c23/frames/033"), *frames("original_sequences/youtube/c23/frames/097"),
    *frames("manipulated_sequences/Deepfakes/c23/frames/033_097"),
]  # fmt: skip
CELEB = [*frames("Celeb-real/frames/id0_0000"), *frames("Celeb-synthesis/frames/id0_id1_0000")]


@pytest.mark.parametrize(
    ("names", "fake", "original", "identity"),
    [
        (FFPP, "manipulated_sequences/Deepfakes/c23/frames/033_097", "original_sequences/youtube/c23/frames/033",
         "youtube/097"),
        (CELEB, "Celeb-synthesis/frames/id0_id1_0000", "Celeb-real/frames/id0_0000", "id1"),
    ],
    ids=["ffpp", "celebdf"],
)  # fmt: skip
def test_clips_of_published_sets_have_what_their_videos_have(
    tmp_path: Path, names: list[str], fake: str, original: str, identity: str
) -> None:
    listing = clips(lay(tmp_path, names))
    entries = {entry.video_id: entry for entry in listing.entries}
    assert len(entries) == len(names) / 3
    assert (entries[fake].label, entries[fake].source_id, entries[fake].identity) == (1, original, identity)
    assert entries[original].source_id is None


def test_frames_of_dfdc_are_clips_with_their_originals(tmp_path: Path) -> None:
    lay(tmp_path, [*frames("frames/aaa"), *frames("frames/bbb")])
    (tmp_path / "metadata.json").write_text(
        '{"aaa.mp4": {"label": "REAL"}, "bbb.mp4": {"label": "FAKE", "original": "aaa.mp4"}}'
    )
    listing = clips(tmp_path)
    assert [(entry.video_id, entry.label, entry.source_id) for entry in listing.entries] == [
        ("frames/aaa", 0, None), ("frames/bbb", 1, "frames/aaa"),
    ]  # fmt: skip


def test_pictures_in_the_folder_of_a_published_set_s_videos_stay_on_their_own(tmp_path: Path) -> None:
    names = ["YouTube-real/00170.png", "YouTube-real/00171.png"]
    assert ids(clips(lay(tmp_path, names))) == names


def custom(root: Path, entries: Sequence[Entry]) -> Listing:
    lay(root, [entry.video_id for entry in entries])
    return Listing(layout="mine", root=root, labels=("real", "fake"), entries=list(entries))


def entry(name: str, **more: Any) -> Entry:
    return Entry(video_id=name, **{"label": 0, **more})


@pytest.mark.parametrize(
    "differing", [{"label": 1}, {"split": "val"}, {"identity": "ben"}, {"source_id": "real/a/0000.png"}]
)
def test_frames_whose_metadata_differ_stay_on_their_own(tmp_path: Path, differing: dict[str, Any]) -> None:
    entries = [entry("talk/0000.png"), entry("talk/0001.png", **differing)]
    assert with_clips(custom(tmp_path, entries), (), (tmp_path,)).entries == entries


def test_a_layout_that_lists_a_part_of_a_folder_gets_no_more_than_that(tmp_path: Path) -> None:
    lay(tmp_path, ["talk/0002.png"])
    entries = [entry("talk/0000.png"), entry("talk/0001.png")]
    assert with_clips(custom(tmp_path, entries), (), (tmp_path,)).entries == entries


def test_frames_of_an_original_that_stays_apart_stay_apart_too_so_that_no_link_is_lost(tmp_path: Path) -> None:
    original = [entry("a/0.png", identity="anna"), entry("a/1.png", identity="ben")]
    fake = [entry(f"b/{number}.png", label=1, source_id=f"a/{number}.png") for number in range(2)]
    fake_of_fake = [entry(f"c/{number}.png", label=1, source_id=f"b/{number}.png") for number in range(2)]
    alone = [entry(f"d/{number}.png") for number in range(2)]
    listing = with_clips(custom(tmp_path, [*original, *fake, *fake_of_fake, *alone]), (), (tmp_path,))
    assert ids(listing) == [*(one.video_id for one in (*original, *fake, *fake_of_fake)), "d"]


def test_an_original_of_a_single_image_stays_apart(tmp_path: Path) -> None:
    entries = [entry("a/0.png"), entry("a/1.png"), entry("fake/x.png", label=1, source_id="a/1.png")]
    assert with_clips(custom(tmp_path, entries), (), (tmp_path,)).entries == entries


def test_a_clip_may_be_made_from_a_video(tmp_path: Path) -> None:
    entries = [entry(f"b/{number}.png", label=1, source_id="a.mp4") for number in range(2)]
    assert [one.source_id for one in with_clips(custom(tmp_path, entries), (), (tmp_path,)).entries] == ["a.mp4"]


def test_a_link_out_of_the_source_fails_alone_and_one_into_an_allowed_folder_is_a_frame(tmp_path: Path) -> None:
    src, outside = lay(tmp_path / "src", frames("real/clip")), lay(tmp_path / "outside", ["x.png"])
    (src / "real/clip/0003.png").symlink_to(outside / "x.png")
    clip, failed = sorted(clips(src).entries, key=lambda one: one.video_id)
    assert (clip.num_images, failed.video_id, failed.problem) == (3, "real/clip/0003.png", "outside_root")
    assert [one.num_images for one in clips(src, allowed=[outside]).entries] == [4]


def table(root: Path, *rows: str) -> Path:
    (root / "t.csv").write_text("\n".join(["path,label,source", *rows]))
    return root / "t.csv"


def test_rows_of_a_table_stay_as_they_are(tmp_path: Path) -> None:
    lay(tmp_path, frames("a"))
    assert ids(clips(table(tmp_path, *(f"{name},real," for name in frames("a"))))) == frames("a")


def test_a_row_that_names_a_folder_of_images_is_a_clip(tmp_path: Path) -> None:
    lay(tmp_path, [*frames("a"), *frames("b", 2), "empty/notes.txt"])
    listing = clips(table(tmp_path, "a,real,", "b,fake,a", "empty,real,"))
    assert [(one.video_id, one.num_images, one.label, one.source_id) for one in listing.entries] == [
        ("a", 3, 0, None), ("b", 2, 1, "a"),
    ]  # fmt: skip
    assert listing.missing == ["empty"]


def test_a_table_that_names_a_folder_and_an_image_in_it_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, frames("a"))
    with pytest.raises(UsageError, match=r"names 'a/0001.png', and the folder that it lies in.*drop one"):
        list_source(table(tmp_path, "a,real,", "a/0001.png,real,"))


def digest(root: Path) -> str | None:
    (clip,) = clips(root).entries
    return clip.images_digest


def test_any_change_in_a_folder_is_noticed(tmp_path: Path) -> None:
    folder = lay(tmp_path, frames("real/clip")) / "real/clip"
    seen = [digest(tmp_path)]
    assert digest(tmp_path) == seen[0]
    (folder / "0001.png").rename(folder / "0009.png")
    seen.append(digest(tmp_path))
    os.utime(folder / "0009.png", ns=(0, 1))  # older: the latest time and the sizes stay as they are
    seen.append(digest(tmp_path))
    (folder / "0002.png").unlink()
    seen.append(digest(tmp_path))
    (folder / "0003.png").write_bytes(b"xx")
    seen.append(digest(tmp_path))
    assert len(set(seen)) == 5


def planned(*names: str) -> list[Entry]:
    return [Entry(video_id=name) for name in names]


def test_an_out_with_frames_on_their_own_goes_on_so_with_a_warning(tmp_path: Path) -> None:
    names = [*frames("real/old"), *frames("real/new")]
    listing = clips(lay(tmp_path, names), planned(*frames("real/old")))
    assert sorted(ids(listing)) == sorted(names)
    (warning,) = (text for text in listing_warnings(listing) if "inputs of their own" in text)
    assert "the frames of 2 folders stay that" in warning
    assert not [text for text in listing_warnings(clips(tmp_path)) if "inputs of their own" in text]


def test_a_folder_of_more_images_than_a_clip_has_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_clips, "_MAX_USUAL_IMAGES", 3)
    assert clips(lay(tmp_path, frames("real/a", 3))).warnings == ()
    (warning,) = clips(lay(tmp_path, frames("img_celeba", 4))).warnings
    assert warning.startswith("img_celeba: 4 images are one clip, which one worker reads")


@pytest.mark.parametrize(
    ("stems", "named"),
    [
        (["000_001", "002_003", "004_005"], "3 different stems ('000_001', '002_003', ...);"),
        (["anna", "ben-2"], "2 different stems ('anna', 'ben-2');"),
        (["anna"], None),
        (["clip_0012", "clip_0013"], None),  # of frame and face
        (["0012", "0013"], None),
        (["0012_1", "0013_1"], None),
    ],
)
def test_frames_of_several_videos_in_one_folder_are_reported_with_what_to_do(
    tmp_path: Path, stems: Sequence[str], named: str | None
) -> None:
    lay(tmp_path, [f"Face2Face/{stem}_{number:04}.jpg" for stem in stems for number in range(2)])
    warnings = clips(tmp_path).warnings
    if named is None:
        assert warnings == ()
    else:
        (warning,) = warnings
        images = 2 * len(stems)
        assert warning.startswith(f"Face2Face: its {images} images are one clip, though their names have {named}")
        assert f"put the frames of each into a folder of its own, such as 'Face2Face/{stems[0]}'" in warning


def test_further_folders_with_frames_of_several_videos_are_counted(tmp_path: Path) -> None:
    lay(tmp_path, [f"{folder}/{stem}_01.jpg" for folder in ("FS", "NT", "F2F") for stem in ("000_001", "002_003")])
    (warning,) = clips(tmp_path).warnings
    assert warning.startswith("F2F: its 2 images are one clip")
    assert ", and so are 2 other folders; where these are several videos" in warning


def test_an_out_with_clips_gets_more_of_them(tmp_path: Path) -> None:
    lay(tmp_path, [*frames("real/old"), *frames("real/new")])
    assert sorted(ids(clips(tmp_path, clips(tmp_path).entries[:1]))) == ["real/new", "real/old"]


def test_images_are_never_in_out_both_in_a_clip_and_on_their_own(tmp_path: Path) -> None:
    lay(tmp_path, frames("a"))
    (clip,) = clips(tmp_path).entries
    with pytest.raises(RefusedError, match="OUT has its folder as one clip, and now this image is an input of its own"):
        clips(table(tmp_path, *(f"{name},real," for name in frames("a"))), [clip])
    with pytest.raises(RefusedError, match="OUT has its images as inputs of their own, and now it is one clip"):
        clips(table(tmp_path, "a,real,"), planned(*frames("a")))


def test_recordings_of_clips_are_guessed_from_the_names_of_folders(tmp_path: Path) -> None:
    warnings = listing_warnings(clips(lay(tmp_path, [*frames("real/a"), *frames("fake/b")])))
    assert any("recordings are known for 0 of 2 inputs and guessed from file names for 2" in text for text in warnings)
