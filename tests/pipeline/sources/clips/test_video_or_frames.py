"""What a user notices of a tree in which clips are videos, folders of extracted frames, or both: each is used once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from assets_random import examples
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.sources import Listing, list_source
from facefeed.pipeline.sources.media import media_files
from facefeed.pipeline.splits.assignment import group_sizes
from hypothesis import given
from hypothesis import strategies as st

CELEB = ("Celeb-real/{}/id0_0000", "Celeb-synthesis/{}/id0_id1_0000", "YouTube-real/{}/00170")
FFPP = (
    "original_sequences/youtube/c23/{}/033",
    "manipulated_sequences/Deepfakes/c23/{}/033_097",
    "original_sequences/youtube/c23/{}/097",
)
FOLDER = ("real/{}/anna", "fake/{}/anna_swap", "real/{}/ben")
UADFV = ("real/{}/0000", "fake/{}/0000_fake", "real/{}/0001")
SETS = {"celebdf": CELEB, "ffpp": FFPP, "folder": FOLDER, "uadfv": UADFV}
BOTH_USED = "used as extracted frames, and 2 others as videos"

sets = pytest.mark.parametrize("clips", SETS.values(), ids=SETS)


def lay(root: Path, *, videos: Iterable[str] = (), frames: Iterable[str] = (), number: int = 3) -> Path:
    """Lays clips as empty files: as `videos/<clip>.mp4`, as `frames/<clip>/0001.png` and so on."""
    names = [f"{clip.format('videos')}.mp4" for clip in videos]
    names += [f"{clip.format('frames')}/{index:04}.png" for clip in frames for index in range(1, number + 1)]
    return lay_files(root, names)


def lay_files(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def with_joined_frames(listing: Listing) -> Listing:
    return with_clips(listing, (), (listing.root,))


@sets
def test_a_clip_that_is_there_in_both_forms_is_used_once_as_the_video(tmp_path: Path, clips: tuple[str, ...]) -> None:
    lay(tmp_path, videos=clips)
    alone = list_source(tmp_path)
    listing = list_source(lay(tmp_path, frames=clips))
    assert listing.entries == alone.entries
    left_out = [text for text in listing.warnings if "left out" in text]
    assert left_out == ["9 extracted frames are left out, beside the videos of their clips: each clip is used once, "
                        "as the video"]  # fmt: skip


@sets
@pytest.mark.parametrize("alone", range(3))
def test_a_clip_without_a_video_is_used_as_its_frames(tmp_path: Path, clips: tuple[str, ...], alone: int) -> None:
    """Also an original or a fake: labels, originals and splits are what they are of videos."""
    videos = [clip for clip in clips if clip != clips[alone]]
    listing = list_source(lay(tmp_path, videos=videos, frames=clips))
    joined = {entry.video_id: entry for entry in with_joined_frames(listing).entries}
    as_videos = {entry.video_id: entry for entry in list_source(lay(tmp_path / "v", videos=clips)).entries}
    names = {f"{clip.format('videos')}.mp4": f"{clip.format('videos')}.mp4" for clip in videos}
    names[f"{clips[alone].format('videos')}.mp4"] = clips[alone].format("frames")
    assert set(joined) == set(names.values())
    for video, name in names.items():
        assert joined[name].label == as_videos[video].label
        source = as_videos[video].source_id
        assert joined[name].source_id == names.get(source or "")
    assert joined[clips[alone].format("frames")].num_images == 3
    assert any(BOTH_USED in text for text in listing.warnings)
    assert any("6 extracted frames are left out" in text for text in listing.warnings)
    assert sorted(listing.missing) == []
    assert sorted(group_sizes(joined.values(), ())) == sorted(group_sizes(as_videos.values(), ()))


@pytest.mark.parametrize(
    ("videos", "frames", "original"),
    [
        (["Celeb-real/id0_0000"], ["Celeb-synthesis/frames/id0_id1_0000"], "Celeb-real/id0_0000.mp4"),
        (["original/033", "Deepfakes/097_033", "original/097"], ["Deepfakes/frames/033_097"], "original/033.mp4"),
    ],
)
def test_a_video_beside_no_folder_of_videos_is_not_missing_to_the_frames_of_its_fake(
    tmp_path: Path, videos: list[str], frames: list[str], original: str
) -> None:
    listing = list_source(lay(tmp_path, videos=videos, frames=frames))
    assert {entry.source_id for entry in listing.entries if "frames" in entry.video_id} == {original}
    assert listing.missing == []


def test_frames_of_an_original_keep_its_fakes_in_their_split_also_where_they_stay_apart(tmp_path: Path) -> None:
    listing = list_source(lay(tmp_path, videos=CELEB[1:], frames=CELEB[:1]))
    people_dropped = {"id0", "id1"}
    assert sorted(group_sizes(listing.entries, people_dropped)) == [1, 4]


def test_a_table_and_lists_of_a_set_follow_the_same_rule(tmp_path: Path) -> None:
    lay(tmp_path, videos=["{}/a", "{}/b"], frames=["{}/a", "{}/c"])
    (tmp_path / "t.csv").write_text(
        "path,label\nvideos/a.mp4,real\nframes/a,real\nvideos/b.mp4,fake\nframes/c,fake\n", encoding="utf-8"
    )
    listing = list_source(tmp_path / "t.csv")
    assert [entry.video_id for entry in listing.entries] == ["frames/c", "videos/a.mp4", "videos/b.mp4"]
    assert [text.partition(":")[0] for text in listing.warnings] == [
        "3 extracted frames are left out, beside the videos of their clips",
        f"1 clip is {BOTH_USED}",
    ]


def test_dfdc_finds_the_label_of_either_form(tmp_path: Path) -> None:
    part = lay(tmp_path / "dfdc_train_part_0", frames=["{}/bbb"])
    (part / "aaa.mp4").touch()
    metadata = {"aaa.mp4": {"label": "REAL"}, "bbb.mp4": {"label": "FAKE", "original": "aaa.mp4"}}
    (part / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    real, fake = with_joined_frames(list_source(tmp_path)).entries
    assert (real.video_id, real.label) == ("dfdc_train_part_0/aaa.mp4", 0)
    assert (fake.video_id, fake.label, fake.source_id) == ("dfdc_train_part_0/frames/bbb", 1, real.video_id)


@pytest.mark.parametrize(
    ("video", "frame"),
    [
        ("real/b/b.mp4", "real/b/frames/0001.png"),
        ("clip07/video.mp4", "clip07/frames/0001.png"),
        ("real/happy_faces.mp4", "real/frames/happy_faces/0001.png"),  # a video whose own name ends so
        ("clip07/Videos/Talk.MP4", "clip07/faces/1.jpg"),
        ("real/033.mp4", "real/033_frames/0001.png"),
    ],
)
def test_frames_in_the_folder_of_a_single_video_are_used_as_that_video_alone(
    tmp_path: Path, video: str, frame: str
) -> None:
    lay_files(tmp_path, [video, frame])
    listing = list_source(tmp_path)
    assert [entry.video_id for entry in listing.entries] == [video]
    assert listing.warnings == (
        "1 extracted frame is left out, beside the videos of their clips: each clip is used once, as the video",
    )


@pytest.mark.parametrize(
    "names",
    [
        ["clip07/video.mp4", "clip07/0001.png"],
        ["fake/m1/demo.mp4", "fake/m1/gen_1.png", "fake/m1/gen_2.png"],
        ["media/videos/talk.mp4", "media/anna.png", "media/ben.png"],
    ],
)
def test_images_beside_a_single_video_are_used_too_and_in_its_split(tmp_path: Path, names: list[str]) -> None:
    """They may be its frames, or pictures of something else: neither is lost, and no split separates them."""
    entries = list_source(lay_files(tmp_path, names), "folder").entries
    assert sorted(entry.video_id for entry in entries) == sorted(names)
    assert group_sizes(entries, ()) == [len(names)]


@pytest.mark.parametrize(
    ("names", "left_out"),
    [
        (["real/videos/p/talk.mp4", "real/frames/p/1.png", "real/faces/p/1.png"], 2),
        (["real/p/talk.mp4", "real/p_frames/1.png", "real/p/2.png"], 1),
        (["real/images/p/talk.mp4", "real/images/p/1.png"], 0),
        (["images/anna/videos/talk.mp4", "images/anna/1.png"], 0),
        (["clip_images/v.mp4", "clip_images/frames/1.png"], 1),
        (["real/frames/p/1.png", "real/faces/p/1.png"], 0),
        (["real/p/1.png", "real/p_frames/1.png"], 0),
    ],
)
def test_frames_of_a_single_video_are_left_out_wherever_their_folder_lies_and_others_are_in_its_split(
    tmp_path: Path, names: list[str], left_out: int
) -> None:
    entries = list_source(lay_files(tmp_path, names), "folder").entries
    assert len(entries) == len(names) - left_out
    assert group_sizes(entries, ()) == [len(entries)]


@pytest.mark.parametrize(
    "rows",
    [
        "faces/p.mp4,fake,\nframes/p,real,\nvideos/p.mp4,real,\n",  # two videos of one name
        "q/1.png,real,\nq/2.png,real,\nf,fake,q\n",
        "q/1.png,real,\nq/2.png,real,\nf/1.png,fake,q\n",
        "q/1.png,real,\nq/2.png,real,\nf/1.png,fake,q.mp4\n",
        "q,real,\nf.mp4,fake,q/1.png\n",
    ],
)
def test_frames_of_an_original_and_their_fakes_are_in_one_split(tmp_path: Path, rows: str) -> None:
    lay_files(tmp_path, ["faces/p.mp4", "videos/p.mp4", "frames/p/1.png", "q/1.png", "q/2.png", "f/1.png", "f.mp4"])
    (tmp_path / "t.csv").write_text(f"path,label,source\n{rows}")
    entries = [entry for entry in list_source(tmp_path / "t.csv").entries if entry.video_id != "faces/p.mp4"]
    assert len(group_sizes(entries, ())) == 1
    assert not any(entry.video_id == "frames/p" for entry in entries)


VIDEO_FORMS = ("real/a.mp4", "real/videos/a.mp4", "real/a/talk.mp4", "real/videos/a/talk.mp4", "real/a/a.mp4")
FRAME_FORMS = (
    "real/a/1.png", "real/frames/a/1.png", "real/a/frames/1.png", "real/a_frames/1.png", "real/faces/a/1.png",
    "real/a/images/faces/1.png",
)  # fmt: skip
FAKE_FORMS = ("fake/x.mp4", "fake/x/1.png", "fake/frames/x/1.png")


@examples(150, in_test=40, same_fixtures=True)
@given(
    videos=st.lists(st.sampled_from(VIDEO_FORMS), max_size=1),
    frames=st.lists(st.sampled_from(FRAME_FORMS), max_size=3, unique=True),
    fake=st.sampled_from(FAKE_FORMS),
    data=st.data(),
)
def test_all_of_a_clip_and_its_fakes_are_in_one_split_in_whatever_folders_they_are(
    tmp_path: Path, videos: list[str], frames: list[str], fake: str, data: Any
) -> None:
    """By image or by folder in a table, whose `source` names any of them; and in plain folders without the fake."""
    forms = videos + frames or [VIDEO_FORMS[0]]
    root = lay_files(Path(tempfile.mkdtemp(dir=tmp_path)), [*forms, fake])

    def name_of(path: str) -> str:
        is_folder = path.endswith(".png") and data.draw(st.booleans())
        return path.rpartition("/")[0] if is_folder else path

    source = name_of(data.draw(st.sampled_from(forms)))
    rows = [*(f"{name_of(path)},real," for path in forms), f"{name_of(fake)},fake,{source}"]
    (root / "t.csv").write_text("\n".join(["path,label,source", *rows]))
    assert len(group_sizes(with_joined_frames(list_source(root / "t.csv")).entries, ())) == 1
    in_folders = with_joined_frames(list_source(root)).entries
    assert len(group_sizes([entry for entry in in_folders if entry.label == 0], ())) == 1


def test_in_a_published_set_too_images_are_in_the_split_of_the_single_video_beside_them(tmp_path: Path) -> None:
    names = ["real/0000.mp4", "fake/0000_fake.mp4", "real/0001/talk.mp4", "real/0001/1.png", "fake/0001_fake/1.png"]
    listing = list_source(lay_files(tmp_path, names))
    assert (listing.layout, listing.footage_from_names) == ("uadfv", True)
    assert sorted(group_sizes(listing.entries, ())) == [2, 3]


def test_no_fake_is_its_own_original(tmp_path: Path) -> None:
    lay_files(tmp_path, ["faces/p.mp4", "videos/p.mp4", "o/1.png"])
    (tmp_path / "t.csv").write_text("path,label,source\nfaces/p.mp4,fake,frames/p\nvideos/p.mp4,real,\no/1.png,real,\n")
    assert {entry.source_id for entry in list_source(tmp_path / "t.csv").entries} == {None, "videos/p.mp4"}


@pytest.mark.parametrize("source", ["s1", "s1/photo.png", "s1/frames"])
def test_a_fake_beside_its_original_which_is_not_listed_is_not_its_own(tmp_path: Path, source: str) -> None:
    lay_files(tmp_path, ["s1/fake.mp4", "s1/photo.png", "s1/frames/1.png", "o/1.png"])
    (tmp_path / "t.csv").write_text(f"path,label,source\ns1/fake.mp4,fake,{source}\no/1.png,real,\n")
    assert {entry.source_id for entry in list_source(tmp_path / "t.csv").entries} == {None, source}


def test_two_folders_of_images_of_a_video_with_another_label_are_in_its_split(tmp_path: Path) -> None:
    lay_files(tmp_path, ["s.mp4", "s/1.png", "s_frames/1.png"])
    (tmp_path / "t.csv").write_text("path,label\ns.mp4,real\ns/1.png,fake\ns_frames/1.png,fake\n")
    assert group_sizes(list_source(tmp_path / "t.csv").entries, ()) == [3]


def test_frames_without_a_label_are_of_the_video_that_has_one(tmp_path: Path) -> None:
    lay_files(tmp_path, ["v.mp4", "v/1.png", "v/2.png"])
    (tmp_path / "t.csv").write_text("path,label\nv.mp4,real\nv/1.png,\nv/2.png,\n")
    assert [entry.video_id for entry in list_source(tmp_path / "t.csv").entries] == ["v.mp4"]


def test_images_are_no_frames_of_a_video_that_has_another_label_or_is_their_original(tmp_path: Path) -> None:
    lay_files(tmp_path, ["s1/real.mp4", "s1/frames/0.png", "s2/real.mp4", "s2/0.png", "s3.mp4", "s3/0.png"])
    rows = "s1/real.mp4,real,\ns1/frames/0.png,fake,s1/real.mp4\ns2/real.mp4,real,\ns2/0.png,fake,\n"
    (tmp_path / "t.csv").write_text(f"path,label,source\n{rows}s3.mp4,fake,\ns3/0.png,real,s3.mp4\n")
    listing = list_source(tmp_path / "t.csv")
    assert len(listing.entries) == 6
    assert group_sizes(listing.entries, ()) == [2, 2, 2]


@pytest.mark.parametrize(("source", "compared"), [("s1/photo.png", False), ("s1", True)])
def test_an_original_beside_a_single_video_is_in_one_split_with_it_and_compared_only_as_its_frames(
    tmp_path: Path, source: str, compared: bool
) -> None:
    lay_files(tmp_path, ["s1/clip.mp4", "s1/photo.png", "f/x/0.png"])
    (tmp_path / "t.csv").write_text(f"path,label,source\ns1/clip.mp4,real,\nf/x,fake,{source}\n")
    fake, _ = list_source(tmp_path / "t.csv").entries
    assert (fake.source_id, fake.compared) == ("s1/clip.mp4", compared)


def test_frames_of_a_video_whose_name_ends_as_a_folder_of_frames_are_not_those_of_a_shorter_name(
    tmp_path: Path,
) -> None:
    """Each is left out beside its own video; `033_frames` beside `033.mp4` alone is its."""
    names = ["real/happy.mp4", "real/happy_faces.mp4", "real/happy_faces/0.png", "real/frames/happy/0.png"]
    listing = list_source(lay_files(tmp_path, names), "folder")
    assert [entry.video_id for entry in listing.entries] == names[:2]


def test_a_fake_made_from_frames_that_are_left_out_is_one_of_their_video(tmp_path: Path) -> None:
    lay_files(tmp_path, ["a/video.mp4", "a/frames/0.png", "fake/x.mp4"])
    (tmp_path / "t.csv").write_text("path,label,source\na/video.mp4,real,\na/frames,real,\nfake/x.mp4,fake,a/frames\n")
    entries = {entry.video_id: entry.source_id for entry in list_source(tmp_path / "t.csv").entries}
    assert entries == {"a/video.mp4": None, "fake/x.mp4": "a/video.mp4"}


def test_images_of_another_recording_than_the_video_beside_them_are_used(tmp_path: Path) -> None:
    """As the column `footage` says."""
    lay_files(tmp_path, ["media/video.mp4", "media/anna.png", "media/ben.png"])
    rows = "media/video.mp4,real,\nmedia/anna.png,real,anna\nmedia/ben.png,real,\n"
    (tmp_path / "t.csv").write_text(f"path,label,footage\n{rows}")
    assert len(list_source(tmp_path / "t.csv").entries) == 3


@pytest.mark.parametrize(
    "names",
    [
        ["real.mp4", "real/1.png"],  # a folder that collects images of a class
        ["real/anna.mp4", "real/anna.png"],  # a picture, which is no folder
        ["real/anna.mp4", "fake/anna/0001.png"],
        ["real/anna.mp4", "real/ann/0001.png"],
        ["clip/a.mp4", "clip/b.mp4", "clip/frames/0001.png"],  # of which of the two?
        ["real/anna.mp4", "real/anna/more/0001.png"],
    ],
)
def test_other_images_are_inputs_beside_videos_as_ever(tmp_path: Path, names: list[str]) -> None:
    lay_files(tmp_path, names)
    assert {entry.video_id for entry in list_source(tmp_path).entries} == set(names)


def test_frames_behind_a_link_out_of_the_source_are_a_failure_and_not_read(tmp_path: Path) -> None:
    src = lay(tmp_path / "src", videos=CELEB[:2])
    elsewhere = lay(tmp_path / "elsewhere", frames=CELEB[2:])
    (src / "YouTube-real/frames").mkdir(parents=True)
    (src / CELEB[2].format("frames")).symlink_to(elsewhere / CELEB[2].format("frames"))
    with pytest.raises(UsageError, match="allow-root"):
        list_source(src)
    assert len(list_source(src, allowed=[elsewhere]).entries) == 2 + 3


def test_frames_beside_their_videos_are_counted_without_a_look_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, videos=FFPP, frames=FFPP, number=50)
    seen: list[str] = []
    stat_file = media_files._stat_file
    monkeypatch.setattr(media_files, "_stat_file", lambda name, stat: seen.append(name) or stat_file(name, stat))
    assert list_source(tmp_path).ignored == {"in frames/": 150}
    assert len(seen) == 3
