"""What a source does not say is said before the work begins, with what would say it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.sources import list_source, listing_warnings, with_splits_from
from rich.console import Console


def lay(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def warnings(src: Path) -> str:
    return "\n".join(listing_warnings(list_source(src)))


def test_inputs_without_a_label_are_counted_with_what_would_give_one(tmp_path: Path) -> None:
    deep = [f"downloads/id0_id1_{number:04}.mp4" for number in range(3)]
    messages = warnings(lay(tmp_path, "real/a.mp4", *deep))
    assert "3 of 4 inputs have no label" in messages
    assert "real" in messages
    assert "path,label" in messages


def test_there_is_no_warning_about_what_is_known(tmp_path: Path) -> None:
    src = lay(tmp_path, "real/a.mp4", "fake/b.mp4")
    (src / "t.csv").write_text("path,label,source,identity\nreal/a.mp4,real,,anna\nfake/b.mp4,fake,real/a.mp4,bert\n")
    assert warnings(src / "t.csv") == ""


def test_a_source_that_names_no_original_and_no_person_is_reported(tmp_path: Path) -> None:
    src = lay(tmp_path, "real/a.mp4", "fake/a.mp4")
    assert "cannot be checked" in warnings(src)
    assert "originals are known for 0 of the 1 input not labelled real" in warnings(src)
    assert "people are known for 0 of 2 inputs" in warnings(src)
    (src / "t.csv").write_text("path,label,source\nreal/a.mp4,real,\nfake/a.mp4,fake,real/a.mp4\n")
    assert "originals" not in warnings(src / "t.csv")
    assert "people are known for 0 of 2 inputs" in warnings(src / "t.csv")


def test_originals_and_people_that_are_known_for_few_inputs_are_counted(tmp_path: Path) -> None:
    src = lay(
        tmp_path, *(f"real/{number}.mp4" for number in range(10)), *(f"fake/{number}.mp4" for number in range(10))
    )
    rows = [f"{label}/{number}.mp4,{label},," for label in ("real", "fake") for number in range(1, 10)]
    rows += ["real/0.mp4,real,,anna", "fake/0.mp4,fake,real/0.mp4,"]
    (src / "t.csv").write_text("\n".join(["path,label,source,identity", *rows]))
    messages = warnings(src / "t.csv")
    assert "originals are known for 1 of the 10 inputs not labelled real" in messages
    assert (
        "people are known for 1 of 20 inputs: whether a person is in more than one split cannot be checked" in messages
    )
    assert "a table with the column identity" in messages


def test_an_original_of_an_original_does_not_stand_for_one_that_a_fake_lacks(tmp_path: Path) -> None:
    src = lay(tmp_path, "a.mp4", "b.mp4", "c.mp4", "d.mp4")
    (src / "t.csv").write_text("path,label,source\na.mp4,real,\nb.mp4,real,a.mp4\nc.mp4,fake,\n")
    assert "originals are known for 0 of the 1 input not labelled real" in warnings(src / "t.csv")
    (src / "t.csv").write_text("path,label,source\na.mp4,x,\nb.mp4,x,a.mp4\nc.mp4,x,b.mp4\nd.mp4,y,\n")
    assert "originals are known for 1 of 2 inputs" in warnings(src / "t.csv")


def test_a_real_video_that_was_made_from_a_fake_is_named(tmp_path: Path) -> None:
    src = lay(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    (src / "t.csv").write_text("path,label,source\na.mp4,real,b.mp4\nb.mp4,fake,\nc.mp4,real,a.mp4\n")
    assert (
        "1 real input was made from one of another class, the first 'a.mp4' (real) from 'b.mp4' (fake): are labels or "
        "originals swapped?"
    ) in warnings(src / "t.csv")
    (src / "t.csv").write_text("path,label,source\na.mp4,real,\nb.mp4,fake,a.mp4\nc.mp4,real,a.mp4\n")
    assert "swapped" not in warnings(src / "t.csv")


def test_a_class_of_real_videos_may_have_any_of_its_usual_names(tmp_path: Path) -> None:
    src = lay(tmp_path, "a.mp4", "b.mp4")
    (src / "t.csv").write_text("path,label\na.mp4,pristine\nb.mp4,deepfakes\n")
    assert "originals are known for 0 of the 1 input not labelled real" in warnings(src / "t.csv")


def test_where_no_class_is_known_to_be_real_it_says_how_to_name_it(tmp_path: Path) -> None:
    table = lay(tmp_path, "a.mp4", "b.mp4", "c.mp4") / "t.csv"
    rows = "a.mp4,wahr,{},anna\nb.mp4,falsch,{},anna\nc.mp4,wahr,{},carl\n"
    table.write_text("path,label,source,identity\n" + rows.format("", "a.mp4", ""))
    message = warnings(table)
    assert message.startswith("no class is known to be real (of the labels, 'falsch' is 0, 'wahr' is 1): ")
    assert "list all classes in t.classes.txt, one a line, the real one as 'real: wahr'" in message
    assert "originals" not in message, "those of real videos are not missing"
    table.write_text("path,label,source,identity\n" + rows.format("", "", ""))
    assert "as 'real: NAME'" in warnings(table)
    table.with_suffix(".classes.txt").write_text("real: wahr\nfalsch\n")
    assert "no class is known" not in warnings(table)


def test_a_method_of_which_no_fake_names_its_original_is_not_taken_for_real(tmp_path: Path) -> None:
    table = lay(tmp_path, *(f"{name}.mp4" for name in "abcd")) / "t.csv"
    table.write_text("path,label,source\na.mp4,wahr,\nb.mp4,DF,a.mp4\nc.mp4,F2F,\nd.mp4,wahr,\n")
    assert "originals are known for 1 of 2 inputs: " in warnings(table)
    assert "'real: wahr'" in warnings(table)


def test_clips_that_are_guessed_from_file_names_are_counted(tmp_path: Path) -> None:
    src = lay(tmp_path, *(f"real/clip07/{number:04}.png" for number in range(5)), "real/IMG_0001.jpg")
    assert "recordings are known for 0 of 6 inputs and guessed from file names for 5" in warnings(src)
    (src / "t.csv").write_text(
        "path,label,identity,footage\n" + "".join(f"real/clip07/{number:04}.png,real,a,x\n" for number in range(5))
    )
    assert warnings(src / "t.csv") == ""


def test_a_column_footage_that_is_empty_in_all_rows_says_nothing_of_recordings(tmp_path: Path) -> None:
    src = lay(tmp_path, "a.mp4", "b.mp4", "c.png")
    (src / "t.csv").write_text("path,label,identity,footage\na.mp4,real,a,\nb.mp4,real,b,\nc.png,real,c,\n")
    assert "recordings are known for 0 of 3 inputs: " in warnings(src / "t.csv")
    (src / "t.csv").write_text("path,label,identity,footage\na.mp4,real,a,x\nb.mp4,real,b,\nc.png,real,c,\n")
    assert warnings(src / "t.csv") == "", "in a column that is filled in, a row without is alone"


def test_a_split_that_only_some_rows_of_a_table_have_is_not_lost_in_silence(tmp_path: Path) -> None:
    names = [f"{number}.mp4" for number in range(40)]
    src = lay(tmp_path, *names)
    rows = [f"{name},real,{'test' if number < 10 else ''}" for number, name in enumerate(names)]
    (src / "t.csv").write_text("\n".join(["path,label,split", *rows]))
    assert "10 of 40 media files have the split test, and none another; one alone is not used" in warnings(
        src / "t.csv"
    )
    (src / "splits.json").write_text(json.dumps({"test": names[:10]}))
    listing = with_splits_from(list_source(src / "t.csv"), src / "splits.json", allow_leaks=False)
    assert [entry.video_id for entry in listing.entries if entry.split == "test"] == sorted(names[:10])
    assert "not used" not in "\n".join(listing_warnings(listing))


def test_a_split_that_is_not_used_is_counted_in_files_since_images_may_be_one_clip(tmp_path: Path) -> None:
    messages = warnings(lay(tmp_path, *(f"test/real/{clip}/{number}.png" for clip in "ab" for number in range(3))))
    assert "6 of 6 media files have the split test" in messages


def test_of_emotions_originals_are_not_asked_for(tmp_path: Path) -> None:
    src = lay(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    (src / "t.csv").write_text("path,label,identity\na.mp4,calm,anna\nb.mp4,sad,bert\nc.mp4,happy,carl\n")
    assert warnings(src / "t.csv") == ""


def test_inputs_outside_are_counted_with_the_option_that_admits_them(tmp_path: Path) -> None:
    src = lay(tmp_path / "src", "real/a.mp4")
    (src / "real/b.mp4").symlink_to(lay(tmp_path / "store", "b.mp4") / "b.mp4")
    messages = warnings(src)
    assert (
        f"1 of 2 inputs lie outside SRC and fail as outside_root; --allow-root {tmp_path}/store reads them" in messages
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_warning_reaches_people_and_programs(is_terminal: bool) -> None:
    stream = io.StringIO()
    Progress(Console(file=stream, force_terminal=is_terminal, width=200, highlight=False)).warn("no [label]")
    if is_terminal:
        assert "\x1b[33m" in stream.getvalue()
        assert "warning: no [label]" in stream.getvalue()
    else:
        assert json.loads(stream.getvalue()) == {"event": "warning", "text": "no [label]"}
