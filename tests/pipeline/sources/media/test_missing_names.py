"""What a user notices of files that are there, but called otherwise than metadata names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import list_source, listing_warnings

NFC, NFD = "caf\u00e9", "cafe\u0301"


def table_of(root: Path, *named: str, on_disk: tuple[str, ...]) -> Path:
    for name in on_disk:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "t.csv").write_text("\n".join(["path,label", *(f"{name},real" for name in named)]))
    return root / "t.csv"


@pytest.mark.parametrize(
    ("named", "on_disk", "forms"),
    [
        (f"{NFD}.mp4", f"{NFC}.mp4", "(NFD, on disk NFC)"),
        (f"{NFC}.mp4", f"{NFD}.mp4", "(NFC, on disk NFD)"),
        (f"{NFC}/clips/a.mp4", f"{NFD}/clips/a.mp4", "(NFC, on disk NFD)"),
        (f"{NFC}{NFD}.mp4", f"{NFC}{NFC}.mp4", "(neither NFC nor NFD, on disk NFC)"),
    ],
)
def test_a_name_in_another_unicode_form_is_missing_and_said_to_be_there(
    tmp_path: Path, named: str, on_disk: str, forms: str
) -> None:
    table = table_of(tmp_path, named, "b.mp4", on_disk=(on_disk, "b.mp4"))
    listing = list_source(table)
    assert listing.missing == [named]
    (hint,) = [text for text in listing_warnings(listing) if "Unicode" in text]
    assert hint.startswith("1 of the files absent on disk is there in another Unicode form, ")
    assert f"the first {named!r} {forms}: " in hint


@pytest.mark.parametrize("on_disk", ["clips/a.mp4", f"{NFD}/a.mp4"])
def test_a_path_with_backslashes_is_missing_and_its_file_is_named(tmp_path: Path, on_disk: str) -> None:
    named = on_disk.replace("/", "\\").replace(NFD, NFC)
    with pytest.raises(UsageError) as raised:
        list_source(table_of(tmp_path, named, on_disk=(on_disk,)))
    assert "none of the 1 files it lists is below" in str(raised.value)
    assert f"{named!r}, there as {on_disk!r}: write paths with /, not \\" in str(raised.value)


def test_a_path_with_backslashes_to_nothing_is_said_to_have_them(tmp_path: Path) -> None:
    table = table_of(tmp_path, "D:\\clips\\a.mp4", "D:\\b.mp4", "c.mp4", on_disk=("c.mp4",))
    (hint,) = [text for text in listing_warnings(list_source(table)) if "backslash" in text]
    assert hint.startswith(
        "2 of the files absent on disk have a backslash in the path, the first 'D:\\\\clips\\\\a.mp4': "
    )


def test_nothing_is_said_of_names_that_match_nothing_or_lead_out(tmp_path: Path) -> None:
    table = table_of(tmp_path / "src", "b.mp4", f"{NFC}.mp4", "caf\u00ea.mp4", "c.mp4", on_disk=("b.mp4", "../d.mp4"))
    (tmp_path / "src" / f"{NFD}.mp4").symlink_to(tmp_path / "d.mp4")
    listing = list_source(table)
    assert len(listing.missing) == 3
    assert not any("Unicode" in text for text in listing_warnings(listing))
