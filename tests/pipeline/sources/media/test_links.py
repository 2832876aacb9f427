"""Links and absolute paths: where inputs may lie besides SRC, and what is said where they may not."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import InputError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.rows.input_pipeline import InputPipeline
from facefeed.pipeline.sources import Listing, list_source, listing_warnings, with_columns
from facefeed.pipeline.sources.media import linked_files


def put(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 3)
    return root


def problems(listing: Listing) -> dict[str, str | None]:
    return {entry.video_id: entry.problem for entry in listing.entries}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A dataset as Hugging Face's cache keeps it: every file of a snapshot is a link to a blob beside it."""
    blobs = put(tmp_path / "hub/blobs", "0a1b", "2c3d", "7e8f")
    snapshot = tmp_path / "hub/snapshots/main"
    for name, blob in (("real/a.mp4", "0a1b"), ("fake/b.mp4", "2c3d"), ("list.csv", "7e8f")):
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blobs / blob)
    (blobs / "7e8f").write_text("path,label\nreal/a.mp4,real\nfake/b.mp4,fake\n")
    return snapshot


def test_a_farm_of_links_is_refused_at_once_and_the_folder_to_allow_is_named(snapshot: Path) -> None:
    with pytest.raises(UsageError) as caught:
        list_source(snapshot)
    assert f"--allow-root {snapshot.parents[1] / 'blobs'}" in str(caught.value)


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_the_command_refuses_what_leads_out_and_leaves_no_out(snapshot: Path, tmp_path: Path, flags: list[str]) -> None:
    result = CliRunner().invoke(main, ["precompute", str(snapshot), str(tmp_path / "out"), *flags])
    assert result.exit_code == 2
    assert "--allow-root" in result.stderr
    assert "--max-failed" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_links_into_an_allowed_folder_are_inputs(snapshot: Path) -> None:
    listing = list_source(snapshot, allowed=[snapshot.parents[1] / "blobs"])
    assert problems(listing) == {"fake/b.mp4": None, "real/a.mp4": None}
    assert listing.format_class_counts() == "1 real, 1 fake"


def test_a_table_that_is_a_link_lists_what_lies_beside_the_link(snapshot: Path, tmp_path: Path) -> None:
    blobs = snapshot.parents[1] / "blobs"
    job, listing, _ = prepare_job(snapshot / "list.csv", tmp_path / "out", allow_roots=[blobs])
    assert (listing.layout, job.root) == ("table", snapshot)
    assert problems(listing) == {"fake/b.mp4": None, "real/a.mp4": None}


def clips_of(src: Path, *allowed: Path) -> dict[str, int]:
    """Number of images by input; 0 of a file."""
    _, listing, _ = prepare_job(src, src.parent / "out", allow_roots=allowed)
    return {entry.video_id: entry.num_images for entry in listing.entries}


def link_frames(folder: Path, targets: Iterable[Path]) -> None:
    """Makes a folder of numbered frames, each a link to one of `targets`, which are made where they are missing."""
    folder.mkdir(parents=True)
    for number, target in enumerate(targets):
        put(target.parent, target.name)
        (folder / f"{number:04}.png").symlink_to(target)


def test_frames_that_are_one_file_of_a_store_stay_frames_of_their_clips(tmp_path: Path) -> None:
    src, store = tmp_path / "src", tmp_path / "store"
    for name, blobs in {"fake/c2": "abcd", "real/c1": "effa", "real/c3": "aaag"}.items():
        link_frames(src / name, map(store.joinpath, blobs))
    put(src, "real/c4/0.png", "real/c4/1.png")
    (src / "real/c4/2.png").symlink_to("1.png")
    (src / "real/c4/3.png").symlink_to("../c3/0003.png")
    assert clips_of(src, store) == {"fake/c2": 4, "real/c1": 4, "real/c3": 4, "real/c4": 4}


def test_a_folder_of_links_to_frames_that_are_all_listed_is_no_other_clip(tmp_path: Path) -> None:
    src, store = tmp_path / "src", tmp_path / "store"
    for name, blobs in {"fake/part": "daa", "real/c1": "abcd", "real/c2": "abcd", "real/c3": "efgh"}.items():
        link_frames(src / name, map(store.joinpath, blobs))
    link_frames(src / "fake/c5", [src / "fake/c4" / name for name in ("2.png", "0.png", "1.png")])
    for name in ("real/x.png", "real/y.png"):  # on their own in the folder of their class
        (src / name).symlink_to(put(store, "p") / "p")
    listing = list_source(src, allowed=[store])
    assert listing.ignored == {"links to files that are listed already": 11}
    assert clips_of(src, store) == {"fake/c4": 3, "real/c1": 4, "real/c3": 4, "real/x.png": 0}


