"""Files that change, are away or fail while a run is at work: in the end rows and masks are of what they are then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as pads
import pytest
from assets_fresh_runs import Version, fresh, run_precompute
from assets_in_process import in_process, new_folder
from assets_one_out import OneOut
from assets_tiny_source import TinySource, content_of
from assets_video import write_video
from facefeed.pipeline.errors import InputError, Reason
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.rows.input_pipeline import InputPipeline


def test_a_fake_compared_with_a_content_that_its_original_had_for_a_while_gets_new_masks(one_out: OneOut) -> None:
    one_out.put("real/d.mp4", "one")
    one_out.put("fake/d.mp4", "long")
    one_out.run()
    one_out.put("fake/d.mp4", "one")
    one_out.run_while_replaced("real/d.mp4", "two")
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("one", "two"))
    one_out.put("real/d.mp4", "one")
    one_out.run()
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("one", "one"))


def test_so_does_one_that_was_done_before_its_original_changed_and_was_done_again(one_out: OneOut) -> None:
    one_out.put("real/d.mp4", "one")
    one_out.run()
    (file,) = (one_out.out / "faces/val").iterdir()
    one_out.put("fake/d.mp4", "long")
    one_out.run()
    file.unlink()  # as `verify` advises where it is damaged
    one_out.run_while_replaced("real/d.mp4", "two")
    assert one_out.held("real/d.mp4") == fresh("usual", "real/d.mp4", Version("two", None))
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "one"))
    one_out.run()
    assert one_out.held("fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "two"))


def test_an_undisturbed_dataset_is_left_as_it_is(one_out: OneOut) -> None:
    for name in ("real/a.mp4", "fake/a.mp4", "fake/b.mp4"):
        one_out.put(name, "long")
    one_out.put("real/d.mp4", "text")  # cannot be read
    one_out.put("fake/d.mp4", "one")
    one_out.run()
    receipts = sorted((one_out.out / "receipts").iterdir())
    one_out.run()
    assert sorted((one_out.out / "receipts").iterdir()) == receipts


def test_a_video_that_was_replaced_for_a_while_gets_the_rows_of_what_is_back(one_out: OneOut) -> None:
    one_out.put("real/c.mp4", "one")
    one_out.run_while_replaced("real/c.mp4", "two")
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("two", None))
    one_out.put_back("real/c.mp4")
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))


def test_so_does_one_that_was_replaced_only_while_it_was_decoded(
    one_out: OneOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_out.put("real/c.mp4", "one")
    path, elsewhere = one_out.source.folder / "real/c.mp4", one_out.source.folder / "elsewhere.mp4"
    batches = InputPipeline.batches

    def replace_meanwhile(*given: Any, **more: Any) -> Iterator[object]:
        path.rename(elsewhere)
        path.write_bytes(content_of("two"))
        yield from batches(*given, **more)
        elsewhere.rename(path)

    with monkeypatch.context() as patch:
        patch.setattr(InputPipeline, "batches", replace_meanwhile)
        run_precompute(one_out.source, one_out.out, "usual")
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("two", None))
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))


def copy_rows_of_gone_video(one_out: OneOut) -> None:
    """`real/c.mp4` goes, and its rows are copied, as another video of its unit has changed."""
    one_out.source.remove("real/c.mp4")
    one_out.put("real/a.mp4", "one")
    one_out.run()


def test_so_does_one_whose_rows_were_copied_meanwhile_as_it_was_gone(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "long")
    one_out.put("real/c.mp4", "one")
    before = one_out.source.contents["real/c.mp4"], one_out.source.times["real/c.mp4"]
    one_out.run_while_replaced("real/c.mp4", "two")
    copy_rows_of_gone_video(one_out)
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("two", None)), "its rows are kept"
    one_out.source.before["real/c.mp4"] = before
    one_out.put_back("real/c.mp4")
    one_out.run()
    assert one_out.held("real/c.mp4") == fresh("usual", "real/c.mp4", Version("one", None))


def test_a_new_time_that_was_compared_is_known_after_the_rows_of_a_gone_video_were_copied(one_out: OneOut) -> None:
    one_out.put("real/a.mp4", "long")
    one_out.put("real/c.mp4", "one")
    one_out.run()
    one_out.touch("real/c.mp4")
    one_out.run()
    copy_rows_of_gone_video(one_out)
    one_out.put_back("real/c.mp4")
    assert run_precompute(one_out.source, one_out.out, "usual").changes.touched == []


def manipulated(out: Path, name: str) -> list[float | None]:
    """The values of the rows of a video, None where there is no mask."""
    table: Any = pads.dataset(out / "faces").to_table(columns=["video_id", "manipulated"])
    return [row["manipulated"] for row in table.to_pylist() if row["video_id"] == name]


def test_a_fake_gets_masks_once_its_original_is_there_that_is_no_input() -> None:
    folder = new_folder()
    source, out = TinySource(folder / "source"), folder / "out"
    source.table.write_text("path,label,source\nfake/a.mp4,fake,real/a.mp4\nreal/c.mp4,real,\n")
    source.put("fake/a.mp4", "one")
    source.put("real/c.mp4", "one")
    with in_process():
        run_precompute(source, out, "usual")
        assert manipulated(out, "fake/a.mp4") == [None, None]
        source.put("real/a.mp4", "one")
        run_precompute(source, out, "usual")
        assert manipulated(out, "fake/a.mp4") == [0.0, 0.0]
        assert not run_precompute(source, out, "usual").changes.changed


def test_a_fake_whose_own_mask_was_away_gets_it_once_it_is_back() -> None:
    folder = new_folder()
    source, out = TinySource(folder / "source"), folder / "out"
    source.table.write_text(
        "path,label,source,mask\nfake/a.mp4,fake,real/a.mp4,mask.mp4\nreal/a.mp4,real,,\nreal/c.mp4,real,,\n"
    )
    for name in ("fake/a.mp4", "real/a.mp4", "real/c.mp4"):
        source.put(name, "one")
    mask, elsewhere = source.folder / "mask.mp4", folder / "elsewhere.mp4"
    write_video(mask, [np.full((48, 64, 3), 255, np.uint8)] * 3)

    def work_without_mask(job: JobSpec, units: list[Unit]) -> None:
        mask.rename(elsewhere)
        worker = UnitWorker(job)
        for unit in units:
            worker.run(unit)
        worker.close()

    with in_process(work_without_mask):
        run_precompute(source, out, "usual")
    elsewhere.rename(mask)
    assert manipulated(out, "fake/a.mp4") == [0.0, 0.0], "compared with its original"
    with in_process():
        run_precompute(source, out, "usual")
        assert manipulated(out, "fake/a.mp4") == [1.0, 1.0]
        assert not run_precompute(source, out, "usual").changes.changed


@pytest.mark.parametrize("reason", ["crashed", "timeout"])
@pytest.mark.parametrize("method", ["_decode_source", "_frame_times"])
def test_a_fake_whose_original_failed_for_a_reason_that_passes_is_done_again(
    reason: Reason, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_folder()
    source, out = TinySource(folder / "source"), folder / "out"
    source.put("real/a.mp4", "one")
    source.put("real/c.mp4", "one")

    def fail(*_: object) -> None:
        raise InputError(reason)

    with in_process():
        run_precompute(source, out, "usual")
        source.put("fake/a.mp4", "one")
        with monkeypatch.context() as patch:
            patch.setattr(InputPipeline, method, fail)
            run_precompute(source, out, "usual")
        assert manipulated(out, "fake/a.mp4") == [None, None]
        run_precompute(source, out, "usual")
        assert manipulated(out, "fake/a.mp4") == [0.0, 0.0]
        assert not run_precompute(source, out, "usual").changes.changed
