"""One source and one OUT, on which commands are given one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from assets_one_out import OneOut


@pytest.fixture
def one_out() -> Iterator[OneOut]:
    one_out = OneOut()
    yield one_out
    one_out.close()
