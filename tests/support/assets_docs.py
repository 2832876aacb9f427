"""The documentation's pages and their code blocks."""

from __future__ import annotations

import re
from pathlib import Path

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
