"""A video that is away while a run reads the source, as where a mount is lost, and back for the next run."""

from __future__ import annotations

import pytest
from assets_fresh_runs import Version, fresh
from assets_one_out import OneOut


def test_a_changed_video_that_was_away_is_computed_once_it_is_back(one_out: OneOut) -> None:
    one_out.put("real/c.mp4", "one")
    one_out.run()
    one_out.put("real/c.mp4", "two")
    one_out.run_while_away("real/c.mp4")
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None)), "its rows are kept"
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("two", None))


def test_so_is_one_that_was_removed_before_it_was_computed_and_put_back(one_out: OneOut) -> None:
    for name in ("fake/a.mp4", "real/a.mp4"):
        one_out.put(name, "one")
    one_out.run()
    one_out.put("fake/a.mp4", "two")
    one_out.run_and_be_killed(18, on_other_host=False)
    assert (one_out.out / "plan/1.json").exists(), "it was planned"
    assert len([*(one_out.out / "receipts").iterdir()]) == 1, "and not done"
    one_out.rename("fake/a.mp4", "real/d.mp4")
    one_out.put("real/a.mp4", "long")
    one_out.run()
    one_out.rename("real/d.mp4", "fake/a.mp4")
    one_out.run()
    assert one_out.held("fake/a.mp4") == fresh("usual", "fake/a.mp4", Version("two", "long"))


def test_so_is_one_whose_older_rows_a_killed_run_was_to_copy(one_out: OneOut) -> None:
    for name in ("fake/a.mp4", "real/a.mp4"):
        one_out.put(name, "one")
    one_out.run()
    one_out.put("fake/a.mp4", "two")
    one_out.run_while_away("fake/a.mp4")
    one_out.source.remove("fake/a.mp4")
    one_out.put("real/a.mp4", "long")
    num_parts = len([*(one_out.out / "plan").iterdir()])
    one_out.run_and_be_killed(18, on_other_host=False)
    assert len([*(one_out.out / "plan").iterdir()]) > num_parts, "it was planned"
    one_out.source.put_back("fake/a.mp4")
    one_out.run()
    assert one_out.held("fake/a.mp4") == fresh("usual", "fake/a.mp4", Version("two", "long"))


def test_a_fake_whose_original_was_away_gets_its_masks_once_it_is_back(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "one")
    one_out.put("fake/a.mp4", "two")
    one_out.run()
    one_out.source.remove("real/a.mp4")
    one_out.put("fake/a.mp4", "long")
    one_out.run()
    assert one_out.held("fake/a.mp4") == fresh("usual", "fake/a.mp4", Version("long", None))
    one_out.source.put_back("real/a.mp4")
    one_out.run()
    assert one_out.held("fake/a.mp4") == fresh("usual", "fake/a.mp4", Version("long", "one"))


def test_a_fake_that_was_away_while_its_original_changed_gets_new_masks_once_it_is_back(one_out: OneOut) -> None:
    one_out.put("real/d.mp4", "one")
    one_out.put("fake/d.mp4", "long")
    one_out.run()
    one_out.source.remove("fake/d.mp4")
    one_out.put("real/d.mp4", "long")
    one_out.run()
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "one")), "its rows are kept"
    one_out.source.put_back("fake/d.mp4")
    one_out.run()
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "long"))


def test_added_columns_go_with_the_rows_of_a_gone_video_whose_file_was_damaged(one_out: OneOut) -> None:
    one_out.put("real/c.mp4", "one")
    one_out.put("real/d.mp4", "one")
    one_out.run()
    one_out.add()
    one_out.source.remove("real/c.mp4")
    one_out.model.may_hold["real/c.mp4"].add("unreadable")
    (file,) = (one_out.out / "faces/train").iterdir()
    file.unlink()  # as `verify` advises
    one_out.run()
    assert not (one_out.out / "columns/colour" / file.name).exists()


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_a_damaged_file_is_kept_that_has_the_only_rows_of_a_gone_video(one_out: OneOut, how: str) -> None:
    one_out.put("real/a.mp4", "long")
    one_out.put("real/c.mp4", "one")
    one_out.run()
    (file,) = (one_out.out / "faces/train").iterdir()
    data = file.read_bytes()
    damaged = data[:100] + bytes([data[100] ^ 0xFF]) + data[101:] if how == "flip" else data[:-1]
    file.write_bytes(damaged)
    one_out.source.remove("real/c.mp4")
    one_out.model.may_hold["real/c.mp4"].add("unreadable")
    one_out.put("real/a.mp4", "one")
    one_out.run()
    assert one_out.held("real/c.mp4").reason == "unreadable"
    assert [path.read_bytes() for path in (one_out.out / "_tmp").iterdir()] == [damaged]


def test_a_retried_video_is_there_once_though_the_file_of_its_first_unit_is_lost(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "one")
    one_out.put("real/c.mp4", "one")
    one_out.run_while_away("real/c.mp4")
    one_out.run(retry=True)
    for file in (one_out.out / "faces/train").iterdir():
        file.unlink()  # as `verify` advises where it is damaged
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))


def test_a_retry_of_a_gone_original_leaves_the_masks_of_its_fakes(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "one")
    one_out.run()
    (file,) = (one_out.out / "faces/train").iterdir()
    one_out.put("fake/a.mp4", "two")
    one_out.run()
    one_out.source.remove("real/a.mp4")
    one_out.model.may_hold["real/a.mp4"].add("unreadable")
    file.unlink()  # its rows were damaged
    one_out.run()
    one_out.run(retry=True)
    assert one_out.held("fake/a.mp4") == fresh("usual", "fake/a.mp4", Version("two", "one"))


def test_so_does_a_fake_that_was_processed_right_after_its_absent_original(one_out: OneOut) -> None:
    one_out.put("fake/b.mp4", "one")
    one_out.put("real/a.mp4", "one")
    one_out.run_while_away("real/a.mp4")
    one_out.run()
    assert one_out.held("fake/b.mp4") == fresh("usual", "fake/b.mp4", Version("one", "one"))
