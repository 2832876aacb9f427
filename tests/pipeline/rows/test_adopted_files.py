"""A file of rows that was left without its receipt as a process died, and a source that changes meanwhile."""

from __future__ import annotations

from assets_fresh_runs import Version, fresh
from assets_one_out import OneOut


def lose_receipts(one_out: OneOut) -> None:
    """What is on disk where the run was killed right before it wrote them."""
    (one_out.out / "manifest.json").unlink()
    for receipt in (one_out.out / "receipts").iterdir():
        receipt.unlink()


def test_a_video_that_was_replaced_for_a_while_gets_the_rows_of_what_is_back_by_the_next_run(one_out: OneOut) -> None:
    one_out.put("real/c.mp4", "one")
    one_out.run_while_replaced("real/c.mp4", "two")
    lose_receipts(one_out)
    one_out.put_back("real/c.mp4")
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))


def test_a_fake_whose_original_was_away_gets_its_masks_by_the_next_run(one_out: OneOut) -> None:
    one_out.put("fake/b.mp4", "one")
    one_out.put("real/a.mp4", "one")
    one_out.run_while_away("real/a.mp4")
    lose_receipts(one_out)
    one_out.run()
    assert one_out.held("fake/b.mp4") == fresh("usual", "fake/b.mp4", Version("one", "one"))


def test_rows_of_a_gone_video_are_kept_though_another_one_of_the_file_has_changed(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "long")
    one_out.put("real/c.mp4", "one")
    one_out.run()
    lose_receipts(one_out)
    one_out.source.remove("real/c.mp4")
    one_out.put("real/a.mp4", "one")
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))
