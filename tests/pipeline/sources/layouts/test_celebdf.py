"""What a user notices of Celeb-DF: 1 means real in its list alone, and its test people are not in train unasked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from assets_layouts import CLEAN_TEST, Footage, celebdf_names, lay_celebdf
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

LIST = "List_of_testing_videos.txt"
OFFICIAL_LIKE = ("Celeb-real/id0_0001.mp4", "Celeb-synthesis/id0_id1_0000.mp4", "YouTube-real/00170.mp4")
"""As in the published list, people of its test videos are in train too."""


@pytest.fixture(scope="module")
def celebdf(tmp_path_factory: pytest.TempPathFactory, footage: Footage) -> Path:
    return lay_celebdf(tmp_path_factory.mktemp("celebdf") / "Celeb-DF-v2", footage)


@pytest.fixture
def mine(celebdf: Path, tmp_path: Path) -> Path:
    """A copy that a test may take apart."""
    return shutil.copytree(celebdf, tmp_path / "mine")


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def write_list(root: Path, *lines: str) -> None:
    (root / LIST).write_text("\n".join(lines))


# --- what is recognised


def test_every_video_is_listed_once_with_the_label_of_its_folder(celebdf: Path) -> None:
    listing = list_source(celebdf)
    real, fake = celebdf_names()
    assert (listing.layout, listing.labels) == ("celebdf", ("real", "fake"))
    assert sorted(entry.video_id for entry in listing.entries) == sorted(real + fake)
    assert {entry.video_id for entry in listing.entries if entry.label == 1} == set(fake)
    assert {entry.dataset for entry in listing.entries} == {"celebdf"}
    assert (listing.missing, listing.ignored) == ([], {})


@pytest.mark.parametrize(
    ("path", "source_id", "identity", "related"),
    [
        ("Celeb-real/id0_0001.mp4", None, "id0", ()),
        ("Celeb-synthesis/id0_id1_0001.mp4", "Celeb-real/id0_0001.mp4", "id1", ("id0",)),
        ("YouTube-real/00170.mp4", None, None, ()),
    ],
)
def test_a_name_says_whose_video_and_whose_face_it_is(
    celebdf: Path, path: str, source_id: str | None, identity: str | None, related: tuple[str, ...]
) -> None:
    entry = by_name(list_source(celebdf))[path]
    assert (entry.source_id, entry.identity, entry.related_identities) == (source_id, identity, related)


def test_a_name_of_another_form_keeps_its_label_and_the_people_it_mentions(tmp_path: Path, footage: Footage) -> None:
    names = ["Celeb-real/holiday.mp4", "Celeb-synthesis/id0_0000.mp4", "YouTube-real/id3_0000.mp4"]
    entries = list_source(footage.lay(tmp_path, real=names)).entries
    assert [(entry.label, entry.source_id, entry.people) for entry in entries] == [
        (0, None, ()),
        (1, None, ("id0",)),
        (0, None, ()),
    ]


def test_videos_in_a_folder_of_their_own_beside_frames_are_the_same_videos(celebdf: Path, tmp_path: Path) -> None:
    root = tmp_path / "repacked"
    for folder in ("Celeb-real", "Celeb-synthesis", "YouTube-real"):
        shutil.copytree(celebdf / folder, root / folder / "videos")
        (root / folder / "frames").mkdir()
        (root / folder / "frames/0000.png").touch()
    shutil.copyfile(celebdf / LIST, root / LIST)
    plain, repacked = list_source(celebdf), list_source(root)
    listed = {
        entry.video_id.replace("videos/", ""): (entry.label, entry.split, entry.people) for entry in repacked.entries
    }
    assert listed == {entry.video_id: (entry.label, entry.split, entry.people) for entry in plain.entries}
    fake = by_name(repacked)["Celeb-synthesis/videos/id0_id1_0000.mp4"]
    assert fake.source_id == "Celeb-real/videos/id0_0000.mp4"
    assert repacked.missing == []
    assert repacked.ignored == {"in frames/": 3}


# --- the list


def test_what_the_list_names_is_test_and_everything_else_train(celebdf: Path) -> None:
    splits = {entry.video_id: entry.split for entry in list_source(celebdf).entries}
    assert {name for name, split in splits.items() if split == "test"} == set(CLEAN_TEST)
    assert set(splits.values()) == {"train", "test"}, "the official protocol has no val"


def test_a_list_that_says_fake_of_a_real_folder_is_refused(mine: Path) -> None:
    write_list(mine, "1 YouTube-real/00170.mp4", "", "0 Celeb-real/id0_0000.mp4")
    with pytest.raises(UsageError, match=r"line 3: '0 Celeb-real/id0_0000\.mp4' says fake \(in this list 1 means real"):
        list_source(mine)


@pytest.mark.parametrize("line", ["YouTube-real/00170.mp4", "2 YouTube-real/00170.mp4", "1", "real YouTube-real/x.mp4"])
def test_a_line_that_is_none_is_named_with_its_number(mine: Path, line: str) -> None:
    write_list(mine, "1 YouTube-real/00170.mp4", line)
    with pytest.raises(UsageError, match=rf"{LIST}: line 2: .*must be like '1 YouTube-real/00170.mp4'"):
        list_source(mine)


def test_a_list_that_is_no_text_is_refused_by_name(mine: Path) -> None:
    (mine / LIST).write_bytes(b"1 YouTube-real/\xff.mp4")
    with pytest.raises(UsageError, match=rf"{LIST}: is no text"):
        list_source(mine)


def test_a_test_list_that_shares_people_with_train_stops_the_run_and_says_both_ways_out(mine: Path) -> None:
    write_list(mine, *(f"{int('synth' not in name)} {name}" for name in OFFICIAL_LIKE))
    listing = list_source(mine)
    with pytest.raises(RefusedError) as caught:
        assign_splits(listing.entries, ratio=SplitRatio(), seed=0, without_splits=listing.without_splits)
    message = str(caught.value)
    assert "person 'id0'" in message
    assert "2 people and 2 originals are in more than one given split" in message
    assert "accept it with --allow-leaks" in message
    assert f"take {LIST} out of SRC, so that splits are drawn" in message
    accepted = assign_splits(listing.entries, ratio=SplitRatio(), seed=0, allow_leaks=True)
    assert {name for name, split in accepted.split_of.items() if split == "test"} == set(OFFICIAL_LIKE)
    assert accepted.dropped_identities == [], "nobody was given up: the splits are as they were given"


def test_without_the_list_splits_are_drawn_and_nobody_is_in_two(mine: Path) -> None:
    (mine / LIST).rename(mine / "not_used.txt")
    listing = list_source(mine)
    assigned = assign_splits(listing.entries, ratio=SplitRatio(train=40, val=30, test=30), seed=0)
    assert set(assigned.split_of.values()) == {"train", "val", "test"}
    assert assigned.dropped_identities == []
    splits_by_person: dict[str, set[str]] = {}
    for entry in listing.entries:
        for person in [part for part in Path(entry.video_id).stem.split("_") if part.startswith("id")]:
            splits_by_person.setdefault(person, set()).add(assigned.split_of[entry.video_id])
    assert {person: used_splits for person, used_splits in splits_by_person.items() if len(used_splits) > 1} == {}


# --- parts of it


@pytest.mark.parametrize("start", range(2))
def test_with_half_of_the_files_missing_the_rest_keeps_labels_and_splits(mine: Path, start: int) -> None:
    full = list_source(mine)
    removed = {entry.video_id for entry in full.entries[start::2]}
    for name in removed:
        (mine / name).unlink()
    half = list_source(mine)
    assert half.entries == [entry for entry in full.entries if entry.video_id not in removed]
    originals = {entry.source_id for entry in half.entries if entry.source_id}
    assert half.missing == sorted(removed & (set(CLEAN_TEST) | originals)), (
        "all that the list and the fakes' names tell of"
    )
    assert not any(entry.problem for entry in half.entries)


def test_the_test_set_alone_stays_the_test_set(mine: Path) -> None:
    for entry in list_source(mine).entries:
        if entry.video_id not in CLEAN_TEST:
            (mine / entry.video_id).unlink()
    assert {entry.split for entry in list_source(mine).entries} == {"test"}


# --- the whole way


def test_the_columns_of_the_dataset_say_what_names_and_list_say(
    celebdf: Path, mine: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    options = Options(sampling=Sampling(frames=1), keep=small_options.keep, size_px=small_options.size_px)
    out = tmp_path / "out"
    precompute(celebdf, out, options=options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert verify(out).findings == []
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "source_id", "identity", "split", "label"])
    listed = by_name(list_source(celebdf))
    assert {row["video_id"]: row for row in rows.to_pylist()} == {
        name: {"video_id": name, "source_id": entry.source_id, "identity": entry.identity,
               "split": "test" if name in CLEAN_TEST else "train", "label": int("synthesis" in name)}
        for name, entry in listed.items()
    }  # fmt: skip
    write_list(mine, *(f"{int('synth' not in name)} {name}" for name in OFFICIAL_LIKE))
    with pytest.raises(RefusedError, match="a leak"):
        precompute(mine, tmp_path / "leaky", options=options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert not (tmp_path / "leaky").exists()


# --- copies that are nested or spelt otherwise


NESTED = {"Celeb-real": "Celeb-real", "Celeb-synthesis": "part_1", "YouTube-real": "YouTube-real/videos"}


@pytest.mark.parametrize("nested", [("Celeb-real",), ("Celeb-synthesis",), ("YouTube-real",), tuple(NESTED)])
def test_a_folder_within_a_folder_changes_no_split_and_no_original(mine: Path, nested: tuple[str, ...]) -> None:
    plain = list_source(mine)
    for folder in nested:
        (mine / folder).rename(mine / "moved")
        (mine / folder / NESTED[folder]).parent.mkdir(parents=True)
        (mine / "moved").rename(mine / folder / NESTED[folder])

    def within(name: str | None) -> str | None:
        top, _, file = (name or "").partition("/")
        return f"{top}/{NESTED[top]}/{file}" if top in nested else name

    listing = list_source(mine)
    assert {entry.video_id: (entry.split, entry.source_id, entry.people) for entry in listing.entries} == {
        within(entry.video_id): (entry.split, within(entry.source_id), entry.people) for entry in plain.entries
    }
    assert listing.missing == []


def test_fakes_of_celeb_df_pp_one_level_deeper_are_the_listed_ones(tmp_path: Path, footage: Footage) -> None:
    fakes = ["Celeb-synthesis/unpacked/faceswap/GHOST/id0_id1_0000.mp4"]
    src = footage.lay(tmp_path, real=["Celeb-real/id0_0000.mp4"], fake=fakes)
    write_list(src, "0 Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4")
    entry = by_name(list_source(src))[fakes[0]]
    assert (entry.split, entry.method, entry.source_id) == ("test", "GHOST", "Celeb-real/id0_0000.mp4")


def test_reenacted_and_talking_faces_are_in_the_split_of_their_video_also_where_people_are_given_up(
    tmp_path: Path,
) -> None:
    made_from: dict[str, str] = {}
    for number in range(12):
        first, second = f"id{number}", f"id{(number + 1) % 12}"
        real = f"Celeb-real/{first}_0000.mp4"
        made_from[real] = made_from[f"Celeb-synthesis/FaceReenact/LIA/{first}_{second}_0000.mp4"] = real
        made_from[f"Celeb-synthesis/TalkingFace/FLOAT/{first}_0000_driven_by_{second}.mp4"] = real
        made_from[f"Celeb-synthesis/FaceSwap/GHOST/{first}_{second}_0000.mp4"] = real
    for name in (*made_from, "YouTube-real/00000.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listing = list_source(tmp_path)
    assigned = assign_splits(listing.entries, ratio=SplitRatio(train=50, val=25, test=25), seed=0)
    assert len(assigned.dropped_identities) == 12
    assert {*assigned.split_of.values()} == {"train", "val", "test"}
    assert {name: assigned.split_of[name] for name in made_from} == {
        name: assigned.split_of[real] for name, real in made_from.items()
    }
    assert not any("recordings are known" in text for text in listing_warnings(listing))


def test_two_videos_of_one_published_name_are_refused(tmp_path: Path, footage: Footage) -> None:
    fakes = [f"Celeb-synthesis/{method}/id0_id1_0000.mp4" for method in ("GHOST", "LIA")]
    src = footage.lay(tmp_path, fake=fakes)
    with pytest.raises(UsageError, match=r"GHOST/.* and .*LIA/.* would both be 'Celeb-synthesis/id0_id1_0000.mp4'"):
        list_source(src)


@pytest.mark.parametrize("name", ["list-of-testing-videos.TXT", "List_of_testing_videos.txt"])
def test_the_list_is_read_however_it_is_spelt(mine: Path, name: str) -> None:
    (mine / LIST).rename(mine / name)
    assert {entry.split for entry in list_source(mine).entries} == {"train", "test"}


def test_a_list_whose_name_is_nearly_right_is_refused(mine: Path) -> None:
    (mine / LIST).rename(mine / "List_of_testing_video.txt")
    with pytest.raises(UsageError, match=rf"has 'List_of_testing_video.txt', did you mean '{LIST}'"):
        list_source(mine)


def test_without_the_list_a_warning_says_that_splits_are_not_the_published_ones(mine: Path) -> None:
    assert list_source(mine).missing_split_lists == ()
    (mine / LIST).unlink()
    assert any(text.startswith(f"{LIST} is not there") for text in listing_warnings(list_source(mine)))


def test_a_folder_of_a_kind_whose_name_is_nearly_right_is_refused(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, fake=["Celeb-synthesis/FaceReenacted/LIA/id0_id1_0000.mp4"])
    with pytest.raises(UsageError, match="did you mean 'FaceReenact'"):
        list_source(src)


@pytest.mark.parametrize("lines", [[], ["1 YouTube-real/99999.mp4"]])
def test_a_list_that_names_none_of_the_files_is_refused(mine: Path, lines: list[str]) -> None:
    write_list(mine, *lines)
    with pytest.raises(UsageError, match="names none of the 21 files, so that all would be train"):
        list_source(mine)


PLAIN, SWAP = "Celeb-synthesis/id0_id1_0000.mp4", "Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4"


@pytest.mark.parametrize(("listed", "on_disk"), [(PLAIN, SWAP), (SWAP, PLAIN)])
def test_a_list_of_another_version_whose_fakes_lie_elsewhere_is_refused(
    tmp_path: Path, footage: Footage, listed: str, on_disk: str
) -> None:
    src = footage.lay(tmp_path, real=["Celeb-real/id0_0000.mp4", "YouTube-real/00170.mp4"], fake=[on_disk])
    write_list(src, "1 YouTube-real/00170.mp4", f"0 {listed}")
    with pytest.raises(UsageError, match=rf"none of the 1 files in Celeb-synthesis.*'{listed}', on disk: '{on_disk}'"):
        list_source(src)
    write_list(src, "1 YouTube-real/00170.mp4", f"0 {on_disk}")
    assert {entry.video_id for entry in list_source(src).entries if entry.split == "test"} == {
        "YouTube-real/00170.mp4", on_disk,
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["Celeb-DF-v2/", "./", "C:\\sets\\"])
def test_a_list_is_read_wherever_its_paths_start(mine: Path, prefix: str) -> None:
    names = [name.replace("/", "\\" if "\\" in prefix else "/videos/") for name in CLEAN_TEST]
    write_list(mine, *(f"{int('synth' not in name)} {prefix}{name}" for name in names))
    listing = list_source(mine)
    assert {entry.video_id for entry in listing.entries if entry.split == "test"} == set(CLEAN_TEST)
    assert listing.missing == []


def test_a_frame_whose_number_the_original_lacks_is_of_the_same_original_as_the_others(tmp_path: Path) -> None:
    for name in ("Celeb-real/faces/id0_0000/1.png", *(f"Celeb-synthesis/id0_id1_0000/{number}.png" for number in "12")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    clips = with_clips(list_source(tmp_path), [], [tmp_path.resolve()]).entries
    assert [(clip.video_id, clip.num_images, clip.source_id) for clip in clips] == [
        ("Celeb-real/faces/id0_0000", 1, None),
        ("Celeb-synthesis/id0_id1_0000", 2, "Celeb-real/faces/id0_0000"),
    ]
