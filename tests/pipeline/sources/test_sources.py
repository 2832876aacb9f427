"""What a user notices of listing a source: labels, splits and originals, what is refused, what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry, Listing, detect_layout, list_source, listing_warnings, with_columns
from facefeed.pipeline.sources.layouts.dfdc import DFDC
from hypothesis import given
from hypothesis import strategies as st


def put(root: Path, *names: str, size: int = 3) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return root


def by_name(listing: Listing) -> dict[str, Entry]:
    entries = {entry.video_id: entry for entry in listing.entries}
    assert len(entries) == len(listing.entries), "an input is listed twice"
    return entries


def part(root: Path, name: str, metadata: dict[str, Any] | str, *files: str) -> Path:
    folder = put(root / name, *files)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.json").write_text(metadata if isinstance(metadata, str) else json.dumps(metadata))
    return root


def real(**more: Any) -> dict[str, Any]:
    return {"label": "REAL", "split": "train", "original": None, **more}


def fake(original: str, **more: Any) -> dict[str, Any]:
    return {"label": "FAKE", "split": "train", "original": original, **more}


# --- every layout


def test_a_missing_or_empty_source_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.*no such"):
        list_source(tmp_path / "nowhere")
    put(tmp_path / "empty", "notes.txt")
    with pytest.raises(UsageError, match="no video and no image"):
        list_source(tmp_path / "empty")
    with pytest.raises(UsageError, match="layout='ffpp2'"):
        list_source(tmp_path, "ffpp2")


def test_the_layout_is_recognised(tmp_path: Path) -> None:
    part(tmp_path / "dfdc", "dfdc_train_part_0", {"a.mp4": real()}, "a.mp4")
    put(tmp_path / "plain", "real/a.mp4")
    put(tmp_path / "lists", "a.mp4")
    (tmp_path / "lists" / "t.CSV").write_text("path,label\na.mp4,real\n")
    assert detect_layout(tmp_path / "dfdc") == list_source(tmp_path / "dfdc").layout == "dfdc"
    assert detect_layout(tmp_path / "plain") == list_source(tmp_path / "plain").layout == "folder"
    assert detect_layout(tmp_path / "lists" / "t.CSV") == list_source(tmp_path / "lists" / "t.CSV").layout == "table"


@pytest.mark.parametrize(("layout", "src"), [("table", "."), ("folder", "t.csv"), ("dfdc", "t.csv")])
def test_a_layout_that_does_not_fit_the_kind_of_src_is_refused(tmp_path: Path, layout: str, src: str) -> None:
    put(tmp_path, "a.mp4", "t.csv")
    with pytest.raises(UsageError, match=r"needs a.*try --layout auto"):
        list_source(tmp_path / src, layout)


def test_sizes_and_times_are_those_of_the_file(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", size=17)
    os.utime(tmp_path / "a.mp4", ns=(5, 1_234_567_890_123_456_789))
    (entry,) = list_source(tmp_path).entries
    assert (entry.size_bytes, entry.mtime_ns) == (17, 1_234_567_890_123_456_789)


# --- dfdc


def test_dfdc_gives_labels_and_originals_with_their_part(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": real(), "b.mp4": fake("a.mp4")}, "a.mp4", "b.mp4")
    part(tmp_path, "dfdc_train_part_1", {"c.mp4": fake("d.mp4")}, "c.mp4", "stranger.mp4")
    listing = list_source(tmp_path)
    entries = by_name(listing)
    assert listing.labels == ("real", "fake")
    assert {name: (entry.label, entry.source_id) for name, entry in entries.items()} == {
        "dfdc_train_part_0/a.mp4": (0, None),
        "dfdc_train_part_0/b.mp4": (1, "dfdc_train_part_0/a.mp4"),
        "dfdc_train_part_1/c.mp4": (1, "dfdc_train_part_1/d.mp4"),
        "dfdc_train_part_1/stranger.mp4": (-1, None),
    }
    assert {entry.dataset for entry in listing.entries} == {"dfdc"}
    assert not any(entry.problem for entry in listing.entries)
    assert not listing.ignored, "metadata.json is not a stray file"


def test_dfdc_s_split_train_for_everything_is_no_split(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": real(), "b.mp4": real()}, "a.mp4", "b.mp4")
    assert {entry.split for entry in list_source(tmp_path).entries} == {None}


def test_dfdc_s_splits_are_used_once_two_are_named(tmp_path: Path) -> None:
    metadata = {"a.mp4": real(), "b.mp4": real(split="test"), "c.mp4": {"label": "REAL"}}
    part(tmp_path, "dfdc_train_part_0", metadata, "a.mp4", "b.mp4", "c.mp4")
    assert [entry.split for entry in list_source(tmp_path).entries] == ["train", "test", None]


def test_a_dfdc_set_that_is_added_alone_to_given_splits_has_its_own(tmp_path: Path) -> None:
    part(tmp_path / "parts", "dfdc_train_part_7", {"a.mp4": real(), "b.mp4": real(split=None)}, "a.mp4", "b.mp4")
    part(tmp_path / "held", "test", {"c.mp4": real()}, "c.mp4")
    for src, expected in (("parts", {"train"}), ("held", {"test"})):
        assert {entry.split for entry in list_source(tmp_path / src).entries} == {None}
        added = list_source(tmp_path / src, adds_to_given_splits=True)
        assert {entry.split for entry in added.entries} == expected


def test_one_dfdc_part_is_a_source_of_its_own(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_7", {"a.mp4": real(), "b.mp4": fake("a.mp4")}, "a.mp4", "b.mp4")
    entries = by_name(list_source(tmp_path / "dfdc_train_part_7"))
    assert entries["b.mp4"].source_id == "a.mp4"
    assert entries["a.mp4"].label == 0


def test_what_only_metadata_knows_is_missing_and_no_failure(tmp_path: Path) -> None:
    odd = "\ud800.mp4"  # half a surrogate pair: JSON can hold it, no file can be called so
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": real(), "gone.mp4": real(), odd: fake(odd)}, "a.mp4")
    listing = list_source(tmp_path)
    assert [entry.video_id for entry in listing.entries] == ["dfdc_train_part_0/a.mp4"]
    assert listing.entries[0].problem is None
    assert listing.missing == ["dfdc_train_part_0/gone.mp4", f"dfdc_train_part_0/{odd}"]


def test_an_original_that_is_no_text_can_still_be_planned(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": fake("\ud800.mp4"), "b.mp4": fake(["x"])}, "a.mp4", "b.mp4")
    first, second = list_source(tmp_path).entries
    assert first.source_id is not None
    first.source_id.encode()
    assert second.source_id is None


@pytest.mark.parametrize("label", ["MAYBE", "", None, 1, ["FAKE"]])
def test_a_label_that_dfdc_does_not_have_is_a_counted_problem(tmp_path: Path, label: object) -> None:
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": real(label=label), "b.mp4": real()}, "a.mp4", "b.mp4")
    a, b = list_source(tmp_path).entries
    assert (a.problem, a.label) == ("unknown_label", -1)
    assert repr(label) in str(a.detail)
    assert (b.problem, b.label) == (None, 0)


@pytest.mark.parametrize("text", ["{", "", "[]", '"a"', '{"a.mp4": "REAL"}', "\xff", "[" * 100_000])
def test_broken_dfdc_metadata_is_named_with_a_way_out(tmp_path: Path, text: str) -> None:
    part(tmp_path, "dfdc_train_part_3", {}, "a.mp4")
    (tmp_path / "dfdc_train_part_3" / "metadata.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"dfdc_train_part_3/metadata\.json.*--layout folder"):
        list_source(tmp_path)


def test_a_file_that_metadata_names_twice_is_refused(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"a.mp4": real(), "./a.mp4": fake("b.mp4")}, "a.mp4")
    with pytest.raises(UsageError, match=r"a\.mp4' more than once"):
        list_source(tmp_path)


def test_no_metadata_reaches_outside_the_source(tmp_path: Path) -> None:
    put(tmp_path, "secret.mp4")
    src = tmp_path / "src"
    names = ["../../secret.mp4", "x/../../../secret.mp4", str(tmp_path / "secret.mp4"), "link.mp4", "linked/secret.mp4"]
    part(src, "dfdc_train_part_0", {name: real() for name in names})
    folder = src / "dfdc_train_part_0"
    (folder / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (folder / "linked").symlink_to(tmp_path)
    listing = DFDC().read(src)
    refused = [entry for entry in listing.entries if entry.problem == "outside_root"]
    assert len(listing.entries) == len(refused) == 6  # the folder link itself is one, besides what is named in it
    assert all(entry.size_bytes == 0 for entry in refused), "nothing of what lies outside is even looked at"
    assert not listing.missing


def test_up_and_down_again_inside_the_source_is_fine(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"x/../a.mp4": real(), "..b.mp4": real()}, "a.mp4", "..b.mp4", "x/c.mp4")
    entries = by_name(list_source(tmp_path))
    assert entries["dfdc_train_part_0/a.mp4"].label == 0
    assert entries["dfdc_train_part_0/..b.mp4"].problem is None


def test_a_name_too_long_for_the_disk_is_counted(tmp_path: Path) -> None:
    part(tmp_path, "dfdc_train_part_0", {"x" * 300 + ".mp4": real(), "a.mp4": real()}, "a.mp4")
    problems = [entry.problem for entry in list_source(tmp_path).entries]
    assert problems == [None, "unreadable"]


# --- folder


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("real/a.mp4", 0),
        ("REAL/a.mp4", 0),
        ("original/c23/a.mp4", 0),
        ("train/genuine/a.mp4", 0),
        ("fake/a.mp4", 1),
        ("Deepfakes/a.mp4", 1),
        ("x/synthetic/real/a.mp4", 0),  # the innermost counts
        ("other/a.mp4", -1),
        ("fake.mp4", -1),  # a folder says the class, a file's name does not
        ("really/a.jpg", -1),
    ],
)
def test_folders_name_the_class(tmp_path: Path, path: str, label: int) -> None:
    put(tmp_path, path)
    (entry,) = list_source(tmp_path).entries
    assert (entry.video_id, entry.label) == (path, label)


def test_split_folders_count_where_two_are_named(tmp_path: Path) -> None:
    src = put(tmp_path / "one", "train/real/a.mp4", "train/fake/b.mp4")
    assert {entry.split for entry in list_source(src).entries} == {None}
    names = ["training/real/a.mp4", "real/Validation/b.mp4", "testing/c.mp4", "real/d.mp4"]
    entries = by_name(list_source(put(tmp_path / "three", *names)))
    assert [entries[name].split for name in names] == ["train", "val", "test", None]


def test_hidden_files_are_skipped_and_no_media_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", ".b.mp4", "._a.mp4", ".git/c.mp4", "notes.TXT", "x/more.txt", "x/README", "d.JPG", "e.WebM")
    listing = list_source(tmp_path)
    assert [entry.video_id for entry in listing.entries] == ["a.mp4", "d.JPG", "e.WebM"]
    assert listing.ignored == {".txt": 2, "(no suffix)": 1}


def test_thumbnails_of_a_synology_are_no_clips(tmp_path: Path) -> None:
    put(
        tmp_path, "real/a.jpg", "real/@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "@eaDir/b.mp4/SYNOVIDEO_VIDEO_SCREENSHOT.jpg"
    )
    listing = list_source(tmp_path)
    assert ([entry.video_id for entry in listing.entries], listing.ignored) == (["real/a.jpg"], {})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_of_a_row_is_right_below_cells_of_several_lines(tmp_path: Path, end: str) -> None:
    put(tmp_path, "a.mp4", "b.mp4")
    rows = ["path,label,split,note", 'a.mp4,real,train,"x,\ny ""z""\n"', "", "b.mp4,fake,tset,z"]
    (tmp_path / "t.csv").write_bytes("\n".join([*rows, ""]).replace("\n", end).encode())
    with pytest.raises(UsageError, match=r"t\.csv: line 6: split 'tset' of 'b\.mp4'"):
        list_source(tmp_path / "t.csv")


def test_a_loop_of_links_ends_and_nothing_is_listed_twice(tmp_path: Path) -> None:
    put(tmp_path, "real/a.mp4")
    (tmp_path / "real" / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "m.mp4").symlink_to(tmp_path / "n.mp4")
    (tmp_path / "n.mp4").symlink_to(tmp_path / "m.mp4")
    (tmp_path / "broken.mp4").symlink_to(tmp_path / "nothing.mp4")
    problems = {name: entry.problem for name, entry in by_name(list_source(tmp_path)).items()}
    assert problems == {
        "real/a.mp4": None, "broken.mp4": "unreadable", "m.mp4": "unreadable", "n.mp4": "unreadable",
    }  # fmt: skip


def test_links_out_of_the_source_are_named_and_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "outside", "secret.mp4")
    src = put(tmp_path / "src", "a.mp4")
    (src / "file.mp4").symlink_to(tmp_path / "outside" / "secret.mp4")
    (src / "notes.txt").symlink_to("/etc/hostname")
    problems = {name: entry.problem for name, entry in by_name(list_source(src)).items()}
    assert problems == {"a.mp4": None, "file.mp4": "outside_root"}


def test_a_source_that_is_itself_a_link_is_fine(tmp_path: Path) -> None:
    put(tmp_path / "there", "real/a.mp4")
    (tmp_path / "src").symlink_to(tmp_path / "there")
    assert [(entry.video_id, entry.problem) for entry in list_source(tmp_path / "src").entries] == [
        ("real/a.mp4", None)
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_a_table_in_another_encoding_is_refused_with_the_one_to_save_it_in(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    (tmp_path / "t.csv").write_text("path,label\na.mp4,r\xe9el\n", encoding=encoding)
    with pytest.raises(UsageError, match=r"save it as CSV in UTF-8") as caught:
        list_source(tmp_path / "t.csv")
    assert ("UTF-16" in str(caught.value)) == encoding.startswith("utf-16")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("t.tsv", "as .csv, separated by commas"), ("a.mp4", "put the file into a folder"), ("b.md", "")],
)
@pytest.mark.parametrize("layout", ["auto", "table", "folder", "dfdc"])
def test_a_file_that_no_layout_reads_is_refused_with_what_to_do(
    tmp_path: Path, name: str, remedy: str, layout: str
) -> None:
    (tmp_path / name).write_text("path\tlabel\n")
    with pytest.raises(UsageError, match=r"must be a folder, a table \(.csv with commas, or .parquet\)") as caught:
        list_source(tmp_path / name, layout)
    assert remedy in str(caught.value)
    assert "--layout auto" not in str(caught.value)


def test_a_name_that_is_not_utf8_is_a_counted_problem(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.mp4")).write_bytes(b"x")
    entries = by_name(list_source(tmp_path))
    assert entries["b\\xff.mp4"].problem == "unreadable"
    assert "not UTF-8" in str(entries["b\\xff.mp4"].detail)
    assert entries["a.mp4"].problem is None


@pytest.mark.parametrize(
    "name", ["<script>.mp4", "[red]x[/].mp4", "=1+1.mp4", "a b'\"&.mp4", "été\n.mp4", ":boom:.mp4"]
)
def test_any_name_is_kept_as_it_is(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"real/{name}")
    (entry,) = list_source(tmp_path).entries
    assert (entry.video_id, entry.problem, entry.label) == (f"real/{name}", None, 0)


def test_the_order_is_the_same_however_the_files_came(tmp_path: Path) -> None:
    names = ["b/1.mp4", "a/2.mp4", "c.mp4", "a/1.mp4", "B/x.mp4"]
    first = list_source(put(tmp_path / "one", *names))
    second = list_source(put(tmp_path / "two", *reversed(names)))
    assert [entry.video_id for entry in first.entries] == [entry.video_id for entry in second.entries]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_one_problem_and_an_unreadable_source_a_refusal(tmp_path: Path) -> None:
    locked = put(tmp_path, "real/a.mp4", "dfdc_train_part_0/b.mp4") / "dfdc_train_part_0"
    (tmp_path / "t.csv").write_text(f"path,label\n{locked.name}/b.mp4,real\n")
    locked.chmod(0)
    try:
        problems = {name: entry.problem for name, entry in by_name(list_source(tmp_path)).items()}
        assert problems == {"real/a.mp4": None, locked.name: "unreadable"}
        assert [entry.problem for entry in list_source(tmp_path / "t.csv").entries] == ["unreadable"]
        with pytest.raises(UsageError, match="may not be read"):
            list_source(locked)
    finally:
        locked.chmod(0o700)


# --- table

WriteTable = Callable[[Path, dict[str, list[Any]]], Path]


def write_csv(folder: Path, columns: dict[str, list[Any]]) -> Path:
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (folder / "t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder / "t.csv"


def write_parquet(folder: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.fixture(params=[write_csv, write_parquet], ids=["csv", "parquet"])
def write_table(request: pytest.FixtureRequest) -> WriteTable:
    write: WriteTable = request.param
    return write


def test_a_table_says_everything_of_its_inputs(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "a.mp4", "x/b.mp4", size=9)
    src = write_table(
        tmp_path,
        {
            "path": ["a.mp4", "x/./b.mp4"], "label": ["Real", "FAKE"], "split": ["train", "validation"],
            "source": ["", "./x/../a.mp4"], "identity": ["ann", ""], "method": ["", "Deepfakes"], "whatever": [1, 2],
        },
    )  # fmt: skip
    listing = list_source(src)
    assert (listing.labels, listing.root) == (("real", "fake"), tmp_path)
    a, b = listing.entries
    assert (a.video_id, a.label, a.split, a.source_id, a.identity, a.method) == ("a.mp4", 0, "train", None, "ann", None)
    assert (b.video_id, b.label, b.split, b.source_id, b.identity) == ("x/b.mp4", 1, "val", "a.mp4", None)
    assert (b.method, b.size_bytes, a.problem) == ("Deepfakes", 9, None)


@pytest.mark.parametrize("empty", ["nan", "None", "<NA>"])
def test_empty_cells_that_became_text_link_nothing(tmp_path: Path, write_table: WriteTable, empty: str) -> None:
    put(tmp_path, "a.mp4")
    columns = ("split", "source", "mask", "identity", "method", "fake_segments", "whole_frame")
    src = write_table(tmp_path, {"path": ["a.mp4"], "label": ["real"]} | {column: [empty] for column in columns})
    listing = list_source(src)
    [entry] = listing.entries
    assert (entry.split, entry.source_id, entry.mask_id, entry.people, entry.method) == (None, None, None, (), None)
    assert not listing.missing


def test_one_named_split_is_none(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "a.mp4")
    src = write_table(tmp_path, {"path": ["a.mp4"], "label": ["real"], "split": ["test"]})
    assert list_source(src).entries[0].split is None


@pytest.mark.parametrize(
    ("given", "labels", "numbers"),
    [
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        (["10", "9", "2"], ("2", "9", "10"), [2, 1, 0]),
        (["01", "1", "001"], ("001", "01", "1"), [1, 2, 0]),
        (["real", "", "Fake"], ("real", "fake"), [0, -1, 1]),
        (["1", "0", "-1"], ("0", "1"), [1, 0, -1]),  # -1 is unknown, as in a dataset's own labels
        (["", "", ""], ("real", "fake"), [-1, -1, -1]),
        (["--1", "²", "1"], ("--1", "1", "²"), [0, 2, 1]),
    ],
)
def test_classes_are_numbered_in_order(
    tmp_path: Path, write_table: WriteTable, given: list[str], labels: tuple[str, ...], numbers: list[int]
) -> None:
    put(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    listing = list_source(write_table(tmp_path, {"path": ["a.mp4", "b.mp4", "c.mp4"], "label": given}))
    assert listing.labels == labels
    assert [entry.label for entry in listing.entries] == numbers


def test_numbers_as_labels_work_in_parquet(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    listing = list_source(write_parquet(tmp_path, {"path": ["a.mp4", "b.mp4", "c.mp4"], "label": [1, 0, None]}))
    assert (listing.labels, [entry.label for entry in listing.entries]) == (("0", "1"), [1, 0, -1])


def test_more_classes_than_labels_can_hold_are_refused(tmp_path: Path, write_table: WriteTable) -> None:
    names = [f"{number}.mp4" for number in range(129)]
    src = write_table(tmp_path, {"path": names, "label": [f"id{number}" for number in range(129)]})
    with pytest.raises(UsageError, match=r"129 different values, at most 128"):
        list_source(src)
    put(tmp_path, *names[:128])
    src = write_table(tmp_path, {"path": names[:128], "label": [f"id{number:03}" for number in range(128)]})
    assert max(entry.label for entry in list_source(src).entries) == 127


def test_what_the_table_lists_and_the_disk_has_not_is_missing(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "a.mp4")
    listing = list_source(write_table(tmp_path, {"path": ["a.mp4", "gone.mp4"], "label": ["real", "fake"]}))
    assert (listing.missing, len(listing.entries)) == (["gone.mp4"], 1)
    nothing = write_table(tmp_path, {"path": ["gone.mp4"], "label": ["fake"]})
    with pytest.raises(
        UsageError, match=r"none of the 1 files it lists is below .*; paths are relative to that folder"
    ):
        list_source(nothing)


def test_a_missing_mask_that_several_rows_name_counts_once(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    columns = {"path": ["a.mp4", "b.mp4", "c.mp4", "gone.mp4", "gone.mp4"], "mask": ["m.png", "m.png", "n.png", "", ""]}
    listing = list_source(write_table(tmp_path, {**columns, "label": ["fake"] * 5}))
    assert listing.missing == ["m.png", "n.png", "gone.mp4"]


@pytest.mark.parametrize(
    ("inside", "detail"),
    [
        ("anna/take/frames/001.png", "a folder of folders, with images in 'anna/take/frames': name each clip's folder"),
        ("anna/take/a.mp4", "a folder that holds videos, such as 'anna/take/a.mp4': name each of them"),
        ("anna/a.mp4", "a folder that holds videos, such as 'anna/a.mp4': name each of them"),
    ],
)
@pytest.mark.parametrize("name", ["anna", "./anna/"])
def test_a_row_that_is_a_folder_of_inputs_fails_with_what_to_name_instead(
    tmp_path: Path, write_table: WriteTable, inside: str, detail: str, name: str
) -> None:
    put(tmp_path, inside, "b.mp4", "anna/.hidden/x.png", "empty/notes.txt", "anna/notes.txt")
    paths = [name, "b.mp4", "empty", "gone", "."]
    listing = list_source(write_table(tmp_path, {"path": paths, "label": ["real"] * len(paths)}))
    failed = by_name(listing)["anna"]
    assert (failed.problem, str(failed.detail)[: len(detail)]) == ("no_frames", detail)
    assert (sorted(by_name(listing)), listing.missing) == (["anna", "b.mp4"], ["empty", "gone", "."])


def test_a_table_reaches_nothing_outside_its_folder(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "secret.mp4", "in/a.mp4")
    names = ["../secret.mp4", str(tmp_path / "secret.mp4"), "a.mp4"]
    listing = list_source(write_table(tmp_path / "in", {"path": names, "label": ["real"] * 3}))
    problems = {entry.video_id: entry.problem for entry in listing.entries}
    assert problems == {names[0]: "outside_root", names[1]: "outside_root", "a.mp4": None}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["a.mp4"]}, "lacks the column label"),
        ({"label": ["real"], "file": ["a.mp4"]}, "lacks the column path; it has 'label', 'file'"),
        ({"path": ["a.mp4"], " label": ["real"]}, "it has 'path', ' label'"),
        (
            {"Path": ["a.mp4"], "Label": ["real"]},
            "found 'Path', did you mean 'path'\\?.* found 'Label', did you mean 'label'",
        ),
        ({"path": ["a.mp4"], "labels": ["real"]}, "found 'labels', did you mean 'label'"),
        ({"path;label": ["a.mp4;real"]}, "looks separated by ';'"),
        ({"path\tlabel": ["a.mp4\treal"]}, "looks separated by a tab"),
        ({"path": ["a.mp4"], "label": ["real"], "splitt": ["test"]}, "has a column 'splitt', did you mean 'split'"),
        (
            {"path": ["a.mp4"], "label": ["real"], "Identity": ["anna"]},
            "has a column 'Identity', did you mean 'identity'",
        ),
        ({"path": ["a.mp4", "./a.mp4"], "label": ["real", "fake"]}, "names 'a.mp4' more than once"),
        (
            {"path": ["a.mp4"], "label": ["real"], "split": ["dev2"]},
            r"t\..*: (line 2|row 1): split 'dev2' of 'a\.mp4': must be train, val or test",
        ),
        ({"path": ["a.mp4"], "label": ["fake"], "source": ["./a.mp4"]}, r"(line 2|row 1): 'a.mp4' is its own source"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(
    tmp_path: Path, write_table: WriteTable, columns: dict[str, list[str]], message: str
) -> None:
    put(tmp_path, "a.mp4")
    with pytest.raises(UsageError, match=message) as caught:
        list_source(write_table(tmp_path, columns))
    assert str(tmp_path / "t.") in str(caught.value)


@pytest.mark.parametrize("source", ["..", ".", "../..", "real", "real/", "/"])
def test_a_source_that_is_a_folder_without_images_is_refused_with_its_line(
    tmp_path: Path, write_table: WriteTable, source: str
) -> None:
    put(tmp_path, "a.mp4", "b.mp4", "real/c.mp4")
    columns = {"path": ["b.mp4", "a.mp4"], "label": ["real", "fake"], "source": ["", source]}
    message = rf"(line 3|row 2): source '{source}' of 'a\.mp4' is a folder without images; .* leave the cell empty"
    with pytest.raises(UsageError, match=message):
        list_source(write_table(tmp_path, columns))


def test_unknown_columns_are_reported_once_as_ignored(tmp_path: Path, write_table: WriteTable) -> None:
    put(tmp_path, "a.mp4")
    columns = {
        "path": ["a.mp4"],
        "label": ["real"],
        "identity": ["anna"],
        "age": [31],
        "split": ["test"],
        "splitt": [""],
    }
    listing = with_columns(list_source(write_table(tmp_path, columns)), ())
    assert [text for text in listing_warnings(listing) if "column" in text] == [
        "columns of the table that are ignored: 'age', 'splitt'; --columns stores those that it names in each row"
    ]


@pytest.mark.parametrize("name", ["original", "Original_Path", "source_video"])
def test_a_column_of_originals_by_another_name_is_reported_with_the_right_one(
    tmp_path: Path, write_table: WriteTable, name: str
) -> None:
    put(tmp_path, "a.mp4", "b.mp4")
    columns = {"path": ["a.mp4", "b.mp4"], "label": ["real", "fake"], name: ["", "a.mp4"]}
    listing = with_columns(list_source(write_table(tmp_path, columns)), ())
    (warning,) = (text for text in listing_warnings(listing) if repr(name) in text)
    assert "which only the column 'source' gives: rename it" in warning
    named = with_columns(list_source(write_table(tmp_path, {**columns, "source": ["", "a.mp4"]})), ())
    assert not any("rename it" in text for text in listing_warnings(named)), "a source is given"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"path,label\na.mp4\n",
        b"path,label\na.mp4,real,x\n",
        b"path,label\n\xe9.mp4,real\n",
        b"path,path,label\na,b,c\n",
    ],
)
def test_a_csv_that_cannot_be_parsed_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    put(tmp_path, "a.mp4")
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(UsageError, match=r"t\.csv"):
        list_source(tmp_path / "t.csv")


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_parquet_table_that_is_cut_is_refused_by_name(tmp_path: Path, keep: int) -> None:
    src = write_parquet(tmp_path, {"path": ["a.mp4"], "label": ["real"]})
    src.write_bytes(src.read_bytes()[:keep])
    with pytest.raises(UsageError, match=r"t\.parquet: cannot be read"):
        list_source(src)


@pytest.mark.parametrize("header", ['path,"a,b",label', '"a,b","path","label"', '\ufeffpath,"a ""b"", c",label'])
def test_csv_quotes_commas_and_byte_order_marks(tmp_path: Path, header: str) -> None:
    put(tmp_path, "a, b.mp4", "007.mp4", "1e5")
    columns = next(iter(pa.csv.open_csv(pa.py_buffer(f"{header}\nx,y,z\n".encode())))).schema.names
    values = {"path": ['"a, b.mp4"', "007.mp4"], "label": ["007", "7"]}
    rows = [",".join(values.get(name, ['"q,r"'] * 2)[number] for name in columns) for number in range(2)]
    (tmp_path / "t.csv").write_text("\r\n".join([header, *rows]), encoding="utf-8")
    listing = list_source(tmp_path / "t.csv")
    assert {entry.video_id for entry in listing.entries} == {"a, b.mp4", "007.mp4"}
    assert listing.labels == ("007", "7"), "text must stay text"


def test_numbers_that_are_file_names_stay_text(tmp_path: Path) -> None:
    put(tmp_path, "007", "1e5", "null")
    (tmp_path / "t.csv").write_text("path,label,identity\n007,real,0012\n1e5,real,\n,real,x\nnull,fake,true\n")
    listing = list_source(tmp_path / "t.csv")
    assert [(entry.video_id, entry.identity) for entry in listing.entries] == [
        ("007", "0012"),
        ("1e5", None),
        ("null", "true"),
    ]


def test_a_column_that_turns_from_numbers_to_text_late_does_not_matter(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4")
    rows = ["a.mp4,real,1", *(f"gone{number}.mp4,fake,{number:0400}" for number in range(3000)), "b.mp4,fake,n/a"]
    assert len("".join(rows)) > 1 << 20, "more than the block from which pyarrow guesses a column's type"
    (tmp_path / "t.csv").write_text("\n".join(["path,label,score", *rows]))
    assert len(list_source(tmp_path / "t.csv").missing) == 3001


# --- properties

_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(st.one_of(_NAMES, st.sampled_from(["..", ".", "/", "a.mp4", "x", "\ud800"])), min_size=1, max_size=5))
def test_no_name_in_metadata_gives_a_trace_or_a_path_outside(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    root = tmp_path_factory.getbasetemp() / "any_name"
    if not root.exists():
        put(root, "secret.mp4", "src/a.mp4", "src/x/a.mp4")
    (root / "src" / "metadata.json").write_text(json.dumps({"/".join(parts): real()}))
    listing = list_source(root / "src")
    for entry in listing.entries:
        entry.video_id.encode()
        if entry.problem is None:
            assert (root / "src" / entry.video_id).resolve().is_relative_to(root / "src")
    assert len(listing.entries) + len(listing.missing) in {2, 3}


def test_listing_needs_no_dask_and_no_detector() -> None:
    code = "import sys, facefeed.pipeline.sources; sys.exit(any(m in sys.modules for m in ('dask', 'torch', 'cv2')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