def test_clips_that_share_frames_by_links_are_named_in_plain_folders_too(tmp_path: Path) -> None:
    """Each has frames of its own, so none is left out; equal frames of one clip are no matter."""
    src = put(tmp_path / "src", "real/c1/0.png", "real/c1/1.png", "fake/mix/7.png", "real/c2/0.png")
    for number in range(2):
        (src / f"fake/mix/{number}.png").symlink_to(src / f"real/c1/{number}.png")
    (src / "real/c2/1.png").symlink_to("0.png")
    put(src, "real/c3.mp4", "real/c3/0.png")
    for folder in ("real/frames/c3", "real/c2/faces"):  # of one clip
        (src / folder).mkdir(parents=True)
        (src / folder / "0.png").hardlink_to(src / f"real/{'c3' if 'c3' in folder else 'c2'}/0.png")
    listing = list_source(src)
    assert len(listing.entries) == 9
    (warning, *_) = listing.warnings
    expected = "2 inputs have files in common by links: the first, 'fake/mix' (fake) and 'real/c1' (real), share 2;"
    assert warning.startswith(expected)


def table(folder: Path, *rows: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "t.csv"
    path.write_text("\n".join(["path,label,source", *rows]))
    return path


def test_absolute_paths_in_a_table_are_named_by_their_place(tmp_path: Path) -> None:
    put(tmp_path, "in/a.mp4", "store/b.mp4", "store/c.mp4", "store/d.mp4")
    rows = [f"{tmp_path}/in/a.mp4,real,", f"{tmp_path}/store/b.mp4,real,", "../store/c.mp4,fake,../store/b.mp4",
            f"{tmp_path}/store/d.mp4,fake,{tmp_path}/in/a.mp4"]  # fmt: skip
    listing = list_source(table(tmp_path / "in", *rows), allowed=[tmp_path / "store"])
    store = str(tmp_path / "store")
    assert {entry.video_id: entry.source_id for entry in listing.entries} == {
        "a.mp4": None, f"{store}/b.mp4": None, f"{store}/c.mp4": f"{store}/b.mp4", f"{store}/d.mp4": "a.mp4",
    }  # fmt: skip
    assert set(problems(listing).values()) == {None}
    assert listing.missing == []


def test_for_a_table_of_absolute_paths_the_folder_to_allow_is_named(tmp_path: Path) -> None:
    put(tmp_path, "store/x/a.mp4", "store/y/b.mp4")
    src = table(tmp_path / "in", f"{tmp_path}/store/x/a.mp4,real,", f"{tmp_path}/store/y/b.mp4,real,")
    with pytest.raises(UsageError, match=f"--allow-root {tmp_path}/store$"):
        list_source(src)


def links(tmp_path: Path, *targets: str) -> Path:
    """SRC with one file, and a link to each of `targets`, which need not exist."""
    src = put(tmp_path / "src", "a.mp4")
    for number, target in enumerate(targets):
        (src / f"{number}.mp4").symlink_to(target)
    return src


@pytest.mark.parametrize(
    ("targets", "advised"),
    [
        (["/mnt/x/a/1.mp4", "/mnt/x/b/2.mp4"], ["/mnt/x"]),
        (["/mnt/x/1.mp4", "/mnt/x/deep/er/2.mp4"], ["/mnt/x"]),
        (["/mnt/x/a/1.mp4", "/mnt/x/b/2.mp4", "/media/y/3.mp4"], ["/media/y", "/mnt/x"]),
        (["/mnt/x/a/1.mp4", "/mnt/y/b/2.mp4"], ["/mnt/x/a", "/mnt/y/b"]),
        ([f"/mnt/disk{number}/v/1.mp4" for number in range(40)], ["/mnt"]),
        ([*(f"/mnt/disk{number}/v/1.mp4" for number in range(40)), "/media/y/3.mp4"], ["/media/y", "/mnt"]),
        (["/mnt/1.mp4", "/mnt/x/2.mp4"], ["/mnt"]),
        (["/mnt/it's here; rm -rf/1.mp4"], ["/mnt/it's here; rm -rf"]),
    ],
)
def test_the_fewest_folders_that_admit_all_are_named_ready_for_a_shell(
    tmp_path: Path, targets: list[str], advised: list[str]
) -> None:
    warnings = "\n".join(listing_warnings(list_source(links(tmp_path, *targets))))
    options = warnings[warnings.index("--allow-root") : warnings.index(" reads them")]
    assert shlex.split(options) == [word for folder in advised for word in ("--allow-root", folder)]


def test_of_very_many_folders_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    warnings = "\n".join(
        listing_warnings(list_source(links(tmp_path, *(f"/disk{number}/v/1.mp4" for number in range(9)))))
    )
    assert "--allow-root /disk0/v --allow-root /disk1/v --allow-root /disk2/v and 6 more folders" in warnings


def test_the_folders_of_all_linked_folders_are_named_at_once(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "a.mp4")
    for name in ("one", "two"):
        (src / name).symlink_to(put(tmp_path / "store" / name, "b.mp4"))
    with pytest.raises(UsageError, match=f"'one' .*--allow-root {tmp_path}/store$"):
        list_source(src)


def test_where_some_inputs_lie_outside_the_others_are_listed(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "a.mp4")
    (src / "b.mp4").symlink_to(put(tmp_path / "store", "b.mp4") / "b.mp4")
    assert problems(list_source(src)) == {"a.mp4": None, "b.mp4": "outside_root"}


def test_a_linked_folder_that_leads_out_is_never_counted_as_one_input(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "a.mp4")
    (src / "more").symlink_to(put(tmp_path / "store", "b.mp4", "c.mp4"))
    with pytest.raises(UsageError, match=f"'more' .*--allow-root {tmp_path}/store"):
        list_source(src)
    listing = list_source(src, allowed=[tmp_path / "store"])
    assert problems(listing) == {"a.mp4": None, "more/b.mp4": None, "more/c.mp4": None}


def test_a_linked_folder_is_walked_once_and_loops_end(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "real/a.mp4", ".store/fakes/b.mp4")
    store = put(tmp_path / "store", "x/c.mp4")
    (store / "again").symlink_to(store)
    for name, target in (
        ("fake", ".store/fakes"),
        ("loop", "."),
        ("all", "real"),
        ("m", "../store"),
        ("n", "../store/x"),
    ):
        (src / name).symlink_to(src / target)
    listing = list_source(src, allowed=[store])
    assert [entry.video_id for entry in listing.entries] == ["real/a.mp4", "fake/b.mp4", "m/x/c.mp4"]
    assert listing.ignored == {"links to folders that are listed already": 4}


@pytest.mark.parametrize("link", ["real/a.mp4", "real/z.mp4", "zoo/m.mp4"])
def test_a_file_is_an_input_once_under_its_own_name_whatever_links_lead_to_it(tmp_path: Path, link: str) -> None:
    src = put(tmp_path, "real/m.mp4", "real/n.mp4")
    (src / "zoo").mkdir()
    (src / link).symlink_to(src / "real/m.mp4")
    listing = list_source(src)
    assert problems(listing) == {"real/m.mp4": None, "real/n.mp4": None}
    assert listing.ignored == {"links to files that are listed already": 1}


def test_of_links_to_a_file_that_is_no_input_itself_the_first_by_name_is_one(tmp_path: Path) -> None:
    src = put(tmp_path / "src", ".store/a.mp4", "real/b.bin", "real/b.mp4")
    out = put(tmp_path / "store", "c.mp4")
    for name, target in (
        ("train/x.mp4", src / ".store/a.mp4"),
        ("test/x.mp4", src / ".store/a.mp4"),
        ("y.mp4", src / "real/b.bin"),
        ("z.mp4", src / "y.mp4"),
        ("m.mp4", out / "c.mp4"),
        ("n.mp4", out / "c.mp4"),
    ):
        (src / name).parent.mkdir(exist_ok=True)
        (src / name).symlink_to(target)
    listing = list_source(src, allowed=[out])
    assert problems(listing) == dict.fromkeys(["real/b.mp4", "m.mp4", "test/x.mp4", "y.mp4"])
    assert listing.ignored == {".bin": 1, "links to files that are listed already": 3}


def test_a_file_that_a_table_names_by_a_link_too_is_an_input_once(tmp_path: Path) -> None:
    src = put(tmp_path, "own/m.mp4", ".store/x.mp4", "fake.mp4")
    (src / "a.mp4").symlink_to(src / "own/m.mp4")
    (src / "linked").symlink_to(src / "own")
    (src / "y.mp4").symlink_to(src / ".store/x.mp4")
    (src / "z.mp4").symlink_to(src / ".store/x.mp4")
    originals = ["a.mp4", "linked/m.mp4", "own/m.mp4", "z.mp4", "y.mp4"]
    table = src / "t.csv"
    table.write_text("\n".join(["path,label,source", *(f"{name},real," for name in originals), "fake.mp4,fake,a.mp4"]))
    listing = list_source(table)
    assert {entry.video_id: entry.source_id for entry in listing.entries} == {
        "own/m.mp4": None, "y.mp4": None, "fake.mp4": "own/m.mp4",
    }  # fmt: skip
    assert listing.ignored == {"links to files that are listed already": 3}
    table.write_text("path,label\na.mp4,real\nown/m.mp4,fake\nfake.mp4,fake\n")
    with pytest.raises(UsageError, match=r"'own/m.mp4' and 'a.mp4', which are one file by a link.*\(label\)"):
        list_source(table)


@pytest.fixture
def frames(tmp_path: Path) -> Callable[..., Listing]:
    """Lists a table of these lines beside clip `own`, and `a` and `z`, whose images are links to those of `own`."""
    src = put(tmp_path / "src", "own/0.png", "own/1.png", "copy/0.png", "copy/1.png", "fake.mp4")
    for name in ("a/0.png", "a/1.png", "z/0.png", "z/1.png"):
        (src / name).parent.mkdir(exist_ok=True)
        (src / name).symlink_to(src / "own" / Path(name).name)
    for file in src.rglob("*.png"):
        os.utime(file, (1, 1))

    def read(*lines: str) -> Listing:
        (src / "t.csv").write_text("\n".join(lines))
        return list_source(src / "t.csv")

    return read


def test_folders_whose_frames_are_links_to_the_same_images_are_one_clip(frames: Callable[..., Listing]) -> None:
    listing = frames("path,label,source", "a,real,", "own,real,", "z,real,", "copy,real,", "fake.mp4,fake,z")
    assert {entry.video_id: entry.source_id for entry in listing.entries} == {
        "own": None, "copy": None, "fake.mp4": "own",
    }  # fmt: skip
    assert listing.ignored == {"links to files that are listed already": 2}
    assert [entry.video_id for entry in frames("path,label", "z,real", "a,real", "fake.mp4,fake").entries] == [
        "a", "fake.mp4",
    ]  # fmt: skip


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize(
    ("name", "row", "shared"),
    [
        ("part/7.png", "part", "'own' (real, train) and 'part' (fake, test), share 1;"),  # beside an image of its own
        ("single.png", "single.png", "'own' (real, train) and 'single.png' (fake, test), share 1;"),
    ],
)
def test_inputs_that_share_a_part_of_their_files_by_links_are_named_with_an_example(
    frames: Callable[..., Listing], tmp_path: Path, link: Callable[[Path, Path], None], name: str, row: str, shared: str
) -> None:
    put(tmp_path / "src", "part/8.png")
    link(tmp_path / "src" / name, tmp_path / "src/own/1.png")
    rows = "own,real,train", "copy,real,train", "fake.mp4,fake,test"
    assert not any("by links" in text for text in listing_warnings(frames("path,label,split", *rows, "a,real,train")))
    (warning,) = [
        text for text in listing_warnings(frames("path,label,split", *rows, f"{row},fake,test")) if "by links" in text
    ]
    assert warning.startswith(f"2 inputs have files in common by links: the first, {shared}")


@pytest.mark.parametrize(("of_link", "field"), [("fake,train", "label"), ("real,test", "split")])
def test_frames_in_two_classes_or_splits_by_links_are_refused_with_both_folders(
    frames: Callable[..., Listing], of_link: str, field: str
) -> None:
    with pytest.raises(UsageError, match=rf"'own' and 'a', which have the same images by links.*\({field}\)"):
        frames("path,label,split", "own,real,train", f"a,{of_link}", "fake.mp4,fake,test")


def test_a_clip_that_is_its_own_source_by_links_to_its_frames_is_refused(frames: Callable[..., Listing]) -> None:
    with pytest.raises(UsageError, match="line 3: 'a' is its own source"):
        frames("path,label,source", "copy,real,", "a,fake,own")


@pytest.fixture
def linked(tmp_path: Path) -> Callable[..., Listing]:
    """Lists a table of these lines beside the folder `x` and `link`, which leads to it."""
    src = put(tmp_path, "x/a.mp4", "x/b.mp4", "x/c.mp4", "x/m.png", "x/n.png")
    (src / "link").symlink_to(src / "x")

    def read(*lines: str) -> Listing:
        (src / "t.csv").write_text("\n".join(lines))
        return list_source(src / "t.csv")

    return read


@pytest.mark.parametrize(("path", "source"), [("x/a.mp4", "link/a.mp4"), ("link/a.mp4", "x/a.mp4")])
def test_a_row_that_is_its_own_source_by_a_link_is_refused_with_its_line(
    linked: Callable[..., Listing], path: str, source: str
) -> None:
    with pytest.raises(UsageError, match=f"line 3: '{path}' is its own source"):
        linked("path,label,source", "x/b.mp4,real,", f"{path},fake,{source}")


def test_a_source_that_a_table_gives_by_a_link_is_the_input_that_it_leads_to(linked: Callable[..., Listing]) -> None:
    listing = linked("path,label,source", "x/a.mp4,real,", "x/b.mp4,fake,link/a.mp4")
    assert {entry.video_id: entry.source_id for entry in listing.entries} == {"x/a.mp4": None, "x/b.mp4": "x/a.mp4"}


def test_fakes_of_one_original_that_is_no_input_keep_it_in_common(linked: Callable[..., Listing]) -> None:
    listing = linked("path,label,source", "x/a.mp4,fake,x/c.mp4", "x/b.mp4,fake,link/c.mp4")
    assert [entry.source_id for entry in listing.entries] == ["x/c.mp4", "x/c.mp4"]


def test_a_table_may_list_a_folder_and_a_link_to_it_with_sources_and_masks(linked: Callable[..., Listing]) -> None:
    rows = [row for at in ("x", "link") for row in (f"{at}/a.mp4,real,,", f"{at}/b.mp4,fake,{at}/a.mp4,{at}/m.png")]
    listing = linked("path,label,source,mask", *rows)
    assert [(entry.video_id, entry.source_id, entry.mask_id) for entry in listing.entries] == [
        ("x/a.mp4", None, None), ("x/b.mp4", "x/a.mp4", "x/m.png"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"\(mask_id\)"):
        linked("path,label,mask", "x/b.mp4,fake,x/m.png", "link/b.mp4,fake,link/n.png")


@pytest.mark.parametrize("footage", ["X", ""])
def test_other_footage_of_a_link_is_refused(linked: Callable[..., Listing], footage: str) -> None:
    with pytest.raises(UsageError, match=r"'x/a.mp4' and 'link/a.mp4', which are one file by a link.*\(footage\)"):
        linked("path,label,footage", f"x/a.mp4,real,{footage}", "link/a.mp4,real,Y", "x/b.mp4,real,Y")


def test_footage_called_after_a_link_that_is_left_out_is_that_of_the_file(linked: Callable[..., Listing]) -> None:
    listing = linked("path,label,footage", "x/a.mp4,real,", "link/a.mp4,real,", "x/b.mp4,real,link/a.mp4")
    assert {entry.video_id: entry.footage for entry in listing.entries} == {"x/a.mp4": "x/a.mp4", "x/b.mp4": "x/a.mp4"}


def test_own_columns_in_which_a_link_differs_are_refused_where_they_are_selected(
    linked: Callable[..., Listing],
) -> None:
    listing = linked("path,label,age,idx", "x/a.mp4,real,31,1", "link/a.mp4,real,31,2", "x/b.mp4,real,7,3")
    assert [entry.values for entry in with_columns(listing, ["age"]).entries] == [(31,), (7,)]
    with pytest.raises(UsageError, match=r"--columns idx: .*t.csv: names 'x/a.mp4' and 'link/a.mp4'.*\(idx\)"):
        with_columns(listing, ["age", "idx"])


def test_a_mask_and_a_clip_that_a_link_names_are_no_other_inputs(linked: Callable[..., Listing]) -> None:
    with pytest.raises(UsageError, match=r"names 'x/m.png' as a path and as a mask"):
        linked("path,label,mask", "x/m.png,real,", "x/b.mp4,fake,link/m.png")
    with pytest.raises(UsageError, match=r"names 'link/m.png', and the folder that it lies in"):
        linked("path,label", "x,real", "link/m.png,fake")


def test_links_of_a_table_cost_one_look_at_each_file_and_folder(
    linked: Callable[..., Listing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(linked_files.os.path, "islink", lambda path: looked_at.append(path) or Path(path).is_symlink())
    linked("path,label,source", "x/a.mp4,real,", "x/b.mp4,fake,x/a.mp4", "x/c.mp4,fake,x/a.mp4")
    assert sorted(looked_at) == [str(tmp_path / name) for name in ("x", "x/a.mp4", "x/b.mp4", "x/c.mp4")]


def test_a_folder_to_allow_that_is_not_there_is_refused(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "a.mp4")
    with pytest.raises(UsageError, match=r"allow_root='.*nowhere': no such folder"):
        prepare_job(src, tmp_path / "out", allow_roots=[tmp_path / "nowhere"])


def test_a_link_that_came_to_lead_elsewhere_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "store/a.mp4", "secret/a.mp4", "src/b.mp4")
    link = tmp_path / "src/a.mp4"
    link.symlink_to(tmp_path / "store/a.mp4")
    job, _, _ = prepare_job(tmp_path / "src", tmp_path / "out", allow_roots=[tmp_path / "store"], allow_unlabelled=True)
    inputs = InputPipeline(job)
    try:
        assert inputs.path_of("a.mp4") == link
        link.unlink()
        link.symlink_to(tmp_path / "secret/a.mp4")
        with pytest.raises(InputError, match="outside_root"):
            inputs.path_of("a.mp4")
    finally:
        inputs.close()


def test_a_run_that_allows_more_adds_what_it_left_out(
    make_source: Callable[..., Path], tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    store = make_source("one.mp4", "two.mp4", root=tmp_path / "store")
    src, out = tmp_path / "src", tmp_path / "out"
    (src / "real").mkdir(parents=True)
    (store / "one.mp4").rename(src / "real/one.mp4")
    (src / "real/two.mp4").symlink_to(store / "two.mp4")
    given: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    assert precompute(src, out, **given).manifest.inputs["failed"] == {"outside_root": 1}
    result = precompute(src, out, **given, allow_roots=[store])
    assert (result.manifest.inputs["ok"], result.manifest.inputs["failed"], result.totals.inputs) == (2, {}, 1)
    videos = ds.dataset(out / "faces").to_table(columns=["video_id"])["video_id"].to_pylist()
    assert set(videos) == {"real/one.mp4", "real/two.mp4"}


def test_a_mask_outside_the_tables_folder_is_refused_with_its_line_and_the_folder_to_allow(tmp_path: Path) -> None:
    put(tmp_path, "src/real.mp4", "src/fake.mp4", "store/m.png")
    table = tmp_path / "src/list.csv"
    table.write_text("path,label,mask\nreal.mp4,real,\nfake.mp4,fake,../store/m.png\n")
    message = rf"list.csv: line 3: mask '../store/m.png' of 'fake.mp4' lies outside .*--allow-root {tmp_path}/store,"
    with pytest.raises(UsageError, match=message):
        list_source(table)
    assert [entry.mask_id for entry in list_source(table, allowed=[tmp_path / "store"]).entries] == [
        str(tmp_path / "store/m.png"), None,
    ]  # fmt: skip


def test_an_original_outside_the_tables_folder_is_warned_of_with_the_folder_to_allow(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("src/real.mp4", "src/fake.mp4", "out.mp4"):
        (tmp_path / name).write_bytes(name.encode())
    table = tmp_path / "src/list.csv"
    table.write_text("path,label,source\nreal.mp4,real,\nfake.mp4,fake,../out.mp4\n")
    (warning,) = list_source(table).warnings
    assert re.search(rf"none is read, so .* no mask by comparison: --allow-root {tmp_path} reads them", warning)
    assert list_source(table, allowed=[tmp_path]).warnings == ()
