"""The documentation's pages, their code blocks, and the keys of JSON that the reference documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets_paths import ROOT

README, DOCS = ROOT / "README.md", ROOT / "docs"
GUIDES, REFERENCE = DOCS / "guides", DOCS / "reference"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]


def blocks(language: str, page: Path) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def name_of(page: Path) -> str:
    """A page's path below the checkout."""
    return page.relative_to(ROOT).as_posix()


def documented_keys(section: str) -> set[str]:
    """The keys in the table of a section of the reference of JSON."""
    page = (REFERENCE / "json.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))


def keys(value: Any, above: str = "") -> Iterator[str]:
    """Every key that leads to a value, as the reference writes it: `inputs.total`, `failures[].reason`."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from keys(held, f"{above}.{name}" if above else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from keys(item, f"{above}[]")
    else:
        yield above


def key_differences(present: set[str], section: str) -> tuple[set[str], set[str]]:
    """Keys that the reference lacks, and keys of the reference that are not there; `<name>` in it stands for any name.

    A key of which the reference has what is below it may be null or empty.
    """
    documented = documented_keys(section)
    patterns = {key: re.sub(r"<[^>]+>", ".+", re.sub(r"([.\[\]])", r"\\\1", key)) for key in documented}
    lacking = {key for key in present if not any(re.fullmatch(pattern, key) for pattern in patterns.values())}
    lacking = {key for key in lacking if not any(name.startswith((f"{key}.", f"{key}[]")) for name in documented)}
    stale = {key for key, pattern in patterns.items() if not any(re.fullmatch(pattern, name) for name in present)}
    return lacking, stale
