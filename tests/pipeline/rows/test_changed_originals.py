"""An original that changes while a run is at work: its fakes get the masks of what it is in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from assets_fresh_runs import Version, fresh, read_stored
from assets_one_out import OneOut


@pytest.fixture
def one_out() -> Iterator[OneOut]:
    one_out = OneOut()
    yield one_out
    one_out.close()


def held(one_out: OneOut, name: str) -> object:
    return read_stored(one_out.out)[name]


def test_a_fake_compared_with_a_content_that_its_original_had_for_a_while_gets_new_masks(one_out: OneOut) -> None:
    one_out.put("real/d.mp4", "one")
    one_out.put("fake/d.mp4", "long")
    one_out.run()
    one_out.put("fake/d.mp4", "one")
    one_out.run_while_replaced("real/d.mp4", "two")
    assert held(one_out, "fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("one", "two"))
    one_out.put("real/d.mp4", "one")
    one_out.run()
    assert held(one_out, "fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("one", "one"))


def test_so_does_one_that_was_done_before_its_original_changed_and_was_done_again(one_out: OneOut) -> None:
    one_out.put("real/d.mp4", "one")
    one_out.run()
    (file,) = (one_out.out / "faces/val").iterdir()
    one_out.put("fake/d.mp4", "long")
    one_out.run()
    file.unlink()  # as `verify` advises where it is damaged
    one_out.run_while_replaced("real/d.mp4", "two")
    assert held(one_out, "real/d.mp4") == fresh("usual", "real/d.mp4", Version("two", None))
    assert held(one_out, "fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "one"))
    one_out.run()
    assert held(one_out, "fake/d.mp4") == fresh("usual", "fake/d.mp4", Version("long", "two"))


def test_an_undisturbed_dataset_is_left_as_it_is(one_out: OneOut) -> None:
    for name in ("real/a.mp4", "fake/a.mp4", "fake/b.mp4"):
        one_out.put(name, "long")
    one_out.put("real/d.mp4", "text")  # cannot be read
    one_out.put("fake/d.mp4", "one")
    one_out.run()
    receipts = sorted((one_out.out / "receipts").iterdir())
    one_out.run()
    assert sorted((one_out.out / "receipts").iterdir()) == receipts
