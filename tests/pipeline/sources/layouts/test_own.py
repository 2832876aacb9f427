"""A layout of the user's own: the guide's example works, and mistakes are reported without a traceback."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as pads
import pytest
from assets_docs import GUIDES, blocks
from assets_layouts import Footage
from assets_published import CELEBDF_PP
from click.testing import CliRunner
from facefeed.pipeline import sources
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import LAYOUTS, Entry, Layout, Listing, list_source, load_layout

GUIDE = GUIDES / "layouts.md"
BYSTANDERS = [f"guest{number}/monday.mp4" for number in range(8)]


@pytest.fixture
def interviews(tmp_path: Path, footage: Footage) -> Path:
    """The dataset of the guide's example."""
    root = footage.lay(
        tmp_path / "interviews",
        real=["ann/monday.mp4", "ann/tuesday.mp4", "bob/monday.mp4", "eve/monday.mp4", "eve/friday.mp4", *BYSTANDERS],
        fake=["ann/monday.as_bob.mp4", "eve/monday.as_zoe.mp4"],
    )
    (root / "speakers.txt").write_text("ann\nbob\neve\n")
    return root


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The guide's example as a file."""
    return write_example(tmp_path, "class Interviews")


def write_example(folder: Path, text: str) -> Path:
    """Writes the guide's block that has `text` in it to a file."""
    (block,) = (block for block in blocks("python", GUIDE) if text in block)
    (folder / "layout.py").write_text(block)
    return folder / "layout.py"


class Broken:
    """A layout that lists the given entries."""

    name = "broken"
    needs = "anything"

    def __init__(self, *entries: Entry, labels: tuple[str, ...] = ("real", "fake")) -> None:
        self.entries, self.labels = list(entries), labels
        self.columns: dict[str, str] = {}

    def fits(self, src: Path) -> bool:
        return src.name != "other"

    def read(self, src: Path, allowed: Sequence[Path]) -> Listing:
        return Listing(layout=self.name, root=src, labels=self.labels, entries=self.entries, columns=self.columns)


# --- the guide's examples


def test_the_guides_crops_of_celebdf_are_what_users_report(footage: Footage, tmp_path: Path) -> None:
    layout = write_example(tmp_path, "class CelebDFCrops")
    src = CELEBDF_PP.lay(tmp_path, footage)
    footage.lay(src, fake=["Celeb-synthesis/FaceReenact/LivePortrait/id1_id0_0000.mp4"])
    listing = list_source(src, load_layout(layout))
    cropped = [entry.method for entry in listing.entries if entry.whole_frame]
    assert sorted(cropped) == ["FLOAT", "LIA"]
    assert len(listing.entries) == len(CELEBDF_PP.files) + 1


def test_the_guides_example_lists_what_it_says(interviews: Path, example: Path) -> None:
    listing = list_source(interviews, load_layout(example))
    assert listing.format_class_counts() == "13 real, 2 fake"
    entries = {entry.video_id: entry for entry in listing.entries}
    assert len(entries) == 7 + len(BYSTANDERS)
    fake = entries["ann/monday.as_bob.mp4"]
    assert (fake.label, fake.source_id) == (1, "ann/monday.mp4")
    assert (fake.identity, fake.related_identities) == ("bob", ("ann",))
    assert entries["eve/friday.mp4"].people == ("eve",)


def test_the_guides_example_makes_a_dataset_from_python_and_from_the_command_line(
    interviews: Path,
    example: Path,
    tmp_path: Path,
    small_options: Options,
    cluster_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    precompute(
        interviews, out, layout=load_layout(example), options=small_options, detector=FixedBoxDetector(),
        scheduler=cluster_address,
    )  # fmt: skip
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "identity", "label", "split"]).to_pylist()
    assert {(row["video_id"], row["identity"]) for row in rows if row["label"]} == {
        ("ann/monday.as_bob.mp4", "bob"),
        ("eve/monday.as_zoe.mp4", "zoe"),
    }
    splits = {row["split"] for row in rows if {"ann", "bob"} & set(re.split(r"[/._]", row["video_id"]))}
    assert len(splits) == 1, "ann and bob are in one video, so all of theirs are in one split"
    monkeypatch.setattr("facefeed.pipeline.planning.validation.make_detector", lambda *_: FixedBoxDetector())
    command = ["precompute", str(interviews), str(tmp_path / "out2"), "--layout", str(example), "--frames", "1"]
    result = CliRunner().invoke(main, [*command, "--scheduler", cluster_address])
    assert result.exit_code == 0, result.output
    assert Manifest.read(tmp_path / "out2").inputs["total"] == 15


def test_the_guides_table_has_every_layout_that_comes_along() -> None:
    named = re.findall(r"^\| `([a-z0-9]+)` \|", GUIDE.read_text(), flags=re.MULTILINE)
    assert sorted(named) == sorted(set(LAYOUTS) - {"auto"})


def test_every_layout_that_comes_along_keeps_the_protocol(tmp_path: Path) -> None:
    for layout in sources._SHIPPED:
        given: Layout = layout
        assert given.name in LAYOUTS
        assert not given.fits(tmp_path / "nowhere")


# --- a file that is none


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "defines no `layout`; it must be an object with name, needs, fits, read: docs/guides/layouts.md"),
        ("layout = 7", "its `layout` lacks name, needs, fits, read"),
        ("class Mine:\n    name = 'x'\nlayout = Mine", r"`layout` is a class; end the file with `layout = Mine\(\)`"),
        ("class Mine:\n    name = needs = 'x'\nlayout = Mine()", "its `layout` lacks fits, read"),
        ("\nimport no_such_module", r"cannot be run \(ModuleNotFoundError: .* in line 2 of mine\.py\)"),
        ("layout = (", r"cannot be run \(SyntaxError: "),
        ("1 / 0", r"cannot be run \(ZeroDivisionError: division by zero in line 1 of mine\.py\)"),
    ],
)
def test_for_a_file_without_a_layout_it_is_named_what_is_missing(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_layout(tmp_path / "mine.py")
    result = CliRunner().invoke(main, ["precompute", "src", "out", "--layout", str(tmp_path / "mine.py")])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_file_and_an_unknown_name_are_distinguished(tmp_path: Path) -> None:
    missing = CliRunner().invoke(main, ["precompute", str(tmp_path), "out", "--layout", "gone.py"])
    assert (missing.exit_code, "--layout gone.py: no such file" in missing.stderr) == (2, True)
    other = CliRunner().invoke(main, ["precompute", str(tmp_path), str(tmp_path / "out"), "--layout", "ffp"])
    assert other.exit_code == 2
    assert "layout='ffp': must be one of auto, table, deepfakebench, lavdf, avdeepfake1m, dfdc, ffpp, " in other.stderr


def test_a_dataclass_in_a_layout_file_works(tmp_path: Path) -> None:
    """Dataclasses with postponed annotations look their own module up."""
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Mine:\n    name: str = 'mine'\n    needs: str = 'x'\n"
        "    def fits(self, src): return True\n    def read(self, src, allowed): return None\nlayout = Mine()\n"
    )
    assert load_layout(tmp_path / "mine.py").name == "mine"


# --- promises


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Broken(Entry(video_id="a"), Entry(video_id="a")), "lists 'a' more than once"),
        (Broken(Entry(video_id="/etc/a.mp4")), "'/etc/a.mp4': must be a path below the root"),
        (Broken(Entry(video_id="../a.mp4")), "must be a path below the root"),
        (Broken(Entry(video_id="x/../a.mp4")), "must be a path below the root"),
        (Broken(Entry(video_id="x//a.mp4")), "must be a path below the root"),
        (Broken(Entry(video_id="")), "must be a path below the root"),
        (Broken(Entry(video_id="\udcff.mp4")), "must be text"),
        (Broken(Entry(video_id="a", label=2)), r"'a': label=2: must be -1 or a position in \('real', 'fake'\)"),
        (Broken(Entry(video_id="a", label=-2)), "label=-2: must be -1"),
        (Broken(Entry(video_id="a", split="dev")), "split='dev': must be one of train, val, test, or None"),
        (Broken(Entry(video_id="a", related_identities="bob")), "related_identities='bob': must be a tuple"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", related_identities=(7,))), r"related_identities=\(7,\): must be a tuple of names"),  # type: ignore[arg-type]
        (Broken(Entry(video_id=Path("a"))), r"'a'\): video_id=PosixPath\('a'\): must be text"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", label="fake")), "'a': label='fake': must be a whole number"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", label=np.int64(1))), r"label=np.int64\(1\): must be a whole number"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", identity=12)), "'a': identity=12: must be text or None"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", method=math.nan)), "method=nan: must be text or None"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", whole_frame=1)), "whole_frame=1: must be True or False"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", fake_segments=[[1.2, 3.4]])), r"fake_segments=.*: must be a tuple or None"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", fake_segments=([1.2, 3.4],))), r"fake_segments=.*: must be \(start, end\) in sec"),  # type: ignore[arg-type]
        (Broken(Entry(video_id="a", fake_segments=((3.4, 1.2),))), "in seconds each, in the order of time"),
        (Broken(Entry(video_id="a", values=(math.nan,))), r"values=\(nan,\): must be texts, numbers "),
        (Broken(Entry(video_id="a", values=(2**63,))), r"values=\(9.*: must be texts, numbers \(whole ones of 64 bits"),
        (Broken(Entry(video_id="a", values=(True,))), r"values=\(True,\): must be texts"),
        (Broken(Entry(video_id="a", label=True)), "label=True: must be a whole number"),
        (Broken(Entry(video_id="a"), labels=()), r"labels=\(\): must be 1 to 128 different names"),
        (Broken(Entry(video_id="a"), labels=("x", "x")), "must be 1 to 128 different names"),
    ],
)
def test_a_broken_promise_is_named_before_anything_is_written(tmp_path: Path, layout: Broken, message: str) -> None:
    with pytest.raises(UsageError, match=f"layout broken: .*{message}"):
        list_source(tmp_path, layout)


def test_texts_and_numbers_of_numpy_that_are_pythons_own_as_well_are_taken(tmp_path: Path) -> None:
    entry = Entry(video_id="a", identity=np.str_("bob"), values=(np.float64(0.5), np.str_("x")))
    layout = Broken(entry)
    layout.columns = {"score": "float", "name": "string"}
    assert list_source(tmp_path, layout).entries[0].identity == "bob"


def test_an_original_by_the_absolute_path_of_an_input_would_be_tied_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"source_id='{tmp_path}/b.mp4': must be a path below the root"):
        list_source(tmp_path, Broken(Entry(video_id="a", source_id=f"{tmp_path}/b.mp4"), Entry(video_id="b.mp4")))


def test_for_a_source_that_the_layout_does_not_fit_its_needs_are_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"other': layout broken needs anything"):
        list_source(tmp_path / "other", Broken())


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_an_error_in_a_layouts_own_code_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Broken()
    monkeypatch.setattr(layout, "read", failing(KeyError("speaker")), raising=False)
    with pytest.raises(UsageError, match=r"layout broken: cannot list .*KeyError: 'speaker' in line \d+ of test_own"):
        list_source(tmp_path, layout)
    monkeypatch.setattr(layout, "read", failing(UsageError("speakers.txt: empty")), raising=False)
    with pytest.raises(UsageError, match=r"^speakers\.txt: empty$"):
        list_source(tmp_path, layout)


def test_what_is_no_listing_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Broken()
    monkeypatch.setattr(layout, "read", lambda *_: ["a.mp4"], raising=False)
    with pytest.raises(UsageError, match="read returned list; must be a Listing"):
        list_source(tmp_path, layout)
